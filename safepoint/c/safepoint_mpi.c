/* What an agreement needs, as operations of MPI on a duplicate of the program's communicator. */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif
#include "safepoint_mpi.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A communicator of the program, which keeps this as an attribute, and our duplicate of it: one for all its sessions. */
struct pair {
    MPI_Comm users, ours; /* users: MPI_COMM_NULL when the program has freed it */
    MPI_Request arriving;
};

static int key, has_key;

static int reduce(void *context, int sum, long long *values, int count)
{
    struct pair *pair = (struct pair *)context;
    return MPI_Allreduce(MPI_IN_PLACE, values, count, MPI_LONG_LONG, sum ? MPI_SUM : MPI_MIN, pair->ours);
}

static int broadcast(void *context, void *bytes, int count, int root)
{
    struct pair *pair = (struct pair *)context;
    return MPI_Bcast(bytes, count, MPI_BYTE, root, pair->ours);
}

static int arrive(void *context)
{
    struct pair *pair = (struct pair *)context;
    return MPI_Ibarrier(pair->ours, &pair->arriving);
}

static int in_flight(void *context, int message[4])
{
    struct pair *pair = (struct pair *)context;
    MPI_Status status;
    int code = MPI_Wait(&pair->arriving, MPI_STATUS_IGNORE);
    if (!code && pair->users != MPI_COMM_NULL)
        code = MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, pair->users, &message[0], &status);
    if (!code && message[0]) {
        message[1] = status.MPI_SOURCE;
        message[2] = status.MPI_TAG;
        code = MPI_Get_count(&status, MPI_BYTE, &message[3]);
    }
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
        MPI_Comm_free(&pair->ours);
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
    code = MPI_Comm_get_errhandler(comm, &usual); /* there may be too many communicators: a code, not the program's end */
    if (!code) {
        MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
        code = MPI_Comm_dup(comm, &(*pair)->ours);
        MPI_Comm_set_errhandler(comm, usual);
        MPI_Errhandler_free(&usual);
    }
    if (!code) /* an error of ours is told to all ranks by ourselves */
        code = MPI_Comm_set_errhandler((*pair)->ours, MPI_ERRORS_RETURN);
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
