# A process accesses a window and has not opened an epoch for it before: no fence, no lock, no start.
#
# For example:
#     MPI_Win_create(buf, 800, 8, MPI_INFO_NULL, MPI_COMM_WORLD, &win);
#     MPI_Put(a, 1, MPI_DOUBLE, 1, 0, 1, MPI_DOUBLE, win);
#     MPI_Win_fence(0, win);
#
# It cannot see an access after the last epoch was closed: epoch-not-closed tells of some of them.
Name=Access to a window outside of an epoch
1block
N=1
2block
F1=p1:Win_fence! && p1:Win_lock! && p1:Win_lock_all! && p1:Win_start!
F2=p1:Put || Get || Accumulate || Get_accumulate || Fetch_and_op || Compare_and_swap || Rput || Rget ||
   Raccumulate || Rget_accumulate
3block
F1(win)=F2(win)
