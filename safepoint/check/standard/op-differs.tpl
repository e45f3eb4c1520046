# In one collective operation two processes give another operation (MPI_SUM, MPI_MAX).
#
# For example:
#     MPI_Allreduce(a, b, 1, MPI_INT, rank == 0 ? MPI_SUM : MPI_MAX, MPI_COMM_WORLD);
#
# It cannot see operations of MPI_Op_create: those of two processes cannot be compared.
Name=Operations of a reduction differ
1block
N=2
2block
F1=p1:Reduce || Allreduce || Scan || Exscan || Reduce_scatter || Reduce_scatter_block || Ireduce || Iallreduce
   || Iscan || Iexscan || Ireduce_scatter || Ireduce_scatter_block
F2=p2:Reduce || Allreduce || Scan || Exscan || Reduce_scatter || Reduce_scatter_block || Ireduce || Iallreduce
   || Iscan || Iexscan || Ireduce_scatter || Ireduce_scatter_block
3block
F1(comm)=F2(comm)
F1(match)=F2(match)
F1(function)=F2(function)
F1(op)!=F2(op)
