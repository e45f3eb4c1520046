! Heat in a plate on many ranks, each with a strip of it and a restart file of its own: killed anywhere, it goes on.
!
!     mpif90 $(safepoint config --cflags --mpicc mpicc --fc gfortran) heat.f90 \
!         $(safepoint config --libs --mpicc mpicc --fc gfortran) -o heat
!     mpiexec -n 4 ./heat 2000                (start it again after any kill)
program heat
    use mpi
    use safepoint
    use, intrinsic :: iso_fortran_env, only: int64, real64
    implicit none
    integer, parameter :: n = 256, every = 20
    integer :: rank, ranks, ierr, first, columns, status, begin, steps, k
    logical :: found, stopping
    real(real64), allocatable :: u(:, :), next(:, :)
    character(32) :: name, word

    steps = 2000
    call get_command_argument(1, word)
    if (word /= "") read (word, *) steps
    call mpi_init(ierr)
    call mpi_comm_rank(MPI_COMM_WORLD, rank, ierr)
    call mpi_comm_size(MPI_COMM_WORLD, ranks, ierr)
    first = rank * n / ranks
    columns = (rank + 1) * n / ranks - first
    allocate (u(n, 0:columns + 1), next(n, 0:columns + 1))
    write (name, '(a,i0,a)') "heat-", rank, ".dat"

    call safepoint_init(comm=MPI_COMM_WORLD, options="signals=USR1")  ! reads .safepoint: heat-{rank}.dat
    call safepoint_restore(found, begin)
    if (safepoint_finished()) then
        if (rank == 0) print '(a,i0)', "finished already, at step ", begin
        call mpi_finalize(ierr)
        stop
    end if
    u = 0
    if (found) then
        open (10, file=name, form="unformatted", access="stream", status="old", action="read")
        read (10) u(:, 1:columns)
        close (10)
    else
        u(1, 1:columns) = 100  ! one edge is hot
    end if
    if (rank == 0) print '(a,i0)', "begin at step ", begin
    do k = begin, steps - 1
        if (mod(k, every) == 0 .and. k > begin) then
            call put()
            call safepoint_hide(k)  ! the file moves away, in less than a millisecond
            call safepoint_should_stop(stopping)
            if (stopping) then
                call safepoint_stop(status)
                call mpi_finalize(ierr)
                stop status, quiet=.true.  ! 75: start it again; 79: somebody has halted it
            end if
        end if
        call exchange()
        call advance()
    end do
    call put()
    call safepoint_finish(steps)
    call mpi_finalize(ierr)

contains

    subroutine put()
        open (10, file=name, form="unformatted", access="stream", status="replace", action="write")
        write (10) u(:, 1:columns)
        close (10)
    end subroutine

    subroutine exchange()
        integer :: before, after
        before = merge(rank - 1, MPI_PROC_NULL, rank > 0)
        after = merge(rank + 1, MPI_PROC_NULL, rank < ranks - 1)
        call mpi_sendrecv(u(1, 1), n, MPI_DOUBLE_PRECISION, before, 0, u(1, columns + 1), n, MPI_DOUBLE_PRECISION, &
            after, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE, ierr)
        call mpi_sendrecv(u(1, columns), n, MPI_DOUBLE_PRECISION, after, 1, u(1, 0), n, MPI_DOUBLE_PRECISION, &
            before, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE, ierr)
    end subroutine

    subroutine advance()
        integer :: i, j
        next = u
        do j = 1, columns
            if (first + j == 1 .or. first + j == n) cycle
            do i = 2, n - 1
                next(i, j) = u(i, j) + 0.2_real64 * (u(i, j - 1) + u(i, j + 1) + u(i - 1, j) + u(i + 1, j) - 4 * u(i, j))
            end do
        end do
        u(:, 1:columns) = next(:, 1:columns)
    end subroutine

end program heat
