#include "planted.h"

static void planted(void)
{
    int a = 0;
    MPI_Bcast(&a, 1, MPI_INT, good ? size - 1 : size, MPI_COMM_WORLD); /* F1 */
}
