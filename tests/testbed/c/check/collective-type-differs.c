#include "planted.h"

static void planted(void)
{
    int a[2] = {0}, b[4] = {0};
    MPI_Gather(rank == 0 ? MPI_IN_PLACE : a, 1, rank == 0 ? MPI_DATATYPE_NULL : MPI_INT, b, 1, rank == 0 ? MPI_INT : MPI_CHAR,
               0, MPI_COMM_WORLD); /* what MPI does not look at may be anything */
    MPI_Bcast(a, 0, rank == 0 ? MPI_CHAR : MPI_INT, 0, MPI_COMM_WORLD);
    MPI_Allgather(a, 1, good || rank == 0 ? MPI_INT : MPI_FLOAT, b, 1, good || rank == 0 ? MPI_INT : MPI_FLOAT, MPI_COMM_WORLD); /* F1 F2 */
}
