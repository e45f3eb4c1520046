#include "planted.h"

static void planted(void)
{
    int a = 1, b;
    if (rank == 0)
        MPI_Send(&a, 1, MPI_INT, 1, 7, MPI_COMM_WORLD);
    else
        MPI_Recv(&b, 1, MPI_INT, good ? 0 : MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE); /* F1 */
}
