# An epoch that MPI_Win_start has opened is closed by no MPI_Win_complete before the window is freed.
#
# For example:
#     MPI_Win_start(group, 0, win);
#     MPI_Win_free(&win);
#
# It cannot see a window that is not freed.
Name=Epoch of Win_start is not closed
1block
N=1
2block
F1=p1:Win_start
F2=p1:Win_complete!
F3=p1:Win_free
3block
F1(win)=F2(win)
F1(win)=F3(win)
