#include "planted.h"

static void planted(void)
{
    int a = rank, b, other = 1 - rank;
    MPI_Request r, s;
    for (int i = 0; i < 3; i++) { /* the usual way: no mistake */
        MPI_Isend(&a, 1, MPI_INT, other, 3, MPI_COMM_WORLD, &r);
        MPI_Irecv(&b, 1, MPI_INT, other, 3, MPI_COMM_WORLD, &s);
        MPI_Wait(&r, MPI_STATUS_IGNORE);
        MPI_Wait(&s, MPI_STATUS_IGNORE);
    }
    for (int i = 0; i < 3; i++) { /* one after the other */
        if (rank == 0) {
            MPI_Isend(&a, 1, MPI_INT, 1, 4, MPI_COMM_WORLD, &r);
            MPI_Wait(&r, MPI_STATUS_IGNORE);
        }
        MPI_Recv(&b, 1, MPI_INT, other, 4, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (rank == 1) {
            MPI_Isend(&a, 1, MPI_INT, 0, 4, MPI_COMM_WORLD, &r);
            MPI_Wait(&r, MPI_STATUS_IGNORE);
        }
    }
    if (good) {
        MPI_Irecv(&b, 1, MPI_INT, other, 7, MPI_COMM_WORLD, &s);
        MPI_Isend(&a, 1, MPI_INT, other, 7, MPI_COMM_WORLD, &r);
        MPI_Wait(&r, MPI_STATUS_IGNORE);
        MPI_Wait(&s, MPI_STATUS_IGNORE);
    } else {
        MPI_Isend(&a, 1, MPI_INT, other, 7, MPI_COMM_WORLD, &r);               /* F2 F7 */
        MPI_Wait(&r, MPI_STATUS_IGNORE);                                       /* F4 F9 */
        MPI_Recv(&b, 1, MPI_INT, other, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE); /* F5 F10 */
    }
}
