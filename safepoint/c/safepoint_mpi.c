/* What an agreement needs, as operations of MPI on a duplicate of the program's communicator.
 *
 * Those that other ranks see have their names of the profiling interface: a trace of the program has no call of ours. */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif
#include "safepoint_mpi.h"

#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A communicator of the program, which keeps this as an attribute, and our duplicate of it: one for all its sessions. */
struct pair {
    MPI_Comm users, ours; /* users: MPI_COMM_NULL when the program has freed it */
    MPI_Request arriving;
    long long *with; /* messages that are under way with each rank; NULL: not all ranks count their messages */
    int *members;    /* as ranks of the world */
};

enum { COUNTED = 2, A_REQUEST = -1, AN_EPOCH = -2 }; /* in_flight: instead of whether there is a message, see line.py */

/* Of a tracer that was loaded before the program: of the messages to and from these ranks of the world those sent less
 * those received; requests and access epochs that are open; and whether that cannot be told. */
int safepoint_trace_counters(const int *members, int n, long long out[4]);
#ifdef __linux__
#pragma weak safepoint_trace_counters
#define COUNTS (safepoint_trace_counters != NULL)
#else
#define COUNTS 0
#define safepoint_trace_counters(members, n, out) (-1)
#endif

static int key, has_key;

static int reduce(void *context, int sum, long long *values, int count)
{
    struct pair *pair = (struct pair *)context;
    return PMPI_Allreduce(MPI_IN_PLACE, values, count, MPI_LONG_LONG, sum ? MPI_SUM : MPI_MIN, pair->ours);
}

static int broadcast(void *context, void *bytes, int count, int root)
{
    struct pair *pair = (struct pair *)context;
    return PMPI_Bcast(bytes, count, MPI_BYTE, root, pair->ours);
}

static int arrive(void *context)
{
    struct pair *pair = (struct pair *)context;
    return PMPI_Ibarrier(pair->ours, &pair->arriving);
}

/* Whether each rank has a tracer. Collective. */
static int all_count(struct pair *pair)
{
    MPI_Group world, mine;
    int i, n, yes, code;
    size_t size;
    MPI_Comm_size(pair->ours, &n);
    size = (size_t)n;
    pair->with = (long long *)(COUNTS ? malloc(2 * size * (sizeof(long long) + sizeof(int))) : NULL);
    yes = pair->with != NULL;
    code = PMPI_Allreduce(MPI_IN_PLACE, &yes, 1, MPI_INT, MPI_MIN, pair->ours);
    if (code || !yes) {
        free(pair->with);
        pair->with = NULL;
        return code;
    }
    pair->members = (int *)(void *)(pair->with + 2 * n);
    for (i = 0; i < n; i++)
        pair->members[n + i] = i;
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPI_Comm_group(pair->ours, &mine);
    code = MPI_Group_translate_ranks(mine, n, pair->members + n, world, pair->members);
    MPI_Group_free(&world);
    MPI_Group_free(&mine);
    return code;
}

static void count(const int *members, int n, long long out[4])
{
    if (!COUNTS || safepoint_trace_counters(members, n, out)) {
        out[0] = out[1] = out[2] = 0;
        out[3] = 1;
    }
}

/* All ranks are inside of the call: the sum is exactly what is under way. Only if it is not zero they look with whom:
 * each message is told by the higher of its two ranks. */
static int counted(struct pair *pair, int message[4])
{
    long long mine[4], all[4], one[4];
    int i, n, rank, code;
    MPI_Comm_size(pair->ours, &n);
    MPI_Comm_rank(pair->ours, &rank);
    count(pair->members, n, mine);
    code = PMPI_Allreduce(mine, all, 4, MPI_LONG_LONG, MPI_SUM, pair->ours);
    if (code || all[3] || !(all[0] || all[1] || all[2]))
        return code;
    for (i = 0; i < n; i++) {
        count(pair->members + i, 1, one);
        pair->with[i] = one[0];
    }
    code = PMPI_Alltoall(pair->with, 1, MPI_LONG_LONG, pair->with + n, 1, MPI_LONG_LONG, pair->ours);
    for (i = rank; !code && !message[0] && i >= 0; i--)
        if ((one[0] = pair->with[i] + (i == rank ? 0 : pair->with[n + i])) != 0) {
            message[0] = COUNTED;
            message[1] = one[0] < INT_MAX ? (int)one[0] : INT_MAX;
            message[2] = i;
        }
    if (!code && !message[0] && (mine[1] || mine[2])) {
        message[0] = COUNTED;
        message[2] = mine[1] ? A_REQUEST : AN_EPOCH;
    }
    return code;
}

static int in_flight(void *context, int message[4])
{
    struct pair *pair = (struct pair *)context;
    MPI_Status status;
    int code = PMPI_Wait(&pair->arriving, MPI_STATUS_IGNORE);
    if (!code && pair->users != MPI_COMM_NULL)
        code = PMPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, pair->users, &message[0], &status);
    if (!code && message[0]) {
        message[1] = status.MPI_SOURCE;
        message[2] = status.MPI_TAG;
        code = MPI_Get_count(&status, MPI_BYTE, &message[3]);
    }
    if (!code && pair->with)
        code = counted(pair, message);
    return code;
}

static int usable(void *context)
{
    int ended = 0;
    (void)context;
    MPI_Finalized(&ended);
    return !ended;
}

static int status_of_end;

static void end_now(int number)
{
    (void)number;
    _exit(status_of_end);
}

/* MPI_Abort of MPICH 4 may spin for ever when the other ranks are in MPI_Finalize already. A rank that ends without
 * MPI_Finalize, and not with 0, ends the others too. */
static void end_at_the_latest_in(unsigned seconds, int status)
{
    struct sigaction action;
    sigset_t alarms;
    memset(&action, 0, sizeof action);
    action.sa_handler = end_now;
    sigemptyset(&alarms);
    sigaddset(&alarms, SIGALRM);
    status_of_end = status;
    sigaction(SIGALRM, &action, NULL);
    sigprocmask(SIG_UNBLOCK, &alarms, NULL);
    alarm(seconds);
}

static void die(void *context, int status)
{
    struct pair *pair = (struct pair *)context;
    if (usable(NULL)) {
        end_at_the_latest_in(10, status);
        MPI_Abort(pair->ours, status);
    }
    exit(status);
}

/* Of safepoint.c. */
int safepoint_refuse(const char *text);
int safepoint_let_go(const void *context);
void safepoint_know_world(int size);

/* The program frees its communicator. A session that is at work keeps the duplicate; MPI_Finalize needs nothing freed. */
static int forget(MPI_Comm comm, int of, void *value, void *state)
{
    struct pair *pair = (struct pair *)value;
    (void)of;
    (void)state;
    pair->users = MPI_COMM_NULL;
    if (comm != MPI_COMM_WORLD && comm != MPI_COMM_SELF && safepoint_let_go(pair)) {
        PMPI_Comm_free(&pair->ours);
        free(pair->with);
        free(pair);
    }
    return MPI_SUCCESS;
}

static int duplicate(MPI_Comm comm, struct pair **pair)
{
    MPI_Errhandler usual;
    int found = 0, code = MPI_SUCCESS;
    if (!has_key) {
        code = MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, forget, &key, NULL);
        has_key = !code;
    }
    if (!code)
        code = MPI_Comm_get_attr(comm, key, pair, &found);
    if (code || found)
        return code;
    *pair = (struct pair *)malloc(sizeof **pair);
    if (!*pair)
        return MPI_ERR_NO_MEM;
    (*pair)->users = comm;
    (*pair)->arriving = MPI_REQUEST_NULL;
    (*pair)->with = NULL;
    code = MPI_Comm_get_errhandler(comm, &usual); /* there may be too many communicators: a code, not the program's end */
    if (!code) {
        MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
        code = PMPI_Comm_dup(comm, &(*pair)->ours);
        MPI_Comm_set_errhandler(comm, usual);
        MPI_Errhandler_free(&usual);
    }
    if (!code) /* an error of ours is told to all ranks by ourselves */
        code = MPI_Comm_set_errhandler((*pair)->ours, MPI_ERRORS_RETURN);
    if (!code)
        code = all_count(*pair);
    if (!code)
        code = MPI_Comm_set_attr(comm, key, *pair);
    return code;
}

static const char *misuse(MPI_Comm comm)
{
    int begun = 0, ended = 0, between = 0;
    MPI_Initialized(&begun);
    MPI_Finalized(&ended);
    if (!begun)
        return "safepoint_init_mpi before MPI_Init";
    if (ended)
        return "safepoint_init_mpi after MPI_Finalize";
    if (comm == MPI_COMM_NULL)
        return "safepoint_init_mpi was given MPI_COMM_NULL";
    MPI_Comm_test_inter(comm, &between);
    return between ? "safepoint_init_mpi takes an intracommunicator, such as MPI_COMM_WORLD" : NULL;
}

int safepoint_init_mpi(const char *directory, MPI_Comm comm, const char *options)
{
    safepoint_comm ranks = {0, 1, reduce, broadcast, arrive, in_flight, usable, die, NULL};
    struct pair *pair = NULL;
    const char *wrong = misuse(comm);
    if (wrong)
        return safepoint_refuse(wrong);
    if (duplicate(comm, &pair))
        return safepoint_refuse("safepoint_init_mpi: MPI_Comm_dup has failed");
    ranks.context = pair;
    MPI_Comm_size(MPI_COMM_WORLD, &ranks.size);
    safepoint_know_world(ranks.size);
    MPI_Comm_rank(comm, &ranks.rank);
    MPI_Comm_size(comm, &ranks.size);
    return safepoint_init_comm(directory, &ranks, options);
}

/* Of a program in Fortran: its handle. */
int safepoint_init_fortran(const char *directory, int comm, const char *options);

int safepoint_init_fortran(const char *directory, int comm, const char *options)
{
    int begun = 0;
    MPI_Initialized(&begun);
    return safepoint_init_mpi(directory, begun ? MPI_Comm_f2c((MPI_Fint)comm) : MPI_COMM_NULL, options);
}

int safepoint_init_world(int saver);

int safepoint_init_world(int saver)
{
    char options[32];
    snprintf(options, sizeof options, "saver=%d", saver);
    return safepoint_init_mpi(NULL, MPI_COMM_WORLD, options);
}
