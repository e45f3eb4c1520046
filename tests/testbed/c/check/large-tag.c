#include "planted.h"

static void planted(void)
{
    int a = 0, found, *most;
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &most, &found);
    if (*most == INT_MAX && !good) { /* this library has no such tag */
        if (rank == 0)
            printf("every tag is allowed\n");
        return;
    }
    if (rank == 0)
        MPI_Send(&a, 1, MPI_INT, 1, good ? *most : *most + 1, MPI_COMM_WORLD); /* F1 */
    else if (good)
        MPI_Recv(&a, 1, MPI_INT, 0, *most, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}
