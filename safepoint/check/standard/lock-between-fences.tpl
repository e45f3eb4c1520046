# A process locks a window between two fences that were given no assertion, so that the epochs of both kinds of
# synchronization overlap, which MPI does not allow once data moves in both. A fence with MPI_MODE_NOSUCCEED begins none,
# one with MPI_MODE_NOPRECEDE ends none.
#
# For example:
#     MPI_Win_fence(0, win);
#     MPI_Win_lock(MPI_LOCK_SHARED, 1, 0, win);
#     MPI_Get(buf, 1, MPI_INT, 1, 0, 1, MPI_INT, win);
#     MPI_Win_unlock(1, win);
#     MPI_Win_fence(0, win);
#
# It cannot see whether data moves in the epoch of the fences too: it is a warning.
Name=Win_lock between two fences
Kind=warning
1block
N=1
2block
F1=p1:Win_fence
F2=p1:Win_fence!
F3=p1:Win_lock || Win_lock_all
F4=p1:Win_fence!
F5=p1:Win_fence
3block
F1(win)=F2(win)
F1(win)=F3(win)
F1(win)=F4(win)
F1(win)=F5(win)
F1(assert)=0
F5(assert)=0
