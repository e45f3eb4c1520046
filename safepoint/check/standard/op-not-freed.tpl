# Operation that the program has made is still there at MPI_Finalize. In a loop this is a leak: MPI has only so many.
#
# For example:
#     MPI_Op_create(add, 1, &op);
#     MPI_Finalize();
#
# It cannot see operations that a library has made inside MPI.
Name=Operation is not freed
1block
N=1
2block
F1=p1:Op_create
F2=p1:Op_free!
F3=p1:Finalize
3block
F1(op)=F2(op)
