/* Heat in a plate on many ranks, each with a strip of it and a restart file of its own: killed anywhere, it goes on.
 *
 *     mpicc $(safepoint config --cflags --mpicc mpicc) heat.c $(safepoint config --libs --mpicc mpicc) -o heat
 *     mpiexec -n 4 ./heat 2000                (start it again after any kill)
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "safepoint_mpi.h"

enum { N = 256, EVERY = 20 };

static void check(int code)
{
    if (code) {
        fprintf(stderr, "heat: %s\n", safepoint_error());
        MPI_Abort(MPI_COMM_WORLD, code);
    }
}

static void exchange(double *u, int rows, int rank, int size)
{
    int up = rank ? rank - 1 : MPI_PROC_NULL, down = rank < size - 1 ? rank + 1 : MPI_PROC_NULL;
    MPI_Sendrecv(u + N, N, MPI_DOUBLE, up, 0, u + (rows + 1) * N, N, MPI_DOUBLE, down, 0, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    MPI_Sendrecv(u + rows * N, N, MPI_DOUBLE, down, 1, u, N, MPI_DOUBLE, up, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static void step(double *u, double *next, int rows, int first)
{
    for (int i = 1; i <= rows; i++)
        for (int j = 0; j < N; j++) {
            int at = i * N + j, edge = j == 0 || j == N - 1 || first + i == 1 || first + i == N;
            next[at] = edge ? u[at] : u[at] + 0.2 * (u[at - N] + u[at + N] + u[at - 1] + u[at + 1] - 4 * u[at]);
        }
    memcpy(u + N, next + N, sizeof(double) * (size_t)(rows * N));
}

static void read_or_write(const char *how, double *u, int rows, int rank)
{
    char name[32];
    FILE *file;
    size_t count = (size_t)(rows * N), done = 0;
    snprintf(name, sizeof name, "heat-%d.dat", rank);
    file = fopen(name, how);
    if (file)
        done = *how == 'r' ? fread(u + N, sizeof *u, count, file) : fwrite(u + N, sizeof *u, count, file);
    if (!file || fclose(file) || done != count) {
        fprintf(stderr, "heat: %s is not whole\n", name);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

int main(int argc, char **argv)
{
    int rank, size, found, stop = 0;
    long long begin, steps = argc > 1 ? atoll(argv[1]) : 2000;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int first = rank * N / size, rows = (rank + 1) * N / size - first;
    double *u = calloc((size_t)((rows + 2) * N), sizeof *u), *next = calloc((size_t)((rows + 2) * N), sizeof *u);

    check(safepoint_init_mpi(NULL, MPI_COMM_WORLD, "signals=USR1")); /* reads .safepoint: heat-{rank}.dat */
    check(safepoint_restore(&found, &begin));
    if (found == SAFEPOINT_FINISHED) {
        if (!rank)
            printf("finished already, at step %lld\n", begin);
        MPI_Finalize();
        return 0;
    }
    if (found)
        read_or_write("rb", u, rows, rank);
    else
        for (int i = 1; i <= rows; i++)
            u[i * N] = 100.0; /* the left edge is hot */
    if (!rank)
        printf("begin at step %lld\n", found ? begin : 0), fflush(stdout);
    for (long long k = found ? begin : 0; k < steps; k++) {
        if (k % EVERY == 0 && k > (found ? begin : 0)) {
            read_or_write("wb", u, rows, rank);
            check(safepoint_hide(k)); /* the file moves away, in less than a millisecond */
            check(safepoint_should_stop(&stop));
            if (stop) {
                check(safepoint_stop(&stop));
                MPI_Finalize();
                return stop; /* 75: start it again */
            }
        }
        exchange(u, rows, rank, size);
        step(u, next, rows, first);
    }
    read_or_write("wb", u, rows, rank);
    check(safepoint_finish(steps));
    MPI_Finalize();
    free(u), free(next);
    return 0;
}
