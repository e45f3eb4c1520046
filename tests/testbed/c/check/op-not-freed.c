#include "planted.h"

static void smaller(void *in, void *inout, int *n, MPI_Datatype *type)
{
    (void)type;
    for (int i = 0; i < *n; i++)
        if (((int *)in)[i] < ((int *)inout)[i])
            ((int *)inout)[i] = ((int *)in)[i];
}

static void planted(void)
{
    int a = rank, b;
    MPI_Op op;
    MPI_Op_create(smaller, 1, &op); /* F1 */
    MPI_Allreduce(&a, &b, 1, MPI_INT, op, MPI_COMM_WORLD);
    if (good)
        MPI_Op_free(&op);
}
