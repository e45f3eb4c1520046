/* One side of in_c.py: does what each line of stdin says, and prints the seconds that it took. */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "safepoint.h"

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static void must(int code)
{
    if (code) {
        fprintf(stderr, "%s\n", safepoint_error());
        exit(code);
    }
}

static void put(const char *name, size_t size, char *data)
{
    FILE *file = fopen(name, "wb");
    if (!file || fwrite(data, 1, size, file) != size || fclose(file))
        exit(99);
}

int main(int argc, char **argv)
{
    size_t size = argc > 1 ? (size_t)atoll(argv[1]) : 65536;
    char *data = calloc(size, 1), line[64];
    long long step = 0, calls = 1000000;
    double begin = now();
    int flag;
    must(safepoint_init(NULL, NULL));
    printf("%.9f\n", now() - begin);
    fflush(stdout);
    must(safepoint_restore(NULL, NULL));
    while (fgets(line, sizeof line, stdin)) {
        begin = 0;
        if (!strcmp(line, "hide\n")) {
            for (const char *name = "abc"; *name; name++)
                put((char[]){*name, '.', 'd', 'a', 't', 0}, size, data);
            begin = now();
            must(safepoint_hide(step++));
        } else if (!strcmp(line, "due\n")) {
            begin = now();
            for (long long k = 0; k < calls; k++)
                must(safepoint_due(&flag));
        } else if (!strcmp(line, "should_stop\n")) {
            begin = now();
            for (long long k = 0; k < calls; k++)
                must(safepoint_should_stop(&flag));
        } else if (!strcmp(line, "wait\n")) {
            begin = now();
            must(safepoint_wait());
        }
        printf("%.9f\n", now() - begin);
        fflush(stdout);
    }
    must(safepoint_close());
    free(data);
    return 0;
}
