#include "planted.h"

static void planted(void)
{
    MPI_Comm mine;
    MPI_Comm_split(MPI_COMM_WORLD, rank, 0, &mine);
    MPI_Barrier(MPI_COMM_SELF);
    if (rank == 0)
        MPI_Barrier(mine); /* all of this communicator */
    if (good || rank == 0)
        MPI_Barrier(MPI_COMM_WORLD); /* F1 */
    if (good)
        MPI_Comm_free(&mine);
}
