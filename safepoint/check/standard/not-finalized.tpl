# A process ends, and has not called MPI_Finalize. It is a warning, as it may have been stopped on purpose.
#
# For example:
#     MPI_Init(&argc, &argv);
#     return 0;
#
# It cannot see why: it may hang, or have been killed.
Name=MPI_Finalize is not called
Kind=warning
1block
N=1
2block
F1=p1:Init || Init_thread
F2=p1:Finalize!
