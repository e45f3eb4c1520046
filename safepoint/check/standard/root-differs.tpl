# In one collective operation two processes give another root.
#
# For example:
#     MPI_Bcast(buf, 1, MPI_INT, rank, MPI_COMM_WORLD);
#
# It cannot see roots on intercommunicators, where each process gives its own by right.
Name=Roots of a collective operation differ
1block
N=2
2block
F1=p1:Bcast || Gather || Gatherv || Scatter || Scatterv || Reduce || Ibcast || Igather || Igatherv || Iscatter
   || Iscatterv || Ireduce
F2=p2:Bcast || Gather || Gatherv || Scatter || Scatterv || Reduce || Ibcast || Igather || Igatherv || Iscatter
   || Iscatterv || Ireduce
3block
F1(comm)=F2(comm)
F1(match)=F2(match)
F1(function)=F2(function)
F1(root)!=F2(root)
