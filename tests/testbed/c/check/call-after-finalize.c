#include <mpi.h>

int main(int argc, char **argv)
{
    int flag;
    MPI_Init(&argc, &argv);
    if (argc > 1)
        MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize(); /* F1 */
    MPI_Finalized(&flag);
    if (argc == 1)
        MPI_Barrier(MPI_COMM_WORLD); /* F2 */
    return 0;
}
