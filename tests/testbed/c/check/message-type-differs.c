#include "planted.h"

static void planted(void)
{
    float a[2] = {1, 2};
    if (rank == 0) {
        MPI_Send(a, 1, MPI_FLOAT, 1, 7, MPI_COMM_WORLD); /* F1 */
        MPI_Send(a, 0, MPI_FLOAT, 1, 7, MPI_COMM_WORLD);
    } else {
        MPI_Recv(a, 1, good ? MPI_FLOAT : MPI_INT, 0, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE); /* F2 */
        MPI_Recv(a, 0, MPI_INT, 0, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);                     /* no elements have no type */
    }
}
