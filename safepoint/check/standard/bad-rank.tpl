# A destination, source or target is above the highest rank of its communicator, of the remote group, or of its
# window.
#
# For example:
#     MPI_Send(buf, 1, MPI_INT, size, 7, MPI_COMM_WORLD);
#
# It cannot see negative ranks: negative-rank tells of them.
Name=Rank that the communicator does not have
1block
N=1
2block
F1=p1:PTP || IPTP || PTP_init || Sendrecv || Sendrecv_replace || Isendrecv || Isendrecv_replace || Probe ||
   Iprobe || Mprobe || Improbe || Put || Get || Accumulate || Get_accumulate || Fetch_and_op || Compare_and_swap ||
   Rput || Rget || Raccumulate || Rget_accumulate
3block
F1(peer)>F1(last)
