/* What two ranks may do wrong with communicators and helpers: each prints "CALL RANK CODE". */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "safepoint_mpi.h"

static int rank;

static void told(const char *call, int code)
{
    char line[64];
    int length = snprintf(line, sizeof line, "%s %d %d\n", call, rank, code);
    if (write(1, line, (size_t)length) != length)
        exit(99);
}

/* A pair of sockets that this process has made: no other library here does. (To close one of MPI's ends the program.) */
static int is_our_line(int fd)
{
    struct ucred made;
    int domain = 0;
    socklen_t size = sizeof domain, length = sizeof made;
    return !getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) && domain == AF_UNIX &&
           !getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &made, &length) && made.pid == getpid();
}

static void put(void)
{
    char path[32];
    FILE *file;
    snprintf(path, sizeof path, "u-%d.dat", rank);
    file = fopen(path, "w");
    if (file)
        fclose(file);
}

int main(int argc, char **argv)
{
    const char *which = argc > 1 ? argv[1] : "";
    MPI_Comm other;
    int fd, turn, code = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (!strcmp(which, "many")) { /* more than an MPI library has communicators */
        code = safepoint_init_mpi(NULL, MPI_COMM_WORLD, NULL);
        for (turn = 0; turn < 2500 && !code; turn++) {
            MPI_Comm_dup(MPI_COMM_WORLD, &other);
            code = safepoint_init_mpi("other", other, NULL) == SAFEPOINT_LOCKED ? 0 : 1;
            MPI_Comm_free(&other);
        }
        told("many", code);
        safepoint_close();
        MPI_Finalize();
        return 0;
    }
    told("init", safepoint_init_mpi(NULL, MPI_COMM_WORLD, NULL));
    told("restore", safepoint_restore(NULL, NULL));
    put();
    if (!strcmp(which, "second") || (!strcmp(which, "second of one") && !rank)) {
        told("second", safepoint_init_mpi("other", MPI_COMM_SELF, NULL));
        told("steps", safepoint_hide(!strcmp(which, "second") ? 2 + rank : 2));
    } else if (!strcmp(which, "second of one")) {
        told("steps", safepoint_hide(2));
    } else if (!strcmp(which, "freed")) {
        safepoint_close();
        MPI_Comm_dup(MPI_COMM_WORLD, &other);
        told("again", safepoint_init_mpi(NULL, other, NULL));
        told("restore", safepoint_restore(NULL, NULL));
        MPI_Comm_free(&other);
        told("hide", safepoint_hide_wait(3));
    } else if (!strcmp(which, "ended")) { /* a session of a communicator that is no more; then an error of the program */
        safepoint_close();
        MPI_Comm_dup(MPI_COMM_WORLD, &other);
        told("again", safepoint_init_mpi(NULL, other, NULL));
        told("restore", safepoint_restore(NULL, NULL));
        put();
        told("finish", safepoint_finish(3));
        MPI_Comm_free(&other);
        safepoint_end_all(7);
    } else if (!strcmp(which, "one")) {
        if (rank)
            safepoint_close();
        told("one", safepoint_init_mpi(NULL, MPI_COMM_WORLD, NULL));
        safepoint_close();
    } else { /* a line that is gone, and then a close: the others must not wait */
        for (fd = 10; fd < 256 && rank && !strcmp(which, "lost"); fd++)
            if (is_our_line(fd))
                close(fd);
        if (rank)
            told("close", safepoint_close());
        told("hide", safepoint_hide(1));
    }
    safepoint_close();
    MPI_Finalize();
    return 0;
}
