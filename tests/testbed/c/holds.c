/* Holds a directory for so many seconds. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "safepoint.h"

int main(int argc, char **argv)
{
    if (safepoint_init(NULL, NULL)) {
        fprintf(stderr, "%s\n", safepoint_error());
        return 1;
    }
    puts("ready");
    fflush(stdout);
    sleep(argc > 1 ? (unsigned)atoi(argv[1]) : 1);
    return safepoint_close();
}
