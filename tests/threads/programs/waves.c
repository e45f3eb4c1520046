/* A wave on a string, each thread in a function, with a barrier of its own and a first row from the master.
   -DBUG: without the barrier. */
#include <math.h>
#include <stdio.h>
#include "sp_trace.h"

enum { N = 300, STEPS = 8 };
static double u[N], before[N], force[N], source;

static double pull(int i) {
    double near[3] = {u[i - 1], -2 * u[i], u[i + 1]}; /* its own: another one in each thread */
    return near[0] + near[1] + near[2];
}

int main(void) {
    double sum = 0;
    for (int i = 0; i < N; i++) u[i] = before[i] = i % 17 * 0.1;
    for (int step = 0; step < STEPS; step++) {
        SP_REGION("step")
#pragma omp parallel
        {
            SP_ENTER
#pragma omp master
            {
                SP_BEGIN(MASTER, "source")
                source = 0;
                for (int k = 0; k < 50; k++) source += sin(0.1 * step * k);
                SP_WRITE(source);
                SP_END
            }
            SP_LOOP("forces", 1, N - 2, 1)
#pragma omp for schedule(runtime) nowait
            for (int i = 1; i < N - 1; i++) {
                SP_ITER(i);
                force[i] = 0.2 * pull(i);
                SP_WRITE(force[i]);
            }
            SP_LOOP_END
#ifndef BUG
#pragma omp barrier
#endif
            SP_LOOP("motion", 1, N - 2, 1)
#pragma omp for schedule(runtime)
            for (int i = 1; i < N - 1; i++) {
                SP_ITER(i);
                double next = 2 * u[i] - before[i] + force[i] + 0.01 * source;
                before[i] = u[i];
                u[i] = next;
                SP_WRITE(u[i]);
            }
            SP_LOOP_END
            SP_LEAVE
        }
        SP_DIGEST(u, N);
        SP_REGION_END
    }
    for (int i = 0; i < N; i++) sum += u[i] * (i % 5);
    printf("checksum %.15e\n", sum);
    return 0;
}
