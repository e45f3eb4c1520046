/* Calls that are wrong, in a directory with a manifest; each is to give a code and a text, never a crash.
 *
 *     misuse CASE        prints CALL, CODE and TEXT for each, with tabs between
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef RANKS
#include "safepoint_mpi.h"
#else
#include "safepoint.h"
#endif

static int rank;

static int told(const char *call, int code)
{
    if (!rank)
        printf("%s\t%d\t%s\n", call, code, code ? safepoint_error() : "");
    fflush(stdout);
    return code;
}

#define TRY(call) told(#call, call)

static void write_files(long long step)
{
    FILE *file = fopen("u.dat", "w");
    if (file) {
        fprintf(file, "%lld\n", step);
        fclose(file);
    }
}

static void every_verb(void)
{
    int flag = 7;
    long long step = 7;
    double value = 1;
    TRY(safepoint_restore(&flag, &step));
    if (flag || step != SAFEPOINT_NO_STEP)
        printf("restore left %d %lld\n", flag, step);
    TRY(safepoint_hide(1));
    TRY(safepoint_hide_wait(1));
    TRY(safepoint_wait());
    flag = 7;
    TRY(safepoint_due(&flag));
    TRY(safepoint_should_stop(&flag));
    if (flag)
        printf("should_stop left %d\n", flag);
    TRY(safepoint_watch(1, "u", "float64", &value, 1));
    TRY(safepoint_finish(1));
    TRY(safepoint_stop(&flag));
}

static int begin(const char *directory, const char *options)
{
#ifdef RANKS
    return safepoint_init_mpi(directory, MPI_COMM_WORLD, options);
#else
    return safepoint_init(directory, options);
#endif
}

static void nulls(void)
{
    TRY(begin(NULL, NULL));
    TRY(safepoint_restore(NULL, NULL));
    TRY(safepoint_due(NULL));
    TRY(safepoint_should_stop(NULL));
    TRY(safepoint_watch(1, NULL, NULL, NULL, 0));
    TRY(safepoint_watch(1, "u", "float64", NULL, 3));
    TRY(safepoint_watch(1, "u", "float99", &rank, 1));
    TRY(safepoint_watch(1, "u", "float64", &rank, -1));
    TRY(safepoint_watch(1, "u", "float64", &rank, 1LL << 60));
    TRY(safepoint_watch(1, "u", "float64", NULL, 0));
    write_files(1);
    TRY(safepoint_hide(SAFEPOINT_NO_STEP));
    TRY(safepoint_stop(NULL));
    TRY(safepoint_close());
    TRY(safepoint_close());
}

static void twice(void)
{
    TRY(begin(".", ""));
    TRY(begin(".", ""));
    TRY(safepoint_hide(1));
    TRY(safepoint_restore(NULL, NULL));
    TRY(safepoint_restore(NULL, NULL));
    TRY(safepoint_close());
    TRY(begin(".", ""));
    TRY(safepoint_restore(NULL, NULL));
    write_files(1);
    TRY(safepoint_hide(1));
    TRY(safepoint_close());
}

static void after_the_end(void)
{
    TRY(begin(NULL, "keep=3"));
    TRY(safepoint_restore(NULL, NULL));
    write_files(1);
    TRY(safepoint_finish(1));
    every_verb();
    TRY(safepoint_close());
}

static void in_a_child(void)
{
    TRY(begin(NULL, NULL));
    TRY(safepoint_restore(NULL, NULL));
    write_files(1);
    TRY(safepoint_hide(1));
    fflush(NULL);
    if (!fork()) {
        every_verb();
        TRY(begin(NULL, NULL));
        TRY(safepoint_close());
        exit(0); /* with all that was registered for it */
    }
    wait(NULL);
    write_files(2);
    TRY(safepoint_hide_wait(2));
    TRY(safepoint_close());
}

static void kill_helper(void)
{
    char line[64];
    FILE *file;
    fflush(NULL);
    file = popen("pgrep -f 'safepoint.foreign' -s 0", "r"); /* of this session: the test gives it one */
    while (file && fgets(line, sizeof line, file))
        if (atoi(line) != getpid())
            kill(atoi(line), SIGKILL);
    if (file)
        pclose(file);
}

static void lost_helper(void)
{
    TRY(begin(NULL, NULL));
    TRY(safepoint_restore(NULL, NULL));
    kill_helper();
    write_files(1);
    every_verb();
    TRY(safepoint_close());
    TRY(begin(NULL, NULL));
    TRY(safepoint_restore(NULL, NULL));
    TRY(safepoint_hide(1));
    TRY(safepoint_close());
}

static int own;

static void on_signal(int number)
{
    own += number == SIGUSR1;
}

static void signals(void)
{
    signal(SIGUSR1, on_signal);
    TRY(begin(NULL, "signals=USR1"));
    kill_helper();
    TRY(safepoint_wait());
    raise(SIGUSR1);
    TRY(safepoint_close());
    TRY(begin(NULL, "signals=USR1"));
    raise(SIGUSR1);
    TRY(safepoint_close());
    printf("own %d\n", own);
}

static void options(void)
{
    const char *wrong[] = {"speed=9", "keep", "keep=0", "keep=x", "keep=2 keep=3", "saver=many", "inflight=perhaps", "coordinate=maybe",
                           "signals=KILL", "signals=NOPE", "stop_after=soon", "background='", "store=never", "log=loud"};
    for (size_t k = 0; k < sizeof wrong / sizeof *wrong; k++)
        told(wrong[k], begin(NULL, wrong[k]));
    TRY(begin("no/such/directory", NULL));
    TRY(begin("u.dat", NULL));
    TRY(begin(NULL, "keep='3' saver=0 coordinate=yes background=no inflight=error store=every signals=USR1,TERM "
                    "stop_after='11h 50min' log=error"));
    TRY(safepoint_close());
}

static void just(void)
{
    TRY(begin(NULL, NULL));
    TRY(safepoint_restore(NULL, NULL));
    TRY(safepoint_hide(1));
    TRY(safepoint_close());
}

void safepoint_unflushed(const char *why); /* what the module of Fortran calls */

static void full(void)
{
    FILE *stream;
    TRY(begin(NULL, NULL));
    TRY(safepoint_restore(NULL, NULL));
    write_files(1);
    stream = fopen("/dev/full", "w");
    fputs("more than there is room for", stream);
    TRY(safepoint_hide(1));
    fclose(stream);
    safepoint_unflushed("unit 12: as a module of Fortran says");
    TRY(safepoint_hide_wait(1));
    TRY(safepoint_hide(1));
    stream = fopen("/dev/full", "w");
    fputs("more than there is room for", stream);
    TRY(safepoint_finish(1));
    fclose(stream);
    TRY(safepoint_close());
}

static int masks;

static void piped(void)
{
    int hid;
    FILE *full = masks ? fopen("/dev/full", "w") : NULL;
    signal(SIGPIPE, SIG_IGN);
    if (full)
        fputs("more than there is room for", full);
    if (safepoint_init(NULL, NULL) || safepoint_restore(NULL, NULL))
        return;
    write_files(1);
    printf("to nobody\n");
    hid = safepoint_hide(1);
    fprintf(stderr, "hide %d\n", hid);
    fprintf(stderr, "close %d\n", safepoint_close());
    fflush(stderr);
    _exit(0);
}

static void masked(void)
{
    masks = 1;
    piped();
}

static void shut(void)
{
    FILE *mine;
    int fd;
    TRY(begin(NULL, NULL));
    TRY(safepoint_restore(NULL, NULL));
    write_files(1);
    TRY(safepoint_hide_wait(1));
    for (fd = 3; fd < 256; fd++)
        close(fd);
    while ((fd = dup(1)) < 9)
        ;
    mine = fopen("own.txt", "w"); /* under the number that the line had */
    fputs("its ", mine);
    write_files(2);
    TRY(safepoint_hide(2));
    TRY(safepoint_wait());
    TRY(safepoint_close());
    fputs("own", mine);
    if (fclose(mine))
        printf("left no file\n");
}

#ifdef ABORT_SPINS
int MPI_Abort(MPI_Comm comm, int status)
{
    (void)comm;
    (void)status;
    fprintf(stderr, "MPI_Abort spins\n");
    for (;;)
        ;
}
#endif

#ifdef RANKS
static void alone(void)
{
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, NULL);
    if (begin(NULL, NULL) || safepoint_restore(NULL, NULL))
        return;
    if (rank == 1) {
        kill_helper();
        safepoint_wait();
    }
}

static void of_mpi(void)
{
    MPI_Comm mine, between;
    int early = safepoint_init_mpi(NULL, MPI_COMM_WORLD, NULL);
    MPI_Init(NULL, NULL);
    MPI_Comm_dup(MPI_COMM_WORLD, &mine);
    MPI_Comm_rank(mine, &rank);
    told("early", early);
    TRY(safepoint_init_mpi(NULL, MPI_COMM_NULL, NULL));
    if (!MPI_Intercomm_create(MPI_COMM_SELF, 0, mine, 1 - rank, 0, &between)) {
        TRY(safepoint_init_mpi(NULL, between, NULL));
        MPI_Comm_free(&between);
    }
    TRY(safepoint_init_mpi(NULL, mine, NULL));
    TRY(safepoint_restore(NULL, NULL));
    MPI_Comm_free(&mine); /* the duplicate stays */
    if (!rank)
        write_files(1);
    TRY(safepoint_hide(1));
    TRY(safepoint_close());
    TRY(safepoint_init_mpi(NULL, MPI_COMM_WORLD, NULL));
    TRY(safepoint_restore(NULL, NULL));
    MPI_Finalize();
    every_verb();
    TRY(safepoint_init_mpi(NULL, MPI_COMM_WORLD, NULL));
    TRY(safepoint_close());
    TRY(safepoint_init_mpi(NULL, MPI_COMM_WORLD, NULL));
}
#endif

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*work)(void);
    } cases[] = {{"before", every_verb},         {"nulls", nulls},   {"twice", twice},     {"after", after_the_end},
                 {"child", in_a_child}, {"lost", lost_helper}, {"options", options}, {"just", just}, {"signals", signals},
                 {"full", full}, {"piped", piped}, {"masked", masked}, {"shut", shut},
#ifdef RANKS
                 {"mpi", of_mpi},       {"alone", alone},
#endif
    };
#ifdef RANKS
    if (strcmp(argv[1], "mpi")) {
        MPI_Init(&argc, &argv);
        MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    }
#endif
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++)
        if (argc > 1 && !strcmp(argv[1], cases[k].name))
            cases[k].work();
#ifdef RANKS
    if (strcmp(argv[1], "mpi"))
        MPI_Finalize();
#endif
    return 0;
}
