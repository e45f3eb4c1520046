# A persistent request is still there at MPI_Finalize. MPI allows that, so this is a warning; in a loop it is a leak.
#
# For example:
#     MPI_Send_init(buf, 1, MPI_INT, 1, 7, MPI_COMM_WORLD, &r);
#     MPI_Start(&r);
#     MPI_Wait(&r, MPI_STATUS_IGNORE);
#     MPI_Finalize();
#
# It cannot see persistent collective operations.
Name=Persistent request is not freed
Kind=warning
1block
N=1
2block
F1=p1:PTP_init
F2=p1:Request_free!
F3=p1:Finalize
3block
F1(request)=F2(request)
