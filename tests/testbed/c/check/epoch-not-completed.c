#include "planted.h"

static void planted(void)
{
    static double memory[10];
    double a[2] = {1};
    MPI_Win win;
    MPI_Win_create(memory, sizeof memory, 8, MPI_INFO_NULL, MPI_COMM_WORLD, &win);
    MPI_Group all, other;
    MPI_Comm_group(MPI_COMM_WORLD, &all);
    MPI_Group_incl(all, 1, (int[1]){1 - rank}, &other);
    MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN);
    if (rank == 0) {
        MPI_Win_start(other, 0, win); /* F1 */
        if (good)
            MPI_Win_complete(win);
    } else if (good) {
        MPI_Win_post(other, 0, win);
        MPI_Win_wait(win);
    }
    MPI_Group_free(&other);
    MPI_Group_free(&all);
    MPI_Win_free(&win); /* F3 */
}
