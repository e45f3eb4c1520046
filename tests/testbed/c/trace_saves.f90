! The saves of trace_saves.c.
program saves
    use mpi
    use safepoint
    implicit none
    integer :: rank, one, step, e
    logical :: found
    call MPI_Init(e)
    call MPI_Comm_rank(MPI_COMM_WORLD, rank, e)
    call safepoint_init(comm=MPI_COMM_WORLD)
    call safepoint_restore(found, step)
    one = 1
    if (rank == 1) then
        call MPI_Recv(one, 1, MPI_INTEGER, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE, e)
    else
        call MPI_Send(one, 1, MPI_INTEGER, 1, 1, MPI_COMM_WORLD, e)
    end if
    call safepoint_hide(10)
    call safepoint_hide()
    call safepoint_close()
    call MPI_Finalize(e)
end program
