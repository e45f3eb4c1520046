# A process of the window calls MPI_Win_fence less often than another one.
#
# For example:
#     if (rank == 0) MPI_Win_fence(0, win);
#
# It cannot see the other calls that are collective over a window.
Name=Fence of a window is not called by all
1block
N=2
2block
F1=p1:Win_fence
F2=p2:Win_fence!
3block
F1(win)=F2(win)
F1(match)=F2(match)
