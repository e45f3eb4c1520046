#define _DEFAULT_SOURCE
/* A program with other threads, as MPI libraries have them, begins and ends many sessions. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "safepoint.h"

static void *idle(void *nothing)
{
    for (;;)
        getppid();
    return nothing;
}


int main(int argc, char **argv)
{
    pthread_t threads[2];
    int count = argc > 1 ? atoi(argv[1]) : 30;
    for (int k = 0; k < 2; k++)
        if (pthread_create(&threads[k], NULL, idle, NULL))
            return 2;
    for (int k = 0; k < count; k++)
        if (safepoint_init(NULL, NULL) || safepoint_close()) {
            fprintf(stderr, "%s\n", safepoint_error());
            return 1;
        }
    puts("done");
    return 0;
}
