#include "planted.h"

static void planted(void)
{
    int a[2] = {0};
    MPI_Send(a, 0, MPI_INT, MPI_PROC_NULL, 7, MPI_COMM_WORLD);
    if (rank == 0)
        MPI_Send(a, 1, MPI_INT, good ? 1 : -77, 7, MPI_COMM_WORLD); /* F1 */
    else if (good)
        MPI_Recv(a, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}
