#include <mpi.h>

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv); /* F1 */
    MPI_Barrier(MPI_COMM_WORLD);
    if (argc > 1)
        MPI_Finalize();
    return 0;
}
