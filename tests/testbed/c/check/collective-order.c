#include "planted.h"

static void planted(void)
{
    int a = rank, b;
    MPI_Comm twin;
    MPI_Comm_dup(MPI_COMM_WORLD, &twin);
    MPI_Request r;
    if (rank == 0)
        MPI_Ibarrier(MPI_COMM_WORLD, &r); /* another order on another communicator is right */
    MPI_Bcast(&a, 1, MPI_INT, 0, twin);
    if (rank == 1)
        MPI_Ibarrier(MPI_COMM_WORLD, &r);
    MPI_Wait(&r, MPI_STATUS_IGNORE);
    if (good || rank == 0)
        MPI_Allreduce(&a, &b, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD); /* F1 */
    else
        MPI_Bcast(&a, 1, MPI_INT, 0, MPI_COMM_WORLD); /* F2 */
    MPI_Comm_free(&twin);
}
