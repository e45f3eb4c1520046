#include "planted.h"

static void planted(void)
{
    int a = 1, b = 0;
    MPI_Request r;
    if (rank == 1) {
        MPI_Irecv(&b, 1, MPI_INT, 0, 99, MPI_COMM_WORLD, &r);
        MPI_Cancel(&r); /* asked for in case it comes: no mistake */
        MPI_Wait(&r, MPI_STATUS_IGNORE);
        MPI_Recv(&b, 1, MPI_INT, 0, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE); /* F1 */
        MPI_Recv(&b, 1, MPI_INT, MPI_PROC_NULL, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else if (good) {
        MPI_Send(&a, 1, MPI_INT, 1, 7, MPI_COMM_WORLD);
    }
}
