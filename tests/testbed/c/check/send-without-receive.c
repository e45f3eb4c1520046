#include "planted.h"

static void planted(void)
{
    int a = 1, b = 0;
    MPI_Request r;
    if (rank == 0) {
        MPI_Send(&a, 1, MPI_INT, 1, 8, MPI_COMM_WORLD); /* F1 */
        MPI_Send(&a, 1, MPI_INT, 1, 7, MPI_COMM_WORLD);
        MPI_Send(&a, 1, MPI_INT, MPI_PROC_NULL, 7, MPI_COMM_WORLD);
        MPI_Send_init(&a, 1, MPI_INT, 1, 9, MPI_COMM_WORLD, &r);
        MPI_Start(&r);
        MPI_Wait(&r, MPI_STATUS_IGNORE);
        MPI_Request_free(&r);
    } else {
        MPI_Recv(&b, 1, MPI_INT, MPI_ANY_SOURCE, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Recv(&b, 1, MPI_INT, 0, 9, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (good)
            MPI_Recv(&b, 1, MPI_INT, 0, MPI_ANY_TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    MPI_Sendrecv(&a, 1, MPI_INT, 1 - rank, 3, &b, 1, MPI_INT, 1 - rank, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}
