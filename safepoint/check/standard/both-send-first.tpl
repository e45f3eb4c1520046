# Both processes are inside a blocking send to the other before they receive. It works as long as MPI buffers the
# messages, and hangs when they become larger.
#
# For example:
#     int other = 1 - rank;
#     MPI_Send(a, n, MPI_DOUBLE, other, 7, MPI_COMM_WORLD);
#     MPI_Recv(b, n, MPI_DOUBLE, other, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
#
# It cannot see what comes after the first such message that one of them has received from the other (they may take turns
# then), two messages with different tags, nor cycles of three or more processes: if these hang, the wait-for chain tells
# of them. Use MPI_Sendrecv.
Name=Two processes send to each other before they receive
Kind=warning
1block
N=2
2block
F1=p1:message_received!
F2=p1:Send || Ssend
F3=p1:Recv || Irecv
F4=p2:message_received!
F5=p2:Send || Ssend
F6=p2:Recv || Irecv
3block
F2(dest)=p2
F3(source)=p2
F5(dest)=p1
F6(source)=p1
F2(tag)=F3(tag)
F2(tag)=F6(tag)
F5(tag)=F6(tag)
F2(comm)=F3(comm)
F2(comm)=F5(comm)
F2(comm)=F6(comm)
F1(source)=F3(source)
F1(tag)=F3(tag)
F1(comm)=F3(comm)
F4(source)=F6(source)
F4(tag)=F6(tag)
F4(comm)=F6(comm)
