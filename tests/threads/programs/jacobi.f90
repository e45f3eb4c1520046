! Heat in a square plate, by Jacobi's iteration; the largest change of a sweep is a reduction.
program jacobi
  implicit none
  integer, parameter :: n = 40, sweeps = 12
  real(8) :: a(n, n), b(n, n), h, change
  integer :: i, j, k

  do j = 1, n
    do i = 1, n
      a(i, j) = mod(7 * i + 3 * j, 11)
    end do
  end do
  b = a
  h = 0.25d0
  do k = 1, sweeps
    change = 0
    !$omp parallel do private(i) reduction(max: change) schedule(runtime)
    do j = 2, n - 1
      do i = 2, n - 1
        b(i, j) = h * (a(i - 1, j) + a(i + 1, j) + a(i, j - 1) + a(i, j + 1))
        change = max(change, abs(b(i, j) - a(i, j)))
      end do
    end do
    !$omp end parallel do
    !$omp parallel do private(i) schedule(runtime)
    do j = 2, n - 1
      do i = 2, n - 1
        a(i, j) = b(i, j)
      end do
    end do
    !$omp end parallel do
  end do
  print '(a, es23.15)', 'change   ', change
  print '(a, es23.15)', 'checksum ', sum(a * b)
end program jacobi
