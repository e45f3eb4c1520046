/* Calls of each kind on three ranks, whose messages do not depend on chance. `same_groups.py` makes
   the same calls. */
#include <mpi.h>

#define HERE MPI_COMM_WORLD
#define IGNORE MPI_STATUS_IGNORE
#define ALL_IGNORED MPI_STATUSES_IGNORE
#define ONE 1, MPI_INT

static int rank, flag, at, count, one = 1, sum, many[4], others[4];
static MPI_Request r, rs[4];
static MPI_Message message;

static void modes(void)
{
    static char room[1000];
    void *back;
    if (rank == 0) {
        MPI_Buffer_attach(room, sizeof room);
        MPI_Barrier(HERE);
        MPI_Send(&one, ONE, 1, 1, HERE);
        MPI_Bsend(&one, ONE, 1, 2, HERE);
        MPI_Ssend(&one, ONE, 1, 3, HERE);
        MPI_Rsend(&one, ONE, 1, 4, HERE);
        MPI_Buffer_detach(&back, &count);
    } else if (rank == 1) {
        MPI_Irecv(&sum, ONE, 0, 4, HERE, &r);
        MPI_Barrier(HERE);
        MPI_Recv(&one, ONE, 0, 1, HERE, IGNORE);
        MPI_Recv(&one, ONE, MPI_ANY_SOURCE, MPI_ANY_TAG, HERE, IGNORE);
        MPI_Recv(&one, ONE, MPI_ANY_SOURCE, 3, HERE, IGNORE);
        MPI_Wait(&r, IGNORE);
    } else {
        MPI_Barrier(HERE);
    }
}

static void completions(void)
{
    if (rank == 0) {
        MPI_Isend(&one, ONE, 1, 5, HERE, &rs[0]);
        MPI_Issend(&one, ONE, 2, 6, HERE, &rs[1]);
        MPI_Isend(&one, ONE, 1, 5, HERE, &rs[2]);
        MPI_Isend(&one, ONE, 2, 7, HERE, &rs[3]);
        MPI_Waitall(4, rs, ALL_IGNORED);
    } else if (rank == 1) {
        MPI_Irecv(&many[0], ONE, 0, 5, HERE, &rs[0]);
        MPI_Irecv(&many[1], ONE, MPI_ANY_SOURCE, 5, HERE, &rs[1]);
        MPI_Waitany(1, &rs[1], &at, IGNORE);
        MPI_Waitsome(1, rs, &count, others, ALL_IGNORED);
    } else {
        MPI_Irecv(&many[0], ONE, MPI_ANY_SOURCE, 6, HERE, &rs[0]);
        MPI_Irecv(&many[1], ONE, 0, 7, HERE, &rs[1]);
        for (flag = 0; !flag;)
            MPI_Testall(2, rs, &flag, ALL_IGNORED);
    }
}

static void any(void)
{
    /* Rank 2 sends when rank 1 has what rank 0 sent. */
    if (rank == 0) {
        MPI_Send(&one, ONE, 1, 8, HERE);
    } else if (rank == 1) {
        MPI_Recv(&one, ONE, MPI_ANY_SOURCE, 8, HERE, IGNORE);
        MPI_Send(&one, ONE, 2, 9, HERE);
        MPI_Recv(&one, ONE, MPI_ANY_SOURCE, 8, HERE, IGNORE);
    } else {
        MPI_Recv(&one, ONE, 1, 9, HERE, IGNORE);
        MPI_Send(&one, ONE, 1, 8, HERE);
    }
    MPI_Sendrecv(&one, ONE, (rank + 1) % 3, 10, &sum, ONE, (rank + 2) % 3, 10, HERE, IGNORE);
}

static void probes(void)
{
    int tag;
    if (rank == 0)
        for (tag = 11; tag < 15; tag++)
            MPI_Send(&one, ONE, 2, tag, HERE);
    if (rank < 2)
        return;
    MPI_Probe(MPI_ANY_SOURCE, 11, HERE, IGNORE);
    MPI_Recv(&one, ONE, 0, 11, HERE, IGNORE);
    for (flag = 0; !flag;)
        MPI_Iprobe(0, MPI_ANY_TAG, HERE, &flag, IGNORE);
    MPI_Recv(&one, ONE, 0, 12, HERE, IGNORE);
    MPI_Mprobe(MPI_ANY_SOURCE, 13, HERE, &message, IGNORE);
    MPI_Mrecv(&one, ONE, &message, IGNORE);
    for (flag = 0; !flag;)
        MPI_Improbe(0, 14, HERE, &flag, &message, IGNORE);
    MPI_Imrecv(&one, ONE, &message, &r);
    MPI_Wait(&r, IGNORE);
}

static void persistent(void)
{
    int i;
    if (rank == 2)
        return;
    if (rank == 0) {
        MPI_Send_init(&many[0], ONE, 1, 20, HERE, &rs[0]);
        MPI_Ssend_init(&many[1], ONE, 1, 21, HERE, &rs[1]);
    } else {
        MPI_Recv_init(&many[0], ONE, MPI_ANY_SOURCE, 20, HERE, &rs[0]);
        MPI_Recv_init(&many[1], ONE, 0, MPI_ANY_TAG, HERE, &rs[1]);
    }
    MPI_Start(&rs[0]);
    MPI_Wait(&rs[0], IGNORE);
    MPI_Startall(2, rs);
    MPI_Waitall(2, rs, ALL_IGNORED);
    for (i = 0; i < 2; i++)
        MPI_Request_free(&rs[i]);
}

static void odd(void)
{
    if (rank == 0) {
        MPI_Irecv(&sum, ONE, 1, 30, HERE, &r);
        MPI_Cancel(&r);
        MPI_Wait(&r, IGNORE);
        MPI_Isend(&one, ONE, 2, 31, HERE, &r);
        MPI_Request_free(&r);
        MPI_Irecv(&sum, ONE, 1, 30, HERE, &r);
        MPI_Cancel(&r);
        MPI_Request_free(&r);
    } else if (rank == 2) {
        MPI_Recv(&many[3], ONE, MPI_PROC_NULL, 32, HERE, IGNORE);
        MPI_Recv(&many[3], ONE, 0, 31, HERE, IGNORE);
    }
}

static void collectives(MPI_Comm comm)
{
    MPI_Bcast(&one, ONE, 1, comm);
    MPI_Allreduce(&one, &sum, ONE, MPI_SUM, comm);
    MPI_Reduce(&one, &sum, ONE, MPI_SUM, 0, comm);
    MPI_Gather(&one, ONE, many, ONE, 0, comm);
    MPI_Scatter(many, ONE, &one, ONE, 0, comm);
    MPI_Allgather(&one, ONE, many, ONE, comm);
    MPI_Alltoall(many, ONE, others, ONE, comm);
    MPI_Scan(&one, &sum, ONE, MPI_SUM, comm);
    MPI_Ibarrier(comm, &rs[0]);
    MPI_Iallreduce(&one, &others[0], ONE, MPI_SUM, comm, &rs[1]);
    MPI_Waitall(2, rs, ALL_IGNORED);
}

static void communicators(void)
{
    /* In `part` rank 2 of the world is rank 0. */
    MPI_Comm copy, part;
    MPI_Comm_dup(HERE, &copy);
    MPI_Comm_split(copy, rank % 2, -rank, &part);
    collectives(copy);
    if (rank == 0) {
        MPI_Send(&one, ONE, 0, 40, part);
    } else if (rank == 2) {
        MPI_Recv(&one, ONE, MPI_ANY_SOURCE, 40, part, IGNORE);
    }
    MPI_Barrier(part);
    MPI_Comm_free(&part);
    MPI_Comm_free(&copy);
}

static void windows(void)
{
    MPI_Win window;
    MPI_Win_create(many, sizeof many, sizeof(int), MPI_INFO_NULL, HERE, &window);
    MPI_Win_fence(0, window);
    MPI_Put(&one, ONE, (rank + 1) % 3, 0, ONE, window);
    MPI_Win_fence(0, window);
    MPI_Win_free(&window);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(HERE, &rank);
    modes();
    completions();
    any();
    probes();
    persistent();
    odd();
    communicators();
    windows();
    MPI_Finalize();
    return 0;
}
