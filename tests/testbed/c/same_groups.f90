! The calls of same_groups.c, in each of the three bindings: -DWITH_HEADER, -DWITH_MODULE or -DWITH_TYPES, and -cpp.
#ifdef WITH_TYPES
#define A_COMM type(MPI_Comm)
#define A_REQUEST type(MPI_Request)
#define A_MESSAGE type(MPI_Message)
#define A_WINDOW type(MPI_Win)
#define A_TYPE type(MPI_Datatype)
#else
#define A_COMM integer
#define A_REQUEST integer
#define A_MESSAGE integer
#define A_WINDOW integer
#define A_TYPE integer
#endif
#define IGNORED MPI_STATUS_IGNORE, e
#define ALL_IGNORED MPI_STATUSES_IGNORE, e
#define ANY MPI_ANY_SOURCE
#define ANY_TAG MPI_ANY_TAG
program same_groups
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
    integer :: rank, at, count, one, total, e, i, places(4)
    integer, asynchronous :: many(4), others(4)
    logical :: flag
    A_REQUEST :: r, rs(4)
    A_MESSAGE :: message
    A_COMM :: here
    A_TYPE :: number

    call MPI_Init(e)
    here = MPI_COMM_WORLD
    number = MPI_INTEGER
    call MPI_Comm_rank(here, rank, e)
    one = 1
    call modes()
    call completions()
    call any_source()
    call probes()
    call persistent()
    call odd()
    call communicators()
    call windows()
    call MPI_Finalize(e)

contains

    subroutine modes()
        integer, save, asynchronous :: room(1000)
        if (rank == 0) then
            call MPI_Buffer_attach(room, 4000, e)
            call MPI_Barrier(here, e)
            call MPI_Send(one, 1, number, 1, 1, here, e)
            call MPI_Bsend(one, 1, number, 1, 2, here, e)
            call MPI_Ssend(one, 1, number, 1, 3, here, e)
            call MPI_Rsend(one, 1, number, 1, 4, here, e)
        else if (rank == 1) then
            call MPI_Irecv(many(1), 1, number, 0, 4, here, r, e)
            call MPI_Barrier(here, e)
            call MPI_Recv(one, 1, number, 0, 1, here, IGNORED)
            call MPI_Recv(one, 1, number, ANY, ANY_TAG, here, IGNORED)
            call MPI_Recv(one, 1, number, ANY, 3, here, IGNORED)
            call MPI_Wait(r, IGNORED)
        else
            call MPI_Barrier(here, e)
        end if
    end subroutine

    subroutine completions()
        if (rank == 0) then
            call MPI_Isend(one, 1, number, 1, 5, here, rs(1), e)
            call MPI_Issend(one, 1, number, 2, 6, here, rs(2), e)
            call MPI_Isend(one, 1, number, 1, 5, here, rs(3), e)
            call MPI_Isend(one, 1, number, 2, 7, here, rs(4), e)
            call MPI_Waitall(4, rs, ALL_IGNORED)
        else if (rank == 1) then
            call MPI_Irecv(many(1), 1, number, 0, 5, here, rs(1), e)
            call MPI_Irecv(many(2), 1, number, ANY, 5, here, rs(2), e)
            call MPI_Waitany(1, rs(2:2), at, IGNORED)
            call MPI_Waitsome(1, rs, count, places, ALL_IGNORED)
        else
            call MPI_Irecv(many(1), 1, number, ANY, 6, here, rs(1), e)
            call MPI_Irecv(many(2), 1, number, 0, 7, here, rs(2), e)
            flag = .false.
            do while (.not. flag)
                call MPI_Testall(2, rs, flag, ALL_IGNORED)
            end do
        end if
    end subroutine

    subroutine any_source()
        if (rank == 0) then
            call MPI_Send(one, 1, number, 1, 8, here, e)
        else if (rank == 1) then
            call MPI_Recv(one, 1, number, ANY, 8, here, IGNORED)
            call MPI_Send(one, 1, number, 2, 9, here, e)
            call MPI_Recv(one, 1, number, ANY, 8, here, IGNORED)
        else
            call MPI_Recv(one, 1, number, 1, 9, here, IGNORED)
            call MPI_Send(one, 1, number, 1, 8, here, e)
        end if
        call MPI_Sendrecv(one, 1, number, mod(rank + 1, 3), 10, total, 1, number, mod(rank + 2, 3), 10, here, IGNORED)
    end subroutine

    subroutine probes()
        if (rank == 0) then
            do i = 11, 14
                call MPI_Send(one, 1, number, 2, i, here, e)
            end do
        end if
        if (rank < 2) return
        call MPI_Probe(ANY, 11, here, IGNORED)
        call MPI_Recv(one, 1, number, 0, 11, here, IGNORED)
        flag = .false.
        do while (.not. flag)
            call MPI_Iprobe(0, ANY_TAG, here, flag, IGNORED)
        end do
        call MPI_Recv(one, 1, number, 0, 12, here, IGNORED)
        call MPI_Mprobe(ANY, 13, here, message, IGNORED)
        call MPI_Mrecv(one, 1, number, message, IGNORED)
        flag = .false.
        do while (.not. flag)
            call MPI_Improbe(0, 14, here, flag, message, IGNORED)
        end do
        call MPI_Imrecv(many(1), 1, number, message, r, e)
        call MPI_Wait(r, IGNORED)
    end subroutine

    subroutine persistent()
        if (rank == 2) return
        if (rank == 0) then
            call MPI_Send_init(many(1), 1, number, 1, 20, here, rs(1), e)
            call MPI_Ssend_init(many(2), 1, number, 1, 21, here, rs(2), e)
        else
            call MPI_Recv_init(many(1), 1, number, ANY, 20, here, rs(1), e)
            call MPI_Recv_init(many(2), 1, number, 0, ANY_TAG, here, rs(2), e)
        end if
        call MPI_Start(rs(1), e)
        call MPI_Wait(rs(1), IGNORED)
        call MPI_Startall(2, rs, e)
        call MPI_Waitall(2, rs, ALL_IGNORED)
        do i = 1, 2
            call MPI_Request_free(rs(i), e)
        end do
    end subroutine

    subroutine odd()
        if (rank == 0) then
            call MPI_Irecv(many(1), 1, number, 1, 30, here, r, e)
            call MPI_Cancel(r, e)
            call MPI_Wait(r, IGNORED)
            call MPI_Isend(one, 1, number, 2, 31, here, r, e)
            call MPI_Request_free(r, e)
            call MPI_Irecv(many(1), 1, number, 1, 30, here, r, e)
            call MPI_Cancel(r, e)
            call MPI_Request_free(r, e)
        else if (rank == 2) then
            call MPI_Recv(many(4), 1, number, MPI_PROC_NULL, 32, here, IGNORED)
            call MPI_Recv(many(4), 1, number, 0, 31, here, IGNORED)
        end if
    end subroutine

    subroutine collectives(comm)
        A_COMM :: comm
        call MPI_Bcast(one, 1, number, 1, comm, e)
        call MPI_Allreduce(one, total, 1, number, MPI_SUM, comm, e)
        call MPI_Reduce(one, total, 1, number, MPI_SUM, 0, comm, e)
        call MPI_Gather(one, 1, number, many, 1, number, 0, comm, e)
        call MPI_Scatter(many, 1, number, one, 1, number, 0, comm, e)
        call MPI_Allgather(one, 1, number, many, 1, number, comm, e)
        call MPI_Alltoall(many, 1, number, others, 1, number, comm, e)
        call MPI_Scan(one, total, 1, number, MPI_SUM, comm, e)
        call MPI_Ibarrier(comm, rs(1), e)
        call MPI_Iallreduce(many(2), others(1), 1, number, MPI_SUM, comm, rs(2), e)
        call MPI_Waitall(2, rs, ALL_IGNORED)
    end subroutine

    subroutine communicators()
        A_COMM :: copy, part
        call MPI_Comm_dup(here, copy, e)
        call MPI_Comm_split(copy, mod(rank, 2), -rank, part, e)
        call collectives(copy)
        if (rank == 0) then
            call MPI_Send(one, 1, number, 0, 40, part, e)
        else if (rank == 2) then
            call MPI_Recv(one, 1, number, ANY, 40, part, IGNORED)
        end if
        call MPI_Barrier(part, e)
        call MPI_Comm_free(part, e)
        call MPI_Comm_free(copy, e)
    end subroutine

    subroutine windows()
        A_WINDOW :: window
        integer, save, asynchronous :: room(4)
        integer(kind=MPI_ADDRESS_KIND) :: size, nowhere
        size = 16
        nowhere = 0
        call MPI_Win_create(room, size, 4, MPI_INFO_NULL, here, window, e)
        call MPI_Win_fence(0, window, e)
        call MPI_Put(one, 1, number, mod(rank + 1, 3), nowhere, 1, number, window, e)
        call MPI_Win_fence(0, window, e)
        call MPI_Win_free(window, e)
    end subroutine
end program
