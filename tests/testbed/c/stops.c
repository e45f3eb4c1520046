/* Steps of a millisecond until it is told to stop; then it stops. Prints what it did. */
#define _DEFAULT_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "safepoint.h"

static int own;

static void on_signal(int number)
{
    own += number == SIGUSR1;
}

static void must(int code)
{
    if (code) {
        printf("failed: %s\n", safepoint_error());
        exit(code);
    }
}

int main(int argc, char **argv)
{
    int stop = 0, due = 0, saved = 0, status = 0, found;
    long long step;
    double u[4] = {1, 2, 3, 4};
    signal(SIGUSR1, on_signal); /* which is called too */
    must(safepoint_init(NULL, argc > 1 ? argv[1] : NULL));
    must(safepoint_restore(&found, &step));
    printf("begin %d %lld\n", found, found ? step : 0);
    fflush(stdout);
    for (step = found ? step : 0; !stop; step++) {
        usleep(1000);
        u[0] += (double)step;
        must(safepoint_watch(step, "u", "float64", u, 4));
        must(safepoint_due(&due));
        must(safepoint_should_stop(&stop));
        if (due || stop) {
            FILE *file = fopen("u.dat", "w");
            fprintf(file, "%lld\n", step);
            fclose(file);
            must(safepoint_hide(step));
            saved++;
        }
    }
    must(safepoint_stop(&status));
    printf("stopped %d own %d saved %d\n", status, own, saved);
    return status;
}
