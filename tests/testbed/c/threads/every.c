/* Each call of sp_trace.h once, and each type, by one thread. Sites are given as numbers that need no table. */
#include <string.h>

#include "sp_trace.h"

int main(void) {
    float _Complex c4;
    double _Complex c8;
    __real__ c4 = 1, __imag__ c4 = -2, __real__ c8 = 3, __imag__ c8 = -4;
    long double r16 = -1.5L;
    int64_t halves[2] = {0, 0};
    memcpy(halves, &r16, 10);
    int64_t v = sp_region(1);
    sp_enter(1, v);
    sp_loop(2, -1, 7, 2);
    sp_iter(3, -1);
    sp_loop_end(2);
    sp_loop2(4, 1, 2, 1, 9, 3, -3);
    sp_iter2(5, 2, 6);
    sp_loop_end(4);
    sp_loop3(6, 1, 2, 1, 3, 4, 1, 5, 6, 1);
    sp_iter3(7, 1, -3, 5);
    sp_loop_end(6);
    for (int kind = SP_KIND_CALL; kind <= SP_KIND_PRIVATE_UNSET; kind++)
        sp_event(100 + kind, kind, kind == SP_KIND_SECTIONS ? 3 : 0);
    int64_t inner = sp_region(8);
    sp_enter(8, inner);
    sp_leave(8, inner);
    sp_region_end(8, inner);
    sp_leave(1, v);
    sp_region_end(1, v);
    for (int32_t s = 0; s < 2; s++) { /* writes at 20, reads at 21 */
#define BOTH(letters, ...) s ? sp_read_##letters(21, __VA_ARGS__) : sp_write_##letters(20, __VA_ARGS__)
        BOTH(i1, -1);
        BOTH(i2, -2);
        BOTH(i4, -3);
        BOTH(i8, -4);
        BOTH(r4, 0.5f);
        BOTH(r8, 1e300);
        BOTH(r16, halves[0], halves[1]);
        BOTH(c4, c4);
        BOTH(c8, c8);
        BOTH(c16, halves[0], halves[1], halves[0], halves[1]);
        BOTH(l1, 1);
        BOTH(l2, 0);
        BOTH(l4, 1);
        BOTH(l8, 0);
        BOTH(s, "", 0);
        BOTH(s, "a text", 6);
        BOTH(s, "just thirty-two letters, as here", 32);
        BOTH(s, "more than thirty-two letters: only these are kept", 49);
    }
    double x[3] = {1, 2, 4};
    sp_digest_c(30, SP_TYPE_R8, x, 3);
    return sp_on(1) == 1 && (unsigned)v == 1 ? 0 : 3;
}
