#include "planted.h"

static void planted(void)
{
    static double memory[10];
    MPI_Win win;
    MPI_Win_create(memory, sizeof memory, 8, MPI_INFO_NULL, MPI_COMM_WORLD, &win);
    MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN);
    MPI_Win_lock(MPI_LOCK_SHARED, 1, 0, win); /* F1 */
    if (good)
        MPI_Win_unlock(1, win);
    MPI_Win_fence(0, win); /* F3 */
    if (!good)
        MPI_Win_unlock(1, win);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_free(&win);
}
