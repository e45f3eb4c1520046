/* The four names of the library of 2003 (Popova and Scharf): `nproc` is the rank that has what is not of each rank. */
#ifndef SAFEPOINT_DF_H
#define SAFEPOINT_DF_H

#include "safepoint_mpi.h"
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

int safepoint_init_world(int saver);

#ifdef __cplusplus
}
#endif

static inline int iInitDF(int nproc)
{
    return safepoint_init_world(nproc);
}

static inline int iRestoreDF(void)
{
    return safepoint_restore(NULL, NULL);
}

static inline int iHideDF(void)
{
    return (safepoint_hide)(SAFEPOINT_NO_STEP);
}

static inline int iEOWDF(void)
{
    return (safepoint_finish)(SAFEPOINT_NO_STEP);
}

#endif
