/* A hide with something under way: which kind it is says the first argument. Prints on each rank the codes of all. */
#include <mpi.h>
#include <stdio.h>
#include <string.h>
#include "safepoint_mpi.h"

int main(int argc, char **argv)
{
    int rank, size, found, one = 1, into = 0, save, codes[3];
    long long step;
    MPI_Comm comm;
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Message message = MPI_MESSAGE_NULL;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_split(MPI_COMM_WORLD, rank == 0, -rank, &comm); /* all but rank 0, and the other way round */
    if (strcmp(argv[1], "part"))
        comm = MPI_COMM_WORLD;
    if (comm == MPI_COMM_WORLD || rank) {
        if (safepoint_init_mpi(NULL, comm, "inflight=error") || safepoint_restore(&found, &step))
            return 1;
        for (save = 0; save < 3; save++) {
            char name[32];
            FILE *file;
            safepoint_mark();
            if (save == 1 && rank == size - 2)
                MPI_Send(&one, 1, MPI_INT, size - 1, 9, MPI_COMM_WORLD);
            if (save == 1 && rank == size - 1) {
                if (!strcmp(argv[1], "posted"))
                    MPI_Irecv(&into, 1, MPI_INT, MPI_ANY_SOURCE, 9, MPI_COMM_WORLD, &request);
                if (!strcmp(argv[1], "probed"))
                    MPI_Mprobe(size - 2, 9, MPI_COMM_WORLD, &message, MPI_STATUS_IGNORE);
                if (!strcmp(argv[1], "open")) {
                    MPI_Recv(&into, 1, MPI_INT, size - 2, 9, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
                    MPI_Irecv(&into, 1, MPI_INT, size - 2, 77, MPI_COMM_WORLD, &request);
                }
            }
            snprintf(name, sizeof name, "u-%d.dat", rank);
            file = fopen(name, "w");
            fprintf(file, "%d", save);
            fclose(file);
            codes[save] = safepoint_hide(save);
            if (codes[save])
                fprintf(stderr, "%s\n", safepoint_error());
            if (save == 1 && rank == size - 1) {
                if (message != MPI_MESSAGE_NULL)
                    MPI_Mrecv(&into, 1, MPI_INT, &message, MPI_STATUS_IGNORE);
                else if (request == MPI_REQUEST_NULL)
                    MPI_Recv(&into, 1, MPI_INT, size - 2, 9, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
                if (!strcmp(argv[1], "open"))
                    MPI_Cancel(&request);
                MPI_Wait(&request, MPI_STATUS_IGNORE);
            }
        }
        fprintf(stdout, "%d %d %d\n", codes[0], codes[1], codes[2]);
        safepoint_close();
    }
    MPI_Finalize();
    return 0;
}
