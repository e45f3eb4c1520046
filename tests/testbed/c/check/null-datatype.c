#include "planted.h"

static void planted(void)
{
    int a[2] = {rank}, b[4];
    MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, b, 1, MPI_INT, MPI_COMM_WORLD); /* MPI does not look at it */
    MPI_Gather(a, 1, MPI_INT, b, 1, rank == 0 ? MPI_INT : MPI_DATATYPE_NULL, 0, MPI_COMM_WORLD);
    MPI_Bcast(a, 1, good ? MPI_INT : MPI_DATATYPE_NULL, 0, MPI_COMM_WORLD); /* F1 */
}
