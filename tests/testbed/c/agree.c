/* What goes wrong on one of three ranks: each prints "CALL RANK CODE". */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "safepoint_mpi.h"

static int rank;

static void told(const char *call, int code)
{
    char line[64];
    int length = snprintf(line, sizeof line, "%s %d %d\n", call, rank, code);
    if (write(1, line, (size_t)length) != length)
        exit(99);
    if (code && rank == 1)
        fprintf(stderr, "%s: %s\n", call, safepoint_error());
}

static void put(const char *name)
{
    char path[32];
    FILE *file;
    snprintf(path, sizeof path, "%s-%d.dat", name, rank);
    file = fopen(path, "w");
    if (file)
        fclose(file);
}

int main(int argc, char **argv)
{
    int value = 3, size;
    FILE *full = NULL;
    MPI_Request request;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    told("options", safepoint_init_mpi(NULL, MPI_COMM_WORLD, rank == 2 ? "keep=3" : "keep=2"));
    told("words", safepoint_init_mpi(NULL, MPI_COMM_WORLD, rank == 2 ? "kep=3" : NULL));
    if (rank == 1)
        setenv("SAFEPOINT_PYTHON", "/no/such/python", 1);
    told("helper", safepoint_init_mpi(NULL, MPI_COMM_WORLD, NULL));
    unsetenv("SAFEPOINT_PYTHON");
    told("init", safepoint_init_mpi(NULL, MPI_COMM_WORLD, "inflight=error"));
    told("restore", safepoint_restore(NULL, NULL));
    put("u");
    if (rank != 1)
        put("v");
    told("missing", safepoint_hide(1));
    put("v");
    told("steps", safepoint_hide(rank == 1 ? 2 : 1));
    if (rank == 0)
        MPI_Isend(&value, 1, MPI_INT, 1, 7, MPI_COMM_WORLD, &request);
    told("in-flight", safepoint_hide(1));
    if (rank == 1)
        MPI_Recv(&value, 1, MPI_INT, 0, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (rank == 0)
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    told("good", safepoint_hide_wait(1));
    if (rank == 2)
        full = fopen("/dev/full", "w");
    if (full)
        fputs("more than there is room for", full);
    told("full", safepoint_hide(2)); /* it is still in the buffer */
    if (full)
        fclose(full);
    if (rank == 1)
        safepoint_close();
    put("u");
    put("v");
    told("closed", safepoint_hide_wait(2)); /* by one of them alone */
    told("again", safepoint_init_mpi(NULL, MPI_COMM_WORLD, NULL)); /* in which the others are still at work */
    safepoint_close();
    told("anew", safepoint_init_mpi(NULL, MPI_COMM_WORLD, NULL));
    safepoint_close();
    MPI_Finalize();
    return 0;
}
