# A variable that holds an active request is given to another non-blocking call. The first request is lost: nobody can
# complete it any more. A program that keeps a copy of the handle and completes that is right, and raises no alarm.
#
# For example:
#     MPI_Isend(a, 100, MPI_DOUBLE, 2, 7, MPI_COMM_WORLD, &r);
#     MPI_Isend(b, 100, MPI_DOUBLE, 0, 7, MPI_COMM_WORLD, &r);
#     MPI_Wait(&r, MPI_STATUS_IGNORE);
#
# It cannot see anything in Python, where a request is no variable: request-not-completed tells of it there.
Name=Repeated using of active request
1block
N=1
2block
F1=p1:IPTP || ICOLL || Isendrecv || Isendrecv_replace || Rput || Rget || Raccumulate || Rget_accumulate
F2=p1:Complete_any!
F3=p1:IPTP || ICOLL || Isendrecv || Isendrecv_replace || Rput || Rget || Raccumulate || Rget_accumulate
F4=p1:Complete_any!
3block
F1(request)=F2(request)
F1(request)=F3(request)
F1(request)=F4(request)
