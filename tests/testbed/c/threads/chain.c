/* Each of THREADS threads records events 0, 1, 2, ...: a real number, or a complex one, which takes two records, at
   every third. `chain COUNT THREADS [PROGRESS]`; COUNT 0: until it is killed. PROGRESS is a file of a word per thread
   with the events whose call has returned. SP_KILL_AT=n: the n-th point between two steps kills the program.
   CHAIN_CHDIR: the directory that it goes to after its first event. No thread ends before all have begun. */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "sp_trace.h"

static long count, kill_at;
static volatile uint64_t *progress;
static pthread_barrier_t begun;
static int together;

void sp_point(void);
void sp_point(void) {
    if (kill_at && !--kill_at)
        raise(SIGKILL);
}

static void *chain(void *argument) {
    long number = (long)argument;
    sp_write_i8(1, number);
    if (together)
        pthread_barrier_wait(&begun);
    if (!number && getenv("CHAIN_CHDIR") && chdir(getenv("CHAIN_CHDIR")))
        exit(3);
    for (long i = 0; !count || i < count; i++) {
        if (i % 3 == 2)
            sp_write_parts8(3, (double)i, -(double)i);
        else
            sp_write_r8(2, (double)i);
        if (progress)
            progress[number] = (uint64_t)i + 1;
    }
    return NULL;
}

int main(int argc, char **argv) {
    pthread_t all[64];
    long threads = atol(argv[2]);
    count = atol(argv[1]);
    kill_at = getenv("SP_KILL_AT") ? atol(getenv("SP_KILL_AT")) : 0;
    if (argc > 3)
        progress = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, open(argv[3], O_RDWR), 0);
    if (threads == 1)
        return chain(0) != NULL;
    together = !pthread_barrier_init(&begun, NULL, (unsigned)threads);
    for (long each = 0; each < threads; each++)
        pthread_create(&all[each], NULL, chain, (void *)each);
    for (long each = 0; each < threads; each++)
        pthread_join(all[each], NULL);
    puts("ended");
    return 0;
}
