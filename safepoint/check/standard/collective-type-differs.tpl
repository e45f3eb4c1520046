# In one collective operation two processes give different predefined datatypes. MPI_PACKED goes with all, and what
# has no elements has no type.
#
# For example:
#     MPI_Bcast(buf, 1, rank == 0 ? MPI_INT : MPI_FLOAT, 0, MPI_COMM_WORLD);
#
# It cannot see derived datatypes, and the operations with a count for each process (Gatherv, Alltoallw and their
# like).
Name=Datatypes of a collective operation differ
1block
N=2
2block
F1=p1:Bcast || Ibcast || Gather || Igather || Scatter || Iscatter || Allgather || Iallgather || Alltoall ||
   Ialltoall || Reduce || Allreduce || Scan || Exscan || Reduce_scatter || Reduce_scatter_block || Ireduce ||
   Iallreduce || Iscan || Iexscan || Ireduce_scatter || Ireduce_scatter_block
F2=p2:Bcast || Ibcast || Gather || Igather || Scatter || Iscatter || Allgather || Iallgather || Alltoall ||
   Ialltoall || Reduce || Allreduce || Scan || Exscan || Reduce_scatter || Reduce_scatter_block || Ireduce ||
   Iallreduce || Iscan || Iexscan || Ireduce_scatter || Ireduce_scatter_block
3block
F1(comm)=F2(comm)
F1(match)=F2(match)
F1(function)=F2(function)
F1(types)!=F2(types)
F1(types)!=MPI_PACKED
F2(types)!=MPI_PACKED
F1(counts)>0
F2(counts)>0
