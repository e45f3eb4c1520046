/* Crash-safe save points for programs in C, C++ and Fortran: docs/c-and-fortran.md.
 *
 * A program calls safepoint_init, then safepoint_restore, and in its loop safepoint_hide; at its end safepoint_finish.
 * Each rank has a helper process beside it, which does the work. The program gets no thread, no handler and no library
 * beside this one: it has one descriptor more. All functions return SAFEPOINT_OK or a code; safepoint_error has the text.
 * Only the process that called safepoint_init may call the others, and only one thread at a time.
 * C99, C++; no compiler but the program's own is needed.
 */
#ifndef SAFEPOINT_H
#define SAFEPOINT_H

#ifdef __cplusplus
extern "C" {
#endif

#define SAFEPOINT_NO_STEP (-9223372036854775807LL - 1) /* of a set without a label */

/* SAFEPOINT_CODES: the codes of the errors of the library, and of its command line (safepoint/errors.py). */
enum {
    SAFEPOINT_OK = 0,
    SAFEPOINT_FAILED = 1, /* a fault of safepoint's own, or an error without a code */
    SAFEPOINT_USAGE = 10,
    SAFEPOINT_MANIFEST = 11,
    SAFEPOINT_FORMAT = 12,
    SAFEPOINT_LOCKED = 13,
    SAFEPOINT_MISSING = 14,
    SAFEPOINT_REFUSED = 15,
    SAFEPOINT_SAVE = 16,
    SAFEPOINT_RESTORE = 17,
    SAFEPOINT_DAMAGED = 18,
    SAFEPOINT_OVERWRITTEN = 19,
    SAFEPOINT_NOTHING = 20,
    SAFEPOINT_NO_HELPER = 30 /* Python could not be started, or has died */
};

/* What safepoint_restore has found. */
enum { SAFEPOINT_FIRST_START = 0, SAFEPOINT_RESTORED = 1, SAFEPOINT_FINISHED = 2 };

/* Begin in `directory` (NULL: the working directory), as one rank. `options` (NULL: none) are words name=value, those of
 * safepoint.init of Python: "keep=3 stop_after='11h 50min' signals=USR1". With ranks: safepoint_mpi.h. */
int safepoint_init(const char *directory, const char *options);

/* Where the listed files are: the directory that safepoint_init was given, or with the setting `local` of the manifest one
 * on a disk of this node. "" before safepoint_init; valid until the next. */
const char *safepoint_directory(void);

/* Put the last complete set back into place. `found`: one of the three above; `step`: of that set, else
 * SAFEPOINT_NO_STEP. Collective. Either may be NULL. */
int safepoint_restore(int *found, long long *step);

/* Move the listed files into safekeeping, as one set. On return they are safe from the death of the program; with
 * safepoint_hide_wait from a power cut too. If none of them exists nothing is done. Collective. */
int safepoint_hide(long long step);
int safepoint_hide_wait(long long step);

/* Names this line as one where the program might save: `safepoint places` judges it as if it did. Not collective. */
void safepoint_mark(void);

/* Everything hidden so far is durable. Collective. */
int safepoint_wait(void);

/* Whether it is time to save, and whether the program had better save and end. Made for every step. Collective. */
int safepoint_due(int *flag);
int safepoint_should_stop(int *flag);

/* Everything is durable, and the session has ended. The program then calls MPI_Finalize and exit(status): 75, or 79 after
 * `safepoint halt`. Collective. */
int safepoint_stop(int *status);

/* The files now in place are the result; the session has ended. Collective. */
int safepoint_finish(long long step);

/* End the session, and leave everything for the next start. Not collective. */
int safepoint_close(void);

/* Note a digest of `count` values of a type at a step, to compare two runs. `type`: "float64", "int32", ... as numpy
 * calls them. Not collective. */
int safepoint_watch(long long step, const char *name, const char *type, const void *data, long long count);

/* The text of the last call that failed; never NULL. It is valid until the next call. */
const char *safepoint_error(void);

/* End the program, all ranks of it, with a status: for one that cannot go on after an error, such as one in Fortran that
 * asks for no codes. It does not return. If several ranks call it, the launcher's own status is that of one of them or of
 * one that it killed: never 0, unless all gave 0. */
void safepoint_end_all(int status);

/* For ranks that are connected by something else than MPI: what an agreement needs. All return 0, or a failure. */
typedef struct safepoint_comm {
    int rank, size;
    int (*reduce)(void *context, int sum, long long *values, int count); /* in place: of each the minimum, or the sum */
    int (*broadcast)(void *context, void *bytes, int count, int root);
    int (*arrive)(void *context);                    /* begin a barrier */
    int (*in_flight)(void *context, int message[4]); /* end it; is there a message, its source, tag and bytes */
    int (*usable)(void *context);                    /* whether the communication has not ended; NULL: always */
    void (*die)(void *context, int status);          /* end all ranks */
    void *context;
} safepoint_comm;

int safepoint_init_comm(const char *directory, const safepoint_comm *comm, const char *options);

/* Where the next call is made: the ledger (docs/restart-correctness.md) says it of each set. */
void safepoint_at(const char *file, int line);

#ifndef SAFEPOINT_WITHOUT_PLACES
#define safepoint_hide(step) (safepoint_at(__FILE__, __LINE__), safepoint_hide(step))
#define safepoint_hide_wait(step) (safepoint_at(__FILE__, __LINE__), safepoint_hide_wait(step))
#define safepoint_mark() (safepoint_at(__FILE__, __LINE__), safepoint_mark())
#define safepoint_finish(step) (safepoint_at(__FILE__, __LINE__), safepoint_finish(step))
#define safepoint_watch(step, name, type, data, count) \
    (safepoint_at(__FILE__, __LINE__), safepoint_watch(step, name, type, data, count))
#endif

#ifdef __cplusplus
}
#endif
#endif
