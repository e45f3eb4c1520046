/* The tracer of C and Fortran: what each kind of call notes, before it and after it.
 *
 * `pmpi.py` writes a wrapper for each function of the user's mpi.h. It takes a place for a note (`enter`), lets the
 * kind of the function fill it in, marks it as entered (`go`), makes the call, and completes the note (`end`).
 *
 * (1) The last byte of a note is stored last, with release: a note that a reader sees is whole.
 * (2) One note a call: what MPI or a callback calls inside of a call is not noted (`self.inside`). In check mode that of
 *     attributes is: a library frees in it what it has kept (`calls_back`).
 * (3) Constants of MPI are translated by what the argument is: MPI_ANY_TAG and MPI_PROC_NULL may be one number.
 * (4) Nothing here ends the program, sends a message, or asks MPI about an argument that the call does not use.
 * (5) In check mode (`watch.h`) an argument may be wrong: MPI is asked about it after the call has found it right. After
 *     MPI_Finalize MPI is asked nothing. */
#ifndef SAFEPOINT_PMPI_H
#define SAFEPOINT_PMPI_H

#include <mpi.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

#define EXPORT __attribute__((visibility("default")))
#define OUTLINE static __attribute__((noinline, unused)) /* there are hundreds of wrappers */
#define LIKELY(x) __builtin_expect(!!(x), 1)
#define HANDLE(x) ((uintptr_t)(x))
#ifdef SAFEPOINT_CHECK /* the other build of this library, which `safepoint check` uses */
#define CHECKING (trace.checking)
#else
#define CHECKING 0
#endif
#define AFTER_FINALIZE (CHECKING && trace.finalized)

/* As in record.py. */
enum { HEADER = 4096, NOTE = 64, SEGMENT = 2 << 20 };
enum { WILD_SOURCE = 2, WILD_TAG = 4, FOUND = 8, PERSISTENT = 16, ROOTED = 32, PARTIAL = 64 };
enum { ANY_SOURCE = -1, PROC_NULL = -2, ROOT = -3, NONE = -4, CANCELLED = -5, ANY_TAG = -1 };
enum { EMPTY, ENTERED, RETURNED, RAISED };
enum { WORLD = 1, SELF = 2, COMPLETED = 1, STARTED = 2, MESSAGE = 3, NO_RESULT = 255 };
enum { HIDE = 1, MARK = 2, ARGUMENTS = 4, BEFORE = 5, AFTER = 6, STACK_SIGNAL = 11 };
#define UNKNOWN UINT64_MAX
#define QUIET UINT32_MAX   /* instead of a site: do not note */
#define NO_ROOT (-1000000) /* instead of a root */
enum { CALLS_BACK = 2 };   /* `self.inside`: of a call in which the program's callbacks of attributes run */

struct note {
    uint64_t enter, leave;
    uint32_t site;
    uint16_t function, flags;
    int32_t peer, tag, got_peer, got_tag;
    uint64_t bytes;
    uint32_t request, comm, more;
    uint16_t thread;
    uint8_t result, state;
};

/* A communicator, window or file. Requests that are open keep it after it was freed. */
enum kind { COMM, WIN, MPIFILE, KINDS };
struct known {
    struct known *next;
    uintptr_t handle;
    int number, rank, size, inter, uses;
    int depth, dirty; /* of a window: epochs that are open, and whether something was put since the last fence */
    int *peers;       /* of those who can be sent to the ranks in the world, -1: outside; NULL: they are the same */
};

/* What a request does, or a message that was probed. */
struct what {
    struct known *comm; /* NULL: no message */
    int32_t peer, tag;
    uint8_t receives, wild;
};

/* MPI may give one handle to several sends that are complete at once, so each request is in two lists, in the order in
 * which they were opened: that of its handle, and that of its handle in the variable where the call has put it. Whoever
 * waits is given the last of the second list, as the variable holds no other; or if the program has copied the handle,
 * the first of the first. */
enum list { BY_HANDLE, BY_WHERE, LISTS };
struct request {
    struct request *next[LISTS], *before[LISTS];
    uintptr_t key[LISTS];
    struct what what;
    unsigned number, running; /* a persistent one has a number of its own, and one while it runs */
    uint8_t persistent, cancelled;
};

struct queue {
    uintptr_t key;
    struct request *first, *last;
};
struct table {
    struct queue *slots;
    unsigned bits, used;
};

struct file {
    int descriptor;
    dev_t device;
    ino_t inode;
    char *map; /* NULL: a text file */
    uint64_t end;
};

struct trace {
    volatile int noting; /* after MPI_Init, until it ends or fails */
    int many;            /* MPI_THREAD_MULTIPLE: the tables are locked */
    int checking, finalized;
    int sync_sends; /* check mode: MPI_Send is MPI_Ssend, and the like */
    uint64_t next, end; /* of the notes, in bytes */
    char *notes;
    uint64_t row_next, row_end; /* of the rows, in bytes */
    char *rows;
    struct known *things[KINDS][256], world;
    struct table requests[LISTS], messages[LISTS];
    struct request *spare;
    long long *flying, outside; /* by rank of the world: messages sent to it, less those received from it */
    long long open, epochs;
    int unsure; /* what is under way cannot be told any more */
    unsigned request;
    int rank, size, threads;
    pthread_mutex_t lock; /* of the tables */
};

/* Where a thread is when it enters a call: inside of another, as a callback, or of none. */
struct place {
    int inside;
    struct note *note;
    const void *fortran;
};

struct call {
    struct note *note;
    struct place outer; /* check mode */
    struct what sends, takes;
    struct request *one, **several; /* taken out of the table while MPI completes them */
    MPI_Status *status, mine;
    struct known *thing;
    int n, open;
    uintptr_t unknown; /* check mode: a communicator, window or file that nobody has seen made, and its kind */
    enum kind unknown_kind;
    long long count; /* of what; -1: it is not known how much is sent */
    MPI_Datatype type;
};

/* Of a thread. */
struct self {
    const void *fortran; /* where the program has called a function of the Fortran binding that has not returned */
    void *const *given; /* and the addresses that it has given */
    int inside, thread;
    struct note nowhere, *hide; /* where notes go when there is no space; the hide that has not returned */
    struct note *note;          /* check mode: of the call that has not returned */
    unsigned line;              /* a site: where the program says that its next call is */
    int asking;                 /* check mode: the tracer itself sets or asks for error handlers */
    struct request **several;
    MPI_Status *statuses;
    int room;
};

extern struct trace trace;
extern __thread struct self self __attribute__((tls_model("initial-exec")));
extern volatile unsigned safepoint_trace_site;
extern const char *const real_names[];
extern const char functions_json[];

void *found_real(unsigned index);
void *found(const char *name);
void begin(void);
void finish(const char *ended);
void stop(const char *cause);
int grow(uint64_t at);
int more_rows(uint64_t end);
int is_ours(const struct file *file);
int create(struct file *file, const char *suffix, int flags, char *path);
int replace(const char *name, const char *text, size_t size);
int new_thread(void);
int64_t *new_row(struct call *c, int kind, int64_t count);
unsigned new_site(const void *from);
int of_program(const void *from);
struct known *known_comm(MPI_Comm comm);
struct known *known_win(MPI_Win win);
struct known *known_file(MPI_File file);
struct known *find(enum kind kind, uintptr_t handle);
void new_comm(struct call *c, MPI_Comm comm, int of_parent);
void new_thing(struct call *c, enum kind kind, uintptr_t handle, MPI_Group group);
void new_file(struct call *c, MPI_File file);
void new_win(struct call *c, MPI_Win win);
struct known *removed(enum kind kind, uintptr_t handle);
void put_back(struct known *known, enum kind kind);
void let_go(struct known *known);
struct request *new_request(void);
struct queue *new_queue(struct table *table, uintptr_t key);
int room_for(int n);

static inline void lock(void)
{
    if (trace.many)
        pthread_mutex_lock(&trace.lock);
}

static inline void unlock(void)
{
    if (trace.many)
        pthread_mutex_unlock(&trace.lock);
}

static inline uint64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

/* Space for a row of so many bytes; NULL: there is none, and the noting has ended. */
static inline int64_t *room_for_row(uint64_t size)
{
    uint64_t at = __atomic_fetch_add(&trace.row_next, size, __ATOMIC_RELAXED), end = at + size;
    if (LIKELY(end <= __atomic_load_n(&trace.row_end, __ATOMIC_ACQUIRE)) || more_rows(end))
        return (int64_t *)(void *)(trace.rows + at);
    __atomic_compare_exchange_n(&trace.row_next, &end, at, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    return NULL;
}

static inline unsigned hash(uintptr_t key, unsigned bits)
{
    return (unsigned)((uint64_t)key * 0x9E3779B97F4A7C15u >> (64 - bits));
}

enum { SITE_BITS = 14 };
struct site {
    const void *from;
    unsigned number;
};
extern struct site sites[1 << SITE_BITS];

static inline unsigned site_of(const void *from)
{
    unsigned at = hash(HANDLE(from), SITE_BITS);
    if (LIKELY(__atomic_load_n(&sites[at].from, __ATOMIC_ACQUIRE) == from))
        return sites[at].number;
    return new_site(from);
}

/* The life of a note. */

static inline struct note *new_note(unsigned function, unsigned site)
{
    uint64_t at = __atomic_fetch_add(&trace.next, NOTE, __ATOMIC_RELAXED);
    struct note *note = (struct note *)(void *)(trace.notes + at);
    if (!LIKELY(at < __atomic_load_n(&trace.end, __ATOMIC_ACQUIRE)) && !grow(at))
        return NULL;
    note->leave = 0;
    note->site = site;
    note->function = (uint16_t)function;
    note->flags = 0;
    note->peer = note->tag = note->got_peer = note->got_tag = NONE;
    note->bytes = 0;
    note->request = note->comm = note->more = 0;
    note->thread = (uint16_t)(LIKELY(self.thread) ? self.thread - 1 : new_thread());
    note->result = NO_RESULT;
    return note;
}

OUTLINE int enter(struct call *c, unsigned function, const void *from)
{
    unsigned site = safepoint_trace_site ? safepoint_trace_site : self.line;
    c->open = 0;
    c->count = -1;
    self.line = 0;
    if (CHECKING) {
        c->unknown = 0;
        c->sends.comm = c->takes.comm = c->thing = NULL;
        c->outer = (struct place){self.inside, self.note, self.fortran};
    }
    if (!trace.noting || site == QUIET || (self.inside && !(CHECKING && self.inside == CALLS_BACK && of_program(from))))
        return 0;
    c->note = new_note(function, site ? site : site_of(from));
    if (!c->note)
        return 0;
    self.inside = c->open = 1;
    return 1;
}

static inline void go(struct call *c)
{
    c->note->enter = now();
    if (LIKELY(trace.noting)) /* else what had to be known could not be kept: this call is not noted */
        __atomic_store_n(&c->note->state, ENTERED, __ATOMIC_RELEASE);
    else
        c->note = &self.nowhere;
    if (CHECKING)
        self.note = c->note;
}

/* MPI may call the program's callbacks of attributes in this call, and they MPI: as if from nowhere else. */
static inline void calls_back(void)
{
    if (CHECKING) {
        self.inside = CALLS_BACK;
        self.fortran = NULL;
    }
}

/* It is over. */
static inline void leaves(struct call *c)
{
    self.inside = c->open = 0;
    self.note = NULL;
    if (CHECKING) {
        self.inside = c->outer.inside;
        self.note = c->outer.note;
        self.fortran = c->outer.fortran;
    }
}

static inline void sized(struct call *c);

OUTLINE void end(struct call *c, uint64_t leave, int code)
{
    int class = 0;
    self.note = NULL;
    if (code && (AFTER_FINALIZE || PMPI_Error_class(code, &class)))
        class = NO_RESULT;
    if (LIKELY(!code) && !AFTER_FINALIZE)
        sized(c);
    c->note->leave = leave;
    c->note->result = (uint8_t)(class < NO_RESULT ? class : NO_RESULT);
    __atomic_store_n(&c->note->state, code ? RAISED : RETURNED, __ATOMIC_RELEASE);
    leaves(c);
}

/* An exception of C++ that leaves the call, from a callback or an error handler. */
OUTLINE void unwound(struct call *c)
{
    if (c->open) {
        leaves(c);
        c->note->leave = now();
        __atomic_store_n(&c->note->state, RAISED, __ATOMIC_RELEASE);
    }
}

static inline int index_of(const struct call *c)
{
    return (int)(((const char *)c->note - trace.notes - HEADER) / NOTE);
}

/* Arguments. */

static inline int rank_of(int given)
{
    return given >= 0 ? given : given == MPI_PROC_NULL ? PROC_NULL : NONE;
}

OUTLINE void size_of(struct call *c, long long count, MPI_Datatype type)
{
    c->note->bytes = UNKNOWN;
    c->count = type == MPI_DATATYPE_NULL ? -1 : count;
    c->type = type;
}

/* After a call that was right: to ask MPI about a type that is none would end a program that looks at its errors. */
static inline void sized(struct call *c)
{
    int each;
    if (c->count >= 0 && !PMPI_Type_size(c->type, &each) && each >= 0)
        c->note->bytes = (uint64_t)c->count * (uint64_t)each;
}

/* It works on this. One that nobody has seen made is looked at when the call has returned well: it may be none. */
static inline void on(struct call *c, enum kind kind, uintptr_t handle, uintptr_t null)
{
    c->note->comm = c->thing ? (uint32_t)c->thing->number : 0;
    if (CHECKING && !c->thing && handle != null) {
        c->unknown = handle;
        c->unknown_kind = kind;
    }
}

OUTLINE void on_comm(struct call *c, MPI_Comm comm)
{
    if (comm == MPI_COMM_WORLD) {
        c->thing = &trace.world;
    } else {
        lock();
        c->thing = CHECKING ? find(COMM, HANDLE(comm)) : known_comm(comm);
        unlock();
    }
    on(c, COMM, HANDLE(comm), HANDLE(MPI_COMM_NULL));
}

OUTLINE void on_win(struct call *c, MPI_Win win)
{
    lock();
    c->thing = CHECKING ? find(WIN, HANDLE(win)) : known_win(win);
    unlock();
    on(c, WIN, HANDLE(win), HANDLE(MPI_WIN_NULL));
}

OUTLINE void on_file(struct call *c, MPI_File file)
{
    lock();
    c->thing = CHECKING ? find(MPIFILE, HANDLE(file)) : known_file(file);
    unlock();
    on(c, MPIFILE, HANDLE(file), HANDLE(MPI_FILE_NULL));
}

OUTLINE void look_at_unknown(struct call *c)
{
    lock();
    if (c->unknown_kind == COMM)
        c->thing = known_comm((MPI_Comm)c->unknown);
    else
        c->thing = c->unknown_kind == WIN ? known_win((MPI_Win)c->unknown) : known_file((MPI_File)c->unknown);
    unlock();
    c->sends.comm = c->takes.comm = c->thing;
    c->note->comm = c->thing ? (uint32_t)c->thing->number : 0;
}

/* The call has returned well. */
static inline void went_well(struct call *c)
{
    if (CHECKING && c->unknown && !AFTER_FINALIZE)
        look_at_unknown(c);
}

static inline struct what nothing(void)
{
    struct what what = {NULL, NONE, NONE, 0, 0};
    return what;
}

OUTLINE void sends(struct call *c, long long count, MPI_Datatype type, int dest, int tag, MPI_Comm comm)
{
    on_comm(c, comm);
    size_of(c, count, type);
    c->sends.comm = c->thing;
    c->note->peer = c->sends.peer = rank_of(dest);
    c->note->tag = c->sends.tag = tag;
    c->sends.receives = c->sends.wild = 0;
}

OUTLINE void source(struct call *c, int given, int tag)
{
    int flags = (given == MPI_ANY_SOURCE ? WILD_SOURCE : 0) | (tag == MPI_ANY_TAG ? WILD_TAG : 0);
    c->takes.comm = c->thing;
    c->takes.peer = given == MPI_ANY_SOURCE ? ANY_SOURCE : rank_of(given);
    c->takes.tag = tag == MPI_ANY_TAG ? ANY_TAG : tag;
    c->takes.receives = 1;
    c->takes.wild = flags && given != MPI_PROC_NULL; /* of nobody MPICH (4.0) may tell anything */
    c->note->flags = (uint16_t)flags;
}

OUTLINE void takes(struct call *c, int given, int tag, MPI_Comm comm)
{
    on_comm(c, comm);
    source(c, given, tag);
    c->note->peer = c->takes.peer;
    c->note->tag = c->takes.tag;
}

OUTLINE void also_takes(struct call *c, int given, int tag)
{
    source(c, given, tag);
    c->note->got_peer = c->takes.peer;
    c->note->got_tag = c->takes.tag;
}

/* Pass our own status on if the program ignores its, and we must know it. */
static inline void looks(struct call *c, MPI_Status *status, int must)
{
    c->status = must && status == MPI_STATUS_IGNORE ? &c->mine : status;
}

/* Which arguments of a collective call count: all; those of the root; those of all but one that receives in place, or
 * between groups. MPI lets the others be anything. */
enum counts { ALWAYS, AT_ROOT, NOT_AT_ROOT, NOT_IN_PLACE, NO_BUFFER };

OUTLINE void collective(struct call *c, enum counts counts, const void *buf, long long count, MPI_Datatype type,
                              int root, MPI_Comm comm)
{
    int at_root, passive = root == MPI_PROC_NULL;
    on_comm(c, comm);
    at_root = root == MPI_ROOT || (c->thing && root == c->thing->rank && !c->thing->inter);
    if (root != NO_ROOT) {
        c->note->peer = root == MPI_ROOT ? ROOT : rank_of(root);
        c->note->flags = at_root ? ROOTED : 0;
    }
    if (counts == NO_BUFFER)
        return;
    if (passive || (counts == AT_ROOT && !at_root) ||
        (counts == NOT_AT_ROOT && (root == MPI_ROOT || buf == MPI_IN_PLACE)) ||
        (counts == NOT_IN_PLACE && buf == MPI_IN_PLACE))
        c->note->bytes = UNKNOWN;
    else
        size_of(c, count, type);
}

/* Messages that are under way. */

/* A call has failed: what it has sent or received before, nobody knows. */
OUTLINE void fails(void)
{
    lock();
    trace.unsure = 1;
    unlock();
}

/* So has a send; with an argument that MPI refuses it has sent nothing. */
OUTLINE void send_fails(int code)
{
    int class = MPI_ERR_OTHER;
    if (!AFTER_FINALIZE)
        PMPI_Error_class(code, &class);
    if (class != MPI_ERR_RANK && class != MPI_ERR_TAG && class != MPI_ERR_COUNT && class != MPI_ERR_TYPE &&
        class != MPI_ERR_COMM && class != MPI_ERR_BUFFER)
        fails();
}

OUTLINE void flies(const struct what *what, int peer, int change)
{
    const struct known *comm = what->comm;
    if (comm && peer >= 0 && peer < comm->size) {
        int rank = comm->peers ? comm->peers[peer] : peer;
        if (rank < 0)
            trace.outside += change;
        else
            trace.flying[rank] += change;
    }
}

OUTLINE void sent(struct call *c)
{
    lock();
    flies(&c->sends, c->sends.peer, 1);
    unlock();
}

OUTLINE void came(const struct what *what, const MPI_Status *status, int32_t *peer, int32_t *tag)
{
    *peer = what->wild ? rank_of(status->MPI_SOURCE) : what->peer;
    *tag = *peer < 0 ? NONE : what->wild ? status->MPI_TAG : what->tag;
    flies(what, *peer, -1);
}

OUTLINE void received(struct call *c)
{
    lock();
    came(&c->takes, c->status, &c->note->got_peer, &c->note->got_tag);
    unlock();
}

OUTLINE void probed(struct call *c)
{
    c->note->got_peer = c->takes.peer == PROC_NULL ? PROC_NULL : rank_of(c->status->MPI_SOURCE);
    c->note->got_tag = c->note->got_peer < 0 ? NONE : c->status->MPI_TAG;
    c->note->flags |= FOUND;
}

/* Requests. Below, `lock` is held by whoever calls what takes a table. */

static inline struct queue *queue_of(const struct table *table, uintptr_t key)
{
    unsigned at = table->bits ? hash(key, table->bits) : 0;
    while (table->bits && table->slots[at].key) {
        if (table->slots[at].key == key)
            return &table->slots[at];
        at = (at + 1) & ((1u << table->bits) - 1);
    }
    return NULL;
}

static inline uintptr_t key_of(uintptr_t handle, const void *where)
{
    return (handle * 0x9E3779B97F4A7C15u + HANDLE(where)) | 1;
}

/* Into both lists, at their ends; or where it was before it was taken: at their beginnings. */
OUTLINE void add(struct table *tables, struct request *it, int again)
{
    int list;
    for (list = 0; list < LISTS; list++) {
        struct queue *queue = queue_of(&tables[list], it->key[list]);
        if (!queue && !(queue = new_queue(&tables[list], it->key[list])))
            return;
        it->next[list] = again ? queue->first : NULL;
        it->before[list] = again ? NULL : queue->last;
        *(it->before[list] ? &it->before[list]->next[list] : &queue->first) = it;
        *(it->next[list] ? &it->next[list]->before[list] : &queue->last) = it;
    }
}

OUTLINE struct request *look_up(struct table *tables, uintptr_t handle, const void *where, int take)
{
    struct queue *queue = queue_of(&tables[BY_WHERE], key_of(handle, where));
    struct request *it = queue ? queue->last : NULL;
    int list;
    while (it && it->key[BY_HANDLE] != handle) /* another may have the same key */
        it = it->before[BY_WHERE];
    if (!it && (queue = queue_of(&tables[BY_HANDLE], handle)))
        it = queue->first;
    for (list = 0; it && take && list < LISTS; list++) {
        queue = queue_of(&tables[list], it->key[list]);
        *(it->before[list] ? &it->before[list]->next[list] : &queue->first) = it->next[list];
        *(it->next[list] ? &it->next[list]->before[list] : &queue->last) = it->before[list];
    }
    return it;
}

OUTLINE struct request *taken(uintptr_t handle, const void *where)
{
    return look_up(trace.requests, handle, where, 1);
}

OUTLINE void drop(struct request *request)
{
    if (request->what.comm && !--request->what.comm->uses)
        let_go(request->what.comm);
    request->next[0] = trace.spare;
    trace.spare = request;
}

OUTLINE struct request *request(struct call *c, struct table *tables, uintptr_t handle, const void *where,
                                      struct what what)
{
    struct request *it = trace.spare;
    if (it)
        trace.spare = it->next[0];
    else if (!(it = new_request()))
        return NULL;
    it->key[BY_HANDLE] = handle;
    it->key[BY_WHERE] = key_of(handle, where);
    it->what = what;
    it->number = c->note->request = ++trace.request;
    it->running = it->persistent = it->cancelled = 0;
    if (what.comm)
        what.comm->uses++;
    add(tables, it, 0);
    return it;
}

OUTLINE void opened(struct call *c, const MPI_Request *it, struct what what)
{
    struct request *made;
    if (*it == MPI_REQUEST_NULL) /* it is complete, and nobody can wait for it */
        return;
    lock();
    if ((made = request(c, trace.requests, HANDLE(*it), it, what))) {
        made->running = made->number;
        trace.open++;
    }
    unlock();
}

OUTLINE void kept(struct call *c, const MPI_Request *it, struct what what)
{
    struct request *made;
    c->note->flags |= PERSISTENT;
    lock();
    if ((made = request(c, trace.requests, HANDLE(*it), it, what)))
        made->persistent = 1;
    unlock();
}

/* It is complete: what it has received. The request is gone, or waits to be started again. */
OUTLINE void complete(struct request *it, const MPI_Status *status, int32_t *peer, int32_t *tag)
{
    int flag = 0;
    *peer = *tag = NONE;
    if (it->cancelled && !AFTER_FINALIZE && !PMPI_Test_cancelled(status, &flag) && flag) {
        *peer = CANCELLED;
        if (!it->what.receives)
            flies(&it->what, it->what.peer, -1);
    } else if (it->what.receives) {
        came(&it->what, status, peer, tag);
    }
    trace.open--;
    it->running = it->cancelled = 0;
    if (it->persistent)
        add(trace.requests, it, 0);
    else
        drop(it);
}

static inline int must_look(const struct request *it)
{
    return it && it->running && (it->cancelled || (it->what.receives && it->what.wild));
}

OUTLINE void waits(struct call *c, const MPI_Request *it, MPI_Status *status)
{
    lock();
    c->one = it ? taken(HANDLE(*it), it) : NULL;
    unlock();
    looks(c, status, must_look(c->one));
}

static inline void put_down(struct request *it)
{
    if (it)
        add(trace.requests, it, 1);
}

OUTLINE void waited(struct call *c, int done, int found)
{
    if (!c->one)
        return;
    lock();
    if (done && c->one->running) {
        c->note->request = c->one->running;
        c->note->flags |= found ? FOUND : 0;
        complete(c->one, c->status, &c->note->got_peer, &c->note->got_tag);
    } else {
        put_down(c->one);
    }
    unlock();
}

OUTLINE void wait_failed(struct call *c, int gone)
{
    if (!c->one)
        return;
    lock();
    if (gone) {
        if (c->one->running && c->one->what.receives) /* it may have received, and nobody learns of it */
            trace.unsure = 1;
        trace.open -= c->one->running != 0;
        drop(c->one);
    } else {
        put_down(c->one);
    }
    unlock();
}

/* Several at once. `single`: there is one status, for whichever is complete. */
OUTLINE void waits_for(struct call *c, int n, const MPI_Request *requests, MPI_Status *statuses, int single)
{
    int i, must = 0;
    c->n = n > 0 && requests && room_for(n) ? n : 0;
    c->several = self.several;
    lock();
    for (i = 0; i < c->n; i++) {
        c->several[i] = taken(HANDLE(requests[i]), requests + i);
        must |= must_look(c->several[i]);
    }
    unlock();
    if (single)
        looks(c, statuses, must);
    else
        c->status = must && statuses == MPI_STATUSES_IGNORE ? self.statuses : statuses;
}

/* `indices`: of those that are complete; NULL: the first `count`. */
OUTLINE void waited_for(struct call *c, int count, const int *indices, int single, int found)
{
    int i, done = 0;
    int64_t *row;
    int32_t peer, tag;
    lock();
    for (i = 0; i < count; i++) {
        int at = indices ? indices[i] : i;
        done += at < c->n && c->several[at] && c->several[at]->running;
    }
    row = done ? new_row(c, COMPLETED, 3 * (int64_t)done) : NULL;
    for (i = 0; i < count; i++) {
        int at = indices ? indices[i] : i;
        struct request *it = at < c->n ? c->several[at] : NULL;
        if (!it || !it->running)
            continue;
        if (row)
            row[0] = it->running;
        complete(it, c->status + (single ? 0 : i), &peer, &tag);
        c->several[at] = NULL;
        if (row) {
            row[1] = peer;
            row[2] = tag;
            row += 3;
        }
    }
    for (i = c->n; i-- > 0;)
        put_down(c->several[i]);
    c->note->flags |= done && found ? FOUND : 0;
    unlock();
}

/* The call has failed. Handles that are null now were completed, well or not. */
OUTLINE void waits_failed(struct call *c, const MPI_Request *requests)
{
    int i;
    for (i = c->n; i-- > 0;) {
        c->one = c->several[i];
        wait_failed(c, requests[i] == MPI_REQUEST_NULL);
    }
}

OUTLINE void starts(struct call *c, int n, const MPI_Request *requests, int alone)
{
    struct request *it;
    int64_t *row;
    int i;
    lock();
    row = new_row(c, STARTED, 2 * (int64_t)n);
    for (i = 0; i < n; i++) {
        unsigned number = 0, running = 0;
        if ((it = look_up(trace.requests, HANDLE(requests[i]), requests + i, 0))) {
            number = it->number;
            running = it->running = ++trace.request;
            trace.open++;
            if (!it->what.receives)
                flies(&it->what, it->what.peer, 1);
        }
        if (row) {
            row[2 * i] = number;
            row[2 * i + 1] = running;
        }
        if (alone)
            c->note->request = running;
    }
    unlock();
}

OUTLINE void cancels(struct call *c, const MPI_Request *it)
{
    struct request *one;
    lock();
    if (it && (one = look_up(trace.requests, HANDLE(*it), it, 0))) {
        c->note->request = one->running;
        one->cancelled = one->running != 0;
    }
    unlock();
}

OUTLINE void frees(struct call *c, const MPI_Request *it)
{
    lock();
    if ((c->one = it ? taken(HANDLE(*it), it) : NULL)) {
        c->note->request = c->one->number;
        c->note->flags |= c->one->persistent ? PERSISTENT : 0;
    }
    unlock();
}

/* Messages that are probed before they are received. */

OUTLINE void matched(struct call *c, MPI_Message message)
{
    struct what what = nothing();
    probed(c);
    if (c->note->got_peer < 0)
        return;
    what.comm = c->takes.comm;
    what.peer = c->note->got_peer;
    what.tag = c->note->got_tag;
    what.receives = 1;
    lock();
    request(c, trace.messages, HANDLE(message), NULL, what);
    unlock();
}

OUTLINE void takes_message(struct call *c, long long count, MPI_Datatype type, const MPI_Message *message)
{
    size_of(c, count, type);
    c->takes = nothing();
    lock();
    if ((c->one = message ? look_up(trace.messages, HANDLE(*message), NULL, 1) : NULL)) {
        c->takes = c->one->what;
        c->note->request = c->one->number;
    } else if (message && *message == MPI_MESSAGE_NO_PROC) {
        c->takes.comm = &trace.world;
        c->takes.peer = PROC_NULL;
        c->takes.receives = 1;
    }
    unlock();
    c->note->comm = c->takes.comm ? (uint32_t)c->takes.comm->number : 0;
}

OUTLINE void message_gone(struct call *c)
{
    lock();
    if (c->one)
        drop(c->one);
    unlock();
}

OUTLINE void takes_later(struct call *c, const MPI_Request *request)
{
    int64_t *row;
    lock();
    if ((row = new_row(c, MESSAGE, 1)))
        *row = c->note->request;
    c->note->request = 0;
    unlock();
    opened(c, request, c->takes);
    message_gone(c);
}

/* Windows. Access is under way from the first call that puts or gets to the one that closes it. */

OUTLINE void epoch(struct call *c, int change)
{
    lock();
    if (c->thing) {
        c->thing->depth += change;
        trace.epochs += change;
    }
    unlock();
}

/* Others have done with the window. `found`: the flag of a call that might have found that they have not. */
OUTLINE void exposed(struct call *c, int found)
{
    c->note->flags |= found;
    epoch(c, -1);
}

OUTLINE void puts_in(struct call *c)
{
    lock();
    if (c->thing && !c->thing->depth && !c->thing->dirty) {
        c->thing->dirty = 1;
        trace.epochs++;
    }
    unlock();
}

OUTLINE void fenced(struct call *c)
{
    lock();
    if (c->thing && c->thing->dirty) {
        c->thing->dirty = 0;
        trace.epochs--;
    }
    unlock();
}

/* What is freed is forgotten before the call: another may get its handle at once. */
OUTLINE void forgets(struct call *c, enum kind kind)
{
    lock();
    c->thing = c->thing ? removed(kind, c->thing->handle) : NULL;
    c->unknown = 0;
    unlock();
}

OUTLINE void forgotten(struct call *c, enum kind kind, int failed)
{
    lock();
    if (c->thing && failed)
        put_back(c->thing, kind);
    else if (c->thing && !--c->thing->uses)
        let_go(c->thing);
    unlock();
}

#endif
