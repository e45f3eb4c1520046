/* With ranks of MPI: compiled by the program's own mpicc. The only file that knows MPI. */
#ifndef SAFEPOINT_MPI_H
#define SAFEPOINT_MPI_H

#include "safepoint.h"
#include <mpi.h>

#ifdef __cplusplus
extern "C" {
#endif

/* As safepoint_init, for all ranks of `comm`, of which a duplicate is made. Collective; after MPI_Init. No level of
 * thread support is needed. */
int safepoint_init_mpi(const char *directory, MPI_Comm comm, const char *options);

#ifdef __cplusplus
}
#endif
#endif
