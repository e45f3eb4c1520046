#include "planted.h"

static void planted(void)
{
    int a = rank, b;
    MPI_Allreduce(&a, &b, 1, MPI_INT, good ? MPI_SUM : MPI_OP_NULL, MPI_COMM_WORLD); /* F1 */
}
