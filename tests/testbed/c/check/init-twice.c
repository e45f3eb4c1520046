#include <mpi.h>

int main(int argc, char **argv)
{
    int level;
    MPI_Init(&argc, &argv); /* F1 */
    if (argc == 1)
        MPI_Init_thread(&argc, &argv, MPI_THREAD_SINGLE, &level); /* F2 */
    MPI_Finalize();
    return 0;
}
