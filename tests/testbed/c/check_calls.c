/* check_calls SAID: calls of all kinds, on two ranks. Of each, SAID-RANK has what the tracer must note in check mode: a
 * line of JSON with its name, arguments, and the handles and numbers that it reads and writes. */
#define _GNU_SOURCE
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define V(x) ((int64_t)(intptr_t)(x))
#define ROW(...) (int)(sizeof((int64_t[]){0, ##__VA_ARGS__}) / 8) - 1, (int64_t[]){0, ##__VA_ARGS__}
#define NONE ROW()

static FILE *out;
static int rank, size, other;

static void row(const char *name, int count, const int64_t *values)
{
    int i;
    fprintf(out, ", \"%s\": [", name);
    for (i = 1; i <= count; i++)
        fprintf(out, i > 1 ? ", %lld" : "%lld", (long long)values[i]);
    fprintf(out, "]");
}

static void said(const char *name, int n, const int64_t *given, int m, const int64_t *reads, int k, const int64_t *writes)
{
    fprintf(out, "{\"name\": \"%s\"", name);
    row("given", n, given);
    row("reads", m, reads);
    row("writes", k, writes);
    fprintf(out, "}\n");
}

static void add(void *in, void *inout, int *n, MPI_Datatype *type)
{
    int i;
    (void)type;
    for (i = 0; i < *n; i++)
        ((int *)inout)[i] += ((int *)in)[i];
}

static MPI_Comm dup, part, made, grid;

static void communicators(void)
{
    MPI_Group group, one;
    int first = 0, found, dims[2] = {2, 1}, periods[2] = {0, 0}, coords[2], before, behind, *bound;
    MPI_Comm_dup(MPI_COMM_WORLD, &dup);
    said("Comm_dup", ROW(V(MPI_COMM_WORLD), V(&dup)), NONE, ROW(2, 1, V(dup)));
    MPI_Comm_split(dup, 3, -rank, &part);
    said("Comm_split", ROW(V(dup), 3, -rank, V(&part)), NONE, ROW(4, 1, V(part)));
    MPI_Comm_group(dup, &group);
    said("Comm_group", ROW(V(dup), V(&group)), NONE, ROW(2, 1, V(group)));
    MPI_Group_incl(group, 1, &first, &one);
    said("Group_incl", ROW(V(group), 1, V(&first), V(&one)), NONE, ROW(4, 1, V(one)));
    MPI_Comm_create(dup, one, &made);
    said("Comm_create", ROW(V(dup), V(one), V(&made)), NONE, ROW(3, 1, V(made)));
    said("Group_free", ROW(V(&one)), ROW(1, 1, V(one)), NONE);
    MPI_Group_free(&one);
    said("Group_free", ROW(V(&group)), ROW(1, 1, V(group)), NONE);
    MPI_Group_free(&group);
    MPI_Comm_compare(dup, part, &found);
    said("Comm_compare", ROW(V(dup), V(part), V(&found)), NONE, ROW(3, 1, found));
    MPI_Cart_create(MPI_COMM_WORLD, 2, dims, periods, 0, &grid);
    said("Cart_create", ROW(V(MPI_COMM_WORLD), 2, V(dims), V(periods), 0, V(&grid)), NONE, ROW(6, 1, V(grid)));
    MPI_Cart_shift(grid, 0, 1, &before, &behind);
    said("Cart_shift", ROW(V(grid), 0, 1, V(&before), V(&behind)), NONE, ROW(4, 1, before, 5, 1, behind));
    MPI_Cart_coords(grid, rank, 2, coords);
    said("Cart_coords", ROW(V(grid), rank, 2, V(coords)), NONE, NONE);
    MPI_Comm_get_attr(dup, MPI_TAG_UB, &bound, &found);
    said("Comm_get_attr", ROW(V(dup), V(MPI_TAG_UB), V(&bound), V(&found)), NONE, ROW(4, 1, found));
}

static MPI_Datatype pair, mixed;

static void types(void)
{
    int lengths[2] = {1, 2}, bytes;
    MPI_Aint at[2] = {0, 8}, low, extent;
    MPI_Datatype parts[2] = {MPI_INT, MPI_DOUBLE};
    MPI_Type_contiguous(2, MPI_INT, &pair);
    said("Type_contiguous", ROW(2, V(MPI_INT), V(&pair)), NONE, ROW(3, 1, V(pair)));
    said("Type_commit", ROW(V(&pair)), ROW(1, 1, V(pair)), NONE);
    MPI_Type_commit(&pair);
    MPI_Type_create_struct(2, lengths, at, parts, &mixed);
    said("Type_create_struct", ROW(2, V(lengths), V(at), V(parts), V(&mixed)), ROW(4, 2, V(MPI_INT), V(MPI_DOUBLE)),
         ROW(5, 1, V(mixed)));
    MPI_Type_size(pair, &bytes);
    said("Type_size", ROW(V(pair), V(&bytes)), NONE, ROW(2, 1, 8));
    MPI_Type_get_extent(mixed, &low, &extent);
    said("Type_get_extent", ROW(V(mixed), V(&low), V(&extent)), NONE, ROW(2, 1, 0, 3, 1, 24));
    said("Type_free", ROW(V(&mixed)), ROW(1, 1, V(mixed)), NONE);
    MPI_Type_free(&mixed);
    MPI_Get_address(lengths, &low);
    said("Get_address", ROW(V(lengths), V(&low)), NONE, ROW(2, 1, V(lengths)));
}

static void messages(void)
{
    int mine[4] = {rank, 1, 2, 3}, its[8], flag, count;
    MPI_Status status;
    MPI_Message message;
    MPI_Request request;
    if (rank == 0) {
        MPI_Send(mine, 2, MPI_INT, 1, 7, MPI_COMM_WORLD);
        said("Send", ROW(V(mine), 2, V(MPI_INT), 1, 7, V(MPI_COMM_WORLD)), NONE, NONE);
        MPI_Ssend(mine, 1, pair, 1, 8, dup);
        said("Ssend", ROW(V(mine), 1, V(pair), 1, 8, V(dup)), NONE, NONE);
    } else {
        MPI_Recv(its, 4, MPI_INT, MPI_ANY_SOURCE, 7, MPI_COMM_WORLD, &status);
        said("Recv", ROW(V(its), 4, V(MPI_INT), MPI_ANY_SOURCE, 7, V(MPI_COMM_WORLD), V(&status)), NONE, NONE);
        MPI_Get_count(&status, MPI_INT, &count);
        said("Get_count", ROW(V(&status), V(MPI_INT), V(&count)), NONE, ROW(3, 1, 2));
        MPI_Recv(its, 1, pair, 0, MPI_ANY_TAG, dup, MPI_STATUS_IGNORE);
        said("Recv", ROW(V(its), 1, V(pair), 0, MPI_ANY_TAG, V(dup), V(MPI_STATUS_IGNORE)), NONE, NONE);
    }
    MPI_Sendrecv(mine, 1, MPI_INT, other, 1, its, 2, MPI_INT, other, 1, dup, &status);
    said("Sendrecv", ROW(V(mine), 1, V(MPI_INT), other, 1, V(its), 2, V(MPI_INT), other, 1, V(dup), V(&status)), NONE, NONE);
    MPI_Improbe(MPI_ANY_SOURCE, 99, part, &flag, &message, &status);
    said("Improbe", ROW(MPI_ANY_SOURCE, 99, V(part), V(&flag), V(&message), V(&status)), NONE, ROW(4, 1, 0));
    MPI_Isend(mine, 3, MPI_INT, other, 4, dup, &request);
    said("Isend", ROW(V(mine), 3, V(MPI_INT), other, 4, V(dup), V(&request)), NONE, ROW(7, 1, V(request)));
    MPI_Probe(other, 4, dup, &status);
    said("Probe", ROW(other, 4, V(dup), V(&status)), NONE, NONE);
    MPI_Iprobe(other, 4, dup, &flag, MPI_STATUS_IGNORE);
    said("Iprobe", ROW(other, 4, V(dup), V(&flag), V(MPI_STATUS_IGNORE)), NONE, ROW(4, 1, 1));
    MPI_Mprobe(other, 4, dup, &message, &status);
    said("Mprobe", ROW(other, 4, V(dup), V(&message), V(&status)), NONE, ROW(4, 1, V(message)));
    said("Mrecv", ROW(V(its), 3, V(MPI_INT), V(&message), V(&status)), ROW(4, 1, V(message)), NONE);
    MPI_Mrecv(its, 3, MPI_INT, &message, &status);
    said("Wait", ROW(V(&request), V(&status)), ROW(1, 1, V(request)), NONE);
    MPI_Wait(&request, &status);
}

static void requests(void)
{
    int mine = rank, its[6], at, count, places[3], flag;
    MPI_Request r[4], persistent[2];
    MPI_Irecv(its, 1, MPI_INT, other, 5, dup, &r[0]);
    said("Irecv", ROW(V(its), 1, V(MPI_INT), other, 5, V(dup), V(&r[0])), NONE, ROW(7, 1, V(r[0])));
    MPI_Isend(&mine, 1, MPI_INT, other, 5, dup, &r[1]);
    said("Isend", ROW(V(&mine), 1, V(MPI_INT), other, 5, V(dup), V(&r[1])), NONE, ROW(7, 1, V(r[1])));
    said("Waitall", ROW(2, V(r), V(MPI_STATUSES_IGNORE)), ROW(2, 2, V(r[0]), V(r[1])), NONE);
    MPI_Waitall(2, r, MPI_STATUSES_IGNORE);
    MPI_Ibarrier(part, &r[2]);
    said("Ibarrier", ROW(V(part), V(&r[2])), NONE, ROW(2, 1, V(r[2])));
    {
        MPI_Request kept[3] = {r[0], r[1], r[2]};
        MPI_Waitany(3, r, &at, MPI_STATUS_IGNORE);
        said("Waitany", ROW(3, V(r), V(&at), V(MPI_STATUS_IGNORE)), ROW(2, 3, V(kept[0]), V(kept[1]), V(kept[2])),
             ROW(3, 1, 2));
    }
    MPI_Waitany(0, NULL, &at, MPI_STATUS_IGNORE);
    said("Waitany", ROW(0, 0, V(&at), V(MPI_STATUS_IGNORE)), NONE, ROW(3, 1, MPI_UNDEFINED));
    MPI_Irecv(its, 1, MPI_INT, other, 6, dup, &r[0]);
    said("Irecv", ROW(V(its), 1, V(MPI_INT), other, 6, V(dup), V(&r[0])), NONE, ROW(7, 1, V(r[0])));
    r[1] = MPI_REQUEST_NULL;
    MPI_Testsome(2, r, &count, places, MPI_STATUSES_IGNORE);
    said("Testsome", ROW(2, V(r), V(&count), V(places), V(MPI_STATUSES_IGNORE)), ROW(2, 2, V(r[0]), V(MPI_REQUEST_NULL)),
         ROW(3, 1, 0));
    MPI_Barrier(dup); /* before it nobody has sent */
    said("Barrier", ROW(V(dup)), NONE, NONE);
    MPI_Send(&mine, 1, MPI_INT, other, 6, dup);
    said("Send", ROW(V(&mine), 1, V(MPI_INT), other, 6, V(dup)), NONE, NONE);
    {
        MPI_Request kept = r[0];
        MPI_Waitsome(2, r, &count, places, MPI_STATUSES_IGNORE);
        said("Waitsome", ROW(2, V(r), V(&count), V(places), V(MPI_STATUSES_IGNORE)),
             ROW(2, 2, V(kept), V(MPI_REQUEST_NULL)), ROW(3, 1, 1, 4, 1, 0));
    }
    MPI_Waitsome(2, r, &count, places, MPI_STATUSES_IGNORE);
    said("Waitsome", ROW(2, V(r), V(&count), V(places), V(MPI_STATUSES_IGNORE)),
         ROW(2, 2, V(MPI_REQUEST_NULL), V(MPI_REQUEST_NULL)), ROW(3, 1, MPI_UNDEFINED));
    MPI_Test(r, &flag, MPI_STATUS_IGNORE);
    said("Test", ROW(V(r), V(&flag), V(MPI_STATUS_IGNORE)), ROW(1, 1, V(MPI_REQUEST_NULL)), ROW(2, 1, 1));
    MPI_Testall(2, r, &flag, MPI_STATUSES_IGNORE);
    said("Testall", ROW(2, V(r), V(&flag), V(MPI_STATUSES_IGNORE)), ROW(2, 2, V(r[0]), V(r[1])), ROW(3, 1, 1));
    MPI_Testany(2, r, &at, &flag, MPI_STATUS_IGNORE);
    said("Testany", ROW(2, V(r), V(&at), V(&flag), V(MPI_STATUS_IGNORE)), ROW(2, 2, V(r[0]), V(r[1])),
         ROW(3, 1, MPI_UNDEFINED, 4, 1, 1));
    MPI_Send_init(&mine, 1, MPI_INT, other, 9, dup, &persistent[0]);
    said("Send_init", ROW(V(&mine), 1, V(MPI_INT), other, 9, V(dup), V(&persistent[0])), NONE,
         ROW(7, 1, V(persistent[0])));
    MPI_Recv_init(its, 1, MPI_INT, other, 9, dup, &persistent[1]);
    said("Recv_init", ROW(V(its), 1, V(MPI_INT), other, 9, V(dup), V(&persistent[1])), NONE,
         ROW(7, 1, V(persistent[1])));
    MPI_Startall(2, persistent);
    said("Startall", ROW(2, V(persistent)), ROW(2, 2, V(persistent[0]), V(persistent[1])), NONE);
    MPI_Waitall(2, persistent, MPI_STATUSES_IGNORE);
    said("Waitall", ROW(2, V(persistent), V(MPI_STATUSES_IGNORE)), ROW(2, 2, V(persistent[0]), V(persistent[1])), NONE);
    MPI_Start(&persistent[1]);
    said("Start", ROW(V(&persistent[1])), ROW(1, 1, V(persistent[1])), NONE);
    MPI_Cancel(&persistent[1]);
    said("Cancel", ROW(V(&persistent[1])), ROW(1, 1, V(persistent[1])), NONE);
    MPI_Wait(&persistent[1], MPI_STATUS_IGNORE);
    said("Wait", ROW(V(&persistent[1]), V(MPI_STATUS_IGNORE)), ROW(1, 1, V(persistent[1])), NONE);
    said("Request_free", ROW(V(&persistent[0])), ROW(1, 1, V(persistent[0])), NONE);
    MPI_Request_free(&persistent[0]);
    said("Request_free", ROW(V(&persistent[1])), ROW(1, 1, V(persistent[1])), NONE);
    MPI_Request_free(&persistent[1]);
}

static void collectives(void)
{
    int mine[2] = {rank, 1}, all[4] = {0}, counts[2] = {1, 1}, places[2] = {0, 4}, i;
    MPI_Datatype sent[2] = {MPI_INT, MPI_INT}, taken[2] = {MPI_INT, pair};
    MPI_Op op;
    MPI_Op_create(add, 1, &op);
    said("Op_create", ROW(V(add), 1, V(&op)), NONE, ROW(3, 1, V(op)));
    MPI_Barrier(grid);
    said("Barrier", ROW(V(grid)), NONE, NONE);
    MPI_Bcast(mine, 2, MPI_INT, 1, dup);
    said("Bcast", ROW(V(mine), 2, V(MPI_INT), 1, V(dup)), NONE, NONE);
    MPI_Reduce(mine, all, 2, MPI_INT, op, 0, dup);
    said("Reduce", ROW(V(mine), V(all), 2, V(MPI_INT), V(op), 0, V(dup)), NONE, NONE);
    MPI_Allreduce(MPI_IN_PLACE, mine, 1, MPI_INT, MPI_SUM, dup);
    said("Allreduce", ROW(V(MPI_IN_PLACE), V(mine), 1, V(MPI_INT), V(MPI_SUM), V(dup)), NONE, NONE);
    MPI_Gather(mine, 1, MPI_INT, all, rank ? -5 : 1, rank ? MPI_DATATYPE_NULL : MPI_INT, 0, dup);
    said("Gather", ROW(V(mine), 1, V(MPI_INT), V(all), rank ? -5 : 1, V(rank ? MPI_DATATYPE_NULL : MPI_INT), 0, V(dup)),
         NONE, NONE);
    for (i = 0; i < 2; i++)
        taken[i] = MPI_INT;
    MPI_Alltoallw(mine, counts, places, sent, all, counts, places, taken, dup);
    said("Alltoallw", ROW(V(mine), V(counts), V(places), V(sent), V(all), V(counts), V(places), V(taken), V(dup)),
         ROW(4, 2, V(MPI_INT), V(MPI_INT), 8, 2, V(MPI_INT), V(MPI_INT)), NONE);
    MPI_Alltoallw(MPI_IN_PLACE, NULL, NULL, NULL, all, counts, places, taken, dup);
    said("Alltoallw", ROW(V(MPI_IN_PLACE), 0, 0, 0, V(all), V(counts), V(places), V(taken), V(dup)),
         ROW(8, 2, V(MPI_INT), V(MPI_INT)), NONE);
    said("Op_free", ROW(V(&op)), ROW(1, 1, V(op)), NONE);
    MPI_Op_free(&op);
}

static void others(void)
{
    int room[2], one = 1, flag, length, class;
    MPI_Win win;
    MPI_Info info;
    MPI_Errhandler handler;
    MPI_Win_create(room, sizeof room, 4, MPI_INFO_NULL, dup, &win);
    said("Win_create", ROW(V(room), 8, 4, V(MPI_INFO_NULL), V(dup), V(&win)), NONE, ROW(6, 1, V(win)));
    MPI_Win_fence(0, win);
    said("Win_fence", ROW(0, V(win)), NONE, NONE);
    MPI_Put(&one, 1, MPI_INT, other, 1, 1, MPI_INT, win);
    said("Put", ROW(V(&one), 1, V(MPI_INT), other, 1, 1, V(MPI_INT), V(win)), NONE, NONE);
    MPI_Win_fence(0, win);
    said("Win_fence", ROW(0, V(win)), NONE, NONE);
    MPI_Win_get_errhandler(win, &handler);
    said("Win_get_errhandler", ROW(V(win), V(&handler)), NONE, ROW(2, 1, V(MPI_ERRORS_ARE_FATAL)));
    said("Errhandler_free", ROW(V(&handler)), ROW(1, 1, V(MPI_ERRORS_ARE_FATAL)), NONE);
    MPI_Errhandler_free(&handler);
    said("Win_free", ROW(V(&win)), ROW(1, 1, V(win)), NONE);
    MPI_Win_free(&win);
    MPI_Info_create(&info);
    said("Info_create", ROW(V(&info)), NONE, ROW(1, 1, V(info)));
    MPI_Info_get_valuelen(info, "none", &length, &flag);
    said("Info_get_valuelen", ROW(V(info), V("none"), V(&length), V(&flag)), NONE, ROW(4, 1, 0));
    said("Info_free", ROW(V(&info)), ROW(1, 1, V(info)), NONE);
    MPI_Info_free(&info);
    MPI_Comm_set_errhandler(dup, MPI_ERRORS_RETURN);
    said("Comm_set_errhandler", ROW(V(dup), V(MPI_ERRORS_RETURN)), NONE, NONE);
    MPI_Error_class(MPI_Send(&one, 1, MPI_INT, 77, 0, dup), &class);
    said("Send", ROW(V(&one), 1, V(MPI_INT), 77, 0, V(dup)), NONE, NONE);
    said("Error_class", ROW(-1, V(&class)), NONE, ROW(2, 1, MPI_ERR_RANK));
}

int main(int argc, char **argv)
{
    char name[4096];
    int flag;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    snprintf(name, sizeof name, "%s-%d", argv[1], rank);
    out = fopen(name, "w");
    said("Init", ROW(V(&argc), V(&argv)), NONE, NONE);
    said("Comm_rank", ROW(V(MPI_COMM_WORLD), V(&rank)), NONE, ROW(2, 1, rank));
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    said("Comm_size", ROW(V(MPI_COMM_WORLD), V(&size)), NONE, ROW(2, 1, 2));
    other = 1 - rank;
    communicators();
    types();
    messages();
    requests();
    collectives();
    others();
    said("Type_free", ROW(V(&pair)), ROW(1, 1, V(pair)), NONE);
    MPI_Type_free(&pair);
    said("Comm_free", ROW(V(&grid)), ROW(1, 1, V(grid)), NONE);
    MPI_Comm_free(&grid);
    said("Finalize", NONE, NONE, NONE);
    MPI_Finalize();
    MPI_Finalized(&flag);
    said("Finalized", ROW(V(&flag)), NONE, ROW(1, 1, 1));
    MPI_Initialized(&flag);
    said("Initialized", ROW(V(&flag)), NONE, ROW(1, 1, 1));
    fclose(out);
    return 0;
}
