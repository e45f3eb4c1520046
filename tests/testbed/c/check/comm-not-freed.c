#include "planted.h"

static void planted(void)
{
    MPI_Comm half, none, twin;
    MPI_Comm_split(MPI_COMM_WORLD, 0, rank, &half); /* F1 */
    MPI_Comm_split(MPI_COMM_WORLD, MPI_UNDEFINED, rank, &none);
    MPI_Comm_dup(half, &twin);
    MPI_Barrier(twin);
    MPI_Comm_free(&twin);
    MPI_Comm_dup(MPI_COMM_SELF, &twin);
    MPI_Comm_disconnect(&twin);
    if (good)
        MPI_Comm_free(&half);
}
