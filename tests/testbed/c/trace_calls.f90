! The calls of trace_calls.c, in each of the three bindings: -DWITH_HEADER, -DWITH_MODULE or -DWITH_TYPES, and -cpp.
#ifdef WITH_TYPES
#define A_COMM type(MPI_Comm)
#define A_REQUEST type(MPI_Request)
#define A_MESSAGE type(MPI_Message)
#define A_WINDOW type(MPI_Win)
#define A_FILE type(MPI_File)
#define A_STATUS type(MPI_Status)
#define ONE_STATUS
#define STATUSES (4)
#define A_TYPE type(MPI_Datatype)
#else
#define A_COMM integer
#define A_REQUEST integer
#define A_MESSAGE integer
#define A_WINDOW integer
#define A_FILE integer
#define A_STATUS integer
#define A_TYPE integer
#define ONE_STATUS (MPI_STATUS_SIZE)
#define STATUSES (MPI_STATUS_SIZE, 4)
#endif
program calls
#ifdef WITH_TYPES
    use mpi_f08
#endif
#ifdef WITH_MODULE
    use mpi
#endif
    implicit none
#ifdef WITH_HEADER
    include 'mpif.h'
#endif
    integer :: rank, other, at, count, many(4), one, total, e, i, places(4)
    integer, asynchronous :: into(4)
    logical :: flag
    A_REQUEST :: r, rs(4)
    A_STATUS :: status ONE_STATUS, states STATUSES
    A_MESSAGE :: message
    A_COMM :: here
    A_TYPE :: number

    call MPI_Init(e)
    here = MPI_COMM_WORLD
    number = MPI_INTEGER
    call MPI_Comm_rank(here, rank, e)
    other = 1 - rank
    one = 1
    call modes()
    call completions()
    call persistent()
    call probes()
    call nobody()
    call collectives()
    call communicators()
    call windows_and_files()
    call MPI_Finalize(e)

contains

    subroutine modes()
        integer, save, asynchronous :: room(1000)
        if (rank == 1) then
            call MPI_Irecv(one, 1, number, 0, 4, here, r, e)
            call MPI_Barrier(here, e)
            call MPI_Recv(one, 1, number, 0, 1, here, MPI_STATUS_IGNORE, e)
            call MPI_Recv(one, 1, number, MPI_ANY_SOURCE, MPI_ANY_TAG, here, MPI_STATUS_IGNORE, e)
            call MPI_Recv(one, 1, number, MPI_ANY_SOURCE, 3, here, status, e)
            call MPI_Wait(r, MPI_STATUS_IGNORE, e)
            return
        end if
        call MPI_Buffer_attach(room, 4000, e)
        call MPI_Barrier(here, e)
        call MPI_Send(one, 1, number, 1, 1, here, e)
        call MPI_Bsend(one, 1, number, 1, 2, here, e)
        call MPI_Ssend(one, 1, number, 1, 3, here, e)
        call MPI_Rsend(one, 1, number, 1, 4, here, e)
    end subroutine

    subroutine completions()
        if (rank == 0) then
            call MPI_Isend(one, 1, number, 1, 5, here, rs(1), e)
            call MPI_Isend(one, 1, number, 1, 6, here, rs(2), e)
            call MPI_Issend(one, 1, number, 1, 7, here, rs(3), e)
            call MPI_Waitall(3, rs, MPI_STATUSES_IGNORE, e)
            do i = 8, 15
                call MPI_Send(one, 1, number, 1, i, here, e)
            end do
            return
        end if
        call MPI_Irecv(many(1), 1, number, 0, 5, here, rs(1), e)
        call MPI_Irecv(many(2), 1, number, MPI_ANY_SOURCE, 6, here, rs(2), e)
        call MPI_Irecv(many(3), 1, number, 0, MPI_ANY_TAG, here, rs(3), e)
        call MPI_Waitall(3, rs, MPI_STATUSES_IGNORE, e)
        call MPI_Irecv(many(1), 1, number, MPI_ANY_SOURCE, 8, here, rs(1), e)
        call MPI_Waitany(1, rs, at, MPI_STATUS_IGNORE, e)
        call MPI_Irecv(many(1), 1, number, 0, MPI_ANY_TAG, here, rs(1), e)
        call MPI_Waitsome(1, rs, count, places, MPI_STATUSES_IGNORE, e)
        call MPI_Irecv(many(1), 1, number, 0, 10, here, r, e)
        flag = .false.
        do while (.not. flag)
            call MPI_Test(r, flag, MPI_STATUS_IGNORE, e)
        end do
        call MPI_Irecv(many(1), 1, number, 0, 11, here, rs(1), e)
        call MPI_Irecv(many(2), 1, number, MPI_ANY_SOURCE, 12, here, rs(2), e)
        flag = .false.
        do while (.not. flag)
            call MPI_Testall(2, rs, flag, MPI_STATUSES_IGNORE, e)
        end do
        call MPI_Irecv(many(1), 1, number, MPI_ANY_SOURCE, 13, here, rs(1), e)
        flag = .false.
        do while (.not. flag)
            call MPI_Testany(1, rs, at, flag, MPI_STATUS_IGNORE, e)
        end do
        call MPI_Irecv(many(1), 1, number, MPI_ANY_SOURCE, 14, here, rs(1), e)
        count = 0
        do while (count == 0)
            call MPI_Testsome(1, rs, count, places, states, e)
        end do
        call MPI_Recv(one, 1, number, 0, 15, here, status, e)
        r = MPI_REQUEST_NULL
        call MPI_Wait(r, MPI_STATUS_IGNORE, e)
    end subroutine

    subroutine persistent()
        if (rank == 1) then
            call MPI_Recv_init(into(1), 1, number, MPI_ANY_SOURCE, 20, here, rs(1), e)
            call MPI_Recv_init(into(2), 1, number, 0, 21, here, rs(2), e)
        else
            call MPI_Send_init(into(1), 1, number, 1, 20, here, rs(1), e)
            call MPI_Ssend_init(into(2), 1, number, 1, 21, here, rs(2), e)
        end if
        call MPI_Start(rs(1), e)
        call MPI_Wait(rs(1), MPI_STATUS_IGNORE, e)
        call MPI_Wait(rs(1), MPI_STATUS_IGNORE, e)
        call MPI_Startall(2, rs, e)
        call MPI_Waitall(2, rs, MPI_STATUSES_IGNORE, e)
        do i = 1, 2
            call MPI_Request_free(rs(i), e)
        end do
    end subroutine

    subroutine probes()
        if (rank == 0) then
            call MPI_Send(one, 1, number, 1, 30, here, e)
            call MPI_Send(one, 1, number, 1, 31, here, e)
            call MPI_Send(one, 1, number, 1, 32, here, e)
            call MPI_Send(one, 1, number, 1, 33, here, e)
            return
        end if
        call MPI_Probe(MPI_ANY_SOURCE, MPI_ANY_TAG, here, MPI_STATUS_IGNORE, e)
        call MPI_Recv(one, 1, number, 0, 30, here, MPI_STATUS_IGNORE, e)
        flag = .false.
        do while (.not. flag)
            call MPI_Iprobe(0, MPI_ANY_TAG, here, flag, MPI_STATUS_IGNORE, e)
        end do
        call MPI_Recv(one, 1, number, 0, 31, here, MPI_STATUS_IGNORE, e)
        call MPI_Mprobe(MPI_ANY_SOURCE, 32, here, message, MPI_STATUS_IGNORE, e)
        call MPI_Mrecv(one, 1, number, message, MPI_STATUS_IGNORE, e)
        flag = .false.
        do while (.not. flag)
            call MPI_Improbe(MPI_ANY_SOURCE, 33, here, flag, message, status, e)
        end do
        call MPI_Imrecv(into(1), 1, number, message, r, e)
        call MPI_Wait(r, MPI_STATUS_IGNORE, e)
    end subroutine

    subroutine nobody()
        call MPI_Send(one, 1, number, MPI_PROC_NULL, 40, here, e)
        call MPI_Recv(one, 1, number, MPI_PROC_NULL, 40, here, MPI_STATUS_IGNORE, e)
        call MPI_Isend(one, 1, number, MPI_PROC_NULL, 41, here, rs(1), e)
        call MPI_Irecv(into(1), 1, number, MPI_PROC_NULL, MPI_ANY_TAG, here, rs(2), e)
        call MPI_Waitall(2, rs, MPI_STATUSES_IGNORE, e)
        call MPI_Mprobe(MPI_PROC_NULL, 42, here, message, MPI_STATUS_IGNORE, e)
        call MPI_Mrecv(one, 1, number, message, MPI_STATUS_IGNORE, e)
        call MPI_Sendrecv(one, 1, number, other, 43, total, 1, number, MPI_ANY_SOURCE, 43, here, MPI_STATUS_IGNORE, e)
        call MPI_Sendrecv_replace(one, 1, number, other, 44, other, 44, here, status, e)
        call MPI_Irecv(into(1), 1, number, other, 45, here, r, e)
        call MPI_Cancel(r, e)
        call MPI_Wait(r, MPI_STATUS_IGNORE, e)
    end subroutine

    subroutine collectives()
        call MPI_Bcast(one, 1, number, 1, here, e)
        call MPI_Allreduce(one, total, 1, number, MPI_SUM, here, e)
        call MPI_Reduce(one, total, 1, number, MPI_SUM, 0, here, e)
        if (rank == 1) then
            call MPI_Gather(one, 1, number, many, 0, MPI_DATATYPE_NULL, 0, here, e)
        else
            call MPI_Gather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, many, 1, number, 0, here, e)
        end if
        call MPI_Scatter(many, 1, number, one, 1, number, 0, here, e)
        call MPI_Allgather(one, 1, number, many, 1, number, here, e)
        call MPI_Alltoall(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, many, 1, number, here, e)
        call MPI_Scan(one, total, 1, number, MPI_SUM, here, e)
        call MPI_Ibarrier(here, r, e)
        call MPI_Wait(r, MPI_STATUS_IGNORE, e)
        call MPI_Ibcast(into(1), 1, number, 0, here, r, e)
        call MPI_Wait(r, status, e)
    end subroutine

    subroutine communicators()
        A_COMM :: alone, between, both, grid, copy
        A_COMM, asynchronous :: later
        integer :: sizes(1)
        logical :: round(1)
        sizes = 2
        round = .true.
        call MPI_Comm_dup(here, copy, e)
        call MPI_Comm_split(here, rank, 0, alone, e)
        call MPI_Cart_create(copy, 1, sizes, round, .false., grid, e)
        call MPI_Intercomm_create(alone, 0, here, other, 50, between, e)
        call MPI_Sendrecv(one, 1, number, 0, 51, total, 1, number, 0, 51, between, MPI_STATUS_IGNORE, e)
        call MPI_Bcast(one, 1, number, merge(0, MPI_ROOT, rank == 1), between, e)
        call MPI_Intercomm_merge(between, rank == 1, both, e)
        call MPI_Comm_idup(grid, later, r, e)
        call MPI_Wait(r, MPI_STATUS_IGNORE, e)
        call MPI_Barrier(later, e)
        call MPI_Comm_free(later, e)
        call MPI_Comm_free(both, e)
        call MPI_Comm_free(between, e)
        call MPI_Comm_free(grid, e)
        call MPI_Comm_free(alone, e)
        call MPI_Comm_free(copy, e)
    end subroutine

    subroutine windows_and_files()
        A_WINDOW :: window
        A_FILE :: file
        integer(kind=MPI_ADDRESS_KIND) :: size, nowhere
        integer(kind=MPI_OFFSET_KIND) :: offset
        size = 16
        nowhere = 0
        offset = 4 * rank
        call MPI_Win_create(into, size, 4, MPI_INFO_NULL, here, window, e)
        call MPI_Win_fence(0, window, e)
        call MPI_Put(into(1), 1, number, other, nowhere, 1, number, window, e)
        call MPI_Win_fence(0, window, e)
        call MPI_Win_lock(MPI_LOCK_SHARED, other, 0, window, e)
        call MPI_Get(into(2), 1, number, other, nowhere, 1, number, window, e)
        call MPI_Win_flush(other, window, e)
        call MPI_Win_unlock(other, window, e)
        call MPI_Win_free(window, e)
        call MPI_File_open(here, "written", MPI_MODE_CREATE + MPI_MODE_WRONLY, MPI_INFO_NULL, file, e)
        call MPI_File_write_at_all(file, offset, one, 1, number, MPI_STATUS_IGNORE, e)
        call MPI_File_iwrite_at(file, offset, into(1), 1, number, r, e)
        call MPI_Wait(r, MPI_STATUS_IGNORE, e)
        call MPI_File_close(file, e)
    end subroutine
end program
