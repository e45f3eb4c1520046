# An epoch that MPI_Win_post has opened is closed by no MPI_Win_wait and no MPI_Win_test that found it over before the
# window is freed.
#
# For example:
#     MPI_Win_post(group, 0, win);
#     MPI_Win_free(&win);
#
# It cannot see a window that is not freed.
Name=Epoch of Win_post is not closed
1block
N=1
2block
F1=p1:Win_post
F2=p1:Win_wait! && p1:Win_test!
F3=p1:Win_free
3block
F1(win)=F2(win)
F1(win)=F3(win)
