#include "planted.h"

static void planted(void)
{
    int a = 0;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Send(&a, 1, MPI_INT, good ? MPI_PROC_NULL : 99, 7, MPI_COMM_WORLD); /* F1 */
}
