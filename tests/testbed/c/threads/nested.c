/* Teams of two within a team of two, twenty times; each thread of an inner team records who it is. */
#include <omp.h>

#include "sp_trace.h"

int main(void) {
    omp_set_max_active_levels(2);
    for (int round = 0; round < 20; round++) {
        int64_t outer = sp_region(1);
#pragma omp parallel num_threads(2)
        {
            sp_enter(1, outer);
            int mine = omp_get_thread_num();
            int64_t inner = sp_region(2);
#pragma omp parallel num_threads(2)
            {
                sp_enter(2, inner);
                sp_write_i4(3, 100 * round + 10 * mine + omp_get_thread_num());
                sp_leave(2, inner);
            }
            sp_region_end(2, inner);
            sp_leave(1, outer);
        }
        sp_region_end(1, outer);
    }
    return 0;
}
