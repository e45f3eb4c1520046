/* See checking.h. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "checking.h"

#include <dlfcn.h>
#include <execinfo.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { DEEP = 32, MOST = 1 << 20 };
static const int STACK_SIGNAL = 11; /* after SIGRTMIN */

unsigned char watched[FUNCTIONS] = {[0 ... FUNCTIONS - 1] = 1};
int checking, finalized;
static char stack[PATH_MAX];
static FILE *constants;

/* A row of this note. Where the note says that it has one (`more`) stays what it is. */
static void row_of(struct call *c, int kind, const int64_t *head, int heads, int64_t count, const int64_t *values)
{
    uint32_t more = c->note->more;
    int64_t *row;
    lock();
    row = new_row(c, 0, heads + count);
    if (row) {
        memcpy(row, head, (size_t)heads * sizeof *row);
        memcpy(row + heads, values, (size_t)count * sizeof *row);
        __atomic_store_n(&row[-1], kind, __ATOMIC_RELEASE);
    }
    c->note->more = more;
    unlock();
}

void noted_row(struct call *c, int kind, int position, int64_t count, const int64_t *values)
{
    int64_t head[2] = {position, count};
    if (checking && kind == ARGUMENTS)
        row_of(c, kind, head, 0, count, values);
    else if (checking)
        row_of(c, kind, head, 2, count, values);
}

void noted_requests(struct call *c, int kind, int position, int64_t count, const MPI_Request *requests)
{
    int64_t few[64], *values = few, i;
    if (!checking || !requests || count <= 0 || count > MOST)
        return;
    if (count > 64 && !(values = malloc((size_t)count * sizeof *values)))
        return;
    for (i = 0; i < count; i++)
        values[i] = V(requests[i]);
    noted_row(c, kind, position, count, values);
    if (values != few)
        free(values);
}

void noted_ints(struct call *c, int position, int64_t count, const int *numbers)
{
    int64_t few[64], *values = few, i;
    if (!checking || !numbers || count <= 0 || count > MOST)
        return;
    if (count > 64 && !(values = malloc((size_t)count * sizeof *values)))
        return;
    for (i = 0; i < count; i++)
        values[i] = numbers[i];
    noted_row(c, AFTER, position, count, values);
    if (values != few)
        free(values);
}

/* In check mode notes may come until the process ends. */
void after_finalize(void)
{
    finalized = 1;
    if (!checking)
        finish("finalize");
}

/* Where this rank is, for whoever sends the signal. */
static void told(int number)
{
    void *from[DEEP];
    char line[PATH_MAX + 64];
    int descriptor = open(stack, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666), count, i, size;
    (void)number;
    if (descriptor < 0)
        return;
    count = backtrace(from, DEEP);
    for (i = 0; i < count; i++) {
        struct link_map *map = NULL;
        Dl_info found;
        if (!dladdr1(from[i], &found, (void **)&map, RTLD_DL_LINKMAP) || !map || !found.dli_fname)
            continue;
        size = snprintf(line, sizeof line, "c\t%s\t0x%llx\t-\n", found.dli_fname,
                        (unsigned long long)((uintptr_t)from[i] - map->l_addr));
        if (write(descriptor, line, (size_t)size) != size)
            break;
    }
    if (write(descriptor, "\n", 1) == 1)
        fsync(descriptor);
    close(descriptor);
}

static void listen(void)
{
    struct sigaction action;
    void *from[2];
    backtrace(from, 2); /* so that the handler loads no library */
    memset(&action, 0, sizeof action);
    action.sa_handler = told;
    action.sa_flags = SA_RESTART;
    sigaction(SIGRTMIN + STACK_SIGNAL, &action, NULL);
}

static void one_constant(const char *name, int64_t value)
{
    fprintf(constants, ", \"%s\": %lld", name, (long long)value);
}

static void write_constants(const char *directory)
{
    char path[PATH_MAX], beside[PATH_MAX + 8];
    int *most = NULL, flag = 0;
    snprintf(path, sizeof path, "%.*s/rank-%05d.constants", PATH_MAX - 40, directory, trace.rank);
    snprintf(beside, sizeof beside, "%s.new", path);
    constants = fopen(beside, "we");
    if (!constants)
        return;
    PMPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &most, &flag);
    fprintf(constants, "{\"TAG_UB\": %d", flag && most ? *most : 32767);
    each_constant(one_constant);
    fprintf(constants, "}\n");
    if (!fclose(constants))
        rename(beside, path);
}

/* Is this rank in what follows a name: `null`, or a list? */
static int is_meant(const char *at, int rank)
{
    char *next;
    if (*at != '[')
        return 1;
    for (at++; *at && *at != ']'; at = *next == ',' ? next + 1 : next) {
        if (strtol(at, &next, 10) == rank && next != at)
            return 1;
        if (next == at)
            break;
    }
    return 0;
}

/* Before the first note. What `watch.json` names is noted, and nothing else. */
void checks(const char *directory)
{
    char path[PATH_MAX], wanted[160], *text;
    const struct watchable *one;
    struct stat found;
    int descriptor;
    ssize_t size;
    snprintf(path, sizeof path, "%.*s/watch.json", PATH_MAX - 40, directory);
    descriptor = open(path, O_RDONLY | O_CLOEXEC);
    if (descriptor < 0)
        return;
    if (fstat(descriptor, &found) || found.st_size > MOST || !(text = calloc(1, (size_t)found.st_size + 1))) {
        close(descriptor);
        return;
    }
    size = read(descriptor, text, (size_t)found.st_size);
    close(descriptor);
    if (size == found.st_size) {
        memset(watched, 0, sizeof watched);
        for (one = watchables; one->name; one++) {
            const char *at;
            snprintf(wanted, sizeof wanted, "\"%s\": ", one->name);
            at = strstr(text, wanted);
            watched[one->number] = (unsigned char)(at && is_meant(at + strlen(wanted), trace.rank));
        }
        checking = 1;
        trace.unsure = 1; /* not all messages are seen: what is under way cannot be told */
        snprintf(stack, sizeof stack, "%.*s/rank-%05d.stack", PATH_MAX - 40, directory, trace.rank);
        write_constants(directory);
        listen();
    }
    free(text);
}

/* Of a hide: its step. */
int checks_ours(unsigned function, struct note *note, long long step)
{
    struct call c = {.note = note};
    int64_t value = step;
    if (!checking)
        return 1;
    if (note)
        noted_row(&c, ARGUMENTS, 0, 1, &value);
    return watched[function];
}
