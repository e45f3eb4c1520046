/* Check mode of the tracer of C and Fortran on another node than the launcher: as `elsewhere.py` says it.
 *
 * (1) Nothing here is a copy of this process, as fork would make one: MPI may have memory that must not be copied.
 * (2) The shell is waited for by its number, and the follower is no child of this process. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "watch.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WORDS = 64, WAITS_MS = 5000, STEP_MS = 10 };
extern char **environ;

static struct {
    char directory[PATH_MAX]; /* of this node; empty: this is that of the launcher */
} here;

static int put(const char *directory, const char *name, const char *text)
{
    char path[PATH_MAX + 64];
    size_t size = strlen(text);
    int descriptor, failed = 0;
    snprintf(path, sizeof path, "%s/%s", directory, name);
    descriptor = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (descriptor < 0)
        return errno;
    while (size && !failed) {
        ssize_t done = write(descriptor, text, size);
        failed = done < 0 && errno != EINTR ? errno : 0;
        text += done > 0 ? done : 0;
        size -= done > 0 ? (size_t)done : 0;
    }
    close(descriptor);
    return failed;
}

static int is_there(const char *directory, const char *name)
{
    char path[PATH_MAX + 64];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    return !access(path, F_OK);
}

/* A boot, and the namespace in which processes have their numbers. */
static void identity(char text[128])
{
    char space[64] = "", *at = text;
    int descriptor = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t size = descriptor < 0 ? 0 : read(descriptor, text, 64);
    if (descriptor >= 0)
        close(descriptor);
    text[size > 0 ? size : 0] = 0;
    at += strcspn(text, "\n");
    *at++ = '-';
    if (readlink("/proc/self/ns/pid", space, sizeof space - 1) > 0)
        for (size = 0; space[size]; size++)
            if (space[size] >= '0' && space[size] <= '9')
                *at++ = space[size];
    *at = 0;
}

static void removed_with(const char *directory)
{
    static const char *const names[] = {"watch.json", "following"};
    char path[PATH_MAX + 64];
    unsigned i;
    for (i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%s", directory, names[i]);
        unlink(path);
    }
    rmdir(directory);
}

/* Whether it was this process that has made the directory; -1: nobody has, and `errno` says why. */
static int is_made(const char *directory, const char *list)
{
    char made[PATH_MAX + 16];
    int failed;
    snprintf(made, sizeof made, "%s.XXXXXX", directory);
    if (!mkdtemp(made))
        return -1;
    failed = put(made, "watch.json", list);
    failed = failed ? failed : put(made, "following", "");
    failed = failed ? failed : rename(made, directory) ? errno : 0;
    if (!failed)
        return 1;
    removed_with(made);
    errno = failed;
    return access(directory, F_OK) ? -1 : 0;
}

/* `words`: the command that follows, to which the directory is added. */
static void start(char **words, int count)
{
    char *argv[WORDS + 8] = {"/bin/sh", "-c", "\"$@\" &", "sh"}, **environment;
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t none;
    pid_t pid;
    int i, kept = 0, state;
    short flags = POSIX_SPAWN_SETSIGMASK;
    for (i = 0; i < count; i++)
        argv[4 + i] = words[i];
    argv[4 + count] = here.directory;
    for (i = 0; environ[i]; i++)
        ;
    environment = calloc((size_t)i + 1, sizeof *environment);
    if (!environment)
        return;
    for (i = 0; environ[i]; i++)
        if (strncmp(environ[i], "LD_PRELOAD=", 11) != 0)
            environment[kept++] = environ[i];
    sigemptyset(&none);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
    posix_spawnattr_init(&attributes);
#ifdef POSIX_SPAWN_SETSID
    flags |= POSIX_SPAWN_SETSID;
#endif
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setflags(&attributes, flags);
    if (!posix_spawn(&pid, argv[0], &actions, &attributes, argv, environment))
        while (waitpid(pid, &state, 0) < 0 && errno == EINTR)
            ;
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
    free(environment);
}

static int is_of_this_user(const char *directory)
{
    struct stat found;
    return !lstat(directory, &found) && S_ISDIR(found.st_mode) && found.st_uid == geteuid() && !(found.st_mode & 077);
}

/* Where this process notes, instead of there: `directory` is that of the launcher, or of this node. Returns an error of
 * the system, of that path. */
static int placed(char **lines, int count, const char **directory)
{
    const char *base = getenv("TMPDIR");
    char mine[128], host[256] = "";
    int made = 0;
    identity(mine);
    if (!strcmp(mine, lines[0]) && is_there(*directory, "watch.json"))
        return 0;
    if (count < 4) {
        gethostname(host, sizeof host - 1);
        if (!is_there(*directory, "watch.json"))
            dprintf(2, "safepoint trace: %s is not the node of safepoint check, which follows no other: give it "
                       "--port 0\n", host);
        return 0;
    }
    snprintf(here.directory, sizeof here.directory - 64, "%s/safepoint-check-%s-%s", base && *base ? base : "/tmp",
             lines[1], mine);
    *directory = here.directory;
    if (access(here.directory, F_OK))
        made = is_made(here.directory, lines[2]);
    if (made < 0)
        return errno;
    if (made)
        start(lines + 3, count - 3);
    return is_of_this_user(here.directory) ? 0 : EPERM;
}

int place_of_node(const char **directory)
{
    const char *told = getenv("SAFEPOINT_TRACE_NODES");
    char *text = told && *told ? strdup(told) : NULL, *lines[WORDS + 3], *at = text;
    int count = 0, failed = 0;
    while (at && count < WORDS + 3) {
        lines[count++] = at;
        if ((at = strchr(at, '\n')))
            *at++ = 0;
    }
    if (count >= 3)
        failed = placed(lines, count, directory);
    free(text);
    return failed;
}

/* Another process has noted as this rank: say so to whoever reads the trace. Processes that a program has started itself
 * are not checked. */
void say_second(const char *directory)
{
    MPI_Comm parent;
    PMPI_Comm_get_parent(&parent);
    if (parent == MPI_COMM_NULL)
        put(directory, "second", "");
}

/* Whether there is a follower, or will be. */
static int is_followed(void)
{
    char path[PATH_MAX + 64], text[32];
    int descriptor;
    ssize_t size;
    snprintf(path, sizeof path, "%s/following", here.directory);
    descriptor = open(path, O_RDONLY | O_CLOEXEC);
    if (descriptor < 0)
        return 0;
    size = read(descriptor, text, sizeof text - 1);
    close(descriptor);
    text[size > 0 ? size : 0] = 0;
    return size <= 0 || !kill((pid_t)atol(text), 0) || errno != ESRCH;
}

/* There are no more notes: wait until they have been read, if there is somebody who does. */
void wait_for_follower(void)
{
    struct timespec step = {0, STEP_MS * 1000000L};
    char name[32];
    int waited;
    snprintf(name, sizeof name, "rank-%05d.sent", trace.rank);
    for (waited = 0; *here.directory && waited < WAITS_MS; waited += STEP_MS) {
        if (!is_followed() || is_there(here.directory, name))
            return;
        nanosleep(&step, NULL);
    }
}
