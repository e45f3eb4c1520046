#include "planted.h"

static void planted(void)
{
    int a = 0;
    MPI_Bcast(&a, 1, MPI_INT, good ? 0 : -1, MPI_COMM_WORLD); /* F1 */
}
