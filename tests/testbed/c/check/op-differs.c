#include "planted.h"

static void planted(void)
{
    int a = rank, b;
    MPI_Allreduce(&a, &b, 1, MPI_INT, good || rank == 0 ? MPI_SUM : MPI_MAX, MPI_COMM_WORLD); /* F1 F2 */
}
