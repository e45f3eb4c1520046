# A process sends to another, which makes fewer receives that take such messages (source, tag, communicator) than are
# sent. Small messages are lost without a sound; large ones stop the sender for ever.
#
# For example:
#     if (rank == 0) MPI_Send(buf, 1, MPI_INT, 1, 7, MPI_COMM_WORLD);
#     if (rank == 1) MPI_Recv(buf, 1, MPI_INT, 0, 8, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
#
# It cannot see messages of a process to itself, between programs that were started apart, and sends that MPI has
# refused.
Name=Message is sent, and nobody receives it
1block
N=2
2block
F1=p1:Send_any || Isend_any || Sendrecv || Sendrecv_replace || Isendrecv || Isendrecv_replace || Start ||
   Startall
F2=p2:Recv_any! && p2:IRecv_any! && p2:Sendrecv! && p2:Sendrecv_replace! && p2:Isendrecv! &&
   p2:Isendrecv_replace! && p2:Start! && p2:Startall!
F3=p1:Cancel!
3block
F1(dest)=p2
F2(source)=p1
F1(sendtag)=F2(recvtag)
F1(comm)=F2(comm)
F1(request)=F3(request)
F1(result)=0
