#include "planted.h"

static void planted(void)
{
    static double memory[10];
    double a[2] = {1};
    MPI_Win win;
    MPI_Win_create(memory, sizeof memory, 8, MPI_INFO_NULL, MPI_COMM_WORLD, &win);
    MPI_Win_fence(0, win);
    MPI_Put(a, 1, MPI_DOUBLE, 1 - rank, 0, 1, MPI_DOUBLE, win);
    MPI_Put(a, 1, MPI_DOUBLE, 1 - rank, 1, 1, MPI_DOUBLE, win);
    MPI_Win_fence(0, win);
    MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN);
    if (rank == 0)
        MPI_Put(a, 1, MPI_DOUBLE, 1 - rank, 0, 1, MPI_DOUBLE, win); /* F1 */
    if (good)
        MPI_Win_fence(0, win);
    MPI_Win_free(&win); /* F3 */
}
