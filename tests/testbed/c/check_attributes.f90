! As check_attributes.c, in Fortran: a type and a communicator that are kept as attributes, and freed by the callback.
! A group is freed by nobody.
module callbacks
  use mpi
  implicit none
  integer :: twin, row
contains
  subroutine clear(comm, key, value, extra, code)
    integer :: comm, key, code
    integer(kind=MPI_ADDRESS_KIND) :: value, extra
    call MPI_Type_free(row, code)
    call MPI_Comm_free(twin, code)
    code = MPI_SUCCESS
  end subroutine
end module

program attributes
  use callbacks
  implicit none
  integer :: code, key, all
  integer(kind=MPI_ADDRESS_KIND) :: nothing = 0
  call MPI_Init(code)
  call MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, clear, key, nothing, code)
  call MPI_Comm_dup(MPI_COMM_WORLD, twin, code)
  call MPI_Type_contiguous(3, MPI_INTEGER, row, code)
  call MPI_Comm_set_attr(MPI_COMM_SELF, key, nothing, code)
  call MPI_Comm_group(MPI_COMM_WORLD, all, code)
  call MPI_Comm_free_keyval(key, code)
  call MPI_Finalize(code)
end program
