# Window that the program has made is still there at MPI_Finalize. In a loop this is a leak: MPI has only so many.
#
# For example:
#     MPI_Win_create(buf, 800, 8, MPI_INFO_NULL, MPI_COMM_WORLD, &win);
#     MPI_Finalize();
#
# It cannot see memory of MPI_Alloc_mem.
Name=Window is not freed
1block
N=1
2block
F1=p1:Win_create || Win_allocate || Win_allocate_shared || Win_create_dynamic
F2=p1:Win_free!
F3=p1:Finalize
3block
F1(win)=F2(win)
