#include "planted.h"

static void planted(void)
{
    int mine[2] = {rank, rank}, all[4], counts[2] = {1, 1}, places[2] = {0, 1};
    MPI_Datatype type = good || rank == 0 ? MPI_INT : MPI_FLOAT;
    MPI_Gatherv(rank == 0 ? MPI_IN_PLACE : mine, 1, rank == 0 ? MPI_CHAR : MPI_INT, all, counts, places,
                rank == 0 ? MPI_INT : MPI_CHAR, 0, MPI_COMM_WORLD); /* what is ignored may be anything */
    MPI_Allgatherv(mine, 1, type, all, counts, places, type, MPI_COMM_WORLD); /* F1 F2 */
}
