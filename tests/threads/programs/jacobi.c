/* Heat in a plate, by Jacobi's iteration. -DBUG: the factor is private, so it has no value in the team. */
#include <math.h>
#include <stdio.h>
#include "sp_trace.h"

enum { N = 40, SWEEPS = 10 };
static double a[N][N], b[N][N];

int main(void) {
    double h = 0.25, change = 0, sum = 0;
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++) a[i][j] = b[i][j] = (7 * i + 3 * j) % 11;
    for (int k = 0; k < SWEEPS; k++) {
        change = 0;
        SP_REGION("sweep")
#ifdef BUG
#pragma omp parallel private(h)
#else
#pragma omp parallel firstprivate(h)
#endif
        {
            SP_ENTER
            SP_LOOP("rows", 1, N - 2, 1)
#pragma omp for reduction(max : change) schedule(runtime)
            for (int i = 1; i < N - 1; i++) {
                SP_ITER(i);
                for (int j = 1; j < N - 1; j++) {
                    b[i][j] = h * (a[i - 1][j] + a[i + 1][j] + a[i][j - 1] + a[i][j + 1]);
                    SP_WRITE(b[i][j]);
                    change = fmax(change, fabs(b[i][j] - a[i][j]));
                }
            }
            SP_LOOP_END
            SP_LOOP("back", 1, N - 2, 1)
#pragma omp for schedule(runtime)
            for (int i = 1; i < N - 1; i++) {
                SP_ITER(i);
                for (int j = 1; j < N - 1; j++) {
                    a[i][j] = b[i][j];
                    SP_WRITE(a[i][j]);
                }
            }
            SP_LOOP_END
            SP_LEAVE
        }
        SP_DIGEST(&a[0][0], N * N);
        SP_DIGEST(&b[0][0], N * N);
        SP_REGION_END
    }
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++) sum += a[i][j] * b[i][j];
    printf("change %.15e checksum %.15e\n", change, sum);
    return 0;
}
