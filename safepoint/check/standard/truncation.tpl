# The i-th message from one process to another with a tag has more bytes than the i-th receive for them has space for.
#
# For example:
#     if (rank == 0) MPI_Send(buf, 10, MPI_INT, 1, 7, MPI_COMM_WORLD);
#     if (rank == 1) MPI_Recv(buf, 5, MPI_INT, 0, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
#
# It cannot see a truncation after which the program goes on, as its error handler lets it: error-returned tells of
# that.
Name=Message is larger than the buffer of its receive
1block
N=2
2block
F1=p1:message_sent
F2=p2:message_received
3block
F1(dest)=p2
F2(source)=p1
F1(tag)=F2(tag)
F1(comm)=F2(comm)
F1(bytes)>F2(bytes)
