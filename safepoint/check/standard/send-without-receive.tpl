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
F1=p1:message_sent
F2=p2:message_received!
3block
F1(dest)=p2
F2(source)=p1
F1(tag)=F2(tag)
F1(comm)=F2(comm)
