/* Put before a solver: in the first start of a job each exchange of its takes 5 ms, so that the job lasts until it is
 * stopped. */
#include <mpi.h>
#include <stdlib.h>
#include <unistd.h>

int usleep(unsigned);

static int slow_sendrecv(const void *from, int count, MPI_Datatype type, int to, int tag, void *into, int received,
                         MPI_Datatype kind, int source, int other, MPI_Comm comm, MPI_Status *status)
{
    if (!getenv("SLURM_RESTART_COUNT"))
        usleep(5000);
    return MPI_Sendrecv(from, count, type, to, tag, into, received, kind, source, other, comm, status);
}

#define MPI_Sendrecv slow_sendrecv
