/* The side of the program: a helper process is started, asked, and answered when its ranks have to agree.
 *
 * (1) The helper lives as long as the socket: it ends when it reads the end of file, and the program is told of its end
 *     by the same. Nothing else ties the two.
 * (2) A verb is one message there and one back; in between the helper may ask for what only the program can do: an
 *     operation of MPI. A rank whose helper has died cannot agree any more, so it ends all ranks: they would wait for ever.
 * (3) The program stays as it is: no thread, no descriptor that a child inherits, no handler but those asked for by the
 *     option `signals`, and no child that it could meet in wait().
 *
 * POSIX.1-2008 and C99. A message is {uint32 length, int32 kind, int32 a, int32 b} and `length` bytes, as the machine has
 * its numbers: both ends are of one machine, and of one version.
 */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif
#ifdef __linux__
#define _DEFAULT_SOURCE 1
#endif

#define SAFEPOINT_WITHOUT_PLACES
#include "safepoint.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifndef SAFEPOINT_PYTHON
#define SAFEPOINT_PYTHON "python3"
#endif
#ifndef SAFEPOINT_PATH
#define SAFEPOINT_PATH "" /* where the package lies, if Python does not know it */
#endif
#ifndef SAFEPOINT_PACKAGES
#define SAFEPOINT_PACKAGES "" /* where those lie that it needs: then that Python need not look at all that it has */
#endif
#ifndef SAFEPOINT_LIBRARY_PATH
#define SAFEPOINT_LIBRARY_PATH "" /* for that Python; that of the program may be made for its solver */
#endif
#ifndef MSG_NOSIGNAL
#define MSG_NOSIGNAL 0
#endif
#ifndef MSG_DONTWAIT
#define MSG_DONTWAIT 0
#endif
#ifndef SOCK_CLOEXEC
#define SOCK_CLOEXEC 0
#endif
#ifdef CLOCK_MONOTONIC_COARSE /* some ms are near enough, and some ns are spared */
#define COARSE CLOCK_MONOTONIC_COARSE
#else
#define COARSE CLOCK_MONOTONIC
#endif

#ifndef SAFEPOINT_PROTOCOL
#define SAFEPOINT_PROTOCOL 2
#endif
#define SIGNALS 65
#define WORDS 4096
#define AT_MOST 1000 /* looks for an answer before it is slept for */
#define FREE_ONES 10 /* descriptors below are for the program: those of its stdin, stdout and stderr, at least */
#define LARGEST_MESSAGE (1u << 30)

extern char **environ;

enum verb { INIT = 1, RESTORE, HIDE, WAIT, DUE, SHOULD_STOP, STOP, FINISH, CLOSE, LEAVE, WATCH };
enum kind { CALL = 0, REDUCE, BROADCAST, ARRIVE, IN_FLIGHT };
/* CLOSED: by this rank alone. Its helper stays, to say so when the others agree: they would wait for ever. */
enum state { NONE, OPEN, CLOSED, ENDED, LOST };

struct header {
    uint32_t length;
    int32_t kind, a, b;
};

struct question {
    int32_t verb, flag, rank, size, program, line; /* of the call */
    int32_t file, words;                           /* how long the name of its file is, and the words after it */
    int64_t step;
    uint64_t signals; /* that came */
    int64_t passed[2]; /* calls of due and should_stop that were answered here since the last question */
};

struct answer {
    int32_t code, flag;
    int64_t step;
    int64_t calls, nanoseconds; /* that need not be asked again */
    uint64_t signals;           /* to be noted */
};

static struct {
    enum state state;
    int fd;
    pid_t program;
    int many, watched, busy, world; /* world: all ranks of the program that MPI knows of; 0: there is no MPI */
    safepoint_comm comm;
    char error[WORDS];
    struct { /* of due, and of should_stop: when to ask next */
        int64_t calls, until;
    } rest[2];
    int64_t passed[2];
    const char *file; /* of the next call */
    int line;
    struct sigaction before[SIGNALS];
    unsigned char caught[SIGNALS];
    char unflushed[256]; /* why not all that was written is in its file */
    struct stat socket;  /* to know it from another file that has its number */
    char *buffer;
    size_t room;
    char directory[4096 + 1]; /* where the files are */
} here = {.fd = -1, .comm = {.size = 1}};

static volatile sig_atomic_t came[SIGNALS];
static volatile sig_atomic_t any_came;

static int fails(int code, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(here.error, sizeof here.error, format, arguments);
    va_end(arguments);
    return code;
}

const char *safepoint_error(void)
{
    return here.error;
}

const char *safepoint_directory(void)
{
    return here.directory;
}

/* Of the other files of this library. */
int safepoint_refuse(const char *text);
int safepoint_let_go(const void *context);
void safepoint_know_world(int size);
void safepoint_unflushed(const char *why);
long long safepoint_bytes_of(const char *path);

int safepoint_refuse(const char *text)
{
    return fails(SAFEPOINT_USAGE, "%s", text);
}

/* Whether no session needs what the program frees. One that has ended forgets it. */
int safepoint_let_go(const void *context)
{
    if (here.comm.context != context)
        return 1;
    if (here.state == OPEN || here.state == CLOSED || here.state == LOST)
        return 0;
    memset(&here.comm, 0, sizeof here.comm);
    here.comm.size = 1;
    here.many = 0;
    return 1;
}

void safepoint_know_world(int size)
{
    here.world = size;
}

/* The socket. */

/* A program that closes all descriptors, as daemons do, may have opened a file of its own under this number. */
static int is_socket(int fd, struct stat *found)
{
    return fd >= 0 && !fstat(fd, found) && S_ISSOCK(found->st_mode);
}

static int still_ours(void)
{
    struct stat now;
    return is_socket(here.fd, &now) && now.st_dev == here.socket.st_dev && now.st_ino == here.socket.st_ino;
}

static void hang_up(void)
{
    if (still_ours())
        close(here.fd);
    here.fd = -1;
}

static int send_all(const void *data, size_t size)
{
    const char *next = (const char *)data;
    while (size) {
        ssize_t count = send(here.fd, next, size, MSG_NOSIGNAL);
        if (count < 0 && errno == EINTR)
            continue;
        if (count <= 0)
            return -1;
        next += count;
        size -= (size_t)count;
    }
    return 0;
}

/* An answer comes in less than a ms. To sleep until then, and be woken, costs more than what is asked for; whoever else
 * is to run on this core goes first. */
static ssize_t receive_soon(void *data, size_t size)
{
    ssize_t count;
    int turn = 0;
    do {
        count = recv(here.fd, data, size, MSG_DONTWAIT);
        if (count >= 0 || (errno != EAGAIN && errno != EWOULDBLOCK))
            return count;
        sched_yield();
    } while (++turn < AT_MOST);
    return recv(here.fd, data, size, 0);
}

static int receive_all(void *data, size_t size)
{
    char *next = (char *)data;
    while (size) {
        ssize_t count = receive_soon(next, size);
        if (count < 0 && errno == EINTR)
            continue;
        if (count <= 0)
            return -1;
        next += count;
        size -= (size_t)count;
    }
    return 0;
}

struct part {
    const void *bytes;
    size_t size;
};

/* A message of these parts; what is short goes at once, or the helper would be woken for each of them. */
static int send_message(int kind, const struct part *parts, int count)
{
    struct header header;
    char together[1024];
    size_t used = sizeof header;
    int at, sent = 0;
    memset(&header, 0, sizeof header);
    header.kind = kind;
    for (at = 0; at < count; at++)
        header.length += (uint32_t)parts[at].size;
    memcpy(together, &header, sizeof header);
    for (; sent < count && parts[sent].size <= sizeof together - used; sent++) {
        if (parts[sent].size)
            memcpy(together + used, parts[sent].bytes, parts[sent].size);
        used += parts[sent].size;
    }
    if (send_all(together, used))
        return -1;
    for (; sent < count; sent++)
        if (parts[sent].size && send_all(parts[sent].bytes, parts[sent].size))
            return -1;
    return 0;
}

static int reply(int kind, const void *data, size_t size)
{
    struct part part = {data, size};
    return send_message(kind, &part, 1);
}

static int make_room(size_t size)
{
    char *larger;
    if (size <= here.room)
        return 0;
    larger = (char *)realloc(here.buffer, size);
    if (!larger)
        return -1;
    here.buffer = larger;
    here.room = size;
    return 0;
}

/* Signals that the program is to be told of. */

static void note_signal(int number, siginfo_t *info, void *context)
{
    const struct sigaction *before = &here.before[number];
    int again = came[number];
    came[number] = 1;
    any_came = 1;
    if (before->sa_flags & SA_SIGINFO) {
        if (before->sa_sigaction)
            before->sa_sigaction(number, info, context);
    } else if (before->sa_handler != SIG_DFL && before->sa_handler != SIG_IGN) {
        before->sa_handler(number);
    } else if (number == SIGINT && again && before->sa_handler == SIG_DFL) {
        struct sigaction usual; /* the second Ctrl-C ends the program */
        memset(&usual, 0, sizeof usual);
        usual.sa_handler = SIG_DFL;
        sigaction(number, &usual, NULL);
        raise(number);
    }
}

static void catch_signals(uint64_t wanted)
{
    int number;
    struct sigaction ours;
    memset(&ours, 0, sizeof ours);
    ours.sa_sigaction = note_signal;
    for (number = 1; number < SIGNALS; number++) {
        came[number] = 0;
        if (wanted & ((uint64_t)1 << (number - 1))) {
            struct sigaction before;
            if (sigaction(number, NULL, &before))
                continue;
            ours.sa_mask = before.sa_mask; /* as the program's own handler has it, which is called */
            ours.sa_flags = SA_SIGINFO | (before.sa_flags & (SA_ONSTACK | SA_RESTART | SA_NODEFER));
            if (!(before.sa_flags & SA_SIGINFO) && (before.sa_handler == SIG_DFL || before.sa_handler == SIG_IGN))
                ours.sa_flags |= SA_RESTART | SA_ONSTACK;
            here.caught[number] = !sigaction(number, &ours, NULL);
            if (here.caught[number] && !((before.sa_flags & SA_SIGINFO) && before.sa_sigaction == note_signal))
                here.before[number] = before; /* else it would call itself */
        }
    }
    any_came = 0;
}

static void leave_signals(void)
{
    int number;
    for (number = 1; number < SIGNALS; number++) {
        struct sigaction now;
        if (here.caught[number] && !sigaction(number, NULL, &now) && (now.sa_flags & SA_SIGINFO) &&
            now.sa_sigaction == note_signal)
            sigaction(number, &here.before[number], NULL);
        here.caught[number] = 0;
    }
}

/* Rule (2): what the others will never learn from a rank that has no helper any more. */
static int lost(void)
{
    const char *how = still_ours() ? "the helper of this process has died" : "the program has closed the line to its helper";
    leave_signals(); /* nobody looks at what they note any more */
    hang_up();
    here.state = LOST;
    fails(SAFEPOINT_NO_HELPER, "%s: what was hidden is safe, nothing more can be saved", how);
    if (here.many && here.comm.die) {
        fprintf(stderr, "safepoint: rank %d: %s\n", here.comm.rank, here.error);
        here.comm.die(here.comm.context, SAFEPOINT_NO_HELPER);
    }
    return SAFEPOINT_NO_HELPER;
}

/* An operation of MPI has failed on this rank. Nobody knows what the others do: rule (2). */
static int failed_to_agree(int failed)
{
    fails(SAFEPOINT_FAILED, "MPI has failed with error %d while the ranks agreed", failed);
    fprintf(stderr, "safepoint: rank %d: %s\n", here.comm.rank, here.error);
    here.comm.die(here.comm.context, SAFEPOINT_FAILED);
    return -1;
}

/* Answer what the helper asks for in the middle of a verb. 0, or -1 if the socket, or MPI, has failed. */
static int serve(const struct header *asked)
{
    int failed, message[4] = {0, 0, 0, 0};
    switch (asked->kind) {
    case REDUCE:
        failed = here.comm.reduce(here.comm.context, asked->a, (long long *)(void *)here.buffer,
                                  (int)(asked->length / sizeof(long long)));
        return failed ? failed_to_agree(failed) : reply(REDUCE, here.buffer, asked->length);
    case BROADCAST:
        failed = here.comm.broadcast(here.comm.context, here.buffer, (int)asked->length, asked->a);
        return failed ? failed_to_agree(failed) : reply(BROADCAST, here.buffer, asked->length);
    case ARRIVE:
        failed = here.comm.arrive(here.comm.context);
        return failed ? failed_to_agree(failed) : 0;
    case IN_FLIGHT:
        failed = here.comm.in_flight(here.comm.context, message);
        return failed ? failed_to_agree(failed) : reply(IN_FLIGHT, message, sizeof message);
    default:
        return -1;
    }
}

/* `parts`: the question, the name of a file, words, and data; all but the first may be empty. */
static int converse(const struct part parts[4], struct answer *answer)
{
    struct header header;
    if (!still_ours() || send_message(CALL, parts, 4))
        return lost();
    for (;;) {
        if (receive_all(&header, sizeof header) || header.length > LARGEST_MESSAGE || make_room(header.length + 1u) ||
            receive_all(here.buffer, header.length))
            return lost();
        if (header.kind != CALL) {
            if (serve(&header))
                return lost();
            continue;
        }
        if (header.length < sizeof *answer)
            return lost();
        memcpy(answer, here.buffer, sizeof *answer);
        here.buffer[header.length] = 0;
        if (answer->code)
            fails(answer->code, "%s", here.buffer + sizeof *answer);
        return answer->code;
    }
}

static int ask(struct question *question, struct part words, struct part data, struct answer *answer)
{
    int number, code;
    struct part parts[4];
    if (here.busy) /* from a handler, or another thread */
        return fails(SAFEPOINT_USAGE, "a call of safepoint within another one");
    parts[0].bytes = question;
    parts[0].size = sizeof *question;
    parts[1].bytes = here.file;
    parts[1].size = here.file ? strlen(here.file) : 0;
    parts[2] = words;
    parts[3] = data;
    question->file = (int32_t)parts[1].size;
    question->words = (int32_t)words.size;
    question->line = here.line;
    here.file = NULL;
    here.line = 0;
    question->rank = here.comm.rank;
    question->size = here.comm.size;
    question->program = (int32_t)here.program;
    for (number = 1; number < SIGNALS && any_came; number++)
        question->signals |= came[number] ? (uint64_t)1 << (number - 1) : 0;
    memcpy(question->passed, here.passed, sizeof here.passed);
    memset(here.passed, 0, sizeof here.passed);
    here.busy = 1;
    code = converse(parts, answer);
    here.busy = 0;
    return code;
}

/* Whether a verb may be called now. */
static int usable(const char *verb)
{
    if (here.state != OPEN)
        here.file = NULL; /* and no place is left for another call */
    if (here.state == NONE)
        return fails(SAFEPOINT_USAGE, "%s before safepoint_init", verb);
    if (here.program != getpid())
        return fails(SAFEPOINT_USAGE, "%s: only the process that called safepoint_init may call it", verb);
    if (here.state == ENDED || (here.state == CLOSED && !here.many))
        return fails(SAFEPOINT_USAGE, "%s after the session has ended", verb);
    if (here.many && here.comm.usable && !here.comm.usable(here.comm.context))
        return fails(SAFEPOINT_USAGE, "%s after MPI_Finalize", verb);
    if (here.state == LOST && here.many) /* it was lost in safepoint_close, alone: now the others wait */
        here.comm.die(here.comm.context, SAFEPOINT_NO_HELPER);
    if (here.state == LOST)
        return SAFEPOINT_NO_HELPER; /* the text is there already */
    return SAFEPOINT_OK;
}

static const struct part none = {NULL, 0};

void safepoint_unflushed(const char *why)
{
    snprintf(here.unflushed, sizeof here.unflushed, "%s", why);
}

/* Of a regular file; -1 if this is none. */
long long safepoint_bytes_of(const char *path)
{
    struct stat found;
    return stat(path, &found) || !S_ISREG(found.st_mode) ? -1 : (long long)found.st_size;
}

/* What is still in a buffer is in no file. What is printed is nobody's file: a full log, or a terminal that is gone, must
 * not cost a set. A pipe that nobody reads is none either. stdout comes first, as only the last error can be seen. */
static struct part flush_streams(void)
{
    struct part why = {here.unflushed, 0};
    int failed, printed = fflush(stdout) | fflush(stderr);
    errno = 0;
    failed = fflush(NULL) ? errno : 0;
    if (failed && printed && (fflush(stdout) || fflush(stderr))) /* a C library that keeps what it could not write */
        failed = 0;
    if (failed && failed != EPIPE && !here.unflushed[0])
        safepoint_unflushed(strerror(failed));
    why.size = strlen(here.unflushed);
    return why;
}

static int verb(enum verb which, const char *name, int flag, long long step, struct answer *answer)
{
    struct question question;
    struct part words = none;
    int code = usable(name);
    if (code)
        return code;
    memset(&question, 0, sizeof question);
    question.verb = (int32_t)which;
    question.flag = flag;
    question.step = step;
    if (which == HIDE || which == FINISH)
        words = flush_streams();
    if (which == HIDE || which == RESTORE)
        memset(&here.rest[0], 0, sizeof here.rest[0]); /* the time to the next set begins anew */
    code = ask(&question, words, none, answer);
    here.unflushed[0] = 0;
    return code;
}

/* The helper. */

static void at_exit(void)
{
    struct question question;
    struct answer answer;
    if (here.state != OPEN || here.program != getpid() || here.busy) /* within a call: as after a kill */
        return;
    memset(&question, 0, sizeof question); /* the set in flight becomes durable, and what fails is said */
    question.verb = LEAVE;
    here.many = 0; /* it is this rank's own affair; nobody is told of a helper that has died */
    ask(&question, none, none, &answer);
    here.state = ENDED;
}

/* The environment of the helper: without what is made for the program's own libraries. NULL: no memory. */
static char **environment(char *path)
{
    size_t count = 0, kept = 0;
    char **found;
    while (environ && environ[count])
        count++;
    found = (char **)malloc((count + 2) * sizeof *found);
    if (!found)
        return NULL;
    for (count = 0; environ && environ[count]; count++)
        if (strncmp(environ[count], "LD_PRELOAD=", 11) && strncmp(environ[count], "LD_LIBRARY_PATH=", 16) &&
            strncmp(environ[count], "PYTHON", 6))
            found[kept++] = environ[count];
    if (path)
        found[kept++] = path;
    found[kept] = NULL;
    return found;
}

static int spawn(const char *python, int theirs, pid_t *pid)
{
    static char code[] = /* the package that this was built with, whatever else that Python knows */
        "import gc, os, sys; gc.disable()\n" /* nothing to collect while modules are imported */
        "if os.fork(): os._exit(0)\n" /* now, when there is little to copy: the program has no child of ours then */
        "sys.path += [p for p in sys.argv[3:] if p]\n"
        "try: import filelock, xxhash\n" /* what else is needed lies beside them */
        "except ImportError:\n"
        "    import site\n"
        "    sys.path[:] = [p for p in sys.path if p not in sys.argv[3:]]\n"
        "    site.main()\n"
        "import importlib.machinery as m, importlib.util as u\n"
        "found = m.PathFinder.find_spec('safepoint', [sys.argv[2]]) or u.find_spec('safepoint')\n"
        "if found is None: raise SystemExit('safepoint: ' + sys.executable + ' has no package safepoint')\n"
        "sys.modules['safepoint'] = package = u.module_from_spec(found)\n"
        "found.loader.exec_module(package)\n"
        "from safepoint.foreign.server import main; main(int(sys.argv[1]))";
    static char isolated[] = "-I", keepless[] = "-IB", bare[] = "-S", command[] = "-c", descriptor[] = "3", package[] = SAFEPOINT_PATH;
    static char packages[] = SAFEPOINT_PACKAGES;
    static char libraries[] = "LD_LIBRARY_PATH=" SAFEPOINT_LIBRARY_PATH;
    char *words[9], **variables = environment(SAFEPOINT_LIBRARY_PATH[0] ? libraries : NULL);
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t all, usual;
    struct rlimit largest;
    int failed;
    if (!variables)
        return ENOMEM;
    words[0] = (char *)(uintptr_t)python;
    /* With a limit of the size of files Python could leave a compiled module cut off, and not start any more. */
    words[1] = getrlimit(RLIMIT_FSIZE, &largest) == 0 && largest.rlim_cur != RLIM_INFINITY ? keepless : isolated;
    words[2] = bare;
    words[3] = command;
    words[4] = code;
    words[5] = descriptor;
    words[6] = package;
    words[7] = getenv("SAFEPOINT_PYTHON") ? NULL : packages; /* they are of one version of Python */
    words[8] = NULL;
    sigfillset(&all); /* until the helper has said what it does with them */
    sigemptyset(&usual);
    sigaddset(&usual, SIGCHLD);
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attributes);
    posix_spawn_file_actions_adddup2(&actions, theirs, 3);
    posix_spawnattr_setsigmask(&attributes, &all);
    posix_spawnattr_setsigdefault(&attributes, &usual);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    failed = posix_spawnp(pid, python, &actions, &attributes, words, variables);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
    free(variables);
    return failed;
}

/* Rule (3): wait for the process that has started the helper and ends at once, without a SIGCHLD that the program would
 * meet; unless a child of its own has ended as well, of which that signal tells too. `before`: what was blocked. */
static void reap(pid_t pid, const sigset_t *before)
{
    int status;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
#ifndef __APPLE__ /* which has no sigtimedwait: there a handler of the program's is called once more */
    if (!sigismember(before, SIGCHLD)) {
        const struct timespec now = {0, 0}; /* another thread, of MPI's, may have been given it meanwhile */
        sigset_t child;
        siginfo_t other;
        memset(&other, 0, sizeof other);
        sigemptyset(&child);
        sigaddset(&child, SIGCHLD);
        if (waitid(P_ALL, 0, &other, WEXITED | WNOHANG | WNOWAIT) || !other.si_pid)
            sigtimedwait(&child, NULL, &now);
        if (!waitid(P_ALL, 0, &other, WEXITED | WNOHANG | WNOWAIT) && other.si_pid)
            raise(SIGCHLD); /* one ended meanwhile */
    }
#endif
}

static int start_helper(void)
{
    const char *python = getenv("SAFEPOINT_PYTHON");
    int ends[2], ours, theirs, failed, blocked;
    char ready;
    pid_t pid = 0;
    sigset_t child, before;
    python = python && *python ? python : SAFEPOINT_PYTHON;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends))
        return fails(SAFEPOINT_NO_HELPER, "no socket for the helper: %s", strerror(errno));
    ours = fcntl(ends[0], F_DUPFD_CLOEXEC, FREE_ONES); /* a program that has closed stdout would print into the socket */
    close(ends[0]);
    theirs = fcntl(ends[1], F_DUPFD_CLOEXEC, FREE_ONES); /* not 3, which it is to become: it would be left to be closed */
    close(ends[1]);
    if (theirs < 0 || ours < 0) {
        if (theirs >= 0)
            close(theirs);
        if (ours >= 0)
            close(ours);
        return fails(SAFEPOINT_NO_HELPER, "no descriptor from %d on is free for the helper (ulimit -n)", FREE_ONES);
    }
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    blocked = !sigprocmask(SIG_BLOCK, &child, &before);
    failed = spawn(python, theirs, &pid);
    if (!failed)
        reap(pid, &before);
    if (blocked)
        sigprocmask(SIG_SETMASK, &before, NULL);
    close(theirs);
    if (failed) {
        close(ours);
        return fails(SAFEPOINT_NO_HELPER, "cannot start %s: %s (SAFEPOINT_PYTHON names another Python)", python,
                     strerror(failed));
    }
    here.fd = ours;
    here.program = getpid();
    is_socket(here.fd, &here.socket);
    if (receive_all(&ready, 1)) { /* its error is on stderr */
        hang_up();
        return fails(SAFEPOINT_NO_HELPER,
                     "the helper, %s, has ended at once: it says above why (SAFEPOINT_PYTHON names another Python)", python);
    }
    if (ready != SAFEPOINT_PROTOCOL) { /* of one node alone it may be: nobody may begin to agree before */
        hang_up();
        return fails(SAFEPOINT_NO_HELPER,
                     "this program was linked with another version of the C library (%d) than its helper, %s, has (%d): "
                     "compile it anew", SAFEPOINT_PROTOCOL, python, ready);
    }
    return SAFEPOINT_OK;
}

/* Nothing of a session that has ended is left: the next safepoint_init begins anew. */
static void forget(void)
{
    leave_signals();
    hang_up();
    here.state = ENDED;
    free(here.buffer);
    here.buffer = NULL;
    here.room = 0;
}

/* All can begin, or none does, and all get the same code. */
static int agree(int code)
{
    long long worst = -code;
    int failed = here.comm.reduce(here.comm.context, 0, &worst, 1);
    if (failed)
        return fails(SAFEPOINT_FAILED, "MPI has failed with error %d while the ranks agreed", failed);
    if (worst == -code)
        return code;
    if (worst == -SAFEPOINT_LOCKED)
        return fails(SAFEPOINT_LOCKED, "another rank has called safepoint_init already: it must call safepoint_close first");
    return fails((int)-worst, "another rank could not start its helper");
}

static int begin(const char *directory, const char *options)
{
    static int registered;
    struct question question;
    struct answer answer;
    struct part place, words;
    int code = start_helper();
    here.directory[0] = 0;
    place.bytes = directory ? directory : ".";
    place.size = strlen((const char *)place.bytes);
    words.bytes = options ? options : "";
    words.size = strlen((const char *)words.bytes);
    if (here.many)
        code = agree(code);
    if (!code) {
        memset(&question, 0, sizeof question);
        memset(here.rest, 0, sizeof here.rest);
        question.verb = INIT;
        question.flag = here.world;
        code = ask(&question, place, words, &answer);
    }
    here.world = 0;
    if (code) {
        if (here.state != LOST)
            forget();
        here.state = NONE;
        return code;
    }
    here.watched = answer.flag;
    snprintf(here.directory, sizeof here.directory, "%s", here.buffer + sizeof answer);
    if (answer.signals)
        catch_signals(answer.signals);
    here.state = OPEN;
    if (!registered)
        registered = !atexit(at_exit);
    return SAFEPOINT_OK;
}

/* The verbs. */

static int may_begin(void)
{
    if (here.state == OPEN && here.program == getpid())
        return fails(SAFEPOINT_LOCKED, "this very process has called safepoint_init already: call safepoint_close first");
    if (here.state == OPEN) /* a forked child: the session is its parent's */
        return fails(SAFEPOINT_USAGE, "safepoint_init in a child of the process that called it: start a program instead");
    return SAFEPOINT_OK;
}

int safepoint_init_comm(const char *directory, const safepoint_comm *comm, const char *options)
{
    int code;
    if (comm && (!comm->reduce || !comm->broadcast || !comm->arrive || !comm->in_flight || !comm->die || comm->size < 1 ||
                 comm->rank < 0 || comm->rank >= comm->size))
        return fails(SAFEPOINT_USAGE, "safepoint_init_comm: its communicator is none");
    code = may_begin();
    if (code && here.program == getpid() && comm && comm->size > 1) { /* the others learn it where all say if they can */
        safepoint_comm kept = here.comm;
        here.comm = *comm;
        code = agree(code);
        here.comm = kept;
    }
    if (code)
        return code;
    if (here.state == CLOSED)
        forget();
    memset(&here.comm, 0, sizeof here.comm);
    here.comm.size = 1;
    if (comm)
        here.comm = *comm;
    here.many = here.comm.size > 1;
    return begin(directory, options);
}

int safepoint_init(const char *directory, const char *options)
{
    here.world = 0;
    return safepoint_init_comm(directory, NULL, options);
}

int safepoint_restore(int *found, long long *step)
{
    struct answer answer = {0, 0, SAFEPOINT_NO_STEP, 0, 0, 0};
    int code = verb(RESTORE, "safepoint_restore", 0, 0, &answer);
    if (found)
        *found = code ? SAFEPOINT_FIRST_START : answer.flag;
    if (step)
        *step = code ? SAFEPOINT_NO_STEP : answer.step;
    return code;
}

/* Of a tracer that was loaded before the program: it notes where and when each hide was. */
void safepoint_trace_at(const char *file, int line);
void safepoint_trace_hide(long long step);
void safepoint_trace_hidden(void);
void safepoint_trace_mark(void);
#ifdef __linux__
#pragma weak safepoint_trace_at
#pragma weak safepoint_trace_hide
#pragma weak safepoint_trace_hidden
#pragma weak safepoint_trace_mark
#endif

static int safepoint_hides(const char *name, int waits, long long step)
{
    struct answer answer;
    int code;
#ifdef __linux__
    if (safepoint_trace_hide) {
        safepoint_trace_at(here.file, here.line);
        safepoint_trace_hide(step);
    }
#endif
    code = verb(HIDE, name, waits, step, &answer);
#ifdef __linux__
    if (safepoint_trace_hidden)
        safepoint_trace_hidden();
#endif
    return code;
}

void safepoint_mark(void)
{
#ifdef __linux__
    if (safepoint_trace_mark) {
        safepoint_trace_at(here.file, here.line);
        safepoint_trace_mark();
    }
#endif
    here.file = NULL;
    here.line = 0;
}

int safepoint_hide(long long step)
{
    return safepoint_hides("safepoint_hide", 0, step);
}

int safepoint_hide_wait(long long step)
{
    return safepoint_hides("safepoint_hide_wait", 1, step);
}

int safepoint_wait(void)
{
    struct answer answer;
    return verb(WAIT, "safepoint_wait", 0, 0, &answer);
}

static int64_t nanoseconds(void)
{
    struct timespec now;
    clock_gettime(COARSE, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* Most calls need not ask: with ranks the helpers have agreed on how many, and alone it is soon enough at a moment. */
static int question_of_time(enum verb which, const char *name, int *flag)
{
    struct answer answer = {0, 0, 0, 0, 0, 0};
    int code, of = which == SHOULD_STOP, signalled = of && any_came && !here.many;
    if (flag)
        *flag = 0;
    if ((here.state == OPEN || here.state == CLOSED) && !signalled) {
        int waits = here.rest[of].calls > 0 || (here.rest[of].until && nanoseconds() < here.rest[of].until);
        if (waits) { /* a forked child is not asked for its pid: it is refused when it must ask */
            here.rest[of].calls -= here.rest[of].calls > 0;
            here.passed[of]++;
            return SAFEPOINT_OK;
        }
    }
    code = verb(which, name, 0, 0, &answer);
    if (code)
        return code;
    here.rest[of].calls = answer.calls;
    here.rest[of].until = answer.nanoseconds ? nanoseconds() + answer.nanoseconds : 0;
    if (flag)
        *flag = answer.flag;
    return SAFEPOINT_OK;
}

int safepoint_due(int *flag)
{
    return question_of_time(DUE, "safepoint_due", flag);
}

int safepoint_should_stop(int *flag)
{
    return question_of_time(SHOULD_STOP, "safepoint_should_stop", flag);
}

int safepoint_stop(int *status)
{
    struct answer answer = {0, 0, 0, 0, 0, 0};
    int code = verb(STOP, "safepoint_stop", 0, 0, &answer);
    if (status)
        *status = code ? code : answer.flag;
    if (!code)
        forget();
    return code;
}

int safepoint_finish(long long step)
{
    struct answer answer;
    int code = verb(FINISH, "safepoint_finish", 0, step, &answer);
    if (!code)
        forget();
    return code;
}

void safepoint_at(const char *file, int line)
{
    here.file = file;
    here.line = line;
}

void safepoint_end_all(int code)
{
    at_exit(); /* now, as MPI_Abort may not wait for it */
    if (here.comm.size > 1 && here.comm.die && here.program == getpid() &&
        (!here.comm.usable || here.comm.usable(here.comm.context)))
        here.comm.die(here.comm.context, code);
    exit(code);
}

int safepoint_close(void)
{
    struct answer answer;
    int code, many = here.many, mine = here.program == getpid();
    if (here.state == NONE || here.state == ENDED || here.state == CLOSED)
        return SAFEPOINT_OK;
    if (here.state == LOST)
        return SAFEPOINT_NO_HELPER;
    here.many = mine ? 0 : here.many; /* it speaks for itself alone */
    code = verb(CLOSE, "safepoint_close", 0, 0, &answer);
    here.many = many;
    if (!mine || code == SAFEPOINT_NO_HELPER)
        return code;
    if (many && !(here.comm.usable && !here.comm.usable(here.comm.context))) {
        leave_signals();
        here.state = CLOSED;
    } else {
        forget();
    }
    return code;
}

int safepoint_watch(long long step, const char *name, const char *type, const void *data, long long count)
{
    static const struct {
        const char *name;
        size_t size;
    } known[] = {{"float64", 8}, {"float32", 4}, {"complex128", 16}, {"complex64", 8}, {"int64", 8}, {"int32", 4},
                 {"int16", 2},   {"int8", 1},    {"uint64", 8},      {"uint32", 4},    {"uint16", 2}, {"uint8", 1}};
    struct question question;
    struct answer answer;
    struct part words, values;
    size_t each = 0, at, length;
    char *text;
    int code = usable("safepoint_watch");
    if (code)
        return code;
    here.file = here.watched ? here.file : NULL;
    for (at = 0; type && at < sizeof known / sizeof *known; at++)
        each = strcmp(type, known[at].name) ? each : known[at].size;
    if (!name || !each || count < 0 || (count && !data) || (unsigned long long)count > LARGEST_MESSAGE / 2 / each)
        return fails(SAFEPOINT_USAGE, "safepoint_watch takes a name, a type such as float64, and up to 512 MiB");
    if (!here.watched) { /* the ledger has no place for it */
        here.file = NULL;
        return SAFEPOINT_OK;
    }
    length = strlen(name);
    text = (char *)malloc(length + 1 + strlen(type));
    if (!text)
        return fails(SAFEPOINT_FAILED, "no memory for what is watched");
    memcpy(text, name, length + 1);
    memcpy(text + length + 1, type, strlen(type)); /* it ends where the data begin */
    words.bytes = text;
    words.size = length + 1 + strlen(type);
    values.bytes = data;
    values.size = (size_t)count * each;
    memset(&question, 0, sizeof question);
    question.verb = WATCH;
    question.step = step;
    code = ask(&question, words, values, &answer);
    free(text);
    return code;
}
