/* The tracer of C and Fortran in check mode: arguments of the calls that somebody has asked for. The wrappers that
 * `pmpi.py` writes for it include this too.
 *
 * (1) What the program passes is stored as it is: no function of MPI is asked about it, since it may be wrong.
 * (2) A row is there when its kind is: whoever reads while the program runs does not take one that is half.
 * (3) After MPI_Finalize nothing of MPI is called. */
#ifndef SAFEPOINT_CHECKING_H
#define SAFEPOINT_CHECKING_H

#include "pmpi.h"

enum { ARGUMENTS = 4, BEFORE = 5, AFTER = 6, FUNCTIONS = 4096 };
#define V(x) ((int64_t)(intptr_t)(x))

struct watchable {
    const char *name;
    unsigned number;
};

extern unsigned char watched[FUNCTIONS]; /* by the number of the function */
extern int checking, finalized;
extern const struct watchable watchables[];
void each_constant(void (*told)(const char *name, int64_t value));

void noted_row(struct call *c, int kind, int position, int64_t count, const int64_t *values);
void noted_requests(struct call *c, int kind, int position, int64_t count, const MPI_Request *requests);
void noted_ints(struct call *c, int position, int64_t count, const int *values);
void after_finalize(void);

static inline void noted_one(struct call *c, int kind, int position, int64_t value)
{
    if (checking)
        noted_row(c, kind, position, 1, &value);
}

#endif
