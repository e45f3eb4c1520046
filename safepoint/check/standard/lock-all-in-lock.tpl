# All of a window is locked although MPI_Win_lock has locked a process of it, and MPI_Win_unlock has not ended that.
#
# For example:
#     MPI_Win_lock(MPI_LOCK_SHARED, 1, 0, win);
#     MPI_Win_lock_all(0, win);
#
# It cannot see other mixed forms, such as a fence between a lock and its unlock.
Name=Win_lock_all in an epoch of Win_lock
1block
N=1
2block
F1=p1:Win_lock
F2=p1:Win_unlock!
F3=p1:Win_lock_all
3block
F1(win)=F2(win)
F1(win)=F3(win)
F1(rank)=F2(rank)
