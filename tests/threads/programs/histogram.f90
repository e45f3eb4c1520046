! Counts in classes with ATOMIC, the extremes with CRITICAL: each thread keeps its own and hands them over at the end;
! then a check number of them all, a product modulo a prime, so that the order in which it is built does not matter.
program histogram
  implicit none
  integer, parameter :: n = 3000, classes = 5, prime = 65521
  integer :: values(n), counts(classes), smallest, largest, low, high, i, c, k, seed
  integer(8) :: product, check
  seed = 12345
  do i = 1, n
    seed = mod(seed * 137 + 1021, 65536)
    values(i) = seed / 16
  end do
  counts = 0
  smallest = huge(smallest)
  largest = -1
  !$omp parallel private(low, high, c) shared(counts, smallest, largest)
  low = huge(low)
  high = -1
  !$omp do schedule(runtime)
  do i = 1, n
    c = 1 + mod(values(i), classes)
    !$omp atomic
    counts(c) = counts(c) + 1
    low = min(low, values(i))
    high = max(high, values(i))
  end do
  !$omp end do nowait
  !$omp critical (extremes)
  smallest = min(smallest, low)
  largest = max(largest, high)
  !$omp end critical (extremes)
  !$omp end parallel
  product = 1
  !$omp parallel do private(k, check) schedule(runtime)
  do i = 1, n, 3
    if (values(i) > 1000) then
      !$omp critical
      check = product
      do k = 1, 5
        check = mod(check * (values(i) + k), prime)
      end do
      product = check
      !$omp end critical
    end if
  end do
  !$omp end parallel do
  print '(a, 3i8)', 'extremes ', smallest, largest, product
  print '(a, 9i8)', 'checksum ', counts, sum(counts)
end program histogram
