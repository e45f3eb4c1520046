# The root of a collective operation is negative. MPI_ROOT and MPI_PROC_NULL are for intercommunicators alone.
#
# For example:
#     MPI_Bcast(buf, 1, MPI_INT, -1, MPI_COMM_WORLD);
#
# It cannot see roots on intercommunicators.
Name=Negative root
1block
N=1
2block
F1=p1:Bcast || Gather || Gatherv || Scatter || Scatterv || Reduce || Ibcast || Igather || Igatherv || Iscatter
   || Iscatterv || Ireduce
3block
F1(root)<0
