/* Records one event, prints a line, and goes on when it reads one. */
#include <stdio.h>

#include "sp_trace.h"

int main(void) {
    sp_write_i4(sp_site("variable-write", "a \"name\" \\ here", "waits.c", 7, 8), 1);
    puts("waits");
    fflush(stdout);
    getchar();
    sp_write_i4(1, 2);
    return 0;
}
