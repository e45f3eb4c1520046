# MPI_Win_lock is called again before the epoch that it has opened was closed by MPI_Win_unlock.
#
# For example:
#     MPI_Win_lock(MPI_LOCK_SHARED, 1, 0, win);
#     MPI_Win_lock(MPI_LOCK_SHARED, 1, 0, win);
#
# It cannot see mixed forms, such as a fence between a lock and its unlock.
Name=Second Win_lock in an open epoch
1block
N=1
2block
F1=p1:Win_lock
F2=p1:Win_unlock!
F3=p1:Win_lock
3block
F1(win)=F2(win)
F1(win)=F3(win)
F1(rank)=F2(rank)
F1(rank)=F3(rank)
