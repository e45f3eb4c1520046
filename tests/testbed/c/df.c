/* A solver as those of 2003: the four names, and files of which each rank knows the step by itself. */
#include <stdio.h>
#include <stdlib.h>

#include "safepoint_df.h"

enum { COUNT = 20000 };

int main(int argc, char **argv)
{
    static double u[COUNT];
    char name[32];
    double step = 0, steps = atof(argv[1]);
    int rank;
    FILE *file;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    snprintf(name, sizeof name, "df-%d.dat", rank);
    if (iInitDF(0) || iRestoreDF())
        MPI_Abort(MPI_COMM_WORLD, 1);
    file = fopen(name, "rb");
    if (file) {
        if (fread(&step, sizeof step, 1, file) != 1 || fread(u, sizeof *u, COUNT, file) != COUNT)
            MPI_Abort(MPI_COMM_WORLD, 2);
        fclose(file);
    }
    while (step < steps) {
        if (iHideDF())
            MPI_Abort(MPI_COMM_WORLD, 3);
        for (int k = 0; k < COUNT; k++)
            u[k] = 0.999 * u[k] + rank + k;
        step += 1;
        file = fopen(name, "wb");
        if (!file || fwrite(&step, sizeof step, 1, file) != 1 || fwrite(u, sizeof *u, COUNT, file) != COUNT || fclose(file))
            MPI_Abort(MPI_COMM_WORLD, 4);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    if (iEOWDF())
        MPI_Abort(MPI_COMM_WORLD, 5);
    MPI_Finalize();
    return 0;
}
