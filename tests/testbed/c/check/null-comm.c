#include "planted.h"

static void planted(void)
{
    MPI_Comm part;
    MPI_Comm_split(MPI_COMM_WORLD, good || rank == 0 ? 0 : MPI_UNDEFINED, 0, &part);
    MPI_Barrier(part); /* F1 */
    MPI_Comm_free(&part);
}
