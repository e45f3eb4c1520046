! A matrix into its triangles, columns by threads; then two vectors through them.
program lu
  implicit none
  integer, parameter :: n = 30
  real(8) :: a(n, n), x(n), scale, top
  integer :: i, j, k
  logical :: even

  do j = 1, n
    do i = 1, n
      a(i, j) = mod(i * j, 13) + 1d0 / (i + j)
    end do
    a(j, j) = a(j, j) + 8 * n
  end do
  x = 1
  do k = 1, n - 1
    scale = 1 / a(k, k)
    do i = k + 1, n
      a(i, k) = a(i, k) * scale
    end do
    !$omp parallel do firstprivate(k) private(i) lastprivate(top) schedule(runtime)
    do j = k + 1, n
      top = a(k, j)
      do i = k + 1, n
        a(i, j) = a(i, j) - a(i, k) * top
      end do
      x(j) = x(j) + scale * x(k) * top
    end do
    !$omp end parallel do
    x(k + 1) = x(k + 1) + top / n
  end do
  do k = 1, n
    even = mod(k, 2) == 0
    !$omp parallel do if(n - k > 4) firstprivate(even) schedule(runtime)
    do i = k + 1, n
      if (even) cycle
      x(i) = x(i) - a(i, k) * x(k)
    end do
    !$omp end parallel do
  end do
  print '(a, 2es23.15)', 'checksum ', sum(a), sum(x)
end program lu
