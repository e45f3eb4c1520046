/* check_cases CASE [MORE]: what the tracer must not get wrong in check mode, a case each. */
#define _GNU_SOURCE
#include <mpi.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MANY = 2000, THREADS = 4 };
static int rank, size, one = 1, into[4];

static int class_of(int code)
{
    int class;
    MPI_Error_class(code, &class);
    return class;
}

/* Arguments that MPI answers with an error, or does not look at: the tracer looks at none of them. */
static void wrong(void)
{
    MPI_Request none = MPI_REQUEST_NULL, *nowhere = NULL;
    int at, flag, failed = 0;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    failed += MPI_Send(&one, 1, MPI_INT, 0, 1, MPI_COMM_NULL) != 0;
    failed += MPI_Barrier(MPI_COMM_NULL) != 0;
    failed += MPI_Send(&one, -1, MPI_INT, 0, 1, MPI_COMM_WORLD) != 0;
    failed += MPI_Send(&one, 1, MPI_DATATYPE_NULL, 0, 1, MPI_COMM_WORLD) != 0;
    failed += MPI_Send(&one, 1, MPI_INT, 99, 1, MPI_COMM_WORLD) != 0;
    failed += MPI_Send(&one, 1, MPI_INT, 0, -7, MPI_COMM_WORLD) != 0;
    failed += MPI_Bcast(&one, 1, MPI_INT, 99, MPI_COMM_WORLD) != 0;
    failed += MPI_Allreduce(&one, into, 1, MPI_INT, MPI_OP_NULL, MPI_COMM_WORLD) != 0;
    failed += MPI_Wait(nowhere, MPI_STATUS_IGNORE) != 0;
    failed += MPI_Test(nowhere, &flag, MPI_STATUS_IGNORE) != 0;
    failed += MPI_Cancel(nowhere) != 0;
    failed += MPI_Request_free(nowhere) != 0;
    failed += MPI_Request_free(&none) != 0;
    failed += MPI_Start(nowhere) != 0;
    failed += MPI_Waitall(3, nowhere, MPI_STATUSES_IGNORE) != 0;
    failed += MPI_Waitall(-1, &none, MPI_STATUSES_IGNORE) != 0;
    failed += MPI_Waitany(2, nowhere, &at, MPI_STATUS_IGNORE) != 0;
    failed += MPI_Startall(2, nowhere) != 0;
    failed += MPI_Testsome(2, nowhere, &at, &at, MPI_STATUSES_IGNORE) != 0;
    failed += MPI_Op_free(NULL) != 0;
    failed += MPI_Group_free(NULL) != 0;
    failed += MPI_Comm_rank(MPI_COMM_WORLD, NULL) != 0;
    failed += MPI_Isend(&one, 1, MPI_INT, 0, 1, MPI_COMM_NULL, nowhere) != 0;
    failed += MPI_Isend(&one, 1, MPI_INT, 99, 1, MPI_COMM_WORLD, &none) != 0;
    printf("%d %d\n", rank, failed);
}

/* A communicator that was freed. Open MPI would look at what is no more, so this is for MPICH alone. */
static void freed(void)
{
    MPI_Comm own, kept;
    int code;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_dup(MPI_COMM_WORLD, &own);
    kept = own;
    MPI_Comm_free(&own);
    code = class_of(MPI_Barrier(kept));
    printf("%d %d %d\n", rank, code == MPI_ERR_COMM, class_of(MPI_Send(&one, 1, MPI_INT, 0, 1, kept)) == MPI_ERR_COMM);
}

/* What was made by calls that nobody watches. */
static void unseen(void)
{
    MPI_Comm own;
    MPI_Win win;
    MPI_Request request;
    MPI_Comm_dup(MPI_COMM_WORLD, &own);
    MPI_Barrier(own);
    MPI_Irecv(into, 1, MPI_INT, MPI_ANY_SOURCE, 3, own, &request);
    MPI_Send(&one, 1, MPI_INT, (rank + 1) % size, 3, own);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Win_create(into, sizeof into, 4, MPI_INFO_NULL, own, &win);
    MPI_Win_fence(0, win);
    MPI_Win_free(&win);
    MPI_Comm_free(&own);
}

/* The error that ends the program. */
static void fatal(const char *which)
{
    MPI_Comm own;
    MPI_Win win;
    MPI_Comm_dup(MPI_COMM_WORLD, &own);
    MPI_Win_create(into, sizeof into, 4, MPI_INFO_NULL, MPI_COMM_WORLD, &win);
    MPI_Win_fence(0, win);
    if (!strcmp(which, "comm"))
        MPI_Send(&one, 1, MPI_INT, 99, 1, own);
    if (!strcmp(which, "null"))
        MPI_Barrier(MPI_COMM_NULL);
    if (!strcmp(which, "freed")) {
        MPI_Comm kept = own;
        MPI_Comm_free(&own);
        MPI_Barrier(kept);
    }
    if (!strcmp(which, "win"))
        MPI_Put(&one, 1, MPI_INT, 99, 0, 1, MPI_INT, win);
    if (!strcmp(which, "again")) {
        MPI_Comm_set_errhandler(own, MPI_ERRORS_RETURN);
        MPI_Send(&one, 1, MPI_INT, 98, 1, own);
        MPI_Comm_set_errhandler(own, MPI_ERRORS_ARE_FATAL);
        MPI_Bcast(&one, 1, MPI_INT, 99, own);
    }
    if (!strcmp(which, "call")) {
        int class = MPI_ERR_RANK;
        MPI_Comm_call_errhandler(own, class);
    }
}

static int told;
static void tells(MPI_Comm *comm, int *code, ...)
{
    (void)comm;
    told = class_of(*code);
}

/* What a program sees of error handlers: as if there were no tracer. */
static void handlers(void)
{
    MPI_Errhandler found, own;
    MPI_Comm copy;
    MPI_Win win;
    int i, right = 1;
    for (i = 0; i < 500; i++) { /* each takes a reference, and gives it back */
        MPI_Comm_get_errhandler(i % 2 ? MPI_COMM_WORLD : MPI_COMM_SELF, &found);
        right &= found == MPI_ERRORS_ARE_FATAL;
        right &= MPI_Errhandler_free(&found) == MPI_SUCCESS && found == MPI_ERRHANDLER_NULL;
    }
    MPI_Win_create(into, sizeof into, 4, MPI_INFO_NULL, MPI_COMM_WORLD, &win);
    MPI_Win_get_errhandler(win, &found);
    right &= found == MPI_ERRORS_ARE_FATAL;
    MPI_Errhandler_free(&found);
    MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN);
    MPI_Win_get_errhandler(win, &found);
    right &= found == MPI_ERRORS_RETURN;
    MPI_Win_free(&win);
    MPI_Comm_create_errhandler(tells, &own);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, own);
    MPI_Comm_dup(MPI_COMM_WORLD, &copy);
    MPI_Send(&one, 1, MPI_INT, 99, 1, copy);
    right &= told == MPI_ERR_RANK;
    MPI_Comm_get_errhandler(copy, &found);
    right &= found == own;
    MPI_Comm_set_errhandler(copy, MPI_ERRORS_ARE_FATAL);
    MPI_Comm_get_errhandler(copy, &found);
    right &= found == MPI_ERRORS_ARE_FATAL;
    MPI_Comm_free(&copy);
    printf("%d %d\n", rank, right);
}

static void *sends(void *number_)
{
    int i, number = (int)(long)number_, got;
    for (i = 0; i < MANY; i++) {
        MPI_Request request;
        MPI_Isend(&i, 1, MPI_INT, rank, number, MPI_COMM_WORLD, &request);
        MPI_Recv(&got, 1, MPI_INT, rank, number, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Waitall(1, &request, MPI_STATUSES_IGNORE);
    }
    for (i = 0; i < 3 * MANY; i++) /* nothing but the tracer's own work */
        MPI_Comm_size(number % 2 ? MPI_COMM_SELF : MPI_COMM_WORLD, &got);
    return NULL;
}

static void threads(void)
{
    pthread_t all[THREADS];
    long i;
    for (i = 0; i < THREADS; i++)
        pthread_create(&all[i], NULL, sends, (void *)i);
    for (i = 0; i < THREADS; i++)
        pthread_join(all[i], NULL);
}

/* It waits for a message that nobody sends, with this function on its stack. */
__attribute__((noinline)) void stands_still(void)
{
    MPI_Recv(into, 1, MPI_INT, rank, 77, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    one++;
}

int main(int argc, char **argv)
{
    int level;
    MPI_Init_thread(&argc, &argv, strcmp(argv[1], "threads") ? MPI_THREAD_SINGLE : MPI_THREAD_MULTIPLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (!strcmp(argv[1], "wrong"))
        wrong();
    if (!strcmp(argv[1], "freed"))
        freed();
    if (!strcmp(argv[1], "unseen"))
        unseen();
    if (!strcmp(argv[1], "fatal"))
        fatal(argv[2]);
    if (!strcmp(argv[1], "handlers"))
        handlers();
    if (!strcmp(argv[1], "threads"))
        threads();
    if (!strcmp(argv[1], "still"))
        stands_still();
    if (!strcmp(argv[1], "twice"))
        MPI_Init(&argc, &argv);
    MPI_Finalize();
    if (!strcmp(argv[1], "after"))
        MPI_Barrier(MPI_COMM_WORLD);
    if (!strcmp(argv[1], "killed"))
        kill(getpid(), 9);
    return 0;
}
