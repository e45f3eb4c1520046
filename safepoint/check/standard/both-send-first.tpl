# Both processes are inside a blocking send to the other before they receive. It works as long as MPI buffers the
# messages, and hangs when they become larger.
#
# For example:
#     int other = 1 - rank;
#     MPI_Send(a, n, MPI_DOUBLE, other, 7, MPI_COMM_WORLD);
#     MPI_Recv(b, n, MPI_DOUBLE, other, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
#
# It cannot see cycles of three or more processes, which hang only if they hang: the wait-for chain tells of that. Use
# MPI_Sendrecv.
Name=Two processes send to each other before they receive
Kind=warning
1block
N=2
2block
F1=p1:Send || Ssend
F2=p1:Recv
F3=p2:Recv!
F4=p2:Send || Ssend
F5=p2:Recv
3block
F1(dest)=p2
F4(dest)=p1
F2(source)=p2
F3(source)=p1
F5(source)=p1
F1(tag)=F3(tag)
F1(tag)=F5(tag)
F4(tag)=F2(tag)
F1(comm)=F2(comm)
F1(comm)=F3(comm)
F1(comm)=F4(comm)
F1(comm)=F5(comm)
