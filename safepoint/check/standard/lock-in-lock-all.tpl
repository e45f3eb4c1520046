# One process is locked although MPI_Win_lock_all has locked all of the window, and MPI_Win_unlock_all has not ended
# that.
#
# For example:
#     MPI_Win_lock_all(0, win);
#     MPI_Win_lock(MPI_LOCK_SHARED, 1, 0, win);
#
# It cannot see other mixed forms, such as a fence between a lock and its unlock.
Name=Win_lock in an epoch of Win_lock_all
1block
N=1
2block
F1=p1:Win_lock_all
F2=p1:Win_unlock_all!
F3=p1:Win_lock
3block
F1(win)=F2(win)
F1(win)=F3(win)
