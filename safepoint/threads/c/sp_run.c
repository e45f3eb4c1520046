/* The directory of a run: `run.json`, written at the start and completed at the end, and `sites.jsonl`.

   The directory is locked by this process as long as it records. What lies in it is removed only if all of it is ours.
   A kill while it is made or emptied leaves `run.json` as the first file to come and the last to go. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "sp_inner.h"

#ifndef SP_COMPILER
#define SP_COMPILER __VERSION__
#endif
#define STARTS "{\"format\":1,\"build\":\""
#define RESERVED 512 /* run.json has so many blanks at its end: on a full disk it is written in place */

/* `safepoint threads build` defines them in the program. */
__attribute__((weak)) const char sp_build_id[1] = "";
__attribute__((weak)) const char sp_build_sites[1] = "";

int sp_directory = -1;
int sp_run_stopped;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of run.json and sites.jsonl */
static char place[4096];
static char stopped_text[96];
static struct timespec began, ended;
static size_t room; /* bytes of run.json as it was made at the start */
static int32_t last_site;
static pid_t owner;

void sp_say(const char *text, const char *name, int error) {
    fprintf(stderr, "safepoint: %s %s%s%s\n", text, name, error ? ": " : "", error ? strerror(error) : "");
}

/* A text that grows; one that could not is empty. */
struct grown {
    char *text;
    size_t length, size;
};

static void add(struct grown *to, const char *from, size_t length) {
    if (to->length + length + 1 > to->size) {
        size_t size = 2 * (to->length + length) + 256;
        char *larger = realloc(to->text, size);
        if (!larger)
            return;
        to->text = larger, to->size = size;
    }
    memcpy(to->text + to->length, from, length);
    to->text[to->length += length] = 0;
}

static void addf(struct grown *to, const char *format, ...) {
    char text[256];
    va_list list;
    va_start(list, format);
    int length = vsnprintf(text, sizeof text, format, list);
    va_end(list);
    add(to, text, length < (int)sizeof text ? (size_t)length : sizeof text - 1);
}

static void quote(struct grown *to, const char *from) {
    add(to, "\"", 1);
    for (; *from; from++)
        if ((unsigned char)*from < 32 || *from == '"' || *from == '\\')
            addf(to, "\\u%04x", (unsigned char)*from);
        else
            add(to, from, 1);
    add(to, "\"", 1);
}

/* Without floating arithmetic: a program may trap it, and its flags are its own. */
static void add_seconds(struct grown *to, const struct timespec *when) {
    addf(to, when->tv_sec ? "%lld.%06ld" : "null", (long long)when->tv_sec, when->tv_nsec / 1000);
}

static void quote_or_null(struct grown *to, const char *name, const char *from) {
    addf(to, ",\"%s\":", name);
    if (from && *from)
        quote(to, from);
    else
        add(to, "null", 4);
}

static char *whole(const char *path, size_t *length) {
    struct grown found = {0};
    char part[65536];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return NULL;
    ssize_t count;
    add(&found, "", 0);
    while ((count = read(fd, part, sizeof part)) > 0)
        add(&found, part, (size_t)count);
    close(fd);
    *length = found.length;
    return count ? NULL : found.text;
}

static void arguments(struct grown *to) {
    size_t length = 0;
    char *words = whole("/proc/self/cmdline", &length);
    add(to, ",\"argv\":[", 9);
    for (char *word = words; words && word < words + length; word += strlen(word) + 1) {
        if (word != words)
            add(to, ",", 1);
        quote(to, word);
    }
    add(to, "]", 1);
    free(words);
}

static void describe(struct grown *to) {
    static const char *const levels[] = {"off", "minimal", "modify", "full"};
    const struct sp_settings *set = &sp_settings;
    char host[256] = "";
    gethostname(host, sizeof host - 1);
    add(to, "{\"format\":1,\"build\":", 20);
    quote(to, sp_build_id);
    arguments(to);
    addf(to, ",\"pid\":%ld", (long)owner);
    quote_or_null(to, "host", host);
    quote_or_null(to, "compiler", SP_COMPILER);
    addf(to, ",\"level\":{\"regions\":\"%s\",\"variables\":\"%s\",\"procedures\":\"%s\"}", levels[set->regions],
         levels[set->variables], levels[set->procedures]);
    quote_or_null(to, "regions", set->range_text);
    addf(to, set->edges ? ",\"edges\":%llu" : ",\"edges\":null", (unsigned long long)set->edges);
    addf(to, ",\"statistics\":%s,\"noise\":%llu", set->statistics ? "true" : "false", (unsigned long long)set->noise);
    addf(to, ",\"threads\":%u,\"bytes\":%llu,\"begin\":", __atomic_load_n(&sp_threads, __ATOMIC_RELAXED),
         (unsigned long long)sp_bytes());
    add_seconds(to, &began);
    add(to, ",\"end\":", 7);
    add_seconds(to, &ended);
    addf(to, ended.tv_sec ? ",\"ended\":\"exit\"" : ",\"ended\":null");
    quote_or_null(to, "stopped", stopped_text);
    add(to, "}", 1);
}

static int write_all(int fd, const char *text, size_t length) {
    for (ssize_t done; length; text += done, length -= (size_t)done)
        if ((done = write(fd, text, length)) < 0 && errno != EINTR)
            return 0;
        else if (done < 0)
            done = 0;
    return 1;
}

static int put_file(const char *name, const char *text, size_t length) {
    int fd = openat(sp_directory, name, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0666);
    int good = fd >= 0 && write_all(fd, text, length);
    return fd >= 0 && close(fd) ? 0 : good;
}

/* By a rename, so that a reader sees one or the other. If the disk has no place for it: over the old one. */
static int write_about(void) {
    struct grown text = {0};
    describe(&text);
    if (!room)
        room = text.length + RESERVED;
    while (text.text && text.length + 1 < room)
        add(&text, " ", 1);
    add(&text, "\n", 1);
    int good = put_file("run.json.new", text.text, text.length) &&
               !renameat(sp_directory, "run.json.new", sp_directory, "run.json");
    if (!good) {
        int why = errno, fd = openat(sp_directory, "run.json", O_WRONLY | O_CLOEXEC);
        unlinkat(sp_directory, "run.json.new", 0);
        good = fd >= 0 && text.length == room && write_all(fd, text.text, text.length);
        if (fd >= 0)
            close(fd);
        errno = why;
    }
    free(text.text);
    return good;
}

/* 1: of ours. */
static int ours(const char *name) {
    size_t digits = strspn(name, "0123456789");
    return !strcmp(name, "run.json") || !strcmp(name, "run.json.new") || !strcmp(name, "sites.jsonl") ||
           (digits >= 5 && !strcmp(name + digits, ".ev"));
}

/* It begins as a run.json of ours. `cut`: or as much of it is there as a kill has left. */
static int begins_as_ours(const char *name, int cut) {
    char text[sizeof STARTS] = "";
    int fd = openat(sp_directory, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return 0;
    ssize_t count = read(fd, text, sizeof STARTS - 1);
    close(fd);
    return count >= 0 && (cut || count == sizeof STARTS - 1) && !memcmp(text, STARTS, (size_t)count);
}

/* Remove what an earlier run has left. 0: something is not ours. */
static int emptied(void) {
    int copy = dup(sp_directory), strange = 0, found = 0, begun = 0, removing = 0;
    DIR *entries = copy >= 0 ? fdopendir(copy) : NULL;
    if (!entries)
        return 0;
    for (struct dirent *entry; (entry = readdir(entries));)
        if (strcmp(entry->d_name, ".") && strcmp(entry->d_name, "..")) {
            int new = !strcmp(entry->d_name, "run.json.new"); /* all that a kill at the very start leaves */
            strange |= !ours(entry->d_name);
            begun |= new, found |= !new;
        }
    removing = !strange && (!found || begins_as_ours("run.json", 0)) && (!begun || begins_as_ours("run.json.new", 1));
    rewinddir(entries);
    for (struct dirent *entry; removing && (entry = readdir(entries));)
        if (ours(entry->d_name) && strcmp(entry->d_name, "run.json") && unlinkat(sp_directory, entry->d_name, 0))
            removing = 0;
    closedir(entries);
    return removing;
}

static void name_place(void) {
    const char *name = getenv("SP_DIR");
    char rank[16] = "";
    if (sp_settings.rank >= 0)
        snprintf(rank, sizeof rank, "-%d", sp_settings.rank);
    if (name && *name) {
        snprintf(place, sizeof place, "%.4000s%s", name, rank);
        return;
    }
    char path[3072];
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
    path[length > 0 ? length : 0] = 0;
    name = strrchr(path, '/') ? strrchr(path, '/') + 1 : "program";
    snprintf(place, sizeof place, "%s.threads%s", name, rank);
}

static int copy_sites(void) {
    size_t length = 0;
    char *text = NULL;
    if (!sp_build_sites[0]) {
        static const char by_hand[] = "{\"format\":1,\"build\":\"\"}\n";
        return put_file("sites.jsonl", by_hand, sizeof by_hand - 1);
    }
    if (!(text = whole(sp_build_sites, &length))) {
        sp_say("no trace is written: cannot read the sites", sp_build_sites, errno);
        return 0;
    }
    char *end = memchr(text, '\n', length), *id = sp_build_id[0] ? strstr(text, sp_build_id) : text;
    for (char *at = end; at && (at = memchr(at + 1, '\n', (size_t)(text + length - at - 1)));)
        last_site++;
    int good = end && id && id < end;
    if (!good)
        sp_say("no trace is written: another build than the program's:", sp_build_sites, 0);
    else if (!(good = put_file("sites.jsonl", text, length)))
        sp_say("no trace is written: cannot write the sites in", place, errno);
    free(text);
    return good;
}

int sp_run_open(void) {
    name_place();
    owner = getpid();
    clock_gettime(CLOCK_REALTIME, &began);
    if (mkdir(place, 0777) && errno != EEXIST) {
        sp_say("no trace is written: cannot make", place, errno);
        return 0;
    }
    sp_directory = open(place, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (sp_directory < 0) {
        sp_say("no trace is written: cannot open", place, errno);
        return 0;
    }
    if (flock(sp_directory, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK)
        sp_say("no trace is written: another program writes one now in", place, 0);
    else if (!emptied())
        sp_say("no trace is written: there is something else than a trace in", place, 0);
    else if (!write_about())
        sp_say("no trace is written: cannot write into", place, errno);
    else if (copy_sites())
        return 1;
    close(sp_directory);
    sp_directory = -1;
    return 0;
}

/* Recording stops, and the program goes on. */
void sp_run_stop(const char *why) {
    pthread_mutex_lock(&lock);
    if (!__atomic_load_n(&sp_run_stopped, __ATOMIC_RELAXED)) {
        snprintf(stopped_text, sizeof stopped_text, "%s", why);
        __atomic_store_n(&sp_run_stopped, 1, __ATOMIC_RELAXED);
        write_about();
        fprintf(stderr, "safepoint: %s: recording stopped (%s), the program goes on\n", place, why);
    }
    pthread_mutex_unlock(&lock);
}

int32_t sp_site(const char *type, const char *name, const char *file, int32_t line, int32_t line2) {
    int32_t slot = 0;
    return sp_site_once(&slot, type, name, file, line, line2);
}

static int32_t once(int32_t *slot, const char *type, const char *name, const char *file, int32_t line, int32_t line2,
                    const char *loose) {
    if (sp_self.now == FRESH)
        sp_attach();
    if (!sp_self.now) {
        if (sp_directory < 0)
            __atomic_store_n(slot, -1, __ATOMIC_RELEASE); /* it stays so: nobody asks again */
        return -1;
    }
    pthread_mutex_lock(&lock);
    int32_t found = __atomic_load_n(slot, __ATOMIC_ACQUIRE);
    if (!found && sp_directory >= 0) {
        struct grown text = {0};
        addf(&text, "{\"number\":%d,\"type\":", found = ++last_site);
        quote(&text, type);
        add(&text, ",\"name\":", 8);
        quote(&text, name);
        add(&text, ",\"file\":", 8);
        quote(&text, file);
        addf(&text, ",\"line\":%d,\"line2\":%d,\"clauses\":\"\",\"loose\":\"%s\"}\n", line, line2, loose);
        int fd = openat(sp_directory, "sites.jsonl", O_WRONLY | O_APPEND | O_CLOEXEC);
        if (fd < 0 || !text.text || !write_all(fd, text.text, text.length))
            found = -1;
        if (fd >= 0)
            close(fd);
        free(text.text);
        __atomic_store_n(slot, found, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&lock);
    return found;
}

int32_t sp_site_once(int32_t *slot, const char *type, const char *name, const char *file, int32_t line, int32_t line2) {
    return once(slot, type, name, file, line, line2, "");
}

int32_t sp_site_sum(int32_t *slot, const char *name, const char *file, int32_t line) {
    return once(slot, "array", name, file, line, line, "reduction");
}

/* It runs when the program returns from main, stops or calls exit. */
static __attribute__((destructor)) void at_end(void) {
    if (sp_directory < 0 || owner != getpid())
        return;
    pthread_mutex_lock(&lock);
    clock_gettime(CLOCK_REALTIME, &ended);
    if (!write_about())
        sp_say("cannot complete run.json in", place, errno);
    pthread_mutex_unlock(&lock);
}
