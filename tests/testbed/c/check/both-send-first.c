#include "planted.h"

static void planted(void)
{
    int a = rank, b, other = 1 - rank;
    for (int i = 0; i < 3; i++) { /* one after the other: no mistake */
        if (rank == 0)
            MPI_Send(&a, 1, MPI_INT, 1, 3, MPI_COMM_WORLD);
        MPI_Recv(&b, 1, MPI_INT, other, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (rank == 1)
            MPI_Send(&a, 1, MPI_INT, 0, 3, MPI_COMM_WORLD);
    }
    if (good) {
        MPI_Sendrecv(&a, 1, MPI_INT, other, 7, &b, 1, MPI_INT, other, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else {
        MPI_Send(&a, 1, MPI_INT, other, 7, MPI_COMM_WORLD);                    /* F2 F5 */
        MPI_Recv(&b, 1, MPI_INT, other, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE); /* F3 F6 */
    }
}
