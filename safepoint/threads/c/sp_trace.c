/* The calls: regions, loops, iterations and values. */
#define _GNU_SOURCE
#include <string.h>

#include "sp_inner.h"

#define XXH_INLINE_ALL
#include "xxhash.h"

#define NESTED ((int64_t)1 << 63)
#define TRACED (STRUCTURE | WRITES | READS)

_Thread_local struct sp_self sp_self = {.now = FRESH};
uint64_t sp_visits;
static uint64_t nested_visits;

extern int omp_get_thread_num(void) __attribute__((weak));

static inline int asleep(uint32_t bits) {
    return !(sp_self.now & bits) || (SP_UNLIKELY(sp_self.now == FRESH) && !sp_attach()) || !(sp_self.now & bits);
}

/* Regions. A visit of 0 is one of which nothing is recorded within. */

int64_t sp_region(int32_t site) {
    if (asleep(ON))
        return 0;
    int64_t visit = 0;
    if (!sp_self.inside)
        visit = (int64_t)(__atomic_add_fetch(&sp_visits, 1, __ATOMIC_RELAXED));
    else if (sp_self.now & ~(uint32_t)(ON | EDGED))
        visit = NESTED + (int64_t)__atomic_add_fetch(&nested_visits, 1, __ATOMIC_RELAXED);
    if (sp_self.now & REGIONS)
        sp_put(REGIONS, site, SP_KIND_REGION, 0, 0, (uint64_t)visit);
    return visit;
}

void sp_region_end(int32_t site, int64_t visit) {
    if (asleep(ON))
        return;
    if (visit > 0 && sp_self.inside)
        sp_run_stop("SP_LEAVE is missing before SP_REGION_END");
    if (visit && sp_self.now & REGIONS)
        sp_put(REGIONS, site, SP_KIND_REGION_END, 0, 0, (uint64_t)visit);
    if (!sp_self.inside && sp_self.now && visit && !(sp_self.now & EDGED))
        sp_self.now = sp_between((uint64_t)visit);
}

void sp_enter(int32_t site, int64_t visit) {
    if (asleep(ON))
        return;
    struct sp_stream *of = sp_self.stream;
    if (sp_self.inside < SP_DEEP)
        of->saved[sp_self.inside] = (struct sp_saved){sp_self.now, of->loops};
    sp_self.inside++;
    uint32_t was = sp_self.now;
    sp_self.now = sp_within(visit);
    if (sp_self.now & ~was & REHEARSED)
        sp_rehearse(1);
    if (sp_self.now & STRUCTURE)
        sp_put(STRUCTURE, site, SP_KIND_ENTER, 0, omp_get_thread_num ? (unsigned)omp_get_thread_num() & 0xffff : 0,
               (uint64_t)visit);
}

void sp_leave(int32_t site, int64_t visit) {
    if (asleep(ON) || !sp_self.inside)
        return;
    if (sp_self.now & STRUCTURE)
        sp_put(STRUCTURE, site, SP_KIND_LEAVE, 0, 0, (uint64_t)visit);
    if (--sp_self.inside < SP_DEEP && sp_self.now) {
        uint32_t was = sp_self.now;
        sp_self.now = sp_self.stream->saved[sp_self.inside].now;
        if (was & ~sp_self.now & REHEARSED)
            sp_rehearse(0);
        sp_self.stream->loops = sp_self.stream->saved[sp_self.inside].loops;
    }
}

/* Loops. Only with SP_EDGES do they have a state: whether an iteration is near an end. */

static SP_SLOW void push(int dimensions, const int64_t *bounds) {
    struct sp_stream *of = sp_self.stream;
    if (of->loops++ >= SP_DEEP)
        return;
    struct sp_loop *loop = &of->loop[of->loops - 1];
    *loop = (struct sp_loop){.was = sp_self.now, .dimensions = dimensions, .count = dimensions ? 1 : 0};
    for (int d = 0; d < dimensions; d++) {
        int64_t lower = bounds[3 * d], upper = bounds[3 * d + 1], step = bounds[3 * d + 2];
        uint64_t counts = 0;
        if (step > 0 && upper >= lower)
            counts = ((uint64_t)upper - (uint64_t)lower) / (uint64_t)step + 1;
        if (step < 0 && upper <= lower)
            counts = ((uint64_t)lower - (uint64_t)upper) / -(uint64_t)step + 1;
        loop->lower[d] = lower, loop->step[d] = step ? step : 1, loop->counts[d] = counts;
        loop->count *= counts;
    }
    sp_self.now |= EDGED;
}

static SP_SLOW void pop(void) {
    struct sp_stream *of = sp_self.stream;
    if (of->loops > 0 && --of->loops < SP_DEEP)
        sp_self.now = of->loop[of->loops].was;
}

/* 1 if this iteration is recorded; it mutes the thread if not. */
static int at_edge(int dimensions, const int64_t *index) {
    struct sp_stream *of = sp_self.stream;
    if (of->loops <= 0 || of->loops > SP_DEEP)
        return (sp_self.now & TRACED) != 0;
    struct sp_loop *loop = &of->loop[of->loops - 1];
    uint64_t number = 0;
    for (int d = 0; d < dimensions && d < loop->dimensions; d++) {
        int64_t from = index[d] - loop->lower[d];
        number = number * loop->counts[d] + (uint64_t)(loop->step[d] == 1 ? from : from / loop->step[d]);
    }
    int on = !loop->count || number < sp_settings.edges || number + sp_settings.edges >= loop->count;
    sp_self.now = on ? loop->was | EDGED : ON | EDGED;
    return on && (loop->was & TRACED);
}

static void loop_of(int32_t site, int dimensions, const int64_t *bounds) {
    if (asleep(STRUCTURE | EDGED))
        return;
    if (sp_self.now & STRUCTURE) {
        sp_put(STRUCTURE, site, SP_KIND_LOOP, SP_TYPE_I8, (unsigned)dimensions, (uint64_t)bounds[0]);
        for (int more = 1; more < 3 * dimensions; more++)
            sp_put(STRUCTURE, site, SP_KIND_MORE, 0, 0, (uint64_t)bounds[more]);
    }
    if (sp_settings.edges && sp_self.now)
        push(dimensions, bounds);
}

void sp_loop(int32_t site, int64_t lower, int64_t upper, int64_t step) {
    if (sp_self.now & (STRUCTURE | EDGED))
        loop_of(site, 1, (int64_t[]){lower, upper, step});
}

void sp_loop2(int32_t site, int64_t l1, int64_t u1, int64_t s1, int64_t l2, int64_t u2, int64_t s2) {
    if (sp_self.now & (STRUCTURE | EDGED))
        loop_of(site, 2, (int64_t[]){l1, u1, s1, l2, u2, s2});
}

void sp_loop3(int32_t site, int64_t l1, int64_t u1, int64_t s1, int64_t l2, int64_t u2, int64_t s2, int64_t l3,
              int64_t u3, int64_t s3) {
    if (sp_self.now & (STRUCTURE | EDGED))
        loop_of(site, 3, (int64_t[]){l1, u1, s1, l2, u2, s2, l3, u3, s3});
}

void sp_loop_end(int32_t site) {
    if (asleep(STRUCTURE | EDGED))
        return;
    if (sp_self.now & EDGED)
        pop();
    if (sp_self.now & STRUCTURE)
        sp_put(STRUCTURE, site, SP_KIND_LOOP_END, 0, 0, 0);
}

static inline int iter_of(int32_t site, int dimensions, const int64_t *index) {
    if (SP_UNLIKELY(sp_self.now & EDGED) && (asleep(TRACED | EDGED) ||
                                             ((sp_self.now & EDGED) && !at_edge(dimensions, index))))
        return 0;
    if (sp_self.now & STRUCTURE) {
        sp_put(STRUCTURE, site, SP_KIND_ITER, SP_TYPE_I8, (unsigned)dimensions, (uint64_t)index[0]);
        for (int d = 1; d < dimensions; d++)
            sp_put(STRUCTURE, site, SP_KIND_MORE, 0, 0, (uint64_t)index[d]);
    }
    return (sp_self.now & TRACED) != 0;
}

int sp_iter(int32_t site, int64_t i) {
    return sp_self.now & (TRACED | EDGED) ? iter_of(site, 1, &i) : 0;
}

bool sp_iter_i4(int32_t site, int32_t i) {
    return sp_self.now & (TRACED | EDGED) ? iter_of(site, 1, (int64_t[]){i}) : 0;
}

bool sp_iter_i8(int32_t site, int64_t i) {
    return sp_self.now & (TRACED | EDGED) ? iter_of(site, 1, &i) : 0;
}

int sp_iter2(int32_t site, int64_t i, int64_t j) {
    return sp_self.now & (TRACED | EDGED) ? iter_of(site, 2, (int64_t[]){i, j}) : 0;
}

int sp_iter3(int32_t site, int64_t i, int64_t j, int64_t k) {
    return sp_self.now & (TRACED | EDGED) ? iter_of(site, 3, (int64_t[]){i, j, k}) : 0;
}

int sp_on(int32_t site) {
    (void)site;
    return !asleep(WRITES | READS);
}

bool sp_on_b(int32_t site) {
    return sp_on(site);
}

void sp_event(int32_t site, int32_t kind, int64_t value) {
    uint32_t bit = STRUCTURE;
    if (kind == SP_KIND_CALL || kind == SP_KIND_RETURN)
        bit = CALLS;
    else if (kind == SP_KIND_PRIVATE_UNSET)
        bit = READS;
    int sections = kind == SP_KIND_SECTIONS || kind == SP_KIND_SECTIONS_END;
    if (asleep(sections ? bit | EDGED : bit))
        return;
    if (kind == SP_KIND_SECTIONS_END && sp_self.now & EDGED)
        pop();
    if (sp_self.now & bit)
        sp_put(bit, site, (unsigned)kind, 0, 0, (uint64_t)value);
    if (kind == SP_KIND_SECTIONS && sp_settings.edges && sp_self.now)
        push(0, NULL);
}

/* Values. */

#define VALUE(letters, type, number, unsigned_type) \
    void sp_write_##letters(int32_t site, type x) { \
        if (sp_self.now & WRITES) \
            sp_put(WRITES, site, SP_KIND_WRITE, number, 0, (unsigned_type)x); \
    } \
    void sp_read_##letters(int32_t site, type x) { \
        if (sp_self.now & READS) \
            sp_put(READS, site, SP_KIND_READ, number, 0, (unsigned_type)x); \
    }
VALUE(i1, int8_t, SP_TYPE_I1, uint8_t)
VALUE(i2, int16_t, SP_TYPE_I2, uint16_t)
VALUE(i4, int32_t, SP_TYPE_I4, uint32_t)
VALUE(i8, int64_t, SP_TYPE_I8, uint64_t)
VALUE(l1, int8_t, SP_TYPE_L1, uint8_t)
VALUE(l2, int16_t, SP_TYPE_L2, uint16_t)
VALUE(l4, int32_t, SP_TYPE_L4, uint32_t)
VALUE(l8, int64_t, SP_TYPE_L8, uint64_t)

static inline uint64_t bits4(float x) {
    uint32_t word;
    memcpy(&word, &x, 4);
    return word;
}

static inline uint64_t bits8(double x) {
    uint64_t word;
    memcpy(&word, &x, 8);
    return word;
}

static void halves(uint32_t bit, int32_t site, unsigned kind, unsigned type, int words, const uint64_t *word) {
    sp_put(bit, site, kind, type, 0, word[0]);
    for (int more = 1; more < words; more++)
        sp_put(bit, site, SP_KIND_MORE, 0, 0, word[more]);
}

static void text(uint32_t bit, int32_t site, unsigned kind, const char *from, size_t length) {
    uint64_t word[5] = {0};
    size_t kept = length < 32 ? length : 32, words = (kept + 7) / 8;
    memcpy(word, from, kept);
    if (length > 32)
        word[words++] = XXH3_64bits(from, length);
    sp_put(bit, site, kind, SP_TYPE_S, 0, length);
    for (size_t more = 0; more < words; more++)
        sp_put(bit, site, SP_KIND_MORE, 0, 0, word[more]);
}

#define LONGER(what, bit, kind) \
    void sp_##what##_r4(int32_t site, float x) { \
        if (sp_self.now & bit) \
            sp_put(bit, site, kind, SP_TYPE_R4, 0, bits4(x)); \
    } \
    void sp_##what##_r8(int32_t site, double x) { \
        if (sp_self.now & bit) \
            sp_put(bit, site, kind, SP_TYPE_R8, 0, bits8(x)); \
    } \
    void sp_##what##_parts4(int32_t site, float re, float im) { \
        if (sp_self.now & bit) \
            sp_put(bit, site, kind, SP_TYPE_C4, 0, bits4(re) | bits4(im) << 32); \
    } \
    void sp_##what##_parts8(int32_t site, double re, double im) { \
        if (sp_self.now & bit) \
            halves(bit, site, kind, SP_TYPE_C8, 2, (uint64_t[]){bits8(re), bits8(im)}); \
    } \
    void sp_##what##_r16(int32_t site, int64_t low, int64_t high) { \
        if (sp_self.now & bit) \
            halves(bit, site, kind, SP_TYPE_R16, 2, (uint64_t[]){(uint64_t)low, (uint64_t)high}); \
    } \
    void sp_##what##_c16(int32_t site, int64_t a, int64_t b, int64_t c, int64_t d) { \
        if (sp_self.now & bit) \
            halves(bit, site, kind, SP_TYPE_C16, 4, \
                   (uint64_t[]){(uint64_t)a, (uint64_t)b, (uint64_t)c, (uint64_t)d}); \
    } \
    void sp_##what##_s(int32_t site, const char *from, size_t length) { \
        if (sp_self.now & bit) \
            text(bit, site, kind, from, length); \
    }
LONGER(write, WRITES, SP_KIND_WRITE)
LONGER(read, READS, SP_KIND_READ)
