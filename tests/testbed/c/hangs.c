/* Three ranks that wait for each other: `hangs wait`. With `hangs abort` rank 1 dies in the middle of it. */
#include <mpi.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void halo(int from)
{
    int value;
    MPI_Recv(&value, 1, MPI_INT, from, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE); /* line 11 */
}

int main(int argc, char **argv)
{
    int rank, in, out = 0;
    MPI_Request requests[2];
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 1 && strcmp(argv[1], "abort") == 0) {
        pid_t launcher = getppid();
        kill(launcher, SIGSTOP); /* else it might end the others before anybody has looked who died first */
        if (fork() == 0) {
            sleep(3);
            kill(launcher, SIGCONT);
            _exit(0);
        }
        abort();
    }
    if (rank == 1) {
        halo(2);
    } else if (rank == 2) {
        MPI_Irecv(&in, 1, MPI_INT, 1, 9, MPI_COMM_WORLD, &requests[0]);
        MPI_Isend(&out, 1, MPI_INT, 1, 8, MPI_COMM_WORLD, &requests[1]);
        MPI_Wait(&requests[0], MPI_STATUS_IGNORE); /* line 36 */
    }
    MPI_Barrier(MPI_COMM_WORLD); /* line 38 */
    MPI_Finalize();
    return 0;
}
