#include "planted.h"

static void planted(void)
{
    int a = 1, b = 2, other = 1 - rank, in[2];
    MPI_Request r[2], copy;
    MPI_Irecv(&in[0], 1, MPI_INT, other, 7, MPI_COMM_WORLD, &r[0]);
    MPI_Irecv(&in[1], 1, MPI_INT, other, 7, MPI_COMM_WORLD, &r[1]);
    MPI_Request one;
    MPI_Isend(&a, 1, MPI_INT, other, 7, MPI_COMM_WORLD, &one); /* F1 */
    copy = one;
    MPI_Isend(&b, 1, MPI_INT, other, 7, MPI_COMM_WORLD, &one); /* F3 */
    MPI_Wait(&one, MPI_STATUS_IGNORE);
    if (good)
        MPI_Wait(&copy, MPI_STATUS_IGNORE); /* a copy of the handle is as good */
    MPI_Waitall(2, r, MPI_STATUSES_IGNORE);
}
