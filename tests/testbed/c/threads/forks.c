/* A child that records, starts threads and ends as usual, and a parent that goes on. */
#include <pthread.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sp_trace.h"

static void *events(void *argument) {
    for (int i = 0; i < 1000; i++)
        sp_write_i4(*(int *)argument, i);
    return NULL;
}

int main(void) {
    int parent = 1, child = 2, status = 0;
    events(&parent);
    pid_t pid = fork();
    if (!pid) {
        pthread_t thread;
        sp_write_i4(child, sp_site("region", "of the child", "x", 1, 1));
        events(&child);
        pthread_create(&thread, NULL, events, &child);
        pthread_join(thread, NULL);
        exit(7);
    }
    waitpid(pid, &status, 0);
    events(&parent);
    return WEXITSTATUS(status) == 7 ? 0 : 1;
}
