! As df.c.
program df
    use mpi
    use safepoint_df
    implicit none
    integer, parameter :: count = 20000
    double precision :: u(count) = 0, step = 0, steps
    integer :: rank, ierr, k
    logical :: there
    character(32) :: name, word
    call get_command_argument(1, word)
    read (word, *) steps
    call mpi_init(ierr)
    call mpi_comm_rank(MPI_COMM_WORLD, rank, ierr)
    write (name, '(a,i0,a)') "df-", rank, ".dat"
    if (iInitDF(0) /= 0) call mpi_abort(MPI_COMM_WORLD, 1, ierr)
    if (iRestoreDF() /= 0) call mpi_abort(MPI_COMM_WORLD, 1, ierr)
    inquire (file=name, exist=there)
    if (there) then
        open (10, file=name, form="unformatted", access="stream", status="old", action="read")
        read (10) u, step
        close (10)
    end if
    do while (step < steps)
        if (iHideDF() /= 0) call mpi_abort(MPI_COMM_WORLD, 3, ierr)
        close (10)
        do k = 1, count
            u(k) = 0.999d0 * u(k) + rank + (k - 1)
        end do
        step = step + 1
        open (10, file=name, form="unformatted", access="stream", status="replace", action="write")
        write (10) u, step  ! and it stays open: what lies in its buffer is flushed by iHideDF and iEOWDF
        call mpi_barrier(MPI_COMM_WORLD, ierr)
    end do
    if (iEOWDF() /= 0) call mpi_abort(MPI_COMM_WORLD, 5, ierr)
    call mpi_finalize(ierr)
end program df
