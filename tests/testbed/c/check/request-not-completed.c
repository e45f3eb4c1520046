#include "planted.h"

static void planted(void)
{
    int in[3], out = rank, other = 1 - rank, flag = 0, index, done;
    MPI_Request r[3];
    for (int i = 0; i < 3; i++)
        MPI_Irecv(&in[i], 1, MPI_INT, other, i, MPI_COMM_WORLD, &r[i]);
    for (int i = 0; i < 3; i++)
        MPI_Send(&out, 1, MPI_INT, other, i, MPI_COMM_WORLD);
    MPI_Waitany(3, r, &index, MPI_STATUS_IGNORE);
    MPI_Waitsome(3, r, &done, (int[3]){0}, MPI_STATUSES_IGNORE);
    while (!flag)
        MPI_Testall(3, r, &flag, MPI_STATUSES_IGNORE);
    MPI_Request lost;
    MPI_Isend(&out, 1, MPI_INT, other, 9, MPI_COMM_WORLD, &lost); /* F1 */
    MPI_Recv(&in[0], 1, MPI_INT, other, 9, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (good)
        MPI_Request_free(&lost);
}
