# A process of the communicator does not take part in a collective operation: it calls fewer of them than another one
# does.
#
# For example:
#     if (rank == 0) MPI_Barrier(MPI_COMM_WORLD);
#
# It cannot see operations on files, and on windows but for fence-not-by-all.
Name=Collective operation is not called by all
1block
N=2
2block
F1=p1:Coll || ICOLL || Comm_dup || Comm_dup_with_info || Comm_idup || Comm_split || Comm_split_type ||
   Comm_create || Cart_create || Cart_sub || Graph_create || Dist_graph_create || Dist_graph_create_adjacent ||
   Intercomm_merge
F2=p2:Coll! && p2:ICOLL! && p2:Comm_dup! && p2:Comm_dup_with_info! && p2:Comm_idup! && p2:Comm_split! &&
   p2:Comm_split_type! && p2:Comm_create! && p2:Cart_create! && p2:Cart_sub! && p2:Graph_create! &&
   p2:Dist_graph_create! && p2:Dist_graph_create_adjacent! && p2:Intercomm_merge!
3block
F1(comm)=F2(comm)
F1(match)=F2(match)
