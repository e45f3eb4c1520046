# MPI_Win_lock_all is called again before the epoch that it has opened was closed by MPI_Win_unlock_all.
#
# For example:
#     MPI_Win_lock_all(0, win);
#     MPI_Win_lock_all(0, win);
#
# It cannot see mixed forms, such as a fence between a lock and its unlock.
Name=Second Win_lock_all in an open epoch
1block
N=1
2block
F1=p1:Win_lock_all
F2=p1:Win_unlock_all!
F3=p1:Win_lock_all
3block
F1(win)=F2(win)
F1(win)=F3(win)
