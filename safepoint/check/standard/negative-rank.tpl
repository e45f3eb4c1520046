# A destination, source or target is negative, and neither MPI_PROC_NULL nor MPI_ANY_SOURCE.
#
# For example:
#     MPI_Send(buf, 1, MPI_INT, -7, 7, MPI_COMM_WORLD);
#
# It cannot see MPI_ANY_SOURCE as a destination: MPI itself finds that, and error-returned tells it.
Name=Negative rank
1block
N=1
2block
F1=p1:PTP || IPTP || PTP_init || Sendrecv || Sendrecv_replace || Isendrecv || Isendrecv_replace || Probe ||
   Iprobe || Mprobe || Improbe || Put || Get || Accumulate || Get_accumulate || Fetch_and_op || Compare_and_swap ||
   Rput || Rget || Raccumulate || Rget_accumulate
3block
F1(peer)<0
F1(peer)!=MPI_PROC_NULL
F1(peer)!=MPI_ANY_SOURCE
