! A team of four, by hand; the digest of what it made.
program team
  use sp_trace
  implicit none
  integer(8) :: v
  integer :: i, r
  real(8) :: b(40)
  r = sp_site('region', 'the team', 'team.f90', 9, 24)
  v = sp_region(r)
!$omp parallel num_threads(4)
  call sp_enter(r, v)
  call sp_loop(2, 1, 40, 1)
!$omp do schedule(dynamic, 3)
  do i = 1, 40
    if (sp_iter(3, i)) then
      b(i) = i * 0.5d0
      call sp_write(4, b(i))
    else
      b(i) = i * 0.5d0
    end if
  end do
!$omp end do
  call sp_loop_end(2)
  call sp_leave(r, v)
!$omp end parallel
  call sp_digest(5, b)
  call sp_region_end(r, v)
end program team
