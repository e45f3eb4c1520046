#include "planted.h"

static void planted(void)
{
    int a[2] = {0};
    MPI_Sendrecv(a, 1, MPI_INT, 1 - rank, 7, a + 1, 1, MPI_INT, 1 - rank, MPI_ANY_TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (rank == 0)
        MPI_Send(a, 1, MPI_INT, 1, 7, MPI_COMM_WORLD);
    else
        MPI_Recv(a, 1, MPI_INT, 0, good ? 7 : -77, MPI_COMM_WORLD, MPI_STATUS_IGNORE); /* F1 */
}
