/* Counts with atomic, and a check number, a product modulo a prime, with critical. -DBUG: without critical. */
#include <stdio.h>
#include "sp_trace.h"

enum { N = 3000, CLASSES = 5, PRIME = 65521 };
static int values[N], counts[CLASSES];

int main(void) {
    long product = 1, sum = 0;
    unsigned seed = 12345;
    for (int i = 0; i < N; i++) {
        seed = (seed * 137 + 1021) % 65536;
        values[i] = (int)(seed / 16);
    }
    SP_REGION("counts")
#pragma omp parallel
    {
        SP_ENTER
        SP_LOOP("values", 0, N - 1, 1)
#pragma omp for schedule(runtime)
        for (int i = 0; i < N; i++) {
            SP_ITER(i);
            int c = values[i] % CLASSES;
            SP_WRITE(c);
#pragma omp atomic
            counts[c]++;
        }
        SP_LOOP_END
        SP_LEAVE
    }
    SP_DIGEST(counts, CLASSES);
    SP_REGION_END
    SP_REGION("check")
#pragma omp parallel
    {
        SP_ENTER
        SP_LOOP("check", 0, N - 1, 1)
#pragma omp for schedule(runtime)
        for (int i = 0; i < N; i++) {
            SP_ITER(i);
#ifndef BUG
#pragma omp critical
#endif
            {
                long check = product;
                for (int k = 1; k < 6; k++) {
                    check = check * (values[i] + k) % PRIME;
                    SP_READ(k);
                }
                product = check;
            }
        }
        SP_LOOP_END
        SP_LEAVE
    }
    SP_DIGEST(&product, 1);
    SP_REGION_END
    for (int c = 0; c < CLASSES; c++) sum += (c + 1) * counts[c];
    printf("product %ld checksum %ld\n", product, sum);
    return 0;
}
