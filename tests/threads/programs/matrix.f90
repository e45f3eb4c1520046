! A product of matrices, its two outer loops as one, and then a tensor of three indices, all three as one.
program matrix
  implicit none
  integer, parameter :: n = 22, m = 18, l = 14
  real(8) :: a(n, l), b(l, m), c(n, m), d(6, 7, 8), s
  integer(8) :: total
  integer :: i, j, k

  do j = 1, l
    do i = 1, n
      a(i, j) = 1d0 / (i + j)
    end do
    do i = 1, m
      b(j, i) = mod(i * j, 9) - 4
    end do
  end do
  !$omp parallel do collapse(2) private(k, s) schedule(runtime)
  do j = 1, m
    do i = 1, n
      s = 0
      do k = 1, l
        s = s + a(i, k) * b(k, j)
      end do
      c(i, j) = s
    end do
  end do
  !$omp end parallel do
  total = 0
  !$omp parallel do collapse(3) reduction(+: total) schedule(runtime)
  do k = 1, 8
    do j = 7, 1, -1
      do i = 1, 6, 1
        d(i, j, k) = c(i + j, k) * c(k, i + 1)
        if (d(i, j, k) > 0) then
          total = total + 1
        end if
      end do
    end do
  end do
  !$omp end parallel do
  print '(a, i8)', 'positive ', total
  print '(a, 2es23.15)', 'checksum ', sum(c), sum(d)
end program matrix
