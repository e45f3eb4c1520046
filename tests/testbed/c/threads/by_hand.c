/* The macros, in C and C++: a team of four, two loops, a critical section, digests. */
#include <stdio.h>

#include "sp_trace.h"

enum { N = 40 };
static double b[N], c[N / 4][4];

int main(void) {
    int sum = 0;
    SP_REGION("main")
#pragma omp parallel num_threads(4)
    {
        SP_ENTER
        SP_LOOP("i", 0, N - 1, 1)
#pragma omp for schedule(dynamic, 3)
        for (int i = 0; i < N; i++)
            if (SP_ITER(i)) {
                b[i] = i * 0.5;
                SP_WRITE(b[i]);
            } else
                b[i] = i * 0.5;
        SP_LOOP_END
        SP_LOOP2("i, j", 0, N / 4 - 1, 1, 0, 3, 1)
#pragma omp for collapse(2)
        for (int i = 0; i < N / 4; i++)
            for (int j = 0; j < 4; j++)
                if (SP_ITER2(i, j)) {
                    SP_READ(b[i]);
                    c[i][j] = b[i] + j;
                    SP_WRITE(c[i][j]);
                } else
                    c[i][j] = b[i] + j;
        SP_LOOP_END
        SP_BEGIN(CRITICAL, "sum")
#pragma omp critical
        {
            sum++;
            SP_WRITE(sum);
        }
        SP_END
        SP_BARRIER;
        SP_LEAVE
    }
    SP_DIGEST(b, N);
    SP_REGION_END
    printf("%d %g\n", sum, c[N / 4 - 1][3]);
    return 0;
}
