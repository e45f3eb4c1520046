/* The numbers of iterations that SP_EDGES leaves: a loop backwards, one of two variables, an empty one, a loop in an
   iteration that is left out and one in an iteration that is not. */
#include "sp_trace.h"

int main(void) {
    sp_loop(1, 10, 1, -3); /* 10 7 4 1 */
    for (int i = 10; i >= 1; i -= 3)
        if (sp_iter(2, i))
            sp_write_i4(3, i);
    sp_loop_end(1);
    sp_loop2(4, 1, 3, 1, 0, 4, 2);
    for (int i = 1; i <= 3; i++)
        for (int j = 0; j <= 4; j += 2)
            if (sp_iter2(5, i, j))
                sp_write_i4(6, 10 * i + j);
    sp_loop_end(4);
    sp_loop(7, 1, 0, 1);
    sp_loop_end(7);
    sp_loop(8, 0, 4, 1);
    for (int i = 0; i <= 4; i++) {
        int on = sp_iter(9, i);
        sp_loop(10, 0, 2, 1);
        for (int j = 0; j <= 2; j++)
            if (sp_iter(11, j))
                sp_write_i4(12, 10 * i + j + (on ? 0 : 1000));
        sp_loop_end(10);
        if (sp_on(9))
            sp_write_i4(13, i);
    }
    sp_loop_end(8);
    sp_write_i4(14, 1);
    return 0;
}
