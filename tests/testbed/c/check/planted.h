/* Small programs with one mistake, which an argument takes out: `mpiexec -n 2 program good`. Lines with a comment F1, F2
   … are those that must be reported for these functions of the template that has the name of the file. */
#include <limits.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static int rank, size, good;
static void planted(void);

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    good = argc > 1;
    planted();
    MPI_Finalize();
    return 0;
}
