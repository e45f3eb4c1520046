/* Kill a process at the n-th system call that it is about to make: the calls of all its threads, and of what it forks.
 *
 *     KILL_AT=n killer PROGRAM ARGUMENTS...         n = 0: never, only count
 *     KILL_AFTER=send                               count from the first write to descriptor 3 on: a helper is ready then
 *     KILL_LOG=file                                 the number of calls, and the number of the call it died at
 *
 * The tracer is a child of the process, which stays what its parent has started: as SAFEPOINT_PYTHON it is a helper.
 */
#define _GNU_SOURCE
#include <elf.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

static long long at, count;
static int armed, forks;
static pid_t victim;

static void trace(void)
{
    int status;
    pid_t pid;
    while ((pid = waitpid(-1, &status, __WALL)) > 0) {
        int number = WIFSTOPPED(status) ? WSTOPSIG(status) : 0, event = status >> 16;
        if (!WIFSTOPPED(status))
            continue;
        if (number == (SIGTRAP | 0x80)) {
            struct __ptrace_syscall_info info;
            memset(&info, 0, sizeof info);
            if (ptrace(PTRACE_GET_SYSCALL_INFO, pid, sizeof info, &info) > 0 && info.op == PTRACE_SYSCALL_INFO_ENTRY) {
                /* a look for an answer, and what gives way between two of them: as many as it takes, and they do nothing */
                if (info.entry.nr == SYS_sched_yield ||
                    (info.entry.nr == SYS_recvfrom && (info.entry.args[3] & MSG_DONTWAIT))) {
                    ptrace(PTRACE_SYSCALL, pid, 0, 0);
                    continue;
                }
                if (!armed && info.entry.nr == SYS_write && info.entry.args[0] == 3)
                    armed = 1;
                if (armed && ++count == at) {
                    FILE *log = getenv("KILL_LOG") ? fopen(getenv("KILL_LOG"), "a") : NULL;
                    if (log) {
                        fprintf(log, "killed %d at call %lld, number %lld\n", pid, count, (long long)info.entry.nr);
                        fclose(log);
                    }
                    kill(pid, SIGKILL); /* the whole process dies, before the call */
                    at = -1;
                }
            }
            number = 0;
        } else if (event == PTRACE_EVENT_STOP || event) {
            unsigned long child = 0;
            if (event == PTRACE_EVENT_FORK || event == PTRACE_EVENT_VFORK || event == PTRACE_EVENT_CLONE)
                ptrace(PTRACE_GETEVENTMSG, pid, 0, &child);
            if (event == PTRACE_EVENT_STOP && (number == SIGSTOP || number == SIGTSTP)) {
                ptrace(PTRACE_LISTEN, pid, 0, 0);
                continue;
            }
            number = 0;
        }
        ptrace(PTRACE_SYSCALL, pid, 0, number);
    }
    if (getenv("KILL_LOG") && at != -1) {
        FILE *log = fopen(getenv("KILL_LOG"), "a");
        if (log) {
            fprintf(log, "calls %lld\n", count);
            fclose(log);
        }
    }
}

int main(int argc, char **argv)
{
    int go[2];
    char byte = 0;
    const char *only = getenv("KILL_RANK"), *rank = getenv("PMI_RANK");
    rank = rank ? rank : getenv("OMPI_COMM_WORLD_RANK");
    if (argc < 2 || pipe(go))
        return 99;
    at = getenv("KILL_AT") ? atoll(getenv("KILL_AT")) : 0;
    armed = !getenv("KILL_AFTER");
    forks = getenv("KILL_FORKS") != NULL;
    victim = getpid();
    if (!only || !rank || !strcmp(only, rank)) {
        pid_t tracer = fork();
        if (!tracer) {
            long options = PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACECLONE | PTRACE_O_TRACEEXEC;
            int fd;
            options |= forks ? PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK : 0;
            for (fd = 3; fd < 256; fd++)
                if (fd != go[1])
                    close(fd);
            setsid();
            if (ptrace(PTRACE_SEIZE, victim, 0, options) || ptrace(PTRACE_INTERRUPT, victim, 0, 0))
                perror("killer");
            if (write(go[1], &byte, 1) != 1)
                _exit(99);
            close(go[1]);
            trace();
            _exit(0);
        }
        prctl(PR_SET_PTRACER, tracer);
        if (read(go[0], &byte, 1) != 1)
            return 99;
    }
    close(go[0]);
    close(go[1]);
    execvp(argv[1], argv + 1);
    perror(argv[1]);
    return 99;
}
