# Communicator that the program has made is still there at MPI_Finalize. In a loop this is a leak: MPI has only so
# many.
#
# For example:
#     MPI_Comm_split(MPI_COMM_WORLD, rank % 2, 0, &half);
#     MPI_Finalize();
#
# It cannot see communicators of MPI_Comm_get_parent. MPI_COMM_NULL as a result needs no freeing.
Name=Communicator is not freed
1block
N=1
2block
F1=p1:Comm_new
F2=p1:Comm_free! && p1:Comm_disconnect!
F3=p1:Finalize
3block
F1(new)=F2(comm)
