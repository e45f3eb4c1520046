! As check_sync.c, in Fortran, with `use mpi` and with mpi_f08.
program sync
#ifdef WITH_TYPES
  use mpi_f08
  implicit none
  type(MPI_Request) :: told
#else
  use mpi
  implicit none
  integer :: told
#endif
  integer(kind=8) :: begin, now, second
  integer :: rank, code, value = 41, ended, patience_ms
  logical :: done = .false.
  character(len=20) :: word
  call get_command_argument(1, word)
  read (word, *) patience_ms
  call MPI_Init(code)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, code)
  if (rank == 1) call MPI_Irecv(ended, 1, MPI_INTEGER, 0, 8, MPI_COMM_WORLD, told, code)
  call MPI_Barrier(MPI_COMM_WORLD, code)
  if (rank == 0) then
    call MPI_Send(value, 1, MPI_INTEGER, 1, 7, MPI_COMM_WORLD, code)
    call MPI_Rsend(rank, 1, MPI_INTEGER, 1, 8, MPI_COMM_WORLD, code)
  else
    call system_clock(begin, second)
    now = begin
    do while (.not. done .and. (now - begin) * 1000 < patience_ms * second)
      call MPI_Test(told, done, MPI_STATUS_IGNORE, code)
      call system_clock(now)
    end do
    call MPI_Recv(value, 1, MPI_INTEGER, 0, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE, code)
    call MPI_Wait(told, MPI_STATUS_IGNORE, code)
    print '(A)', merge("early", "late ", done)
  end if
  call MPI_Finalize(code)
end program
