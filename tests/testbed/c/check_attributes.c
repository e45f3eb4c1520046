/* What a library keeps as attributes is freed by their delete callbacks: inside of MPI_Finalize and of other frees.
 * One communicator and one type are freed by nobody. */
#include <mpi.h>
#include <stdlib.h>

struct kept {
    MPI_Comm twin;
    MPI_Datatype row;
    MPI_Group group;
    MPI_Request request;
    MPI_Win window;
};
static double memory[4];

static int clear(struct kept *kept)
{
    MPI_Status status;
    if (kept->request != MPI_REQUEST_NULL) {
        MPI_Cancel(&kept->request);
        MPI_Wait(&kept->request, &status);
    }
    if (kept->window != MPI_WIN_NULL)
        MPI_Win_free(&kept->window);
    if (kept->row != MPI_DATATYPE_NULL)
        MPI_Type_free(&kept->row);
    if (kept->group != MPI_GROUP_NULL)
        MPI_Group_free(&kept->group);
    if (kept->twin != MPI_COMM_NULL)
        MPI_Comm_free(&kept->twin);
    free(kept);
    return MPI_SUCCESS;
}

static int of_comm(MPI_Comm comm, int key, void *value, void *extra)
{
    (void)comm, (void)key, (void)extra;
    return clear(value);
}

static int of_type(MPI_Datatype type, int key, void *value, void *extra)
{
    (void)type, (void)key, (void)extra;
    return clear(value);
}

static int of_win(MPI_Win win, int key, void *value, void *extra)
{
    (void)win, (void)key, (void)extra;
    return clear(value);
}

static struct kept *new_kept(void)
{
    struct kept *kept = malloc(sizeof *kept);
    struct kept empty = {MPI_COMM_NULL, MPI_DATATYPE_NULL, MPI_GROUP_NULL, MPI_REQUEST_NULL, MPI_WIN_NULL};
    *kept = empty;
    MPI_Type_contiguous(3, MPI_DOUBLE, &kept->row);
    MPI_Type_commit(&kept->row);
    return kept;
}

int main(int argc, char **argv)
{
    int of_comms, of_types, of_wins;
    MPI_Comm comm, lost;
    MPI_Datatype type;
    MPI_Win win;
    struct kept *kept;

    MPI_Init(&argc, &argv);
    MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, of_comm, &of_comms, NULL);
    MPI_Type_create_keyval(MPI_TYPE_NULL_COPY_FN, of_type, &of_types, NULL);
    MPI_Win_create_keyval(MPI_WIN_NULL_COPY_FN, of_win, &of_wins, NULL);

    kept = new_kept(); /* of the world: freed in MPI_Finalize */
    MPI_Comm_dup(MPI_COMM_WORLD, &kept->twin);
    MPI_Comm_set_attr(MPI_COMM_WORLD, of_comms, kept);

    kept = new_kept(); /* and of itself, which is the first to go there */
    MPI_Comm_dup(MPI_COMM_SELF, &kept->twin);
    MPI_Comm_group(MPI_COMM_WORLD, &kept->group);
    MPI_Irecv(memory, 1, MPI_DOUBLE, 0, 5, kept->twin, &kept->request);
    MPI_Win_create(memory, sizeof memory, sizeof *memory, MPI_INFO_NULL, kept->twin, &kept->window);
    MPI_Comm_set_attr(MPI_COMM_SELF, of_comms, kept);

    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    kept = new_kept();
    MPI_Comm_dup(MPI_COMM_WORLD, &kept->twin);
    MPI_Comm_set_attr(comm, of_comms, kept);
    kept = new_kept(); /* another in its place: the first goes */
    MPI_Comm_dup(MPI_COMM_WORLD, &kept->twin);
    MPI_Comm_set_attr(comm, of_comms, kept);
    MPI_Comm_free(&comm);

    MPI_Type_contiguous(2, MPI_INT, &type);
    MPI_Type_set_attr(type, of_types, new_kept());
    MPI_Type_free(&type);

    MPI_Win_create(memory, sizeof memory, sizeof *memory, MPI_INFO_NULL, MPI_COMM_WORLD, &win);
    MPI_Win_set_attr(win, of_wins, new_kept());
    MPI_Win_free(&win);

    MPI_Comm_set_attr(MPI_COMM_WORLD, of_comms, new_kept()); /* in the place of the first of all */
    MPI_Comm_delete_attr(MPI_COMM_WORLD, of_comms);
    kept = new_kept();
    MPI_Comm_dup(MPI_COMM_WORLD, &kept->twin);
    MPI_Comm_set_attr(MPI_COMM_WORLD, of_comms, kept);

    MPI_Comm_dup(MPI_COMM_WORLD, &lost);
    MPI_Type_contiguous(4, MPI_INT, &type);
    MPI_Comm_free_keyval(&of_comms);
    MPI_Type_free_keyval(&of_types);
    MPI_Win_free_keyval(&of_wins);
    return MPI_Finalize();
}
