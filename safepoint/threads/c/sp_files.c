/* The file of each thread: mapped segment by segment. And what happens when a thread or a process begins and ends.

   Head of a file: "SPTHRDS1", u32 thread, u32 process, u64 clock in ns, u64 `done`, u32 `reader`. The last two are
   written by a reader that discards what it has read (SP_AHEAD=N): the writer is at most N segments ahead of `done`,
   and waits; not if the process `reader` is gone. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "sp_inner.h"

#define SP_POPULATE_WRITE 23 /* MADV_POPULATE_WRITE of Linux 5.14; an older one does without */

uint32_t sp_threads;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of the list of free streams and of the numbers */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t key;
static struct sp_stream *free_streams;
static uint64_t bytes; /* of all files */
static int running;

uint64_t sp_bytes(void) {
    return __atomic_load_n(&bytes, __ATOMIC_RELAXED);
}

static int stop_for(int error, const char *why) {
    if (!why)
        why = error == ENOSPC || error == EDQUOT ? "disk full" : strerror(error);
    sp_run_stop(why);
    return 0;
}

/* Space in the file, or an errno. Over a limit of the process for files the system would send a signal. */
static int allocate(int fd, uint64_t from) {
    struct rlimit most;
    if (!getrlimit(RLIMIT_FSIZE, &most) && most.rlim_cur != RLIM_INFINITY && from + SP_SEGMENT > most.rlim_cur)
        return EFBIG;
    int error;
    do
        error = posix_fallocate(fd, (off_t)from, (off_t)SP_SEGMENT);
    while (error == EINTR);
    if (error && ftruncate(fd, (off_t)from)) /* else the part that it got would stay */
        return error;
    return error;
}

static void wait_for_reader(const struct sp_stream *of) {
    const struct timespec pause = {0, 1000000};
    while (of->head && of->segments > __atomic_load_n(&of->head[3], __ATOMIC_ACQUIRE) + sp_settings.ahead) {
        pid_t reader = (pid_t)__atomic_load_n((uint32_t *)&of->head[4], __ATOMIC_ACQUIRE);
        if (__atomic_load_n(&sp_run_stopped, __ATOMIC_RELAXED) || (reader && kill(reader, 0) && errno == ESRCH))
            return;
        nanosleep(&pause, NULL);
    }
}

static SP_SLOW int next_segment(struct sp_stream *of) {
    if (__atomic_load_n(&sp_run_stopped, __ATOMIC_RELAXED))
        return 0;
    if (sp_settings.ahead)
        wait_for_reader(of);
    if (__atomic_add_fetch(&bytes, SP_SEGMENT, __ATOMIC_RELAXED) > sp_settings.max) {
        char text[64];
        snprintf(text, sizeof text, "limit %llu", (unsigned long long)sp_settings.max);
        return stop_for(0, text);
    }
    uint64_t from = of->segments * SP_SEGMENT;
    int error = allocate(of->fd, from);
    if (error)
        return stop_for(error, NULL);
    SP_POINT
    void *base = mmap(NULL, SP_SEGMENT, PROT_READ | PROT_WRITE, MAP_SHARED, of->fd, (off_t)from);
    if (base == MAP_FAILED)
        return stop_for(errno, NULL);
    if (of->segments) /* those of the first come as they are used: a thread may have few events */
        madvise(base, SP_SEGMENT, SP_POPULATE_WRITE);
    SP_POINT
    if (of->base && of->base != of->head)
        munmap(of->base, SP_SEGMENT);
    of->base = base;
    of->end = of->base + SP_SEGMENT / 8;
    of->next = of->base + (of->segments++ ? 0 : SP_HEAD / 8);
    return 1;
}

/* Uniform from 1 to 2 N - 1: N on average. */
static uint64_t draw(struct sp_stream *of) {
    of->seed ^= of->seed << 13, of->seed ^= of->seed >> 7, of->seed ^= of->seed << 17;
    return 1 + of->seed % (2 * sp_settings.noise - 1);
}

static void set_limit(struct sp_stream *of) {
    sp_self.next = of->next;
    sp_self.limit = of->end;
    uint64_t room = (uint64_t)(of->end - of->next) / 2;
    if (!sp_settings.noise)
        return;
    if (room > of->left)
        room = of->left;
    of->left -= room;
    sp_self.limit = of->next + 2 * room;
}

static void sleep_for_ever(void) {
    sp_self.now = 0;
    sp_self.next = sp_self.limit = NULL;
}

/* Every fourth time asleep, as a thread that yields goes on at once where no other one is waiting for its processor. */
static void yield_now(struct sp_stream *of) {
    if (of->seed & 0x300)
        sched_yield();
    else
        nanosleep(&(struct timespec){.tv_nsec = 1}, NULL);
    of->left = draw(of);
}

/* An event that is not kept: its place is one that was used before, and the thread yields when it is time. */
static uint64_t *scratch(struct sp_stream *of) {
    if (!of->left)
        yield_now(of);
    uint64_t room = of->left < SP_SCRATCH ? of->left : SP_SCRATCH;
    of->left -= room;
    sp_self.next = of->scratch;
    sp_self.limit = of->scratch + 2 * room;
    return sp_self.next;
}

void sp_rehearse(int on) {
    struct sp_stream *of = sp_self.stream;
    of->left += (uint64_t)(sp_self.limit - sp_self.next) / 2;
    if (on) {
        of->next = sp_self.next;
        sp_self.next = sp_self.limit = NULL;
    } else {
        set_limit(of);
    }
}

/* The place of the next record. NULL: nothing is to be recorded, since this thread has just begun, or all has stopped. */
SP_SLOW uint64_t *sp_room(uint32_t bit) {
    if (sp_self.now == FRESH && !sp_attach())
        return NULL;
    if (!(sp_self.now & bit))
        return NULL;
    struct sp_stream *of = sp_self.stream;
    if (sp_self.next != sp_self.limit)
        return sp_self.next; /* it was attached just now */
    if (sp_self.now & REHEARSED)
        return scratch(of);
    of->next = sp_self.next;
    if (sp_settings.noise && !of->left)
        yield_now(of);
    if (of->next == of->end && !next_segment(of)) {
        sleep_for_ever();
        return NULL;
    }
    set_limit(of);
    return sp_self.next;
}

/* Threads. */

static int begin_file(struct sp_stream *of, uint32_t number) {
    char name[24];
    snprintf(name, sizeof name, "%05u.ev", number);
    of->fd = openat(sp_directory, name, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0666);
    if (of->fd < 0)
        return stop_for(errno, NULL);
    if (!next_segment(of))
        return 0;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    of->base[1] = number | (uint64_t)(uint32_t)getpid() << 32;
    of->base[2] = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
    SP_POINT
    uint64_t magic;
    memcpy(&magic, "SPTHRDS1", 8);
    __atomic_store_n(of->base, magic, __ATOMIC_RELEASE);
    if (sp_settings.ahead)
        of->head = of->base; /* it stays mapped */
    of->seed = (sp_settings.seed ? sp_settings.seed : of->base[2]) + (number + 1) * 0x9E3779B97F4A7C15u;
    of->seed |= !of->seed;
    of->left = sp_settings.noise ? draw(of) : 0;
    return 1;
}

/* A thread ends: the next one that comes goes on in its file. */
static void detach(void *stream) {
    struct sp_stream *of = stream;
    if (sp_self.stream != of || !sp_self.now)
        return;
    of->left += (uint64_t)(sp_self.limit - sp_self.next) / 2;
    of->next = sp_self.next;
    of->loops = 0;
    sp_self = (struct sp_self){.now = FRESH};
    pthread_mutex_lock(&lock);
    of->free = free_streams;
    free_streams = of;
    pthread_mutex_unlock(&lock);
}

static void in_child(void) {
    running = 0;
    __atomic_store_n(&sp_run_stopped, 1, __ATOMIC_RELAXED);
    if (sp_directory >= 0)
        close(sp_directory);
    sp_directory = -1;
    sleep_for_ever();
}

static void begin(void) {
    running = sp_settings_read() && sp_run_open() && !pthread_key_create(&key, detach) &&
              !pthread_atfork(NULL, NULL, in_child);
}

static __attribute__((constructor)) void at_start(void) {
    const char *level = getenv("SP_LEVEL");
    if (level && *level)
        pthread_once(&once, begin);
}

SP_SLOW int sp_attach(void) {
    pthread_once(&once, begin);
    sp_self.now = 0; /* until it has a file; and for ever if it gets none */
    if (!running || __atomic_load_n(&sp_run_stopped, __ATOMIC_RELAXED))
        return 0;
    pthread_mutex_lock(&lock);
    struct sp_stream *of = free_streams;
    if (of)
        free_streams = of->free;
    else if ((of = calloc(1, sizeof *of)) && !begin_file(of, sp_threads++))
        of = NULL;
    pthread_mutex_unlock(&lock);
    if (!of || pthread_setspecific(key, of))
        return 0;
    sp_self.stream = of;
    set_limit(of);
    sp_self.now = sp_between(__atomic_load_n(&sp_visits, __ATOMIC_RELAXED));
    return sp_self.now != 0;
}
