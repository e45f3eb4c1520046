! Teams in teams: the outer loop has the blocks, the inner ones their rows; then three sections, each with its own work.
program nested
  implicit none
  integer, parameter :: blocks = 4, n = 24
  real(8) :: u(n, n, blocks), sums(blocks), s, low, high, norm
  integer :: i, j, b
  !$ external :: omp_set_max_active_levels
  !$ call omp_set_max_active_levels(2)

  !$omp parallel do private(i, j, s) num_threads(2) schedule(static, 1)
  do b = 1, blocks
    !$omp parallel do private(i) num_threads(2) schedule(runtime)
    do j = 1, n
      do i = 1, n
        u(i, j, b) = mod(i * j + b, 7) - 3
      end do
    end do
    !$omp end parallel do
    s = 0
    !$omp parallel num_threads(2)
    !$omp do reduction(+: s) schedule(runtime)
    do j = 1, n
      s = s + u(j, j, b)
    end do
    !$omp end do
    !$omp end parallel
    sums(b) = s
  end do
  !$omp end parallel do
  !$omp parallel sections
  !$omp section
  low = minval(u)
  !$omp section
  high = maxval(u)
  !$omp section
  norm = 0
  do b = 1, blocks
    norm = norm + sums(b)**2
  end do
  !$omp end parallel sections
  print '(a, 3es23.15)', 'extremes ', low, high, norm
  print '(a, es23.15)', 'checksum ', sum(u * u) + sum(sums)
end program nested
