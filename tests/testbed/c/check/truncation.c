#include "planted.h"

static void planted(void)
{
    int a[10] = {0};
    if (rank == 0) {
        MPI_Send(a, 2, MPI_INT, 1, 7, MPI_COMM_WORLD);
        MPI_Send(a, 10, MPI_INT, 1, 7, MPI_COMM_WORLD); /* F1 */
    } else {
        MPI_Recv(a, 5, MPI_INT, 0, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Recv(a, good ? 10 : 5, MPI_INT, 0, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE); /* F2 */
    }
}
