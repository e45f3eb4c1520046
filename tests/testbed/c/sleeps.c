/* A rank that waits sleeps for a moment, as newer MPICH does by itself with the same variable. UCX has this function,
   and the MPICH of Debian calls it again and again: it spins, and where ranks are more than processors each message
   waits for a scheduler. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>

unsigned ucp_worker_progress(void *worker)
{
    static unsigned (*real)(void *);
    static _Thread_local int idle;
    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "ucp_worker_progress");
    unsigned done = real(worker);
    if (done)
        idle = 0;
    else if (++idle > 100 && getenv("MPIR_CVAR_ENABLE_HEAVY_YIELD"))
        nanosleep(&(struct timespec){.tv_nsec = 1000}, NULL);
    return done;
}
