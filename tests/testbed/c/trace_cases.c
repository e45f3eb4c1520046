/* trace_cases CASE [NUMBER]: what a tracer must not get wrong, a case each. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MANY = 1000 };
static int rank, size, other, number, one = 1, into[MANY];
static MPI_Request requests[MANY];

static void *asked(const char *name)
{
    void *found = dlsym(RTLD_DEFAULT, name);
    if (!found)
        MPI_Abort(MPI_COMM_WORLD, 77);
    return found;
}

/* Summed over all ranks, by a call that nobody notes. */
static void under_way(const char *what)
{
    int (*counters)(const int *, int, long long *) = asked("safepoint_trace_counters");
    long long mine[4], all[4], with_other[4];
    counters(NULL, -1, mine);
    counters(&other, 1, with_other);
    if (with_other[0] != mine[0])
        printf("%s: rank %d has messages with itself\n", what, rank);
    PMPI_Allreduce(mine, all, 4, MPI_LONG_LONG, MPI_SUM, MPI_COMM_WORLD);
    if (!rank)
        printf("%s %lld %lld %lld %lld\n", what, all[0], all[1], all[2], all[3]);
    fflush(stdout);
}

static void counters(void)
{
    MPI_Message message;
    MPI_Request request;
    MPI_Win window;
    under_way("clean");
    if (!rank)
        MPI_Send(&one, 1, MPI_INT, 1, 1, MPI_COMM_WORLD);
    under_way("eager");
    if (rank)
        MPI_Mprobe(0, MPI_ANY_TAG, MPI_COMM_WORLD, &message, MPI_STATUS_IGNORE);
    under_way("probed");
    if (rank)
        MPI_Mrecv(into, 1, MPI_INT, &message, MPI_STATUS_IGNORE);
    under_way("clean");
    if (rank)
        MPI_Irecv(into, 1, MPI_INT, MPI_ANY_SOURCE, 2, MPI_COMM_WORLD, &request);
    else
        MPI_Send(&one, 1, MPI_INT, 1, 2, MPI_COMM_WORLD);
    under_way("posted");
    if (rank)
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    under_way("clean");
    MPI_Irecv(into, 1, MPI_INT, other, 3, MPI_COMM_WORLD, &request);
    MPI_Cancel(&request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    under_way("clean");
    MPI_Win_create(into, sizeof into, 4, MPI_INFO_NULL, MPI_COMM_WORLD, &window);
    MPI_Win_fence(0, window);
    MPI_Put(&one, 1, MPI_INT, other, 0, 1, MPI_INT, window);
    under_way("put");
    MPI_Win_fence(0, window);
    under_way("clean");
    MPI_Win_free(&window);
}

/* MPI may give all of these sends one handle. */
static void alike(void)
{
    int i;
    for (i = 0; i < MANY; i++)
        if (rank)
            MPI_Irecv(&into[i], 1, MPI_INT, 0, i, MPI_COMM_WORLD, &requests[i]);
    MPI_Barrier(MPI_COMM_WORLD);
    for (i = 0; i < MANY && !rank; i++)
        MPI_Isend(&one, 1, MPI_INT, i % 2 ? MPI_PROC_NULL : 1, i, MPI_COMM_WORLD, &requests[i]);
    for (i = 1; i < MANY && !rank; i += 2)
        MPI_Wait(&requests[i], MPI_STATUS_IGNORE);
    for (i = 1; i < MANY && rank; i += 2)
        MPI_Cancel(&requests[i]);
    MPI_Waitall(MANY, requests, MPI_STATUSES_IGNORE);
}

/* Handles and variables in no order, as after each was waited for and used again. */
static void shuffled(void)
{
    int i, order[MANY];
    for (i = 0; i < MANY; i++)
        order[i] = i * 387 % MANY;
    for (i = 0; i < MANY && rank; i++)
        MPI_Irecv(&into[order[i]], 1, MPI_INT, 0, order[i], MPI_COMM_WORLD, &requests[order[i]]);
    MPI_Barrier(MPI_COMM_WORLD);
    for (i = 0; i < MANY; i++)
        if (rank)
            MPI_Wait(&requests[i], MPI_STATUS_IGNORE);
        else
            MPI_Send(&one, 1, MPI_INT, 1, i, MPI_COMM_WORLD);
}

/* An argument that is refused by the communicator's own error handler. */
static void refused(void)
{
    MPI_Comm comm;
    MPI_Datatype type = MPI_DATATYPE_NULL;
    int codes[2];
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
#ifdef MPICH
    type = (MPI_Datatype)0x123; /* with Open MPI it would be an address */
#endif
    codes[0] = MPI_Send(&one, 1, type, 0, 0, comm);
    codes[1] = MPI_Send(&one, 1, MPI_INT, 99, 0, comm);
    printf("refused %d %d\n", codes[0] != 0, codes[1] != 0);
    fflush(stdout);
    MPI_Comm_free(&comm);
    under_way("clean");
}

static void sends_to_itself(void)
{
    MPI_Request request;
    MPI_Isend(&one, 1, MPI_INT, 0, 1, MPI_COMM_SELF, &request);
    MPI_Recv(into, 1, MPI_INT, 0, 1, MPI_COMM_SELF, MPI_STATUS_IGNORE);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
}

static void to_nobody(int count)
{
    while (count--)
        MPI_Send(&one, 1, MPI_INT, MPI_PROC_NULL, 1, MPI_COMM_WORLD);
}

static void forked(void)
{
    char path[4096], state = 9;
    FILE *notes;
    pid_t child;
    int status = 0;
    sends_to_itself();
    if (!(child = fork())) {
        to_nobody(5);
        exit(0);
    }
    waitpid(child, &status, 0);
    snprintf(path, sizeof path, "%s/rank-00000.calls", getenv("SAFEPOINT_TRACE"));
    notes = fopen(path, "r");
    if (!notes || fseek(notes, 4096 + 64 * 3 + 63, SEEK_SET) || fread(&state, 1, 1, notes) != 1)
        MPI_Abort(MPI_COMM_WORLD, 78);
    fclose(notes);
    sends_to_itself();
    printf("child %d, note 3 is %d\n", status, state);
}

static void waits(void)
{
    MPI_Recv(into, 1, MPI_INT, other, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static void back_and_forth(void)
{
    int i;
    for (i = 0; i < number; i++) {
        MPI_Request request;
        MPI_Irecv(into, 1, MPI_INT, other, i % 9, MPI_COMM_WORLD, &request);
        MPI_Send(&one, 1, MPI_INT, other, i % 9, MPI_COMM_WORLD);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
    printf("ended\n");
}

/* Its descriptors are closed behind its back, and their numbers go to a file of the program. */
static void closed(void)
{
    char link[64], target[4096];
    FILE *mine[8];
    int i;
    to_nobody(1); /* it has a site */
    for (i = 3; i < 1000; i++) {
        ssize_t length;
        snprintf(link, sizeof link, "/proc/self/fd/%d", i);
        length = readlink(link, target, sizeof target - 1);
        target[length > 0 ? length : 0] = 0;
        if (strstr(target, "/rank-0000"))
            close(i);
    }
    for (i = 0; i < 8; i++) {
        snprintf(link, sizeof link, "mine-%d", i);
        mine[i] = fopen(link, "w");
    }
    to_nobody(40000);
    for (i = 0; i < 8; i++)
        fclose(mine[i]);
    printf("ended\n");
}

static void calls_mpi(void *in, void *out, int *count, MPI_Datatype *type)
{
    (void)type;
    MPI_Send(in, 1, MPI_INT, MPI_PROC_NULL, 1, MPI_COMM_WORLD);
    ((int *)out)[*count - 1] += ((int *)in)[*count - 1];
}

/* What MPI calls inside; arguments that do not count, and may be anything; calls that fail. */
static void odd(void)
{
    MPI_Datatype junk;
    MPI_Op op;
    MPI_Request none = MPI_REQUEST_NULL;
    memset(&junk, 0x5a, sizeof junk);
    MPI_Op_create(calls_mpi, 1, &op);
    MPI_Allreduce(&one, into, 1, MPI_INT, op, MPI_COMM_WORLD);
    MPI_Op_free(&op);
    if (rank)
        MPI_Scatter(NULL, 5, junk, into, 1, MPI_INT, 0, MPI_COMM_WORLD);
    else
        MPI_Scatter(into, 1, MPI_INT, MPI_IN_PLACE, 5, junk, 0, MPI_COMM_WORLD);
    MPI_Allgather(MPI_IN_PLACE, 5, junk, into, 1, MPI_INT, MPI_COMM_WORLD);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Send(&one, 1, MPI_INT, 99, 1, MPI_COMM_WORLD);
    MPI_Waitall(1, &none, MPI_STATUSES_IGNORE);
    under_way("clean");
}

static void *thread(void *comm_)
{
    MPI_Comm comm = *(MPI_Comm *)comm_;
    int i, got;
    for (i = 0; i < number; i++) {
        MPI_Request request[2];
        MPI_Irecv(&got, 1, MPI_INT, MPI_ANY_SOURCE, i, comm, &request[0]);
        MPI_Isend(&i, 1, MPI_INT, 0, i, comm, &request[1]);
        MPI_Waitall(2, request, MPI_STATUSES_IGNORE);
    }
    return NULL;
}

static void threaded(void)
{
    MPI_Comm comms[3];
    pthread_t threads[3];
    int i;
    for (i = 0; i < 3; i++)
        MPI_Comm_dup(MPI_COMM_SELF, &comms[i]);
    for (i = 0; i < 3; i++)
        pthread_create(&threads[i], NULL, thread, &comms[i]);
    for (i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    under_way("threads");
}

static void large(void)
{
#if MPI_VERSION >= 4
    MPI_Request request;
    if (!rank)
        MPI_Send_c(&one, 1, MPI_INT, 1, 1, MPI_COMM_WORLD);
    else
        MPI_Recv_c(into, 1, MPI_INT, MPI_ANY_SOURCE, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Bcast_c(&one, 1, MPI_INT, 0, MPI_COMM_WORLD);
    MPI_Iallgather_c(&one, 1, MPI_INT, into, 1, MPI_INT, MPI_COMM_WORLD, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
#endif
}

/* As Python does it: its own sites; and calls of the library's that are not to be noted. */
static void sited(void)
{
    unsigned (*site)(const char *, int, const char *) = asked("safepoint_trace_new_site");
    volatile unsigned *word = asked("safepoint_trace_site");
    void (*hide)(long long) = asked("safepoint_trace_hide");
    void (*hidden)(void) = asked("safepoint_trace_hidden");
    void (*mark)(void) = asked("safepoint_trace_mark");
    *word = site("solver.py", 12, "step");
    MPI_Barrier(MPI_COMM_WORLD);
    *word = 0xffffffff;
    MPI_Barrier(MPI_COMM_WORLD);
    *word = site("solver.py", 12, "step");
    hide(-7);
    hidden();
    *word = 0;
    mark();
}

/* A topology of fewer processes than there are. */
static void topology(void)
{
    int two = 2, no = 0;
    MPI_Comm grid;
    MPI_Cart_create(MPI_COMM_WORLD, 1, &two, &no, 0, &grid);
    if (grid != MPI_COMM_NULL) {
        MPI_File file;
        MPI_File_open(grid, "topology.bin", MPI_MODE_CREATE | MPI_MODE_WRONLY, MPI_INFO_NULL, &file);
        MPI_File_close(&file);
        MPI_Comm_free(&grid);
    }
}

static void freed(void)
{
    MPI_Comm comm;
    int i;
    for (i = 0; i < 50; i++) {
        MPI_Comm_split(MPI_COMM_WORLD, i % 2 ? 0 : rank, 0, &comm);
        MPI_Barrier(comm);
        MPI_Comm_free(&comm);
    }
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } cases[] = {{"shuffled", shuffled}, {"refused", refused}, {"counters", counters}, {"alike", alike},      {"forked", forked}, {"loop", back_and_forth},
                 {"closed", closed},     {"odd", odd},          {"large", large},   {"sited", sited},
                 {"freed", freed},       {"threads", threaded}, {"waits", waits},   {"topology", topology}};
    int provided, threads = argc > 1 && !strcmp(argv[1], "threads");
    size_t i;
    number = argc > 2 ? atoi(argv[2]) : 0;
    MPI_Init_thread(&argc, &argv, threads ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    other = size - 1 - rank;
    for (i = 0; i < sizeof cases / sizeof *cases; i++)
        if (!strcmp(argv[1], cases[i].name))
            cases[i].run();
    MPI_Finalize();
    return 0;
}
