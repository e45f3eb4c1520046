# The root of a collective operation is above the highest rank of its communicator.
#
# For example:
#     MPI_Bcast(buf, 1, MPI_INT, size, MPI_COMM_WORLD);
#
# It cannot see roots on intercommunicators; negative ones: negative-root tells of them.
Name=Root that the communicator does not have
1block
N=1
2block
F1=p1:Bcast || Gather || Gatherv || Scatter || Scatterv || Reduce || Ibcast || Igather || Igatherv || Iscatter
   || Iscatterv || Ireduce
3block
F1(root)>F1(last)
