#include "planted.h"

static void planted(void)
{
    static double memory[10];
    MPI_Win win;
    MPI_Win_create(memory, sizeof memory, 8, MPI_INFO_NULL, MPI_COMM_WORLD, &win); /* F1 */
    MPI_Win_fence(0, win);
    MPI_Win_fence(0, win);
    if (good)
        MPI_Win_free(&win);
}
