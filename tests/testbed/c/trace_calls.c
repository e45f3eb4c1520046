/* Every kind of call, on two ranks. `trace_calls.f90` makes the same calls. */
#include <mpi.h>
#include <stddef.h>

#define HERE MPI_COMM_WORLD
#define IGNORE MPI_STATUS_IGNORE
#define ALL_IGNORED MPI_STATUSES_IGNORE

static int rank, other, flag, at, count, many[4], one = 1, sum;
static MPI_Request r, rs[4];
static MPI_Status status, statuses[4];
static MPI_Message message;

static void modes(void)
{
    static char room[1000];
    void *back;
    if (rank) {
        MPI_Irecv(&one, 1, MPI_INT, 0, 4, HERE, &r);
        MPI_Barrier(HERE);
        MPI_Recv(&one, 1, MPI_INT, 0, 1, HERE, IGNORE);
        MPI_Recv(&one, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, HERE, IGNORE);
        MPI_Recv(&one, 1, MPI_INT, MPI_ANY_SOURCE, 3, HERE, &status);
        MPI_Wait(&r, IGNORE);
        return;
    }
    MPI_Buffer_attach(room, sizeof room);
    MPI_Barrier(HERE);
    MPI_Send(&one, 1, MPI_INT, 1, 1, HERE);
    MPI_Bsend(&one, 1, MPI_INT, 1, 2, HERE);
    MPI_Ssend(&one, 1, MPI_INT, 1, 3, HERE);
    MPI_Rsend(&one, 1, MPI_INT, 1, 4, HERE);
    MPI_Buffer_detach(&back, &count);
}

static void completions(void)
{
    int i;
    if (!rank) {
        MPI_Isend(&one, 1, MPI_INT, 1, 5, HERE, &rs[0]);
        MPI_Isend(&one, 1, MPI_INT, 1, 6, HERE, &rs[1]);
        MPI_Issend(&one, 1, MPI_INT, 1, 7, HERE, &rs[2]);
        MPI_Waitall(3, rs, ALL_IGNORED);
        for (i = 8; i < 16; i++)
            MPI_Send(&one, 1, MPI_INT, 1, i, HERE);
        return;
    }
    MPI_Irecv(&many[0], 1, MPI_INT, 0, 5, HERE, &rs[0]);
    MPI_Irecv(&many[1], 1, MPI_INT, MPI_ANY_SOURCE, 6, HERE, &rs[1]);
    MPI_Irecv(&many[2], 1, MPI_INT, 0, MPI_ANY_TAG, HERE, &rs[2]);
    MPI_Waitall(3, rs, ALL_IGNORED);
    MPI_Irecv(&many[0], 1, MPI_INT, MPI_ANY_SOURCE, 8, HERE, &rs[0]);
    MPI_Waitany(1, rs, &at, IGNORE);
    MPI_Irecv(&many[0], 1, MPI_INT, 0, MPI_ANY_TAG, HERE, &rs[0]);
    MPI_Waitsome(1, rs, &count, many, ALL_IGNORED);
    MPI_Irecv(&many[0], 1, MPI_INT, 0, 10, HERE, &r);
    for (flag = 0; !flag;)
        MPI_Test(&r, &flag, IGNORE);
    MPI_Irecv(&many[0], 1, MPI_INT, 0, 11, HERE, &rs[0]);
    MPI_Irecv(&many[1], 1, MPI_INT, MPI_ANY_SOURCE, 12, HERE, &rs[1]);
    for (flag = 0; !flag;)
        MPI_Testall(2, rs, &flag, ALL_IGNORED);
    MPI_Irecv(&many[0], 1, MPI_INT, MPI_ANY_SOURCE, 13, HERE, &rs[0]);
    for (flag = 0; !flag;)
        MPI_Testany(1, rs, &at, &flag, IGNORE);
    MPI_Irecv(&many[0], 1, MPI_INT, MPI_ANY_SOURCE, 14, HERE, &rs[0]);
    for (count = 0; !count;)
        MPI_Testsome(1, rs, &count, &at, statuses);
    MPI_Recv(&one, 1, MPI_INT, 0, 15, HERE, &status);
    r = MPI_REQUEST_NULL;
    MPI_Wait(&r, IGNORE);
}

static void persistent(void)
{
    int i;
    if (rank) {
        MPI_Recv_init(&many[0], 1, MPI_INT, MPI_ANY_SOURCE, 20, HERE, &rs[0]);
        MPI_Recv_init(&many[1], 1, MPI_INT, 0, 21, HERE, &rs[1]);
    } else {
        MPI_Send_init(&many[0], 1, MPI_INT, 1, 20, HERE, &rs[0]);
        MPI_Ssend_init(&many[1], 1, MPI_INT, 1, 21, HERE, &rs[1]);
    }
    MPI_Start(&rs[0]);
    MPI_Wait(&rs[0], IGNORE);
    MPI_Wait(&rs[0], IGNORE);
    MPI_Startall(2, rs);
    MPI_Waitall(2, rs, ALL_IGNORED);
    for (i = 0; i < 2; i++)
        MPI_Request_free(&rs[i]);
}

static void probes(void)
{
    if (!rank) {
        MPI_Send(&one, 1, MPI_INT, 1, 30, HERE);
        MPI_Send(&one, 1, MPI_INT, 1, 31, HERE);
        MPI_Send(&one, 1, MPI_INT, 1, 32, HERE);
        MPI_Send(&one, 1, MPI_INT, 1, 33, HERE);
        return;
    }
    MPI_Probe(MPI_ANY_SOURCE, MPI_ANY_TAG, HERE, IGNORE);
    MPI_Recv(&one, 1, MPI_INT, 0, 30, HERE, IGNORE);
    for (flag = 0; !flag;)
        MPI_Iprobe(0, MPI_ANY_TAG, HERE, &flag, IGNORE);
    MPI_Recv(&one, 1, MPI_INT, 0, 31, HERE, IGNORE);
    MPI_Mprobe(MPI_ANY_SOURCE, 32, HERE, &message, IGNORE);
    MPI_Mrecv(&one, 1, MPI_INT, &message, IGNORE);
    for (flag = 0; !flag;)
        MPI_Improbe(MPI_ANY_SOURCE, 33, HERE, &flag, &message, &status);
    MPI_Imrecv(&one, 1, MPI_INT, &message, &r);
    MPI_Wait(&r, IGNORE);
}

static void nobody(void)
{
    MPI_Send(&one, 1, MPI_INT, MPI_PROC_NULL, 40, HERE);
    MPI_Recv(&one, 1, MPI_INT, MPI_PROC_NULL, 40, HERE, IGNORE);
    MPI_Isend(&one, 1, MPI_INT, MPI_PROC_NULL, 41, HERE, &rs[0]);
    MPI_Irecv(&one, 1, MPI_INT, MPI_PROC_NULL, MPI_ANY_TAG, HERE, &rs[1]);
    MPI_Waitall(2, rs, ALL_IGNORED);
    MPI_Mprobe(MPI_PROC_NULL, 42, HERE, &message, IGNORE);
    MPI_Mrecv(&one, 1, MPI_INT, &message, IGNORE);
    MPI_Sendrecv(&one, 1, MPI_INT, other, 43, &sum, 1, MPI_INT, MPI_ANY_SOURCE, 43, HERE, IGNORE);
    MPI_Sendrecv_replace(&one, 1, MPI_INT, other, 44, other, 44, HERE, &status);
    MPI_Irecv(&sum, 1, MPI_INT, other, 45, HERE, &r);
    MPI_Cancel(&r);
    MPI_Wait(&r, IGNORE);
}

static void collectives(void)
{
    MPI_Bcast(&one, 1, MPI_INT, 1, HERE);
    MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, HERE);
    MPI_Reduce(&one, &sum, 1, MPI_INT, MPI_SUM, 0, HERE);
    if (rank)
        MPI_Gather(&one, 1, MPI_INT, NULL, 0, MPI_DATATYPE_NULL, 0, HERE);
    else
        MPI_Gather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, many, 1, MPI_INT, 0, HERE);
    MPI_Scatter(many, 1, MPI_INT, &one, 1, MPI_INT, 0, HERE);
    MPI_Allgather(&one, 1, MPI_INT, many, 1, MPI_INT, HERE);
    MPI_Alltoall(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, many, 1, MPI_INT, HERE);
    MPI_Scan(&one, &sum, 1, MPI_INT, MPI_SUM, HERE);
    MPI_Ibarrier(HERE, &r);
    MPI_Wait(&r, IGNORE);
    MPI_Ibcast(&one, 1, MPI_INT, 0, HERE, &r);
    MPI_Wait(&r, &status);
}

static void communicators(void)
{
    MPI_Comm alone, between, both, grid, copy, later;
    int size = 2, round = 1;
    MPI_Comm_dup(HERE, &copy);
    MPI_Comm_split(HERE, rank, 0, &alone);
    MPI_Cart_create(copy, 1, &size, &round, 0, &grid);
    MPI_Intercomm_create(alone, 0, HERE, other, 50, &between);
    MPI_Sendrecv(&one, 1, MPI_INT, 0, 51, &sum, 1, MPI_INT, 0, 51, between, IGNORE);
    MPI_Bcast(&one, 1, MPI_INT, rank ? 0 : MPI_ROOT, between);
    MPI_Intercomm_merge(between, rank, &both);
    MPI_Comm_idup(grid, &later, &r);
    MPI_Wait(&r, IGNORE);
    MPI_Barrier(later);
    MPI_Comm_free(&later);
    MPI_Comm_free(&both);
    MPI_Comm_free(&between);
    MPI_Comm_free(&grid);
    MPI_Comm_free(&alone);
    MPI_Comm_free(&copy);
}

static void windows_and_files(void)
{
    MPI_Win window;
    MPI_File file;
    MPI_Win_create(many, sizeof many, sizeof *many, MPI_INFO_NULL, HERE, &window);
    MPI_Win_fence(0, window);
    MPI_Put(&one, 1, MPI_INT, other, 0, 1, MPI_INT, window);
    MPI_Win_fence(0, window);
    MPI_Win_lock(MPI_LOCK_SHARED, other, 0, window);
    MPI_Get(&one, 1, MPI_INT, other, 0, 1, MPI_INT, window);
    MPI_Win_flush(other, window);
    MPI_Win_unlock(other, window);
    MPI_Win_free(&window);
    MPI_File_open(HERE, "written", MPI_MODE_CREATE | MPI_MODE_WRONLY, MPI_INFO_NULL, &file);
    MPI_File_write_at_all(file, 4 * rank, &one, 1, MPI_INT, IGNORE);
    MPI_File_iwrite_at(file, 4 * rank, &one, 1, MPI_INT, &r);
    MPI_Wait(&r, IGNORE);
    MPI_File_close(&file);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(HERE, &rank);
    other = 1 - rank;
    modes();
    completions();
    persistent();
    probes();
    nobody();
    collectives();
    communicators();
    windows_and_files();
    MPI_Finalize();
    return 0;
}
