/* Calls whose arguments are nowhere else, and long double: nothing of it warns, with SP_TRACE and without. */
#include <stdio.h>
#include <string.h>

#include "sp_trace.h"

enum { N = 3 };

int main(void) {
    const char *name = "region";
    int first = 0, only_recorded = 7;
    long double x = 0.1L, padded[N];
    only_recorded = 8;
    memset(padded, SP_FILL, sizeof padded); /* bytes of which 6 of 16 are no part of the value */
    for (int i = 0; i < N; i++)
        padded[i] = i + x;
    SP_REGION(name)
    SP_ENTER
    SP_LOOP("i", first, N - 1, 1)
    for (int i = 0; i < N; i++) {
        SP_ITER(i);
        SP_WRITE(padded[i]);
    }
    SP_LOOP_END
    SP_WRITE(only_recorded);
    SP_READ(-x);
    SP_BARRIER
    SP_BARRIER;
    SP_LEAVE
    SP_DIGEST(padded, N);
    SP_REGION_END
    puts("done");
    return 0;
}
