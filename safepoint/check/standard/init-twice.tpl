# MPI_Init or MPI_Init_thread is called a second time.
#
# For example:
#     MPI_Init(&argc, &argv);
#     MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &level);
#
# It cannot see sessions, which may be opened again.
Name=MPI is initialized twice
1block
N=1
2block
F1=p1:Init || Init_thread
F2=p1:Init || Init_thread
