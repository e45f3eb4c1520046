/* Every exception of IEEE traps, and what is digested would raise them all: prints the flags that the tracing left. */
#define _GNU_SOURCE
#include <fenv.h>
#include <stdio.h>
#include <string.h>

#include "sp_trace.h"

int main(void) {
    double large[4] = {0x1p1000, -0x1p1000, 0x1p-1060, 3};
    float none[2];
    double _Complex wide[1] = {0x1.8p1023};
    long double longer[2] = {0x1p16000L, 1};
    int64_t whole[3] = {INT64_MAX, 1, 1};
    uint32_t signalling = 0x7fa00000;
    int before = fetestexcept(FE_ALL_EXCEPT);
    memcpy(none, &signalling, 4);
    memcpy(none + 1, &signalling, 4);
    feenableexcept(FE_ALL_EXCEPT);
    SP_REGION("all")
    SP_DIGEST(large, 4);
    SP_DIGEST(none, 2);
    SP_DIGEST(wide, 1);
    SP_DIGEST(longer, 2);
    SP_DIGEST(whole, 3);
    SP_REGION_END
    printf("%d %d %d\n", before, fetestexcept(FE_ALL_EXCEPT), fegetexcept() == FE_ALL_EXCEPT);
}
