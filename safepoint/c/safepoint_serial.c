/* In place of safepoint_mpi.c, for programs without MPI. */
#include "safepoint.h"

int safepoint_refuse(const char *text);
int safepoint_init_fortran(const char *directory, int comm, const char *options);

int safepoint_init_fortran(const char *directory, int comm, const char *options)
{
    (void)directory;
    (void)comm;
    (void)options;
    return safepoint_refuse("safepoint_init with comm: this library was built without --mpicc, the compiler of an MPI");
}
