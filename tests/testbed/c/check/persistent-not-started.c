#include "planted.h"

static void planted(void)
{
    int in = 0, out = rank, other = 1 - rank;
    MPI_Request r, s;
    MPI_Recv_init(&in, 1, MPI_INT, other, 7, MPI_COMM_WORLD, &r);  /* F1 */
    MPI_Send_init(&out, 1, MPI_INT, other, 7, MPI_COMM_WORLD, &s); /* F1 */
    if (good)
        MPI_Startall(2, (MPI_Request[2]){r, s});
    MPI_Wait(&r, MPI_STATUS_IGNORE);
    MPI_Wait(&s, MPI_STATUS_IGNORE);
    MPI_Request_free(&r);
    MPI_Request_free(&s);
}
