/* What the files of the runtime share.

   (1) A record is two words. Its value is stored first, and the word with its kind last, with release: what is read
       with a kind is whole, whenever the program is killed.
   (2) A thread writes only into its own file. The path of an event takes no lock, allocates nothing, seeks nothing.
   (3) A segment is allocated in the file before it is mapped: a full disk is an error here, and no SIGBUS later. */
#ifndef SP_INNER_H
#define SP_INNER_H

#include "sp_trace.h"

#define SP_SEGMENT ((size_t)2 << 20)
#define SP_HEAD 64
#define SP_SCRATCH 64 /* records of a rehearsal */
#define SP_DEEP 64 /* regions within regions, loops within loops */
#define SP_INNER __attribute__((visibility("hidden"))) extern
#define SP_SLOW __attribute__((noinline, cold))
#define SP_UNLIKELY(x) __builtin_expect(!!(x), 0)

#ifndef SP_POINT
#define SP_POINT /* a test puts a call here that kills the program at the n-th of these points */
#endif

/* Which events a thread records now. */
enum {
    ON = 1, REGIONS = 2, STRUCTURE = 4, CALLS = 8, DIGESTS = 16, WRITES = 32, READS = 64, EDGED = 128,
    REHEARSED = 256 /* at minimal with noise: the traced bodies run, and what they record is not kept */
};
#define FRESH (~0u) /* its first event is still to come */

struct sp_loop { /* one that has edges. `count` 0: each iteration is one */
    uint32_t was;
    int dimensions;
    int64_t lower[3], step[3];
    uint64_t counts[3], count;
};
struct sp_saved {
    uint32_t now;
    int loops;
};
struct sp_stream { /* a file; a thread that comes when another has ended goes on in that one's */
    struct sp_stream *free;
    uint64_t *base, *end, *head, *next;
    uint64_t segments, seed, left; /* left: events until the next yield */
    int fd, regions, loops;
    struct sp_saved saved[SP_DEEP];
    struct sp_loop loop[SP_DEEP];
    uint64_t scratch[2 * SP_SCRATCH]; /* what is rehearsed: recorded here, and over it again */
};
struct sp_self {
    uint32_t now;
    int inside; /* regions that this thread is in */
    uint64_t *next, *limit;
    struct sp_stream *stream;
};
extern _Thread_local struct sp_self sp_self __attribute__((visibility("hidden"), tls_model("initial-exec")));

struct sp_settings {
    int regions, variables, procedures; /* 0 off, 1 minimal, 2 modify, 3 full */
    int statistics, rank;
    uint64_t max, edges, noise, seed, ahead, ranges;
    uint64_t (*range)[2];
    const char *range_text, *level_text;
};
SP_INNER struct sp_settings sp_settings;
SP_INNER int sp_settings_read(void); /* 0 if nothing is to be recorded; what is wrong is said on stderr */
SP_INNER int sp_selected(uint64_t visit);
SP_INNER uint32_t sp_between(uint64_t visits); /* what is recorded in sequential code behind so many visits */
SP_INNER uint32_t sp_within(int64_t visit);
SP_INNER uint64_t sp_visits;

SP_INNER int sp_run_open(void); /* 0 if there can be no trace; then it was said */
SP_INNER void sp_run_stop(const char *why);
SP_INNER void sp_say(const char *text, const char *name, int error);
SP_INNER int sp_run_stopped;
SP_INNER int sp_directory; /* its file descriptor */
SP_INNER uint32_t sp_threads;
SP_INNER uint64_t sp_bytes(void); /* of all files */

SP_INNER int sp_attach(void); /* the first event of a thread; 0 if it records nothing */
SP_INNER uint64_t *sp_room(uint32_t bit);
SP_INNER void sp_rehearse(int on); /* the events that follow are no more than occasions to yield; or are recorded */

static inline void sp_put(uint32_t bit, int32_t site, unsigned kind, unsigned type, unsigned extra, uint64_t value) {
    uint64_t *at = sp_self.next;
    if (SP_UNLIKELY(at == sp_self.limit) && !(at = sp_room(bit)))
        return;
    uint64_t head = (uint32_t)site | (uint64_t)extra << 32 | (uint64_t)type << 48 | (uint64_t)kind << 56;
    at[1] = value;
    SP_POINT
    __atomic_store_n(at, head, __ATOMIC_RELEASE);
    sp_self.next = at + 2;
    SP_POINT
}

#endif
