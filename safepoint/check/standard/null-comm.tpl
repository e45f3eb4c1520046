# A call is given MPI_COMM_NULL where it needs a communicator.
#
# For example:
#     MPI_Comm_split(MPI_COMM_WORLD, rank == 0 ? 0 : MPI_UNDEFINED, 0, &part);
#     MPI_Barrier(part);
#
# It cannot see other handles that are no communicators: MPI itself finds some of them, and error-returned tells it.
Name=MPI_COMM_NULL as a communicator
1block
N=1
2block
F1=p1:PTP || IPTP || PTP_init || Sendrecv || Sendrecv_replace || Isendrecv || Isendrecv_replace || Probe ||
   Iprobe || Mprobe || Improbe || Coll || ICOLL || Comm_dup || Comm_idup || Comm_split || Comm_create || Comm_free
   || Comm_rank || Comm_size || Comm_group || Win_create || Win_allocate || Win_allocate_shared ||
   Win_create_dynamic
3block
F1(comm)=MPI_COMM_NULL
