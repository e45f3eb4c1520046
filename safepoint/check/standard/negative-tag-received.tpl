# A receive asks for a negative tag that is not MPI_ANY_TAG: no message can have it.
#
# For example:
#     MPI_Recv(buf, 1, MPI_INT, 0, -17, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
#
# It cannot see tags that are too large.
Name=Negative tag of a receive
1block
N=1
2block
F1=p1:Recv_any || IRecv_any || Recv_init || Probe || Iprobe || Mprobe || Improbe || Sendrecv || Sendrecv_replace
   || Isendrecv || Isendrecv_replace
3block
F1(recvtag)<0
F1(recvtag)!=MPI_ANY_TAG
