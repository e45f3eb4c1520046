/* Checksums of arrays: xxh3-128 of the bytes in array element order, whatever lies between the elements.

   Compiled with the header of the program's own Fortran compiler, as each has its own descriptor; without
   SP_DESCRIPTORS for C alone.

   Statistics are the only floating arithmetic of the runtime. It stands between feholdexcept and fesetenv, so that a
   program that traps exceptions is not killed for ours, and finds its flags as it left them. */
#include <fenv.h>
#include <float.h>
#include <math.h>
#include <string.h>

#ifdef SP_DESCRIPTORS
#include <ISO_Fortran_binding.h>
#endif

#include "sp_inner.h"

#define XXH_INLINE_ALL
#include "xxhash.h"

#if defined(__SIZEOF_FLOAT128__)
typedef __float128 quad;
#else
typedef long double quad;
#endif

enum { X87 = SP_TYPE_X87 };

#define SP_APART __attribute__((noinline)) /* a compiler moves no arithmetic over a call */

struct sums {
    double least, most, sum, squares, placed, count;
    uint64_t elements;
};

static const unsigned char sizes[] = {1, 1, 2, 4, 8, 4, 8, 16, 8, 16, 32, 1, 2, 4, 8, 1};

static double real_of(const char *at, int size, int x87) {
    float r4;
    double r8;
    quad r16;
    if (size == 4)
        return memcpy(&r4, at, 4), r4;
    if (size == 8)
        return memcpy(&r8, at, 8), r8;
#if LDBL_MANT_DIG == 64
    long double r10 = 0;
    if (x87)
        return memcpy(&r10, at, 10), (double)r10;
#endif
    (void)x87;
    return memcpy(&r16, at, sizeof r16), (double)r16;
}

static double number(const char *at, int type) {
    int16_t i2;
    int32_t i4;
    int64_t i8;
    int plain = type & ~X87, half = sizes[plain] / 2;
    switch (plain) {
    case SP_TYPE_I1:
        return *(const int8_t *)at;
    case SP_TYPE_I2:
        return memcpy(&i2, at, 2), i2;
    case SP_TYPE_I4:
        return memcpy(&i4, at, 4), i4;
    case SP_TYPE_I8:
        return memcpy(&i8, at, 8), (double)i8;
    case SP_TYPE_L1:
        return *at != 0;
    case SP_TYPE_L2:
        return memcpy(&i2, at, 2), i2 != 0;
    case SP_TYPE_L4:
        return memcpy(&i4, at, 4), i4 != 0;
    case SP_TYPE_L8:
        return memcpy(&i8, at, 8), i8 != 0;
    case SP_TYPE_C4:
    case SP_TYPE_C8:
    case SP_TYPE_C16:
        return hypot(real_of(at, half, type & X87), real_of(at + half, half, type & X87));
    default:
        return real_of(at, sizes[plain], type & X87);
    }
}

static SP_APART void sum_up(struct sums *of, const char *from, size_t bytes, int type) {
    for (size_t at = 0, size = sizes[type & ~X87]; at + size <= bytes; at += size) {
        double x = number(from + at, type);
        double weight = (double)(++of->elements * 0x9E3779B97F4A7C15u >> 11) * 0x1p-53; /* of its place: 0 to 1 */
        if (isnan(x))
            continue;
        of->least = x < of->least ? x : of->least;
        of->most = x > of->most ? x : of->most;
        of->sum += x, of->squares += x * x, of->placed += weight * x, of->count++;
    }
}

static void add(struct sums *of, const char *from, size_t bytes, int type) {
    fenv_t held;
    feholdexcept(&held);
    sum_up(of, from, bytes, type);
    fesetenv(&held);
}

static uint64_t word(double x) {
    uint64_t found;
    memcpy(&found, &x, 8);
    return found;
}

static void more(int32_t site, uint64_t value) {
    sp_put(DIGESTS, site, SP_KIND_MORE, 0, 0, value);
}

static SP_APART void conclude(uint64_t *words, const struct sums *of) {
    words[0] = word(of->count > 0 ? of->least : NAN);
    words[1] = word(of->count > 0 ? of->most : NAN);
    words[2] = word(of->count > 0 ? of->sum / of->count : NAN);
    words[3] = word(of->count > 0 ? sqrt(of->squares / of->count) : NAN);
    words[4] = word(of->count > 0 ? of->placed / of->count : NAN);
}

/* `of`: NULL without statistics. */
static void note(int32_t site, int type, int64_t elements, XXH128_hash_t hash, const struct sums *of) {
    sp_put(DIGESTS, site, SP_KIND_DIGEST, (unsigned)(type & ~X87), of ? 2 : 0, (uint64_t)elements);
    more(site, hash.low64);
    more(site, hash.high64);
    if (!of)
        return;
    uint64_t words[5];
    fenv_t held;
    feholdexcept(&held);
    conclude(words, of);
    fesetenv(&held);
    for (int each = 0; each < 5; each++)
        more(site, words[each]);
}

static int awake(void) {
    return sp_self.now & DIGESTS && (sp_self.now != FRESH || sp_attach()) && sp_self.now & DIGESTS;
}

static int counted(int type, int sum) {
    return (sum || sp_settings.statistics) && (type & ~X87) > SP_TYPE_NONE && (type & ~X87) <= SP_TYPE_L8;
}

#define EMPTY {INFINITY, -INFINITY, 0, 0, 0, 0, 0}

struct gathered {
    XXH3_state_t state;
    struct sums sums;
    int type, counted;
    size_t used;
    char part[16384];
};

static void begin(struct gathered *to, int type, int sum) {
    to->type = type, to->counted = counted(type, sum), to->used = 0, to->sums = (struct sums)EMPTY;
    XXH3_128bits_reset(&to->state);
}

static void feed(struct gathered *to, const char *from, size_t bytes) {
    if (to->counted)
        add(&to->sums, from, bytes, to->type);
    XXH3_128bits_update(&to->state, from, bytes);
}

static void flush(struct gathered *to) {
    for (size_t at = 0; to->type & X87 && at < to->used; at += 16)
        memset(to->part + at + 10, 0, 6);
    feed(to, to->part, to->used);
    to->used = 0;
}

static void gather(struct gathered *to, const char *from, size_t bytes) {
    if (bytes > 4096 && !(to->type & X87)) {
        flush(to);
        feed(to, from, bytes);
        return;
    }
    for (size_t now; bytes; from += now, bytes -= now) {
        now = sizeof to->part - to->used < bytes ? sizeof to->part - to->used : bytes;
        memcpy(to->part + to->used, from, now);
        if ((to->used += now) == sizeof to->part)
            flush(to);
    }
}

static void end(struct gathered *to, int32_t site, int64_t elements) {
    flush(to);
    note(site, to->type, elements, XXH3_128bits_digest(&to->state), to->counted ? &to->sums : NULL);
}

static void digest(int32_t site, int32_t type, const void *first, int64_t elements, int sum) {
    int plain = type & ~X87;
    if (!awake() || plain < 0 || plain > SP_TYPE_S)
        return;
    size_t bytes = elements > 0 && first ? (size_t)elements * sizes[plain] : 0;
    if (type & X87) {
        struct gathered to;
        begin(&to, type, sum);
        gather(&to, first, bytes);
        end(&to, site, elements);
        return;
    }
    struct sums of = EMPTY;
    if (counted(type, sum))
        add(&of, first, bytes, type);
    note(site, type, elements, XXH3_128bits(first, bytes), counted(type, sum) ? &of : NULL);
}

void sp_digest_c(int32_t site, int32_t type, const void *first, int64_t elements) {
    digest(site, type, first, elements, 0);
}

void sp_digest_sum(int32_t site, int32_t type, const void *first, int64_t elements) {
    digest(site, type, first, elements, 1);
}

#ifdef SP_DESCRIPTORS

#if defined(CFI_type_mask) /* GNU: the kind of type is in the low byte, and its bytes above */
#define IS(type, letters) (((type) & CFI_type_mask) == CFI_type_##letters)
static int kind_of(CFI_type_t type) {
    return IS(type, Integer) ? 1 : IS(type, Real) ? 2 : IS(type, Complex) ? 3 : IS(type, Logical) ? 4
           : IS(type, Character) ? 5 : 0;
}
static int is_x87(CFI_type_t type) {
    return (IS(type, Real) || IS(type, Complex)) && type >> CFI_type_kind_shift == 10;
}
#else
static int kind_of(CFI_type_t type) {
    if (type == CFI_type_Bool)
        return 4;
#ifdef CFI_type_extended_double /* LLVM: so it tells logical from integer */
    if (type == CFI_type_int_least16_t || type == CFI_type_int_least32_t || type == CFI_type_int_least64_t)
        return 4;
#endif
    if (type == CFI_type_float || type == CFI_type_double || type == CFI_type_long_double)
        return 2;
    if (type == CFI_type_float_Complex || type == CFI_type_double_Complex || type == CFI_type_long_double_Complex)
        return 3;
#ifdef CFI_type_float128
    if (type == CFI_type_float128 || type == CFI_type_float128_Complex)
        return type == CFI_type_float128 ? 2 : 3;
#endif
#ifdef CFI_type_extended_double
    if (type == CFI_type_extended_double || type == CFI_type_extended_double_Complex)
        return type == CFI_type_extended_double ? 2 : 3;
#endif
    if (type == CFI_type_char)
        return 5;
    return type >= CFI_type_signed_char && type != CFI_type_struct && type != CFI_type_cptr ? 1 : 0;
}
static int is_x87(CFI_type_t type) {
#ifdef CFI_type_extended_double
    return type == CFI_type_extended_double || type == CFI_type_extended_double_Complex;
#else
    return LDBL_MANT_DIG == 64 && (type == CFI_type_long_double || type == CFI_type_long_double_Complex);
#endif
}
#endif

static int type_of(const CFI_cdesc_t *d) {
    static const struct {
        int kind, type;
        size_t bytes;
    } known[] = {{1, SP_TYPE_I1, 1}, {1, SP_TYPE_I2, 2}, {1, SP_TYPE_I4, 4}, {1, SP_TYPE_I8, 8}, {2, SP_TYPE_R4, 4},
                 {2, SP_TYPE_R8, 8}, {2, SP_TYPE_R16, 16}, {3, SP_TYPE_C4, 8}, {3, SP_TYPE_C8, 16},
                 {3, SP_TYPE_C16, 32}, {4, SP_TYPE_L1, 1}, {4, SP_TYPE_L2, 2}, {4, SP_TYPE_L4, 4}, {4, SP_TYPE_L8, 8}};
    int kind = kind_of(d->type);
    for (size_t each = 0; each < sizeof known / sizeof *known; each++)
        if (known[each].kind == kind && known[each].bytes == d->elem_len)
            return known[each].type | (is_x87(d->type) ? X87 : 0);
    return kind == 5 ? SP_TYPE_S : SP_TYPE_NONE;
}

/* All elements but those of the dimensions below `lowest`, which lie in one run of `bytes`. */
static void walk(struct gathered *to, const CFI_cdesc_t *d, int lowest, size_t bytes) {
    CFI_index_t index[CFI_MAX_RANK] = {0};
    char *at = d->base_addr;
    for (int dim = 0; dim < d->rank;) {
        gather(to, at, bytes);
        for (dim = lowest; dim < d->rank; dim++) {
            at += d->dim[dim].sm;
            if (++index[dim] < d->dim[dim].extent)
                break;
            at -= d->dim[dim].sm * d->dim[dim].extent;
            index[dim] = 0;
        }
    }
}

void sp_digest_d(int32_t site, CFI_cdesc_t *d) {
    if (!awake())
        return;
    int64_t elements = d->base_addr ? 1 : 0;
    int lowest = 0, type = type_of(d);
    size_t bytes = d->elem_len;
    for (int dim = 0; dim < d->rank; dim++) /* of an array of unknown size, -1 */
        elements = d->dim[dim].extent > 0 ? elements * d->dim[dim].extent : 0;
    for (; lowest < d->rank && d->dim[lowest].sm == (CFI_index_t)bytes; lowest++)
        bytes *= (size_t)d->dim[lowest].extent;
    int64_t letters = type == SP_TYPE_S ? elements * (int64_t)d->elem_len : elements;
    if (elements && lowest == d->rank && type != SP_TYPE_NONE && !(type & X87)) {
        sp_digest_c(site, type, d->base_addr, letters);
        return;
    }
    struct gathered to;
    begin(&to, type, 0);
    if (elements && d->rank)
        walk(&to, d, lowest, bytes);
    else if (elements)
        gather(&to, d->base_addr, bytes);
    end(&to, site, letters);
}

#endif
