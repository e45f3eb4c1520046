/* Calls that record what the threads of a program do, for `safepoint threads`.

   By hand: write the macros at the end of this file, compile with -DSP_TRACE, link libsp_trace.a. Without -DSP_TRACE
   they do nothing, and their arguments count as used. A program records nothing unless SP_LEVEL is set in its
   environment.

   A call from a thread that records no such event returns after one test of a variable of its own. */
#ifndef SP_TRACE_H
#define SP_TRACE_H

#include <float.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    SP_KIND_REGION = 1, SP_KIND_REGION_END, SP_KIND_ENTER, SP_KIND_LEAVE, SP_KIND_LOOP, SP_KIND_LOOP_END, SP_KIND_ITER,
    SP_KIND_WRITE, SP_KIND_READ, SP_KIND_DIGEST, SP_KIND_CALL, SP_KIND_RETURN, SP_KIND_SINGLE, SP_KIND_SINGLE_END,
    SP_KIND_MASTER, SP_KIND_MASTER_END, SP_KIND_CRITICAL, SP_KIND_CRITICAL_END, SP_KIND_ORDERED, SP_KIND_ORDERED_END,
    SP_KIND_BARRIER, SP_KIND_ATOMIC, SP_KIND_ATOMIC_END, SP_KIND_SECTIONS, SP_KIND_SECTIONS_END, SP_KIND_PRIVATE_UNSET,
    SP_KIND_MORE = 255
};
enum {
    SP_TYPE_NONE, SP_TYPE_I1, SP_TYPE_I2, SP_TYPE_I4, SP_TYPE_I8, SP_TYPE_R4, SP_TYPE_R8, SP_TYPE_R16, SP_TYPE_C4,
    SP_TYPE_C8, SP_TYPE_C16, SP_TYPE_L1, SP_TYPE_L2, SP_TYPE_L4, SP_TYPE_L8, SP_TYPE_S,
    SP_TYPE_X87 = 32 /* beside R16 or C16: the last 6 of 16 bytes are no part of the value */
};

#ifdef __cplusplus
extern "C" {
#endif

/* A new line of sites.jsonl; its number. -1 if nothing is recorded. `sp_site_once`: the first call sets *slot, the
   others return it; *slot is 0 at first. */
int32_t sp_site(const char *type, const char *name, const char *file, int32_t line, int32_t line2);
int32_t sp_site_once(int32_t *slot, const char *type, const char *name, const char *file, int32_t line, int32_t line2);
int32_t sp_site_sum(int32_t *slot, const char *name, const char *file, int32_t line); /* of what threads add up */

/* The encountering thread: sp_region before the team, sp_region_end after it. Each thread of the team: sp_enter and
   sp_leave with the visit that sp_region gave. */
int64_t sp_region(int32_t site);
void sp_region_end(int32_t site, int64_t visit);
void sp_enter(int32_t site, int64_t visit);
void sp_leave(int32_t site, int64_t visit);

/* Each thread, around a work-shared loop; sp_iter at the top of its body: 1 if this iteration is recorded. */
void sp_loop(int32_t site, int64_t lower, int64_t upper, int64_t step);
void sp_loop2(int32_t site, int64_t l1, int64_t u1, int64_t s1, int64_t l2, int64_t u2, int64_t s2);
void sp_loop3(int32_t site, int64_t l1, int64_t u1, int64_t s1, int64_t l2, int64_t u2, int64_t s2, int64_t l3,
              int64_t u3, int64_t s3);
int sp_iter(int32_t site, int64_t i);
int sp_iter2(int32_t site, int64_t i, int64_t j);
int sp_iter3(int32_t site, int64_t i, int64_t j, int64_t k);
bool sp_iter_i4(int32_t site, int32_t i); /* for Fortran */
bool sp_iter_i8(int32_t site, int64_t i);
void sp_loop_end(int32_t site);

int sp_on(int32_t site); /* this thread records writes now */
bool sp_on_b(int32_t site);
void sp_event(int32_t site, int32_t kind, int64_t value); /* kinds 11 to 26 */

void sp_write_i1(int32_t site, int8_t x);
void sp_write_i2(int32_t site, int16_t x);
void sp_write_i4(int32_t site, int32_t x);
void sp_write_i8(int32_t site, int64_t x);
void sp_write_r4(int32_t site, float x);
void sp_write_r8(int32_t site, double x);
void sp_write_l1(int32_t site, int8_t x);
void sp_write_l2(int32_t site, int16_t x);
void sp_write_l4(int32_t site, int32_t x);
void sp_write_l8(int32_t site, int64_t x);
void sp_write_parts4(int32_t site, float re, float im); /* of complex */
void sp_write_parts8(int32_t site, double re, double im);
void sp_write_r16(int32_t site, int64_t low, int64_t high); /* the halves of 16 bytes */
void sp_write_c16(int32_t site, int64_t re_low, int64_t re_high, int64_t im_low, int64_t im_high);
void sp_write_s(int32_t site, const char *text, size_t length);
void sp_read_i1(int32_t site, int8_t x);
void sp_read_i2(int32_t site, int16_t x);
void sp_read_i4(int32_t site, int32_t x);
void sp_read_i8(int32_t site, int64_t x);
void sp_read_r4(int32_t site, float x);
void sp_read_r8(int32_t site, double x);
void sp_read_l1(int32_t site, int8_t x);
void sp_read_l2(int32_t site, int16_t x);
void sp_read_l4(int32_t site, int32_t x);
void sp_read_l8(int32_t site, int64_t x);
void sp_read_parts4(int32_t site, float re, float im);
void sp_read_parts8(int32_t site, double re, double im);
void sp_read_r16(int32_t site, int64_t low, int64_t high);
void sp_read_c16(int32_t site, int64_t re_low, int64_t re_high, int64_t im_low, int64_t im_high);
void sp_read_s(int32_t site, const char *text, size_t length);

/* The xxh3-128 of the bytes of so many elements. sp_digest_d takes a descriptor of Fortran, of any rank. sp_digest_sum
   has statistics in any case. */
void sp_digest_c(int32_t site, int32_t type, const void *first, int64_t elements);
void sp_digest_sum(int32_t site, int32_t type, const void *first, int64_t elements);
struct CFI_cdesc_t;

/* The two words of a long double, without bytes that are no part of it; where it is a double, as one. */
#define SP_LONG_DOUBLE_(what) \
    static inline void sp_##what##_ld(int32_t site, long double x) { \
        int64_t word[2] = {0, 0}; \
        if (sizeof x == 8) { \
            sp_##what##_r8(site, (double)x); \
            return; \
        } \
        __builtin_memcpy(word, &x, LDBL_MANT_DIG == 64 ? 10 : sizeof x); \
        sp_##what##_r16(site, word[0], word[1]); \
    }
SP_LONG_DOUBLE_(write)
SP_LONG_DOUBLE_(read)
#define SP_TYPE_LD_ \
    (sizeof(long double) == 8 ? SP_TYPE_R8 : LDBL_MANT_DIG == 64 ? SP_TYPE_R16 | SP_TYPE_X87 : SP_TYPE_R16)

#ifndef __cplusplus
static inline void sp_write_c4(int32_t site, float _Complex x) {
    sp_write_parts4(site, __real__ x, __imag__ x);
}
static inline void sp_write_c8(int32_t site, double _Complex x) {
    sp_write_parts8(site, __real__ x, __imag__ x);
}
static inline void sp_read_c4(int32_t site, float _Complex x) {
    sp_read_parts4(site, __real__ x, __imag__ x);
}
static inline void sp_read_c8(int32_t site, double _Complex x) {
    sp_read_parts8(site, __real__ x, __imag__ x);
}
#endif

#ifdef __cplusplus
}
#endif

#ifndef SP_TRACE

/* Used, and not evaluated: else a variable that is only recorded would be unused. */
#define SP_USED_(x) (0 ? (void)(x) : (void)0)
static inline int sp_no_iter_(int found) { /* a call, as a constant alone would have no effect */
    return found;
}

#define SP_REGION(name) \
    { \
        const int32_t sp_region_ = 0; \
        const int64_t sp_visit_ = 0; \
        SP_USED_(name); SP_USED_(sp_region_); SP_USED_(sp_visit_);
#define SP_REGION_END }
#define SP_ENTER ((void)0);
#define SP_LEAVE ((void)0);
#define SP_LOOP(name, lower, upper, step) \
    { \
        SP_USED_(name); SP_USED_(lower); SP_USED_(upper); SP_USED_(step);
#define SP_LOOP2(name, l1, u1, s1, l2, u2, s2) \
    { \
        SP_USED_(name); SP_USED_(l1); SP_USED_(u1); SP_USED_(s1); SP_USED_(l2); SP_USED_(u2); SP_USED_(s2);
#define SP_ITER(i) sp_no_iter_(0 ? ((void)(i), 1) : 0)
#define SP_ITER2(i, j) sp_no_iter_(0 ? ((void)(i), (void)(j), 1) : 0)
#define SP_LOOP_END }
#define SP_SECTION(number) SP_ITER(number)
#define SP_BEGIN(type, name) \
    { \
        SP_USED_(name);
#define SP_END }
#define SP_BARRIER ((void)0);
#define SP_WRITE(x) SP_USED_(x)
#define SP_READ(x) SP_USED_(x)
#define SP_DIGEST(x, n) (0 ? ((void)(x), (void)(n)) : (void)0)
#define SP_DIGEST_SUM(x, n) SP_DIGEST(x, n)

#else

/* The site of this line, registered when it is first reached. */
#define SP_HERE_(type, name) \
    (__extension__({ \
        static int32_t sp_slot_; \
        int32_t sp_found_ = __atomic_load_n(&sp_slot_, __ATOMIC_ACQUIRE); \
        sp_found_ ? sp_found_ : sp_site_once(&sp_slot_, type, name, __FILE__, __LINE__, __LINE__); \
    }))
#define SP_SUM_HERE_(name) \
    (__extension__({ \
        static int32_t sp_slot_; \
        int32_t sp_found_ = __atomic_load_n(&sp_slot_, __ATOMIC_ACQUIRE); \
        sp_found_ ? sp_found_ : sp_site_sum(&sp_slot_, name, __FILE__, __LINE__); \
    }))

/* SP_REGION("name") ... SP_REGION_END are a block; with default(none), sp_region_ and sp_visit_ are shared: they are
   declared without -DSP_TRACE too. */
#define SP_REGION(name) \
    { \
        const int32_t sp_region_ = SP_HERE_("region", name); \
        const int64_t sp_visit_ = sp_region(sp_region_);
#define SP_REGION_END \
        sp_region_end(sp_region_, sp_visit_); \
    }
#define SP_ENTER sp_enter(sp_region_, sp_visit_);
#define SP_LEAVE sp_leave(sp_region_, sp_visit_);
#define SP_LOOP(name, lower, upper, step) \
    { \
        const int32_t sp_loop_ = SP_HERE_("loop", name); \
        sp_loop(sp_loop_, lower, upper, step);
#define SP_LOOP2(name, l1, u1, s1, l2, u2, s2) \
    { \
        const int32_t sp_loop_ = SP_HERE_("loop", name); \
        sp_loop2(sp_loop_, l1, u1, s1, l2, u2, s2);
#define SP_ITER(i) sp_iter(SP_HERE_("iteration", #i), i)
#define SP_ITER2(i, j) sp_iter2(SP_HERE_("iteration", #i "," #j), i, j)
#define SP_LOOP_END \
        sp_loop_end(sp_loop_); \
    }
/* SP_BEGIN(SINGLE, "name") ... SP_END, a block; also MASTER CRITICAL ORDERED ATOMIC SECTIONS, and CALL. That of SECTIONS
   is around the construct, and SP_SECTION(1), SP_SECTION(2) ... are the first of each section: true as SP_ITER is. */
#define SP_BEGIN(construct, name) \
    { \
        const int32_t sp_site_ = SP_HERE_(SP_TEXT_##construct, name); \
        enum { sp_end_ = SP_KIND_##construct + 1 }; \
        sp_event(sp_site_, SP_KIND_##construct, 0);
#define SP_END \
        sp_event(sp_site_, sp_end_, 0); \
    }
#define SP_SECTION(number) sp_iter(SP_HERE_("section", #number), number)
#define SP_TEXT_SINGLE "single"
#define SP_TEXT_MASTER "master"
#define SP_TEXT_CRITICAL "critical"
#define SP_TEXT_ORDERED "ordered"
#define SP_TEXT_ATOMIC "atomic"
#define SP_TEXT_SECTIONS "sections"
#define SP_TEXT_CALL "procedure"
#define SP_BARRIER sp_event(SP_HERE_("barrier", ""), SP_KIND_BARRIER, 0);
#define SP_WRITE(x) SP_PICK_(write, x)(SP_HERE_("variable-write", #x), x)
#define SP_READ(x) SP_PICK_(read, x)(SP_HERE_("variable-read", #x), x)
/* x: pointer to the first element. SP_DIGEST_SUM: of a reduction, or what threads add up in an order of chance. */
#define SP_DIGEST(x, n) sp_digest_c(SP_HERE_("array", #x), SP_TYPE_OF_(*(x)), x, n)
#define SP_DIGEST_SUM(x, n) sp_digest_sum(SP_SUM_HERE_(#x), SP_TYPE_OF_(*(x)), x, n)

#ifdef __cplusplus
#define SP_PICK_(what, x) sp_##what##_of
#define SP_OVERLOAD_(type, letters, number) \
    static inline void sp_write_of(int32_t site, type x) { sp_write_##letters(site, x); } \
    static inline void sp_read_of(int32_t site, type x) { sp_read_##letters(site, x); } \
    static inline int32_t sp_type_of(type) { return number; }
SP_OVERLOAD_(bool, l1, SP_TYPE_L1)
SP_OVERLOAD_(char, i1, SP_TYPE_I1)
SP_OVERLOAD_(signed char, i1, SP_TYPE_I1)
SP_OVERLOAD_(unsigned char, i1, SP_TYPE_I1)
SP_OVERLOAD_(short, i2, SP_TYPE_I2)
SP_OVERLOAD_(unsigned short, i2, SP_TYPE_I2)
SP_OVERLOAD_(int, i4, SP_TYPE_I4)
SP_OVERLOAD_(unsigned, i4, SP_TYPE_I4)
SP_OVERLOAD_(long, i8, sizeof(long) == 8 ? SP_TYPE_I8 : SP_TYPE_I4)
SP_OVERLOAD_(unsigned long, i8, sizeof(long) == 8 ? SP_TYPE_I8 : SP_TYPE_I4)
SP_OVERLOAD_(long long, i8, SP_TYPE_I8)
SP_OVERLOAD_(unsigned long long, i8, SP_TYPE_I8)
SP_OVERLOAD_(float, r4, SP_TYPE_R4)
SP_OVERLOAD_(double, r8, SP_TYPE_R8)
SP_OVERLOAD_(long double, ld, SP_TYPE_LD_)
#define SP_TYPE_OF_(x) sp_type_of(x)
#else
#define SP_PICK_(what, x) \
    _Generic((x), bool: sp_##what##_l1, char: sp_##what##_i1, signed char: sp_##what##_i1, \
        unsigned char: sp_##what##_i1, short: sp_##what##_i2, unsigned short: sp_##what##_i2, int: sp_##what##_i4, \
        unsigned: sp_##what##_i4, long: sp_##what##_i8, unsigned long: sp_##what##_i8, long long: sp_##what##_i8, \
        unsigned long long: sp_##what##_i8, float: sp_##what##_r4, double: sp_##what##_r8, \
        long double: sp_##what##_ld, \
        float _Complex: sp_##what##_c4, double _Complex: sp_##what##_c8)
#define SP_TYPE_OF_(x) \
    _Generic((x), bool: SP_TYPE_L1, char: SP_TYPE_I1, signed char: SP_TYPE_I1, unsigned char: SP_TYPE_I1, \
        short: SP_TYPE_I2, unsigned short: SP_TYPE_I2, int: SP_TYPE_I4, unsigned: SP_TYPE_I4, \
        long: sizeof(long) == 8 ? SP_TYPE_I8 : SP_TYPE_I4, unsigned long: sizeof(long) == 8 ? SP_TYPE_I8 : SP_TYPE_I4, \
        long long: SP_TYPE_I8, unsigned long long: SP_TYPE_I8, float: SP_TYPE_R4, double: SP_TYPE_R8, \
        long double: SP_TYPE_LD_, \
        float _Complex: SP_TYPE_C4, double _Complex: SP_TYPE_C8)
#endif

#endif
#endif
