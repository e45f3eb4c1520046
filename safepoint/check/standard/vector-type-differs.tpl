# In one collective operation with a count for each process (Gatherv and its like) two processes give different
# predefined datatypes. It is a warning, as two processes that exchange no element in it need not agree.
#
# For example:
#     type = rank % 2 ? MPI_FLOAT : MPI_INT;
#     MPI_Allgatherv(buf, 1, type, all, counts, places, type, MPI_COMM_WORLD);
#
# It cannot see derived datatypes, and the operations with a type for each process (Alltoallw and its like).
Name=Datatypes of a collective operation with many counts differ
Kind=warning
1block
N=2
2block
F1=p1:Gatherv || Igatherv || Scatterv || Iscatterv || Allgatherv || Iallgatherv || Alltoallv || Ialltoallv
F2=p2:Gatherv || Igatherv || Scatterv || Iscatterv || Allgatherv || Iallgatherv || Alltoallv || Ialltoallv
3block
F1(comm)=F2(comm)
F1(match)=F2(match)
F1(function)=F2(function)
F1(types)!=F2(types)
F1(types)!=MPI_PACKED
F2(types)!=MPI_PACKED
