program names
  implicit none
  integer :: sp_write, sp_v1, i
  real :: sp_x(5)
  sp_write = 3
  sp_v1 = 4
!$omp parallel do
  do i = 1, 5
    sp_x(i) = i
  end do
  print *, sp_x, sp_write, sp_v1
end program names
