/* Check mode of the tracer of C and Fortran: the watch list, constants, errors that end the program, and the stack.
 *
 * (1) An error handler of ours is where MPI_ERRORS_ARE_FATAL would be. It notes the class of the error, and has MPI do
 *     what it would have done. A program that asks for its handler is told MPI_ERRORS_ARE_FATAL.
 * (2) The handler of the signal calls nothing that takes memory: it may have interrupted malloc. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "watch.h"

#include <ctype.h>
#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FRAMES = 64 };

unsigned char watched[FUNCTIONS];

static struct {
    unsigned char wanted[FUNCTIONS]; /* `watched`, from the moment on at which all is ready */
    struct file stack;
    void *ours; /* where this library begins */
    char program[PATH_MAX];
    MPI_Errhandler fatal, fatal_of_windows;
    int handlers;
    FILE *constants;
    const char *between;
} here;

/* The watch list. */

static const char *blanks(const char *at)
{
    while (isspace((unsigned char)*at))
        at++;
    return at;
}

/* What follows this character and blanks; NULL if something else is there. */
static const char *after(const char *at, char expected)
{
    at = at ? blanks(at) : NULL;
    return at && *at == expected ? blanks(at + 1) : NULL;
}

static unsigned number_of(const char *name, size_t size)
{
    unsigned i;
    if (size == 4 && !memcmp(name, "hide", 4))
        return HIDE;
    if (size == 4 && !memcmp(name, "mark", 4))
        return MARK;
    for (i = 0; i < functions_count; i++)
        if (!strncmp(functions[i].name, name, size) && !functions[i].name[size])
            return functions[i].number;
    return 0; /* this MPI does not have it */
}

/* `null` or a list of ranks: whether ours is among them. Returns what follows, or NULL. */
static const char *ranks(const char *at, int *mine)
{
    char *end;
    if (!strncmp(at, "null", 4)) {
        *mine = 1;
        return blanks(at + 4);
    }
    *mine = 0;
    at = after(at, '[');
    while (at && *at != ']') {
        long rank = strtol(at, &end, 10);
        *mine |= rank == trace.rank;
        if (end == at || (*blanks(end) != ',' && *blanks(end) != ']'))
            return NULL;
        at = blanks(end);
        if (*at == ',' && *(at = blanks(at + 1)) == ']')
            return NULL;
    }
    return after(at, ']');
}

/* What may come after the functions. Returns what follows, or NULL. */
static const char *sync_sends(const char *at)
{
    static const char name[] = "\"sync_sends\"";
    at = strncmp(at, name, sizeof name - 1) ? NULL : after(at + sizeof name - 1, ':');
    if (!at || strncmp(at, "true", 4))
        return NULL;
    trace.sync_sends = 1;
    return blanks(at + 4);
}

/* Whether this is a watch list: `{"functions": {NAME: null or [RANK, ...], ...}}`, and perhaps `"sync_sends": true`. */
static int understood(const char *at)
{
    int mine;
    at = after(at, '{');
    at = at && !strncmp(at, "\"functions\"", 11) ? after(after(at + 11, ':'), '{') : NULL;
    while (at && *at == '"') {
        const char *end = strchr(at + 1, '"');
        unsigned number = end ? number_of(at + 1, (size_t)(end - at - 1)) : 0;
        at = end ? after(end + 1, ':') : NULL;
        at = at ? ranks(at, &mine) : NULL;
        if (number && at && mine)
            here.wanted[number] = 1;
        if (at && *at == ',' && *(at = blanks(at + 1)) != '"')
            return 0;
    }
    at = after(at, '}');
    if (at && *at == ',')
        at = sync_sends(blanks(at + 1));
    at = after(at, '}');
    return at && !*at;
}

/* The text of a file; NULL: there is none, or it cannot be read (then `errno` says why). */
static char *text_of(const char *path)
{
    char *text = NULL, *more;
    size_t size = 0, room = 0;
    ssize_t got = 1;
    int descriptor = open(path, O_RDONLY | O_CLOEXEC);
    while (descriptor >= 0 && got) {
        if (size + 1 >= room) {
            if (!(more = realloc(text, room = 2 * room + 65536)))
                break;
            text = more;
        }
        got = read(descriptor, text + size, room - size - 1);
        if (got < 0 && errno != EINTR)
            break;
        size += got > 0 ? (size_t)got : 0;
    }
    if (descriptor >= 0)
        close(descriptor);
    if (descriptor < 0 || got) {
        free(text);
        return NULL;
    }
    text[size] = 0;
    return text;
}

/* Constants of this process: handles may be addresses. */

static void told(const char *name, int64_t value)
{
    fprintf(here.constants, "%s\"%s\": %lld", here.between, name, (long long)value);
    here.between = ", ";
}

static int write_constants(void)
{
    char name[32], *text = NULL;
    size_t size = 0;
    int *bound = NULL, found = 0, failed;
    here.constants = open_memstream(&text, &size);
    if (!here.constants)
        return ENOMEM;
    here.between = "{";
    each_constant(told);
    if (!PMPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &bound, &found) && found)
        told("TAG_UB", *bound);
    fputc('}', here.constants);
    failed = fclose(here.constants) ? ENOMEM : 0;
    snprintf(name, sizeof name, "rank-%05d.constants", trace.rank);
    failed = failed ? failed : replace(name, text, size);
    free(text);
    return failed;
}

/* Where this process is. */

static void flush(const char *text, size_t size)
{
    while (size) {
        ssize_t done = write(here.stack.descriptor, text, size);
        if (done < 0 && errno != EINTR)
            return;
        text += done > 0 ? done : 0;
        size -= done > 0 ? (size_t)done : 0;
    }
}

static char *hexadecimal(char *end, uintptr_t value)
{
    *--end = 0;
    do
        *--end = "0123456789abcdef"[value & 15];
    while (value >>= 4);
    return end;
}

/* A line of the stack. Returns its length; 0: the frame is one of ours. */
static size_t frame(const void *from, char *line)
{
    struct link_map *map = NULL;
    char digits[20], *offset;
    const char *module = "?";
    Dl_info found;
    uintptr_t base = 0;
    size_t size;
    if (dladdr1(from, &found, (void **)&map, RTLD_DL_LINKMAP) && map) {
        if (found.dli_fbase == here.ours)
            return 0;
        base = map->l_addr;
        module = *map->l_name ? map->l_name : here.program;
    }
    offset = hexadecimal(digits + sizeof digits, HANDLE(from) - base);
    size = strnlen(module, PATH_MAX);
    memcpy(line, "c\t", 2);
    memcpy(line + 2, module, size);
    memcpy(line + 2 + size, "\t0x", 3);
    size += 5;
    memcpy(line + size, offset, strlen(offset));
    size += strlen(offset);
    memcpy(line + size, "\t-\n", 3);
    return size + 3;
}

static void asked(int signal)
{
    char line[PATH_MAX + 64];
    void *from[FRAMES];
    int failed = errno, i, count;
    (void)signal;
    if (is_ours(&here.stack)) {
        count = backtrace(from, FRAMES);
        for (i = 0; i < count; i++)
            flush(line, frame(from[i], line));
        flush("\n", 1);
    }
    errno = failed;
}

static int listen(char *path)
{
    struct sigaction action;
    void *from[2];
    ssize_t size = readlink("/proc/self/exe", here.program, sizeof here.program - 1);
    Dl_info found;
    int failed = create(&here.stack, "stack", O_APPEND, path);
    if (failed)
        return failed;
    here.program[size > 0 ? size : 0] = 0;
    here.ours = dladdr((void *)(uintptr_t)listen, &found) ? found.dli_fbase : NULL;
    backtrace(from, 2); /* it loads a library the first time, which a handler must not do */
    memset(&action, 0, sizeof action);
    action.sa_handler = asked;
    action.sa_flags = SA_RESTART;
    sigemptyset(&action.sa_mask);
    return sigaction(SIGRTMIN + STACK_SIGNAL, &action, NULL) ? errno : 0;
}

/* Errors. */

/* Note the class of an error in the call in which it is. The program is about to end. */
static void note_error(int code)
{
    struct note *note = self.note;
    int class = NO_RESULT;
    self.inside = self.asking = 1;
    if (!note)
        return;
    self.note = NULL;
    if (PMPI_Error_class(code, &class) || class > NO_RESULT)
        class = NO_RESULT;
    note->leave = now();
    note->result = (uint8_t)class;
    __atomic_store_n(&note->state, RAISED, __ATOMIC_RELEASE);
}

/* MPI names the function that it was called for. Open MPI tells it to handlers alone, and would now name another. */
#ifdef OPEN_MPI
#define TELL(last) \
    do { \
        va_list more; \
        const char *function; \
        va_start(more, last); \
        function = va_arg(more, const char *); \
        va_end(more); \
        if (function) \
            dprintf(2, "safepoint trace: rank %d: the error is in %s\n", trace.rank, function); \
    } while (0)
#else
#define TELL(last) (void)0
#endif

static void fatal(MPI_Comm *comm, int *code, ...)
{
    note_error(*code);
    TELL(code);
    PMPI_Comm_set_errhandler(*comm, MPI_ERRORS_ARE_FATAL);
    PMPI_Comm_call_errhandler(*comm, *code);
    PMPI_Abort(*comm, *code); /* it was to end the program, and has not */
}

static void fatal_of_window(MPI_Win *win, int *code, ...)
{
    note_error(*code);
    TELL(code);
    PMPI_Win_set_errhandler(*win, MPI_ERRORS_ARE_FATAL);
    PMPI_Win_call_errhandler(*win, *code);
    PMPI_Abort(MPI_COMM_WORLD, *code);
}

static void take_over(MPI_Comm comm)
{
    MPI_Errhandler found;
    if (PMPI_Comm_get_errhandler(comm, &found))
        return;
    if (found == MPI_ERRORS_ARE_FATAL)
        PMPI_Comm_set_errhandler(comm, here.fatal);
    PMPI_Errhandler_free(&found);
}

/* Windows do not inherit it from their communicator. */
void watch_window(MPI_Win win)
{
    MPI_Errhandler found;
    if (!here.handlers || trace.finalized)
        return;
    self.asking++;
    if (!PMPI_Win_get_errhandler(win, &found)) {
        if (found == MPI_ERRORS_ARE_FATAL)
            PMPI_Win_set_errhandler(win, here.fatal_of_windows);
        PMPI_Errhandler_free(&found);
    }
    self.asking--;
}

/* What is set where the program sets this. */
MPI_Errhandler instead_of_fatal(MPI_Errhandler given, int of_window)
{
    if (!here.handlers || self.asking || trace.finalized || given != MPI_ERRORS_ARE_FATAL)
        return given;
    return of_window ? here.fatal_of_windows : here.fatal;
}

/* What the program has set where this was found: with a reference of its own, which the program will free. */
int as_it_was_set(MPI_Comm comm, MPI_Errhandler *found, int code)
{
    if (code || !here.handlers || self.asking || *found != here.fatal)
        return code;
    self.asking++;
    PMPI_Errhandler_free(found);
    PMPI_Comm_set_errhandler(comm, MPI_ERRORS_ARE_FATAL);
    code = PMPI_Comm_get_errhandler(comm, found);
    PMPI_Comm_set_errhandler(comm, here.fatal);
    self.asking--;
    return code;
}

int as_it_was_set_of_win(MPI_Win win, MPI_Errhandler *found, int code)
{
    if (code || !here.handlers || self.asking || *found != here.fatal_of_windows)
        return code;
    self.asking++;
    PMPI_Errhandler_free(found);
    PMPI_Win_set_errhandler(win, MPI_ERRORS_ARE_FATAL);
    code = PMPI_Win_get_errhandler(win, found);
    PMPI_Win_set_errhandler(win, here.fatal_of_windows);
    self.asking--;
    return code;
}

/* The beginning. */

/* Before the first note: read the watch list, if there is one. Returns an error of the system, of that path. */
int begin_checking(const char *directory, char *path)
{
    char *text;
    unsigned i;
    int failed;
    snprintf(path, PATH_MAX, "%.*s/watch.json", PATH_MAX - 40, directory);
    text = text_of(path);
    if (!text && errno != ENOENT)
        return errno;
    if (!text) {
        for (i = 0; i < functions_count; i++)
            here.wanted[functions[i].number] = (unsigned char)functions[i].noted;
        *path = 0;
        return 0;
    }
    failed = understood(text) ? 0 : EINVAL;
    free(text);
    if (failed)
        return failed;
    *path = 0;
    trace.checking = 1;
    failed = write_constants();
    return failed ? failed : listen(path);
}

/* From now on. */
void watch(void)
{
    if (CHECKING && !PMPI_Comm_create_errhandler(fatal, &here.fatal) &&
        !PMPI_Win_create_errhandler(fatal_of_window, &here.fatal_of_windows)) {
        self.asking++;
        take_over(MPI_COMM_WORLD);
        take_over(MPI_COMM_SELF);
        self.asking--;
        here.handlers = 1;
    }
    memcpy(watched, here.wanted, sizeof watched);
}

void row_of_ours(const struct note *note, int count, long long value)
{
    int64_t *values = row_of(((const char *)note - trace.notes - HEADER) / NOTE, ARGUMENTS, count);
    if (values && count)
        values[0] = value;
}
