# A receive takes a message of whoever comes first: two runs may differ. That may be what you want.
#
# For example:
#     MPI_Recv(buf, 1, MPI_INT, MPI_ANY_SOURCE, 7, MPI_COMM_WORLD, &status);
#
# It cannot see whether another message could have come: `safepoint places` tells that.
Name=Receive from any source
Kind=note
1block
N=1
2block
F1=p1:Recv_any || IRecv_any || Recv_init || Probe || Iprobe || Mprobe || Improbe || Sendrecv || Sendrecv_replace
   || Isendrecv || Isendrecv_replace
3block
F1(source)=MPI_ANY_SOURCE
