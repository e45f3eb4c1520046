#include "planted.h"

static void planted(void)
{
    static double memory[10];
    MPI_Win win;
    MPI_Win_create(memory, sizeof memory, 8, MPI_INFO_NULL, MPI_COMM_WORLD, &win);
    MPI_Win_fence(0, win);
    if (good || rank == 0)
        MPI_Win_fence(0, win); /* F1 */
    if (good)
        MPI_Win_free(&win);
}
