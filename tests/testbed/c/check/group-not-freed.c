#include "planted.h"

static void planted(void)
{
    MPI_Group all, again, first, none;
    MPI_Comm_group(MPI_COMM_WORLD, &all);
    MPI_Comm_group(MPI_COMM_WORLD, &again); /* MPICH gives the same handle twice */
    MPI_Group_incl(all, 0, NULL, &none);    /* MPI_GROUP_EMPTY */
    MPI_Group_incl(all, 1, (int[1]){0}, &first); /* F1 */
    MPI_Group_free(&again);
    MPI_Group_free(&all);
    if (good)
        MPI_Group_free(&first);
}
