#include "planted.h"

static void planted(void)
{
    MPI_Datatype inner, point;
    double a[12] = {0}, b[12];
    MPI_Type_contiguous(3, MPI_DOUBLE, &inner); /* a part of another type need not be committed */
    MPI_Type_contiguous(2, inner, &point);      /* F1 */
    if (good)
        MPI_Type_commit(&point);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Sendrecv(a, 1, point, 1 - rank, 7, b, 6, MPI_DOUBLE, 1 - rank, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE); /* F3 */
    MPI_Type_free(&point);
    MPI_Type_free(&inner);
}
