# A process waits for a message that the process it names does not send. It waits for ever.
#
# For example:
#     if (rank == 1) MPI_Recv(buf, 1, MPI_INT, 0, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
#
# It cannot see a receive that was cancelled (that is no mistake), and one from itself.
Name=Receive for which nobody sends
1block
N=2
2block
F1=p1:Recv_any || IRecv_any || Sendrecv || Sendrecv_replace || Isendrecv || Isendrecv_replace || Start ||
   Startall
F2=p2:Send_any! && p2:Isend_any! && p2:Sendrecv! && p2:Sendrecv_replace! && p2:Isendrecv! &&
   p2:Isendrecv_replace! && p2:Start! && p2:Startall!
F3=p1:Cancel!
3block
F1(source)=p2
F2(dest)=p1
F1(recvtag)=F2(sendtag)
F1(comm)=F2(comm)
F1(request)=F3(request)
F1(result)=0
