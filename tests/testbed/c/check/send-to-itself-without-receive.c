#include "planted.h"

static void planted(void)
{
    int a = 1, b = 0;
    MPI_Request r;
    MPI_Irecv(&b, 1, MPI_INT, rank, 7, MPI_COMM_WORLD, &r); /* asked for before */
    MPI_Send(&a, 1, MPI_INT, rank, 7, MPI_COMM_WORLD);
    MPI_Wait(&r, MPI_STATUS_IGNORE);
    MPI_Isend(&a, 1, MPI_INT, rank, 8, MPI_COMM_WORLD, &r); /* and after */
    MPI_Recv(&b, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Wait(&r, MPI_STATUS_IGNORE);
    MPI_Sendrecv(&a, 1, MPI_INT, rank, 3, &b, 1, MPI_INT, rank, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Send(&a, 1, MPI_INT, rank, 9, MPI_COMM_WORLD); /* F2 */
    if (good)
        MPI_Recv(&b, 1, MPI_INT, rank, 9, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Barrier(MPI_COMM_WORLD);
}
