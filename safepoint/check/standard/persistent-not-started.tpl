# A persistent request is made, and never started: what waits for it returns at once, and nothing was sent or
# received. MPI allows that, so this is a warning.
#
# For example:
#     MPI_Send_init(buf, 1, MPI_INT, 1, 7, MPI_COMM_WORLD, &r);
#     MPI_Wait(&r, MPI_STATUS_IGNORE);
#
# It cannot see a request that is started, but too seldom.
Name=Persistent request is not started
Kind=warning
1block
N=1
2block
F1=p1:PTP_init
F2=p1:Start! && p1:Startall!
3block
F1(request)=F2(request)
