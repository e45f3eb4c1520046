/* noded START STEPS: a program on disks of its nodes; each rank writes z-RANK.dat where safepoint_directory says. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include "safepoint_mpi.h"

static void must(int code)
{
    if (code) {
        fprintf(stderr, "%s\n", safepoint_error());
        MPI_Abort(MPI_COMM_WORLD, code);
    }
}

int main(int argc, char **argv)
{
    int rank, found;
    long long step, last = argc > 2 ? atoll(argv[2]) : 0;
    char path[5000];
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (safepoint_directory()[0])
        MPI_Abort(MPI_COMM_WORLD, 3);
    must(safepoint_init_mpi(argv[1], MPI_COMM_WORLD, NULL));
    must(safepoint_restore(&found, &step));
    snprintf(path, sizeof path, "%s/z-%d.dat", safepoint_directory(), rank);
    if (found == SAFEPOINT_RESTORED) {
        long long had = -1;
        FILE *file = fopen(path, "r");
        if (!file || fscanf(file, "%lld", &had) != 1 || had != step)
            MPI_Abort(MPI_COMM_WORLD, 4);
        fclose(file);
    }
    if (rank == 0)
        printf("restored %lld\n", found ? step : -1);
    for (step = found ? step + 1 : 0; step <= last; step++) {
        FILE *file = fopen(path, "w");
        fprintf(file, "%lld of %d\n", step, rank);
        fclose(file);
        must(step % 2 ? safepoint_hide_wait(step) : safepoint_hide(step));
    }
    must(safepoint_wait());
    must(safepoint_close());
    MPI_Finalize();
    return 0;
}
