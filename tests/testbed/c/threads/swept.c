/* Sweeps over an array, a region each: `swept SWEEPS SIZE [WRONG] [PAUSE_US]`. In sweep WRONG (from 1; 0: none) one
   value is another; it pauses after each sweep. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "sp_trace.h"

int main(int argc, char **argv) {
    int sweeps = atoi(argv[1]), size = atoi(argv[2]);
    int wrong = argc > 3 ? atoi(argv[3]) : 0, pause_us = argc > 4 ? atoi(argv[4]) : 0;
    double *b = calloc((size_t)size, sizeof *b);
    for (int sweep = 1; sweep <= sweeps; sweep++) {
        SP_REGION("sweep")
#pragma omp parallel
        {
            SP_ENTER
            SP_LOOP("j", 0, size - 1, 1)
#pragma omp for schedule(dynamic, 16)
            for (int j = 0; j < size; j++)
                if (SP_ITER(j)) {
                    b[j] = b[j] * 0.5 + j + (sweep == wrong && j == size / 2);
                    SP_WRITE(b[j]);
                } else
                    b[j] = b[j] * 0.5 + j + (sweep == wrong && j == size / 2);
            SP_LOOP_END
            SP_LEAVE
        }
        SP_DIGEST(b, size);
        SP_REGION_END
        usleep((unsigned)pause_us);
    }
    puts("ended");
    return 0;
}
