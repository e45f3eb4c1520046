# A request is freed while its operation may still be going on: no Wait has returned, and no Test has found it done. MPI
# allows that, and the program can never know by it when its buffer may be used again, so this is a note.
#
# For example:
#     MPI_Start(&r);
#     MPI_Request_free(&r);
#
# It cannot see that the program knows otherwise, such as by an answer to its message, that the operation has ended.
Name=Request is freed before it is complete
Kind=note
1block
N=1
2block
F1=p1:IPTP || Start || Startall
F2=p1:Wait! && p1:Waitall! && p1:Waitany! && p1:Waitsome! && p1:Test! && p1:Testall! && p1:Testany! && p1:Testsome!
F3=p1:Request_free
3block
F1(request)=F2(request)
F1(request)=F3(request)
