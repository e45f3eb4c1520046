/* Bodies that attract each other. -DBUG: the distance is shared by all threads. */
#include <math.h>
#include <stdio.h>
#include "sp_trace.h"

enum { N = 40, STEPS = 6 };
static double x[N][3], v[N][3], f[N][3];

int main(void) {
    double d[3], r2, w, energy = 0, sum = 0, dt = 0.01;
    for (int i = 0; i < N; i++)
        for (int k = 0; k < 3; k++) x[i][k] = i * (2 * k + 3) % 19 + 0.1 * k;
    for (int step = 0; step < STEPS; step++) {
        energy = 0;
        SP_REGION("step")
#ifdef BUG
#pragma omp parallel private(r2, w)
#else
#pragma omp parallel private(d, r2, w)
#endif
        {
            SP_ENTER
            SP_LOOP("forces", 0, N - 1, 1)
#pragma omp for schedule(runtime)
            for (int i = 0; i < N; i++) {
                SP_ITER(i);
                for (int k = 0; k < 3; k++) f[i][k] = 0;
                for (int j = 0; j < N; j++) {
                    if (j == i) continue;
                    r2 = 0.01;
                    for (int k = 0; k < 3; k++) {
                        d[k] = x[j][k] - x[i][k];
                        r2 += d[k] * d[k];
                    }
                    w = 1 / (r2 * sqrt(r2));
                    SP_WRITE(w);
                    for (int k = 0; k < 3; k++) {
                        f[i][k] += w * d[k];
                        SP_WRITE(f[i][k]);
                    }
                }
            }
            SP_LOOP_END
            SP_LOOP("motion", 0, N - 1, 1)
#pragma omp for reduction(+ : energy) schedule(runtime)
            for (int i = 0; i < N; i++) {
                SP_ITER(i);
                for (int k = 0; k < 3; k++) {
                    v[i][k] += dt * f[i][k];
                    SP_WRITE(v[i][k]);
                    x[i][k] += dt * v[i][k];
                    energy += v[i][k] * v[i][k] / 2;
                }
            }
            SP_LOOP_END
            SP_LEAVE
        }
        SP_DIGEST(&f[0][0], N * 3);
        SP_DIGEST(&x[0][0], N * 3);
        SP_REGION_END
    }
    for (int i = 0; i < N; i++) sum += x[i][0] + x[i][1] + x[i][2];
    printf("energy %.15e checksum %.15e\n", energy, sum);
    return 0;
}
