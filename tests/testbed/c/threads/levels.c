/* Five regions, one thread, no OpenMP: in sequential code a procedure (1), a write (10), a read (11) and a digest (12)
   before each; in each a loop of ten iterations with a write, a read and a procedure (2), and a nested region. Prints
   how often the traced body ran. */
#include <stdio.h>

#include "sp_trace.h"

static void procedure(int32_t site, int traced) {
    sp_event(site, SP_KIND_CALL, 0);
    if (traced)
        sp_write_i4(13, site);
    sp_event(site, SP_KIND_RETURN, 0);
}

int main(void) {
    int traced = 0;
    double x[2] = {1, 2};
    for (int v = 1; v <= 5; v++) {
        procedure(1, 0);
        sp_write_i4(10, v);
        sp_read_i4(11, v);
        sp_digest_c(12, SP_TYPE_R8, x, 2);
        int64_t visit = sp_region(20);
        sp_enter(20, visit);
        sp_loop(21, 9, 0, -1);
        for (int i = 9; i >= 0; i--) {
            if (sp_iter(22, i)) {
                traced++;
                sp_write_i4(23, i);
                sp_read_i4(24, i);
                procedure(2, sp_on(2));
            } else
                procedure(2, sp_on(2));
        }
        sp_loop_end(21);
        sp_event(25, SP_KIND_SECTIONS, 2);
        for (int section = 1; section <= 2; section++)
            if (sp_iter(26, section))
                sp_write_i4(27, section);
        sp_event(25, SP_KIND_SECTIONS_END, 0);
        int64_t inner = sp_region(30);
        sp_enter(30, inner);
        sp_write_i4(31, v);
        sp_leave(30, inner);
        sp_digest_c(32, SP_TYPE_R8, x, 2);
        sp_region_end(30, inner);
        sp_leave(20, visit);
        sp_digest_c(28, SP_TYPE_R8, x, 2);
        sp_region_end(20, visit);
    }
    printf("%d\n", traced);
    return 0;
}
