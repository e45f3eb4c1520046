# A process sends a message to itself, and has made no receive that takes it (source, tag, communicator), before or
# after. On a communicator whose ranks are ordered anew this is easily done.
#
# For example:
#     MPI_Comm_split(MPI_COMM_WORLD, 0, size - rank, &turned);
#     if (rank == 0) MPI_Send(buf, 1, MPI_INT, 1, 7, turned);
#
# It cannot see one of two sends if a single receive stands between them.
Name=Message to the sender itself that nobody receives
1block
N=1
2block
F1=p1:message_received!
F2=p1:message_sent
F3=p1:message_received!
3block
F2(dest)=p1
F1(source)=p1
F3(source)=p1
F1(tag)=F2(tag)
F2(tag)=F3(tag)
F1(comm)=F2(comm)
F2(comm)=F3(comm)
