# A process accesses a window and frees it, and has not closed the epoch in between: nobody knows whether the data
# came.
#
# For example:
#     MPI_Win_fence(0, win);
#     MPI_Put(a, 1, MPI_DOUBLE, 1, 0, 1, MPI_DOUBLE, win);
#     MPI_Win_free(&win);
#
# It cannot see a window that is not freed.
Name=Access to a window is not completed
1block
N=1
2block
F1=p1:Put || Get || Accumulate || Get_accumulate || Fetch_and_op || Compare_and_swap || Rput || Rget ||
   Raccumulate || Rget_accumulate
F2=p1:Win_fence! && p1:Win_unlock! && p1:Win_unlock_all! && p1:Win_complete!
F3=p1:Win_free
3block
F1(win)=F2(win)
F1(win)=F3(win)
