/* Blocks are computed by many and passed on in their order. -DBUG: in the order in which they come. */
#include <stdio.h>
#include "sp_trace.h"

enum { BLOCKS = 60, LENGTH = 40 };
static double out[BLOCKS];

int main(void) {
    double state = 1, sum = 0;
    int written = 0;
    SP_REGION("blocks")
#pragma omp parallel
    {
        SP_ENTER
        SP_LOOP("blocks", 0, BLOCKS - 1, 1)
#ifdef BUG
#pragma omp for schedule(runtime)
#else
#pragma omp for ordered schedule(runtime)
#endif
        for (int b = 0; b < BLOCKS; b++) {
            SP_ITER(b);
            double block = 0;
            for (int i = 0; i < LENGTH; i++) block += i * b % 23 / 8.0;
            SP_WRITE(block);
#ifndef BUG
#pragma omp ordered
#endif
            {
                state = 0.5 * state + block;
                SP_WRITE(state);
                out[written] = state;
                written++;
            }
        }
        SP_LOOP_END
        SP_LEAVE
    }
    SP_DIGEST(out, BLOCKS);
    SP_REGION_END
    for (int b = 0; b < BLOCKS; b++) sum += b * out[b];
    printf("written %d checksum %.15e\n", written, sum);
    return 0;
}
