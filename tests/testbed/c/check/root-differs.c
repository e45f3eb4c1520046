#include "planted.h"

static void planted(void)
{
    int a[2] = {0}, b[2] = {0};
    MPI_Comm turned;
    MPI_Comm_split(MPI_COMM_WORLD, 0, -rank, &turned);
    MPI_Bcast(a, 1, MPI_INT, 0, turned);
    MPI_Comm_free(&turned);
    MPI_Gather(a, 1, MPI_INT, b, 1, MPI_INT, good ? 0 : rank, MPI_COMM_WORLD); /* F1 F2 */
}
