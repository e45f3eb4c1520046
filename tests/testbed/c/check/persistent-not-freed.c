#include "planted.h"

static void planted(void)
{
    int in = 0, out = rank, other = 1 - rank;
    MPI_Request r, s;
    MPI_Recv_init(&in, 1, MPI_INT, other, 7, MPI_COMM_WORLD, &r);
    MPI_Send_init(&out, 1, MPI_INT, other, 7, MPI_COMM_WORLD, &s); /* F1 */
    for (int i = 0; i < 3; i++) {
        MPI_Start(&r);
        MPI_Start(&s);
        MPI_Wait(&r, MPI_STATUS_IGNORE);
        MPI_Wait(&s, MPI_STATUS_IGNORE);
    }
    MPI_Request_free(&r);
    if (good)
        MPI_Request_free(&s);
}
