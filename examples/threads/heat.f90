! Heat spreads in a square plate from a hot place in its middle: sixty steps.
program heat
  implicit none
  integer, parameter :: n = 200, steps = 60
  real(8) :: u(n, n), v(n, n), change
  integer :: i, j, k

!$omp parallel do private(i)
  do j = 1, n
    do i = 1, n
      v(i, j) = 1 / (1 + ((i - n / 2)**2 + (j - n / 2)**2) / 100d0)
    end do
  end do
!$omp end parallel do
  u = v
  do k = 1, steps
    call step(u, v, n, 0.2d0, change)
  end do
  print '(a, f12.8)', 'hottest ', maxval(u)
  print '(a, es12.4)', 'change  ', change
end program heat
