/* Which sends end before their receive has begun: for each form of each it is said, when it has ended or so many
 * milliseconds (the argument) are over. With `cycle` each rank sends to the next and then receives; with `right` the first receives before it sends. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static int rank, size, value = 41, patience_ms;
static MPI_Request request;

static long long now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000ll + time.tv_nsec;
}

/* Rank 1 receives when rank 0 has said that its send has ended, or does not say it. */
#define TRY(name, ...) \
    do { \
        MPI_Request told; \
        int done = 0, ended = 0; \
        long long until; \
        if (rank == 1) \
            MPI_Irecv(&ended, 1, MPI_INT, 0, 8, MPI_COMM_WORLD, &told); \
        MPI_Barrier(MPI_COMM_WORLD); \
        if (rank == 0) { \
            __VA_ARGS__; \
            MPI_Rsend(&rank, 1, MPI_INT, 1, 8, MPI_COMM_WORLD); \
        } else { \
            for (until = now() + patience_ms * 1000000ll; !done && now() < until;) \
                MPI_Test(&told, &done, MPI_STATUS_IGNORE); \
            MPI_Recv(&value, 1, MPI_INT, 0, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE); \
            MPI_Wait(&told, MPI_STATUS_IGNORE); \
            printf("%s %s\n", name, done ? "early" : "late"); \
        } \
    } while (0)
#define WAIT MPI_Wait(&request, MPI_STATUS_IGNORE)
#define START MPI_Start(&request), WAIT, MPI_Request_free(&request)
#define TO &value, 1, MPI_INT, 1, 7, MPI_COMM_WORLD

static void round_about(int first_receives)
{
    int got = -1, mine = rank * rank, next = (rank + 1) % size, last = (rank + size - 1) % size;
    if (first_receives && !rank)
        MPI_Recv(&got, 1, MPI_INT, last, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Send(&mine, 1, MPI_INT, next, 7, MPI_COMM_WORLD);
    if (got < 0)
        MPI_Recv(&got, 1, MPI_INT, last, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    printf("rank %d: %d\n", rank, got);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    patience_ms = argc > 1 ? atoi(argv[1]) : 0;
    if (!patience_ms) {
        round_about(argc > 1 && !strcmp(argv[1], "right"));
        return MPI_Finalize();
    }
    TRY("Send", MPI_Send(TO));
    TRY("Isend", MPI_Isend(TO, &request), WAIT);
    TRY("Send_init", MPI_Send_init(TO, &request), START);
#if MPI_VERSION >= 4
    TRY("Send_c", MPI_Send_c(TO));
    TRY("Isend_c", MPI_Isend_c(TO, &request), WAIT);
    TRY("Send_init_c", MPI_Send_init_c(TO, &request), START);
#endif
    patience_ms = 300000; /* this one ends at once in either case */
    TRY("Sendrecv", MPI_Sendrecv(&value, 1, MPI_INT, 1, 7, &size, 0, MPI_INT, MPI_PROC_NULL, 0, MPI_COMM_WORLD,
                                  MPI_STATUS_IGNORE));
    return MPI_Finalize();
}
