# A process calls MPI_Win_fence while it holds a lock of the window: the epochs of both kinds of synchronization overlap.
#
# For example:
#     MPI_Win_lock(MPI_LOCK_SHARED, 1, 0, win);
#     MPI_Win_fence(0, win);
#     MPI_Get(buf, 1, MPI_INT, 1, 0, 1, MPI_INT, win);
#     MPI_Win_fence(0, win);
#     MPI_Win_unlock(1, win);
#
# It cannot see whether data moves after the fence: it is a warning. A fence with an assertion may begin no epoch, and is
# not looked at.
Name=Win_fence in an epoch of Win_lock
Kind=warning
1block
N=1
2block
F1=p1:Win_lock || Win_lock_all
F2=p1:Win_unlock! && Win_unlock_all!
F3=p1:Win_fence
3block
F1(win)=F2(win)
F1(win)=F3(win)
F3(assert)=0
