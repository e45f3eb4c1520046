! Programs with one mistake each, named by the first argument; a second one takes it out. The lines of the mistake have a
! comment with the name of the template and of its function.
program check_calls
    use mpi
    implicit none
    character(len=40) :: which, word
    integer :: rank, error, other, request, requests(2), point
    integer, asynchronous :: got(2), sent(2)
    logical :: good

    call get_command_argument(1, which)
    call get_command_argument(2, word)
    good = word /= ''
    call MPI_Init(error)
    call MPI_Comm_rank(MPI_COMM_WORLD, rank, error)
    other = 1 - rank
    sent = [rank, rank + 10]

    select case (which)
    case ('request-reused')
        call MPI_Irecv(got(1), 1, MPI_INTEGER, other, 7, MPI_COMM_WORLD, requests(1), error)
        call MPI_Irecv(got(2), 1, MPI_INTEGER, other, 7, MPI_COMM_WORLD, requests(2), error)
        call MPI_Isend(sent(1), 1, MPI_INTEGER, other, 7, MPI_COMM_WORLD, request, error) ! request-reused F1
        if (good) call MPI_Wait(request, MPI_STATUS_IGNORE, error)
        call MPI_Isend(sent(2), 1, MPI_INTEGER, other, 7, MPI_COMM_WORLD, request, error) ! request-reused F3
        call MPI_Wait(request, MPI_STATUS_IGNORE, error)
        call MPI_Waitall(2, requests, MPI_STATUSES_IGNORE, error)
    case ('type-not-freed')
        call MPI_Type_contiguous(3, MPI_INTEGER, point, error) ! type-not-freed F1
        call MPI_Type_commit(point, error)
        if (good) call MPI_Type_free(point, error)
    case ('send-without-receive')
        if (rank == 0) then
            call MPI_Send(sent, 1, MPI_INTEGER, other, 7, MPI_COMM_WORLD, error) ! send-without-receive F1
        else if (good) then
            call MPI_Recv(got, 1, MPI_INTEGER, MPI_ANY_SOURCE, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE, error)
        end if
    case ('root-differs')
        call MPI_Bcast(sent, 1, MPI_INTEGER, merge(0, rank, good), MPI_COMM_WORLD, error) ! root-differs F1 F2
    case ('collective-not-by-all')
        if (good .or. rank == 0) call MPI_Barrier(MPI_COMM_WORLD, error) ! collective-not-by-all F1
    case ('null-comm')
        call MPI_Barrier(merge(MPI_COMM_WORLD, MPI_COMM_NULL, good), error) ! null-comm F1
    end select
    call MPI_Finalize(error)
end program check_calls
