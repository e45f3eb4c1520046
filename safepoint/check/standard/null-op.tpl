# A reduction is given MPI_OP_NULL.
#
# For example:
#     MPI_Allreduce(a, b, 1, MPI_INT, MPI_OP_NULL, MPI_COMM_WORLD);
#
# It cannot see other handles that are no operations, and operations that do not go with the datatype: MPI itself
# finds some of them, and error-returned tells it.
Name=MPI_OP_NULL as an operation
1block
N=1
2block
F1=p1:Reduce || Allreduce || Scan || Exscan || Reduce_scatter || Reduce_scatter_block || Ireduce || Iallreduce
   || Iscan || Iexscan || Ireduce_scatter || Ireduce_scatter_block || Reduce_local || Accumulate || Raccumulate ||
   Get_accumulate || Rget_accumulate || Fetch_and_op || Op_free
3block
F1(op)=MPI_OP_NULL
