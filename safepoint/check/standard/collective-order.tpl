# The i-th collective operation on a communicator is not the same function in all of its processes. MPI hangs, or
# mixes up data.
#
# For example:
#     if (rank == 0) MPI_Barrier(MPI_COMM_WORLD);
#     else MPI_Bcast(buf, 1, MPI_INT, 0, MPI_COMM_WORLD);
#
# It cannot see operations on files, and on windows but for fence-not-by-all.
Name=Processes call different collective operations
1block
N=2
2block
F1=p1:Coll || ICOLL || Comm_dup || Comm_dup_with_info || Comm_idup || Comm_split || Comm_split_type ||
   Comm_create || Cart_create || Cart_sub || Graph_create || Dist_graph_create || Dist_graph_create_adjacent ||
   Intercomm_merge
F2=p2:Coll || ICOLL || Comm_dup || Comm_dup_with_info || Comm_idup || Comm_split || Comm_split_type ||
   Comm_create || Cart_create || Cart_sub || Graph_create || Dist_graph_create || Dist_graph_create_adjacent ||
   Intercomm_merge
3block
F1(comm)=F2(comm)
F1(match)=F2(match)
F1(function)!=F2(function)
