/* Two saves, with a message before each; the second is from a function of its own. */
#include <mpi.h>
#include <stddef.h>
#include "safepoint_mpi.h"

static int save(long long step)
{
    return safepoint_hide(step);
}

int main(int argc, char **argv)
{
    int rank, found, one = 1, code;
    long long step;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    code = safepoint_init_mpi(NULL, MPI_COMM_WORLD, NULL) || safepoint_restore(&found, &step);
    if (rank)
        MPI_Recv(&one, 1, MPI_INT, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    else
        MPI_Send(&one, 1, MPI_INT, 1, 1, MPI_COMM_WORLD);
    code = code || safepoint_hide(10);
    code = code || save(SAFEPOINT_NO_STEP);
    code = code || safepoint_close();
    MPI_Finalize();
    return code;
}
