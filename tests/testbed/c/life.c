/* One life of a solver that says what it did, into a file of each rank: for the tests that kill it.
 *
 *     life STEPS SAID [wait]        with -DRANKS for MPI
 *
 * Files: u-{rank}.dat of each rank, common.dat of rank 0, and history.txt, which grows.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifdef RANKS
#include "safepoint_mpi.h"
#else
#include "safepoint.h"
#endif

enum { COUNT = 3000 };

static int rank, said;

static void say(const char *word, long long number)
{
    char line[64];
    int length = snprintf(line, sizeof line, "%s %lld\n", word, number);
    if (write(said, line, (size_t)length) != length)
        _exit(99);
}

static void check(int code)
{
    if (!code)
        return;
    say("failed", code);
    fprintf(stderr, "life: rank %d: %s\n", rank, safepoint_error());
#ifdef RANKS
    MPI_Abort(MPI_COMM_WORLD, code);
#endif
    _exit(code);
}

static void put(const char *name, long long step)
{
    FILE *file = fopen(name, "wb");
    for (int k = 0; file && k < COUNT; k++)
        if (fwrite(&step, sizeof step, 1, file) != 1)
            _exit(99);
    if (!file || fclose(file))
        _exit(99);
}

/* Whether a file holds a step, all of it. */
static int holds(const char *name, long long step)
{
    long long found = -1;
    int count = 0, same = 1;
    FILE *file = fopen(name, "rb");
    while (file && fread(&found, sizeof found, 1, file) == 1) {
        count++;
        same = same && found == step;
    }
    if (file)
        fclose(file);
    return same && count == COUNT;
}

static void grow(long long step, const char *how)
{
    FILE *file = fopen("history.txt", how);
    if (!file || fprintf(file, "%lld\n", step) < 0 || fclose(file))
        _exit(99);
}

static int history(long long step)
{
    FILE *file = fopen("history.txt", "r");
    long long found, last = -1;
    while (file && fscanf(file, "%lld", &found) == 1)
        last = found == last + 1 ? found : -2;
    if (file)
        fclose(file);
    return last == step;
}

int main(int argc, char **argv)
{
    char mine[32], path[4096];
    long long steps = atoll(argv[1]), begin, step;
    int found, waits = argc > 3;
#ifdef RANKS
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
#endif
    snprintf(mine, sizeof mine, "u-%d.dat", rank);
    snprintf(path, sizeof path, "%s-%d", argv[2], rank);
    said = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    say("life", getpid());
#ifdef RANKS
    check(safepoint_init_mpi(NULL, MPI_COMM_WORLD, NULL));
#else
    check(safepoint_init(NULL, NULL));
#endif
    check(safepoint_restore(&found, &begin));
    step = found ? begin : -1;
    if (found && (!holds(mine, step) || (!rank && (!holds("common.dat", step) || !history(step)))))
        say("WRONG", step);
    say("restored", step);
    if (found == SAFEPOINT_FINISHED)
        say("finished", step);
    for (; found != SAFEPOINT_FINISHED && ++step < steps;) {
        put(mine, step);
        if (!rank) {
            put("common.dat", step);
            grow(step, step ? "a" : "w");
        }
        if (step == steps - 1) {
            check(safepoint_finish(step));
            say("finished", step);
            break;
        }
        say("hides", step);
        check(waits ? safepoint_hide_wait(step) : safepoint_hide(step));
        say(waits ? "durable" : "hid", step);
    }
#ifdef RANKS
    MPI_Finalize();
#endif
    return 0;
}
