#include "planted.h"

static void planted(void)
{
    static double memory[10];
    double x;
    MPI_Win win;
    MPI_Win_create(memory, sizeof memory, 8, MPI_INFO_NULL, MPI_COMM_WORLD, &win);
    MPI_Win_fence(0, win); /* others lie between this one and the lock */
    MPI_Win_fence(good ? MPI_MODE_NOSUCCEED : 0, win); /* F1 */
    MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, win);          /* F3 */
    MPI_Get(&x, 1, MPI_DOUBLE, 0, rank, 1, MPI_DOUBLE, win);
    MPI_Win_unlock(0, win);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_fence(good ? MPI_MODE_NOPRECEDE : 0, win); /* F5 */
    MPI_Win_fence(MPI_MODE_NOSUCCEED, win);
    MPI_Win_free(&win);
}
