/* The tracer of C and Fortran: its files, its tables, and what others ask of it. What each call notes is in `pmpi.h`.
 *
 * (1) A segment has its space before it is mapped: in a hole of a mapped file a full disk would be a SIGBUS.
 * (2) Notes never move: the address space of all that may come is reserved at the beginning, and nobody locks to write.
 * (3) Whatever fails ends the noting, once and with a line that says why (`stop`). A child of a fork notes nothing.
 * (4) A descriptor is ours only while its inode is: a program may close those that are not its own. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "pmpi.h"
#ifdef SAFEPOINT_CHECK
#include "watch.h"
#endif

#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { DEFAULT_LIMIT_MIB = 4096, DEEP = 16 };

static struct {
    struct file calls, more, sites, objects;
    char directory[PATH_MAX], stopped[256];
    char *about; /* what is known of this rank, as JSON, without its end */
    uint64_t limit;
    unsigned sites_count, objects_count;
    MPI_Group world;
    pid_t program;
    pthread_mutex_t files; /* to let them grow; taken inside of `trace.lock` */
    const char *file;      /* where the next hide is */
    int line;
    const char *first_file; /* where the program is before MPI_Init has returned, if it says that */
    int first_line;
} here = {.files = PTHREAD_MUTEX_INITIALIZER};

EXPORT void safepoint_trace_line(const char *file, int line);

struct trace trace = {.lock = PTHREAD_MUTEX_INITIALIZER};
__thread struct self self;
EXPORT volatile unsigned safepoint_trace_site;
struct site sites[1 << SITE_BITS];

static uint64_t real_time(void)
{
    struct timespec time;
    clock_gettime(CLOCK_REALTIME, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

/* Functions of MPI. */

struct wanted {
    const char *name;
    void *address;
    char *ours;
};

static int look_in(struct dl_phdr_info *info, size_t size, void *wanted_)
{
    struct wanted *wanted = wanted_;
    void *handle = info->dlpi_name && *info->dlpi_name ? dlopen(info->dlpi_name, RTLD_LAZY | RTLD_NOLOAD) : NULL;
    void *address = handle ? dlsym(handle, wanted->name) : NULL;
    Dl_info where;
    (void)size;
    if (address && dladdr(address, &where) && where.dli_fbase != (void *)wanted->ours)
        wanted->address = address;
    if (handle)
        dlclose(handle);
    return wanted->address != NULL;
}

/* The next of this name; or that of a library which a plugin has loaded for itself, as Python does. */
void *found(const char *name)
{
    struct wanted wanted = {name, dlsym(RTLD_NEXT, name), NULL};
    Dl_info where;
    if (!wanted.address && dladdr((void *)(uintptr_t)found, &where)) {
        wanted.ours = where.dli_fbase;
        dl_iterate_phdr(look_in, &wanted);
    }
    if (!wanted.address) {
        fprintf(stderr, "safepoint trace: the program calls %s, which its MPI library does not have\n", name);
        abort();
    }
    return wanted.address;
}

/* Whether this address, from which MPI is called, is in none of its own functions. */
int of_program(const void *from)
{
    static const void *library;
    Dl_info where;
    if (!library && dladdr(found("PMPI_Finalize"), &where))
        library = where.dli_fbase;
    return !dladdr(from, &where) || where.dli_fbase != library;
}

/* Files. */

int is_ours(const struct file *file)
{
    struct stat found;
    return !fstat(file->descriptor, &found) && found.st_dev == file->device && found.st_ino == file->inode;
}

int create(struct file *file, const char *suffix, int flags, char *path)
{
    struct stat found;
    snprintf(path, PATH_MAX, "%.*s/rank-%05d.%s", PATH_MAX - 40, here.directory, trace.rank, suffix);
    file->descriptor = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | flags, 0666);
    if (file->descriptor < 0 || fstat(file->descriptor, &found))
        return errno;
    file->device = found.st_dev;
    file->inode = found.st_ino;
    return 0;
}

/* Space for another segment, after that which there is. Returns an error of the system, or one of these. */
enum { LIMIT = -1, CLOSED = -2 };
static int lengthen(struct file *file)
{
    int failed;
    char *map;
    if (here.calls.end + here.more.end + SEGMENT > here.limit)
        return LIMIT;
    if (!is_ours(file))
        return CLOSED;
    while ((failed = posix_fallocate(file->descriptor, (off_t)file->end, SEGMENT)) == EINTR)
        ;
    if (failed)
        return failed;
    map = mmap(file->map + file->end, SEGMENT, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file->descriptor,
               (off_t)file->end);
    if (map == MAP_FAILED)
        return errno;
#ifdef MADV_POPULATE_WRITE
    madvise(map, SEGMENT, MADV_POPULATE_WRITE); /* all pages at once cost less than each when it is met */
#endif
    __atomic_store_n(&file->end, file->end + SEGMENT, __ATOMIC_RELEASE);
    return 0;
}

static int map_file(struct file *file, const char *suffix, int64_t size, char *path)
{
    int64_t head[2] = {size, -1};
    int failed = create(file, suffix, 0, path);
    if (failed)
        return failed;
    do /* a user may have little address space (ulimit -v) */
        file->map = mmap(NULL, here.limit, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    while (file->map == MAP_FAILED && (here.limit /= 2) > 2 * SEGMENT);
    if (file->map == MAP_FAILED)
        return errno;
    if ((failed = lengthen(file)))
        return failed;
    memcpy(file->map, "SPTRACE1", 8);
    memcpy(file->map + 8, head, sizeof head);
    return 0;
}

static int whole(int descriptor, const char *text, size_t size)
{
    while (size) {
        ssize_t done = write(descriptor, text, size);
        if (done < 0 && errno != EINTR)
            return errno;
        text += done > 0 ? done : 0;
        size -= done > 0 ? (size_t)done : 0;
    }
    return 0;
}

/* Replace a file of the trace by this text. */
int replace(const char *name, const char *text, size_t size)
{
    char path[PATH_MAX + 32], beside[PATH_MAX + 64];
    int descriptor, failed;
    snprintf(path, sizeof path, "%s/%s", here.directory, name);
    snprintf(beside, sizeof beside, "%s.%d.new", path, trace.rank);
    descriptor = open(beside, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (descriptor < 0)
        return errno;
    failed = whole(descriptor, text, size);
    close(descriptor);
    return failed ? failed : rename(beside, path) ? errno : 0;
}

/* `ended`: how this process came to its end; NULL: it runs. */
static int say(const char *ended)
{
    char name[32], *text = NULL;
    size_t size = 0;
    int failed;
    FILE *out = here.about ? open_memstream(&text, &size) : NULL;
    if (!out)
        return ENOMEM;
    fprintf(out, "%s", here.about);
    if (*here.stopped)
        fprintf(out, ", \"stopped\": \"%s\"", here.stopped);
    if (ended)
        fprintf(out, ", \"end\": [%llu, %llu], \"ended\": \"%s\"}", (unsigned long long)now(),
                (unsigned long long)real_time(), ended);
    else
        fprintf(out, ", \"end\": null, \"ended\": null}");
    failed = fclose(out) ? errno : 0;
    snprintf(name, sizeof name, "rank-%05d.json", trace.rank);
    failed = failed ? failed : replace(name, text, size);
    free(text);
    return failed;
}

void stop(const char *cause)
{
    static int once;
    if (__atomic_exchange_n(&once, 1, __ATOMIC_RELAXED))
        return;
    trace.noting = 0;
    snprintf(here.stopped, sizeof here.stopped, "%s", cause);
    dprintf(2, "safepoint trace: rank %d stopped noting: %s\n", trace.rank, here.stopped);
    say(NULL);
}

static const char *said(int failed)
{
    static char text[64];
    snprintf(text, sizeof text, "the limit of %llu bytes", (unsigned long long)here.limit);
    return failed == LIMIT ? text : failed == CLOSED ? "the program has closed its files" : strerror(failed);
}

int grow(uint64_t at)
{
    int failed = 0;
    pthread_mutex_lock(&here.files);
    while (trace.noting && !failed && at >= here.calls.end)
        failed = lengthen(&here.calls);
    if (!failed)
        __atomic_store_n(&trace.end, trace.noting ? here.calls.end : 0, __ATOMIC_RELEASE);
    pthread_mutex_unlock(&here.files);
    if (failed)
        stop(said(failed));
    return !failed && trace.noting;
}

/* Space for rows up to this place. */
int more_rows(uint64_t end)
{
    int failed = 0;
    pthread_mutex_lock(&here.files);
    while (!failed && end > here.more.end)
        failed = lengthen(&here.more);
    __atomic_store_n(&trace.row_end, here.more.end, __ATOMIC_RELEASE);
    pthread_mutex_unlock(&here.files);
    if (failed)
        stop(said(failed));
    return !failed;
}

/* A row of `.more` for this note. NULL: there is no space. */
int64_t *new_row(struct call *c, int kind, int64_t count)
{
    int64_t *row = NULL;
    if (trace.noting && c->note != &self.nowhere)
        row = room_for_row(8 * (3 + (uint64_t)count));
    if (!row) {
        c->note->flags |= PARTIAL;
        return NULL;
    }
    row[0] = count;
    row[1] = index_of(c);
    __atomic_store_n(&row[2], kind, __ATOMIC_RELEASE);
    c->note->more = (uint32_t)(((char *)row - trace.rows) / 8);
    return row + 3;
}

/* A line of a text file; its number, or 0. */
static unsigned add_line(struct file *file, unsigned *count, const char *line, size_t size)
{
    int failed;
    if (!trace.noting)
        return 0;
    failed = is_ours(file) ? whole(file->descriptor, line, size) : CLOSED;
    if (failed) {
        stop(said(failed));
        return 0;
    }
    return ++*count;
}

/* Sites. */

/* Of an address its module, and where it is there. */
static void place_of(const void *from, char *module, uintptr_t *offset)
{
    struct link_map *map = NULL;
    Dl_info found;
    ssize_t size = -1;
    *offset = HANDLE(from);
    snprintf(module, PATH_MAX, "?");
    if (!dladdr1(from, &found, (void **)&map, RTLD_DL_LINKMAP) || !map)
        return;
    *offset -= map->l_addr;
    if (!*map->l_name && (size = readlink("/proc/self/exe", module, PATH_MAX - 1)) > 0)
        module[size] = 0;
    else if (found.dli_fname && !realpath(found.dli_fname, module))
        snprintf(module, PATH_MAX, "%s", found.dli_fname);
    for (; *module; module++)
        if (*module == '\t' || *module == '\n')
            *module = ' ';
}

/* The number of the site that has this key: a new one if need be, with this line. 0: there are too many. */
static unsigned numbered(uintptr_t key, const char *line, size_t size)
{
    const void *from = (const void *)key;
    unsigned number = 0, at, tried;
    pthread_mutex_lock(&here.files);
    at = hash(key, SITE_BITS);
    for (tried = 0; sites[at].from && sites[at].from != from && tried < 1u << SITE_BITS; tried++)
        at = (at + 1) & ((1u << SITE_BITS) - 1);
    if (sites[at].from == from) {
        number = sites[at].number;
    } else if (!sites[at].from && line && here.sites_count < (3u << SITE_BITS) / 4) {
        sites[at].number = number = add_line(&here.sites, &here.sites_count, line, size);
        __atomic_store_n(&sites[at].from, from, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&here.files);
    return number;
}

unsigned new_site(const void *from)
{
    char module[PATH_MAX], line[PATH_MAX + 64];
    uintptr_t offset;
    unsigned number = numbered(HANDLE(from), NULL, 0);
    if (number)
        return number;
    place_of(from, module, &offset);
    snprintf(line, sizeof line, "c\t%s\t0x%llx\t-\n", module, (unsigned long long)offset);
    return numbered(HANDLE(from), line, strlen(line));
}

static unsigned site_at(uintptr_t key, const char *file, int line, const char *function)
{
    char text[2 * PATH_MAX], *at;
    unsigned number = key ? numbered(key, NULL, 0) : 0;
    uint64_t sum = 14695981039346656037u;
    if (number)
        return number;
    snprintf(text, sizeof text, "py\t%.*s\t%d\t%.*s", PATH_MAX, file, line, PATH_MAX - 64, function);
    for (at = text; *at; at++) {
        if (*at == '\n')
            *at = ' ';
        sum = (sum ^ (unsigned char)*at) * 1099511628211u;
    }
    *at++ = '\n';
    return numbered(key ? key : (uintptr_t)sum | 1, text, (size_t)(at - text));
}

static unsigned site_of_line(const char *file, int line, const char *function)
{
    return site_at(0, file, line, function);
}

/* Of a hide: all addresses from here up; the first that is not in the library's own functions is the program's. */
static unsigned site_of_hide(void)
{
    char module[PATH_MAX] = "", other[PATH_MAX], line[PATH_MAX + DEEP * 20];
    void *from[DEEP];
    Dl_info mine, found;
    uintptr_t offset, key = 1;
    int count, i, size = 0;
    if (here.file) {
        const char *file = here.file;
        here.file = NULL;
        return site_of_line(file, here.line, "-");
    }
    count = dladdr((void *)(uintptr_t)found_real, &mine) ? backtrace(from, DEEP) : 0;
    for (i = 0; i < count; i++) {
        if (dladdr(from[i], &found) && found.dli_fbase == mine.dli_fbase)
            continue;
        place_of(from[i], other, &offset);
        if (*module && strcmp(other, module) != 0)
            break;
        size += snprintf(line + size, sizeof line - (size_t)size, "%s%s%s0x%llx", *module ? "," : "c\t",
                         *module ? "" : other, *module ? "" : "\t", (unsigned long long)offset);
        strcpy(module, other);
        key = (key ^ HANDLE(from[i])) * 1099511628211u;
    }
    size += snprintf(line + size, sizeof line - (size_t)size, "\t-\n");
    return numbered(key | 1, line, (size_t)size);
}

/* Communicators, windows, files. */

static void ranges(FILE *out, const int *ranks, int count)
{
    int i, begin;
    for (i = 0; i < count; i++) {
        for (begin = i; i + 1 < count && ranks[i] >= 0 && ranks[i + 1] == ranks[i] + 1;)
            i++;
        fprintf(out, begin ? ",%d" : "%d", ranks[begin]);
        if (i > begin)
            fprintf(out, "-%d", ranks[i]);
    }
}

/* The ranks of a group in the world, -1 for those outside. NULL: there is no memory. */
static int *in_world(MPI_Group group, int *size)
{
    int *ranks, *mine, i;
    PMPI_Group_size(group, size);
    ranks = malloc(2 * sizeof *ranks * ((size_t)*size + 1));
    if (!ranks)
        return NULL;
    mine = ranks + *size;
    for (i = 0; i < *size; i++)
        mine[i] = i;
    PMPI_Group_translate_ranks(group, *size, mine, here.world, ranks);
    for (i = 0; i < *size; i++)
        ranks[i] = ranks[i] == MPI_UNDEFINED ? -1 : ranks[i];
    return ranks;
}

static void put_in(struct known *known, enum kind kind)
{
    struct known **slot = &trace.things[kind][hash(known->handle, 8)];
    known->next = *slot;
    *slot = known;
}

void put_back(struct known *known, enum kind kind)
{
    if (known != &trace.world)
        put_in(known, kind);
}

struct known *removed(enum kind kind, uintptr_t handle)
{
    struct known **slot = &trace.things[kind][hash(handle, 8)], *known;
    for (; (known = *slot); slot = &known->next)
        if (known->handle == handle) {
            *slot = known->next;
            trace.epochs -= known->dirty;
            known->dirty = 0;
            return known;
        }
    return NULL;
}

void let_go(struct known *known)
{
    free(known->peers);
    free(known);
}

struct known *find(enum kind kind, uintptr_t handle)
{
    struct known *known = trace.things[kind][hash(handle, 8)];
    while (known && known->handle != handle)
        known = known->next;
    return known;
}

/* Those who can be sent to, as ranks of the world; NULL if these are the same numbers. */
static int *peers_of(int *ranks, int count)
{
    int i;
    for (i = 0; i < count && ranks[i] == i; i++)
        ;
    if (i < count)
        return ranks;
    free(ranks);
    return NULL;
}

/* A new one, with its line in `.objects`. `members`, and between groups `remote`: freed by whom it is given to. */
static struct known *noted_thing(enum kind kind, uintptr_t handle, int parent, int note, int *members, int count,
                                 int *remote, int remotes)
{
    static const char *const kinds[] = {"comm", "win", "file"};
    struct known *known = calloc(1, sizeof *known);
    char *text = NULL;
    size_t size;
    int i, outside = 0;
    FILE *out = known && members ? open_memstream(&text, &size) : NULL;
    if (!out) {
        stop(said(ENOMEM));
        return NULL;
    }
    fprintf(out, "{\"kind\": \"%s\", \"name\": \"%s\", \"parent\": %d, \"note\": %d, \"members\": \"", kinds[kind],
            here.objects_count == 0 ? "MPI_COMM_WORLD" : here.objects_count == 1 ? "MPI_COMM_SELF" : "", parent, note);
    ranges(out, members, count);
    if (remote) {
        fprintf(out, "\", \"remote\": \"");
        ranges(out, remote, remotes);
    }
    for (i = 0; i < count + remotes; i++)
        outside |= (i < count ? members[i] : remote[i - count]) < 0;
    fprintf(out, outside ? "\", \"outside\": true}\n" : "\"}\n");
    fclose(out);
    known->handle = handle;
    known->number = (int)add_line(&here.objects, &here.objects_count, text, size);
    free(text);
    known->inter = remote != NULL;
    known->size = remote ? remotes : count;
    known->peers = remote ? peers_of(remote, remotes) : peers_of(members, count);
    if (remote)
        free(members);
    known->uses = 1;
    put_in(known, kind);
    return known;
}

static struct known *noted_comm(MPI_Comm comm, int parent, int note)
{
    int count, remotes = 0, inter = 0, size, *members, *remote = NULL;
    struct known *known;
    MPI_Group group;
    if (comm == MPI_COMM_NULL || PMPI_Comm_test_inter(comm, &inter) || PMPI_Comm_group(comm, &group))
        return NULL;
    members = in_world(group, &count);
    if (!PMPI_Comm_size(comm, &size) && size < count) /* a topology has the group of its parent in some MPICH */
        count = size;
    PMPI_Group_free(&group);
    if (inter) {
        PMPI_Comm_remote_group(comm, &group);
        remote = in_world(group, &remotes);
        PMPI_Group_free(&group);
    }
    known = noted_thing(COMM, HANDLE(comm), parent, note, members, count, remote, remotes);
    if (known)
        PMPI_Comm_rank(comm, &known->rank);
    return known;
}

/* `over`: the communicator that it is made of; NULL: that was not seen. */
static struct known *noted_group(enum kind kind, uintptr_t handle, MPI_Group group, const struct known *over, int note)
{
    int count, *members = in_world(group, &count);
    if (over && !over->inter && over->size < count) /* as in `noted_comm` */
        count = over->size;
    PMPI_Group_free(&group);
    return noted_thing(kind, handle, over ? over->number : 0, note, members, count, NULL, 0);
}

struct known *known_comm(MPI_Comm comm)
{
    struct known *known = find(COMM, HANDLE(comm));
    return known ? known : noted_comm(comm, 0, -1); /* it was made where nobody looked */
}

struct known *known_win(MPI_Win win)
{
    MPI_Group group;
    struct known *known = find(WIN, HANDLE(win));
    if (known || win == MPI_WIN_NULL || PMPI_Win_get_group(win, &group))
        return known;
    return noted_group(WIN, HANDLE(win), group, NULL, -1);
}

struct known *known_file(MPI_File file)
{
    MPI_Group group;
    struct known *known = find(MPIFILE, HANDLE(file));
    if (known || file == MPI_FILE_NULL || PMPI_File_get_group(file, &group))
        return known;
    return noted_group(MPIFILE, HANDLE(file), group, NULL, -1);
}

/* Of one that this call has made. `of_parent`: it is not complete yet, and has the members of that which it copies. */
void new_comm(struct call *c, MPI_Comm comm, int of_parent)
{
    struct known *known, *parent = c->thing;
    int number = parent ? parent->number : 0, i, *members;
    lock();
    if (comm == MPI_COMM_NULL || find(COMM, HANDLE(comm))) {
        unlock();
        return;
    }
    if (of_parent && parent && !parent->inter) {
        members = malloc(sizeof *members * ((size_t)parent->size + 1));
        for (i = 0; members && i < parent->size; i++)
            members[i] = parent->peers ? parent->peers[i] : i;
        known = noted_thing(COMM, HANDLE(comm), number, index_of(c), members, parent->size, NULL, 0);
        if (known)
            known->rank = parent->rank;
    } else {
        noted_comm(comm, number, index_of(c));
    }
    unlock();
}

void new_win(struct call *c, MPI_Win win)
{
    MPI_Group group;
    lock();
    if (!PMPI_Win_get_group(win, &group))
        noted_group(WIN, HANDLE(win), group, c->thing, index_of(c));
    unlock();
}

void new_file(struct call *c, MPI_File file)
{
    MPI_Group group;
    lock();
    if (!PMPI_File_get_group(file, &group))
        noted_group(MPIFILE, HANDLE(file), group, c->thing, index_of(c));
    unlock();
}

/* Requests. */

struct request *new_request(void)
{
    enum { MANY = 64 };
    struct request *made = calloc(MANY, sizeof *made);
    int i;
    if (!made) {
        stop(said(ENOMEM));
        return NULL;
    }
    for (i = 1; i + 1 < MANY; i++)
        made[i].next[0] = &made[i + 1];
    trace.spare = &made[1];
    return made;
}

static int larger(struct table *table)
{
    struct table new = {NULL, 6, 0};
    unsigned i, at, count = table->bits ? 1u << table->bits : 0, full = 0;
    for (i = 0; i < count; i++)
        full += table->slots[i].first != NULL;
    while (1u << new.bits < 4 * (full + 1))
        new.bits++;
    new.slots = calloc(1u << new.bits, sizeof *new.slots);
    if (!new.slots)
        return ENOMEM;
    for (i = 0; i < count; i++)
        if (table->slots[i].first) {
            at = hash(table->slots[i].key, new.bits);
            while (new.slots[at].key)
                at = (at + 1) & ((1u << new.bits) - 1);
            new.slots[at] = table->slots[i];
            new.used++;
        }
    free(table->slots);
    *table = new;
    return 0;
}

struct queue *new_queue(struct table *table, uintptr_t key)
{
    unsigned at;
    if (2 * (table->used + 1) > (table->bits ? 1u << table->bits : 0) && larger(table)) {
        stop(said(ENOMEM));
        return NULL;
    }
    at = hash(key, table->bits);
    while (table->slots[at].key)
        at = (at + 1) & ((1u << table->bits) - 1);
    table->slots[at].key = key;
    table->used++;
    return &table->slots[at];
}

/* For so many requests at once. */
int room_for(int n)
{
    if (n <= self.room)
        return 1;
    free(self.several);
    free(self.statuses);
    self.room = 2 * n;
    self.several = malloc((size_t)self.room * sizeof *self.several);
    self.statuses = malloc((size_t)self.room * sizeof *self.statuses);
    if (self.several && self.statuses)
        return 1;
    self.room = 0;
    stop(said(ENOMEM));
    return 0;
}

int new_thread(void)
{
    self.thread = __atomic_add_fetch(&trace.threads, 1, __ATOMIC_RELAXED);
    return self.thread - 1;
}

/* The beginning and the end. */

static void quoted(FILE *out, const char *text, size_t size)
{
    size_t i;
    fputc('"', out);
    for (i = 0; i < size; i++) {
        unsigned char byte = (unsigned char)text[i];
        if (byte < 32 || byte > 126 || byte == '"' || byte == '\\') /* a byte that is no ASCII as Python has it */
            fprintf(out, byte > 126 ? "\\udc%02x" : "\\u%04x", byte);
        else
            fputc(byte, out);
    }
    fputc('"', out);
}

static size_t contents(const char *path, char *text, size_t room)
{
    int descriptor = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t size = descriptor < 0 ? 0 : read(descriptor, text, room);
    if (descriptor >= 0)
        close(descriptor);
    return size > 0 ? (size_t)size : 0;
}

static void field(FILE *out, const char *name, const char *text)
{
    fprintf(out, ", \"%s\": ", name);
    quoted(out, text, strcspn(text, "\n"));
}

static int know(void)
{
    char text[MPI_MAX_LIBRARY_VERSION_STRING + 65536], *at, *end;
    size_t size;
    int length;
    FILE *out = open_memstream(&here.about, &size);
    if (!out)
        return ENOMEM;
    fprintf(out, "{\"format\": 1, \"rank\": %d, \"size\": %d, \"pid\": %d", trace.rank, trace.size, (int)here.program);
    text[0] = 0;
    gethostname(text, 256);
    field(out, "host", text);
    end = text + contents("/proc/self/cmdline", text, 65536);
    fprintf(out, ", \"argv\": [");
    for (at = text; at < end; at += strnlen(at, (size_t)(end - at)) + 1) {
        fprintf(out, at > text ? ", " : "");
        quoted(out, at, strnlen(at, (size_t)(end - at)));
    }
    fprintf(out, "]");
    text[contents("/proc/sys/kernel/random/boot_id", text, 64)] = 0;
    field(out, "boot", text);
    PMPI_Get_library_version(text, &length);
    field(out, "mpi", text);
    field(out, "cwd", getcwd(text, PATH_MAX) ? text : "");
    fprintf(out, ", \"tracer\": \"c\", \"functions\": \"functions-c.json\", \"begin\": [%llu, %llu]",
            (unsigned long long)now(), (unsigned long long)real_time());
    return fclose(out) ? ENOMEM : 0;
}

static int prepared(char *path)
{
    int failed;
    trace.flying = calloc((size_t)trace.size, sizeof *trace.flying);
    if (!trace.flying || PMPI_Comm_group(MPI_COMM_WORLD, &here.world))
        return ENOMEM;
    failed = map_file(&here.calls, "calls", NOTE, path);
    failed = failed ? failed : map_file(&here.more, "more", 8, path);
    failed = failed ? failed : create(&here.sites, "sites", O_APPEND, path);
    failed = failed ? failed : create(&here.objects, "objects", O_APPEND, path);
    if (failed)
        return failed;
    snprintf(path, PATH_MAX, "%.*s/functions-c.json", PATH_MAX - 40, here.directory);
    if (access(path, F_OK))
        failed = replace("functions-c.json", functions_json, strlen(functions_json));
    *path = 0;
#ifdef SAFEPOINT_CHECK
    failed = failed ? failed : begin_checking(here.directory, path);
#endif
    return failed ? failed : (failed = know()) ? failed : say(NULL);
}

static void forked(void)
{
    trace.noting = 0;
}

static void at_exit(void)
{
    finish(AFTER_FINALIZE ? "finalize" : "exit");
}

/* After MPI_Init. */
void begin(void)
{
    const char *directory = getenv("SAFEPOINT_TRACE"), *limit = getenv("SAFEPOINT_TRACE_LIMIT");
    char path[PATH_MAX] = "";
    struct known *world;
    int failed, level = 0;
    if (!directory || !*directory || here.program)
        return;
    here.program = getpid();
#ifdef SAFEPOINT_CHECK
    if ((failed = place_of_node(&directory))) {
        dprintf(2, "safepoint trace: not traced: %s: %s\n", directory, strerror(failed));
        return;
    }
#endif
    mkdir(directory, 0777); /* another node may have a disk of its own */
    if (!realpath(directory, here.directory)) {
        dprintf(2, "safepoint trace: not traced: %s: %s\n", directory, strerror(errno));
        return;
    }
    here.limit = limit && *limit ? strtoull(limit, NULL, 10) : (uint64_t)DEFAULT_LIMIT_MIB << 20;
    PMPI_Comm_rank(MPI_COMM_WORLD, &trace.rank);
    PMPI_Comm_size(MPI_COMM_WORLD, &trace.size);
    PMPI_Query_thread(&level);
    trace.many = level == MPI_THREAD_MULTIPLE;
    failed = prepared(path);
    if (failed == EEXIST)
        dprintf(2,
                "safepoint trace: not traced: %s is there already: another process notes as this rank, or an older "
                "trace lies there\n",
                path);
    else if (failed)
        dprintf(2, "safepoint trace: rank %d is not traced: %s%s%s\n", trace.rank, path, *path ? ": " : "",
                said(failed));
#ifdef SAFEPOINT_CHECK
    if (failed == EEXIST)
        say_second(here.directory);
#endif
    if (failed)
        return;
    trace.next = HEADER;
    trace.notes = here.calls.map;
    trace.end = here.calls.end;
    trace.rows = here.more.map;
    trace.row_end = here.more.end;
    trace.row_next = 24;
    new_thread();
    trace.noting = 1;
    world = noted_comm(MPI_COMM_WORLD, 0, -1);
    noted_comm(MPI_COMM_SELF, 0, -1);
    if (!world || !trace.noting)
        return;
    removed(COMM, world->handle);
    trace.world = *world;
    pthread_atfork(NULL, NULL, forked);
    atexit(at_exit);
#ifdef SAFEPOINT_CHECK
    watch();
    if (here.first_file)
        safepoint_trace_line(here.first_file, here.first_line);
#endif
}

/* The notes are as many as they are. Others may still come back from calls: their notes are within that. */
void finish(const char *ended)
{
    int64_t counts[2];
    uint64_t end, rows;
    static int done;
    if (!trace.notes || here.program != getpid() || __atomic_exchange_n(&done, 1, __ATOMIC_RELAXED))
        return;
    trace.noting = 0;
    end = __atomic_fetch_add(&trace.next, here.limit, __ATOMIC_ACQ_REL);
    end = end < here.calls.end ? end : here.calls.end;
    counts[0] = (int64_t)(end - HEADER) / NOTE;
    rows = __atomic_load_n(&trace.row_next, __ATOMIC_ACQUIRE);
    rows = rows < here.more.end ? rows : here.more.end;
    counts[1] = ((int64_t)rows - 24) / 8;
    memcpy(here.calls.map + 16, &counts[0], 8);
    memcpy(here.more.map + 16, &counts[1], 8);
    if (is_ours(&here.calls) && is_ours(&here.more) &&
        (ftruncate(here.calls.descriptor, (off_t)end) || ftruncate(here.more.descriptor, (off_t)rows)))
        return;
    say(ended);
#ifdef SAFEPOINT_CHECK
    wait_for_follower();
#endif
}

/* What others ask. */

/* Of the messages to and from these ranks of the world (n < 0: all): sends called less receives completed; requests
 * that are open; access epochs that are open; and whether that cannot be told. Returns -1 if nothing is noted. */
EXPORT int safepoint_trace_counters(const int *members, int n, long long out[4])
{
    int i;
    memset(out, 0, 4 * sizeof *out);
    out[3] = !trace.noting || trace.unsure || trace.threads > 1;
    if (!trace.notes || CHECKING) /* in check mode not all messages are seen */
        return -1;
    lock();
    for (i = 0; i < (n < 0 ? trace.size : n); i++) {
        int rank = n < 0 ? i : members[i];
        out[0] += rank >= 0 && rank < trace.size ? trace.flying[rank] : 0;
    }
    out[1] = trace.open;
    out[2] = trace.epochs;
    unlock();
    return 0;
}

static struct note *ours(unsigned function, long long value)
{
    unsigned site = safepoint_trace_site;
    struct note *note;
    if (!trace.noting || self.inside || site == QUIET)
        return NULL;
#ifdef SAFEPOINT_CHECK
    if (CHECKING && !watched[function])
        return NULL;
#endif
    note = new_note(function, site ? site : site_of_hide());
    if (!note)
        return NULL;
#ifdef SAFEPOINT_CHECK
    if (CHECKING)
        row_of_ours(note, function == HIDE, value);
#endif
    note->bytes = (uint64_t)value;
    note->enter = now();
    __atomic_store_n(&note->state, ENTERED, __ATOMIC_RELEASE);
    return note;
}

static void returned(struct note *note)
{
    note->leave = now();
    note->result = 0;
    __atomic_store_n(&note->state, RETURNED, __ATOMIC_RELEASE);
}

/* Where the next hide or mark is. */
EXPORT void safepoint_trace_at(const char *file, int line)
{
    here.file = file;
    here.line = line;
}

EXPORT void safepoint_trace_hide(long long step)
{
    self.hide = ours(HIDE, step);
}

EXPORT void safepoint_trace_hidden(void)
{
    if (self.hide)
        returned(self.hide);
    self.hide = NULL;
}

EXPORT void safepoint_trace_mark(void)
{
    struct note *note = ours(MARK, 0);
    if (note)
        returned(note);
}

/* The next call of this thread is there: as `safepoint-lines.h` says before each. `file` is a literal. */
EXPORT void safepoint_trace_line(const char *file, int line)
{
    uintptr_t key = ((HANDLE(file) * 0x9E3779B97F4A7C15u + (unsigned)line) << 1) | 1;
    unsigned at = hash(key, SITE_BITS);
    if (!here.program) { /* that of MPI_Init is asked for when it has returned */
        here.first_file = file;
        here.first_line = line;
    }
    if (LIKELY(HANDLE(__atomic_load_n(&sites[at].from, __ATOMIC_ACQUIRE)) == key))
        self.line = sites[at].number;
    else
        self.line = trace.noting ? site_at(key, file, line, "-") : 0;
}

/* A site that another tracer knows, for `safepoint_trace_site`. Returns its number, or 0. */
EXPORT unsigned safepoint_trace_new_site(const char *file, int line, const char *function)
{
    return site_of_line(file, line, function);
}
