# An epoch that MPI_Win_lock_all has opened is closed by no MPI_Win_unlock_all before the window is freed.
#
# For example:
#     MPI_Win_lock_all(0, win);
#     MPI_Win_free(&win);
#
# It cannot see a window that is not freed.
Name=Epoch of Win_lock_all is not closed
1block
N=1
2block
F1=p1:Win_lock_all
F2=p1:Win_unlock_all!
F3=p1:Win_free
3block
F1(win)=F2(win)
F1(win)=F3(win)
