# A non-blocking call, or the start of a persistent request, is completed by no Wait and no Test that found it done,
# and its request is not freed either. At MPI_Finalize nobody knows whether the buffer was used.
#
# For example:
#     MPI_Irecv(buf, 1, MPI_INT, 0, 7, MPI_COMM_WORLD, &r);
#     MPI_Finalize();
#
# It cannot see a process that does not reach MPI_Finalize: there it is the consequence of something else.
Name=Request is not completed
1block
N=1
2block
F1=p1:IPTP || ICOLL || Isendrecv || Isendrecv_replace || Rput || Rget || Raccumulate || Rget_accumulate || Start
   || Startall
F2=p1:Complete_any!
F3=p1:Finalize
3block
F1(request)=F2(request)
