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
F1=p1:message_received
F2=p2:message_sent!
3block
F1(source)=p2
F2(dest)=p1
F1(tag)=F2(tag)
F1(comm)=F2(comm)
