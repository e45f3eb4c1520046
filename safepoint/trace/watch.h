/* Check mode of the tracer of C and Fortran: only what `watch.json` names is noted, with its arguments.
 *
 * (1) A call that is not watched costs the test of one byte. None is before MPI_Init has returned.
 * (2) The kind of a row is stored after its length and its note, with release: rows are read while they are written. No
 *     row begins before those ahead of it have their kinds: a reader would take a hole for the end, and miss what a
 *     call has written.
 * (3) What the program has given is read only where the standard lets MPI read it, and what MPI has written after a
 *     call that went well. Nothing is read through NULL. */
#ifndef SAFEPOINT_WATCH_H
#define SAFEPOINT_WATCH_H

#include "pmpi.h"

#define ABSENT INT64_MIN
#define VALUE(x) ((int64_t)(intptr_t)(x))
#define ONE(pointer) ((pointer) ? 3 : 0)                                /* words that it takes in a row */
#define SEVERAL(pointer, n) ((pointer) && (n) > 0 ? 2 + (int64_t)(n) : 0) /* the same of an array */
#define PUT_ONE(row, position, pointer) \
    if (pointer) { \
        *row++ = position; \
        *row++ = 1; \
        *row++ = VALUE(*(pointer)); \
    }
#define PUT_SEVERAL(row, position, pointer, n) \
    if ((pointer) && (n) > 0) { \
        int64_t i__; \
        *row++ = position; \
        *row++ = (n); \
        for (i__ = 0; i__ < (n); i__++) \
            *row++ = VALUE((pointer)[i__]); \
    }

struct function {
    const char *name; /* in the standard, without MPI_ */
    unsigned short number, noted; /* whether it is without a watch list, too */
};

enum { FUNCTIONS = 4096 };
extern unsigned char watched[FUNCTIONS]; /* by number */
extern const struct function functions[];
extern const unsigned functions_count;

int begin_checking(const char *directory, char *path);
int place_of_node(const char **directory);
void wait_for_follower(void);
void say_second(const char *directory);
void watch(void);
void watch_window(MPI_Win win);
void row_of_ours(const struct note *note, int count, long long value);
void each_constant(void (*told)(const char *name, int64_t value));
MPI_Errhandler instead_of_fatal(MPI_Errhandler given, int of_window);
int as_it_was_set(MPI_Comm comm, MPI_Errhandler *found, int code);
int as_it_was_set_of_win(MPI_Win win, MPI_Errhandler *found, int code);

static inline int64_t *row_of(int64_t note, int kind, int64_t count)
{
    int64_t *row;
    lock();
    row = trace.noting ? room_for_row(8 * (3 + (uint64_t)count)) : NULL;
    if (row) {
        row[0] = count;
        row[1] = note;
        __atomic_store_n(&row[2], kind, __ATOMIC_RELEASE);
    }
    unlock();
    return row ? row + 3 : NULL;
}

/* A row of check mode for this call, to be filled; NULL: none is wanted, or there is no space. */
OUTLINE int64_t *row(const struct call *c, int kind, int64_t count)
{
    return CHECKING && c->note != &self.nowhere ? row_of(index_of(c), kind, count) : NULL;
}

/* How many types each of two arrays has that a call on this communicator reads; 0: that is not known. */
static inline int peers(const struct call *c)
{
    return c->thing ? c->thing->size : 0;
}

#endif
