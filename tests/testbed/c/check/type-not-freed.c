#include "planted.h"

static void planted(void)
{
    MPI_Datatype row, part, real;
    double a[6] = {0};
    MPI_Type_contiguous(3, MPI_DOUBLE, &row); /* F1 */
    MPI_Type_vector(1, 1, 2, row, &part);
    MPI_Type_commit(&part);
    MPI_Type_create_f90_real(6, MPI_UNDEFINED, &real); /* must not be freed */
    MPI_Request r;
    MPI_Isend(a, 1, part, rank, 7, MPI_COMM_WORLD, &r);
    MPI_Type_free(&part); /* before its communication is complete: MPI allows that */
    MPI_Recv(a + 3, 3, MPI_DOUBLE, rank, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Wait(&r, MPI_STATUS_IGNORE);
    if (good)
        MPI_Type_free(&row);
}
