# Two processes have sent to each other without blocking, and both wait for that send before they ask for the message of
# the other. It works as long as MPI buffers the messages, and hangs when they become larger.
#
# For example:
#     int other = 1 - rank;
#     MPI_Isend(a, n, MPI_DOUBLE, other, 7, MPI_COMM_WORLD, &r);
#     MPI_Wait(&r, MPI_STATUS_IGNORE);
#     MPI_Recv(b, n, MPI_DOUBLE, other, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
#
# It cannot see what comes after the first such message that one of them has received from the other, two messages with
# different tags, nor cycles of three or more processes: --sync-sends makes these hang. Ask for the message first.
Name=Two processes wait for their sends before they receive
Kind=warning
1block
N=2
2block
F1=p1:message_received!
F2=p1:Isend || Issend
F3=p1:message_received!
F4=p1:Wait || Waitall
F5=p1:Recv || Irecv
F6=p2:message_received!
F7=p2:Isend || Issend
F8=p2:message_received!
F9=p2:Wait || Waitall
F10=p2:Recv || Irecv
3block
F2(dest)=p2
F5(source)=p2
F7(dest)=p1
F10(source)=p1
F2(request)=F4(request)
F7(request)=F9(request)
F2(tag)=F5(tag)
F2(tag)=F7(tag)
F7(tag)=F10(tag)
F2(comm)=F5(comm)
F2(comm)=F7(comm)
F7(comm)=F10(comm)
F1(source)=F5(source)
F1(tag)=F5(tag)
F1(comm)=F5(comm)
F3(source)=F5(source)
F3(tag)=F5(tag)
F3(comm)=F5(comm)
F6(source)=F10(source)
F6(tag)=F10(tag)
F6(comm)=F10(comm)
F8(source)=F10(source)
F8(tag)=F10(tag)
F8(comm)=F10(comm)
