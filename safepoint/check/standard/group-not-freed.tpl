# Group that the program has made is still there at MPI_Finalize. In a loop this is a leak: MPI has only so many.
#
# For example:
#     MPI_Comm_group(MPI_COMM_WORLD, &all);
#     MPI_Finalize();
#
# It cannot see groups of sessions that a library has made inside MPI. MPI_GROUP_EMPTY as a result needs no freeing.
Name=Group is not freed
1block
N=1
2block
F1=p1:Group_new
F2=p1:Group_free!
F3=p1:Finalize
3block
F1(new)=F2(group)
