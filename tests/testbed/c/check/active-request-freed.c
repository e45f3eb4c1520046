#include "planted.h"

static void planted(void)
{
    int a = rank, b, other = 1 - rank, done = 0;
    MPI_Request r, s;
    MPI_Send_init(&a, 1, MPI_INT, other, 7, MPI_COMM_WORLD, &r);
    for (int i = 0; i < 3; i++) {
        int last = i == 2;
        if (last)
            MPI_Start(&r); /* F1 */
        else
            MPI_Startall(1, &r);
        MPI_Irecv(&b, 1, MPI_INT, other, 7, MPI_COMM_WORLD, &s);
        MPI_Wait(&s, MPI_STATUS_IGNORE);
        if (good || !last)
            while (!done)
                MPI_Test(&r, &done, MPI_STATUS_IGNORE);
        done = 0;
    }
    MPI_Request_free(&r); /* F3 */
}
