/* Hides a set, says so, and ends in one of several ways, with the set in flight. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "safepoint.h"

int main(int argc, char **argv)
{
    const char *end = argc > 1 ? argv[1] : "return";
    FILE *file;
    if (safepoint_init(NULL, "log=error") || safepoint_restore(NULL, NULL)) {
        fprintf(stderr, "%s\n", safepoint_error());
        return 1;
    }
    file = fopen("u.dat", "w");
    for (int k = 0; file && k < 3000000; k++)
        fputc('1', file);
    if (!file || fclose(file) || safepoint_hide(1))
        return 2;
    if (!strcmp(end, "fork and kill") && !fork()) {
        freopen("/dev/null", "w", stdout);
        sleep(50);
        _exit(0);
    }
    puts("hidden");
    fflush(stdout);
    if (!strcmp(end, "exit"))
        exit(3);
    if (!strcmp(end, "_exit"))
        _exit(3);
    if (!strcmp(end, "abort"))
        abort();
    if (strstr(end, "kill"))
        raise(SIGKILL);
    if (!strcmp(end, "exec"))
        execl(argv[0], argv[0], "return", (char *)NULL);
    return 0;
}
