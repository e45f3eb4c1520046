/* What a program is, before, within and after a session: lines "WHEN WHAT VALUE", of which those of a WHAT are to be equal.
 *
 *     unchanged        with a SIGALRM each millisecond and a handler of SIGCHLD, which counts
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fenv.h>
#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef __SSE__
#include <xmmintrin.h>
#else
#define _mm_getcsr() 0u
#endif

#include "safepoint.h"

extern char **environ;

static volatile sig_atomic_t children;

static void on_child(int number)
{
    children += number == SIGCHLD;
}

static void on_alarm(int number)
{
    (void)number;
}

static int entries(const char *path, char *names, size_t room)
{
    DIR *directory = opendir(path);
    struct dirent *entry;
    int count = 0;
    *names = 0;
    while (directory && (entry = readdir(directory)))
        if (*entry->d_name != '.' && atoi(entry->d_name) != dirfd(directory)) {
            count++;
            if (strlen(names) + strlen(entry->d_name) + 2 < room)
                strcat(strcat(names, entry->d_name), ",");
        }
    if (directory)
        closedir(directory);
    return count;
}

static void look(const char *when)
{
    char names[4096], handlers[4096] = "";
    sigset_t blocked;
    mode_t mask = umask(0);
    struct rlimit limit;
    unsigned long sum = 5381;
    int number, pending = 0;
    pid_t child;
    umask(mask);
    for (number = 1; number < 65; number++) {
        struct sigaction action;
        char one[64];
        if (sigaction(number, NULL, &action))
            continue;
        snprintf(one, sizeof one, "%d:%lx:%x;", number, (unsigned long)action.sa_handler, (unsigned)action.sa_flags);
        strncat(handlers, one, sizeof handlers - strlen(handlers) - 1);
    }
    for (number = 0; environ[number]; number++)
        for (char *at = environ[number]; *at; at++)
            sum = sum * 33 + (unsigned char)*at;
    sigprocmask(SIG_BLOCK, NULL, &blocked);
    for (number = 1; number < 65; number++)
        pending += sigismember(&blocked, number) == 1;
    printf("%s handlers %s\n", when, handlers);
    printf("%s blocked %d\n", when, pending);
    printf("%s environment %lu of %p\n", when, sum, (void *)environ);
    printf("%s umask %o\n", when, (unsigned)mask);
    printf("%s locale %s\n", when, setlocale(LC_ALL, NULL));
    printf("%s mxcsr %x exceptions %x rounding %d\n", when, _mm_getcsr(), (unsigned)fetestexcept(FE_ALL_EXCEPT),
           fegetround());
    printf("%s threads %d\n", when, entries("/proc/self/task", names, sizeof names));
    number = entries("/proc/self/fd", names, sizeof names);
    printf("%s descriptors %d\n", when, number - !strcmp(when, "within")); /* one more */
    getrlimit(RLIMIT_NOFILE, &limit);
    printf("%s limit %lu\n", when, (unsigned long)limit.rlim_cur);
    printf("%s directory %s\n", when, getcwd(names, sizeof names));
    child = waitpid(-1, NULL, WNOHANG);
    printf("%s children %s, told %d\n", when, child < 0 && errno == ECHILD ? "none" : "some", (int)children);
    fflush(stdout);
}

static void must(int code)
{
    if (code) {
        printf("failed: %d %s\n", code, safepoint_error());
        exit(1);
    }
}

int main(int argc, char **argv)
{
    struct itimerval often = {{0, 1000}, {0, 1000}};
    FILE *file;
    int found;
    (void)argv;
    umask(027);
    fesetround(FE_UPWARD);
    signal(SIGCHLD, on_child);
    signal(SIGALRM, on_alarm);
    signal(SIGUSR2, SIG_IGN);
    signal(SIGPIPE, SIG_DFL);
    look("before");
    setitimer(ITIMER_REAL, &often, NULL);
    must(safepoint_init(NULL, NULL));
    look("within");
    must(safepoint_restore(&found, NULL));
    for (int step = 0; step < 5; step++) {
        file = fopen("u.dat", "w");
        for (int k = 0; k < 10000; k++)
            fprintf(file, "%d\n", k);
        if (argc > 1) /* left in the buffer: hide flushes it */
            must(safepoint_hide_wait(step));
        fclose(file);
        if (argc == 1)
            must(safepoint_hide(step));
    }
    look("within");
    must(safepoint_wait());
    file = fopen("u.dat", "w");
    fprintf(file, "end\n");
    fclose(file);
    must(argc > 1 ? safepoint_close() : safepoint_finish(5));
    memset(&often, 0, sizeof often);
    setitimer(ITIMER_REAL, &often, NULL);
    look("after");
    return 0;
}
