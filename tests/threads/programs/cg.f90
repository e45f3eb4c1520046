! Conjugate gradients in one parallel region: the loops are orphaned, in procedures that all threads call.
module vectors
  implicit none
  integer, parameter :: n = 200
  real(8) :: x(n), r(n), p(n), q(n), rr, pq, before, alpha
contains
  subroutine multiply()
    integer :: i
    !$omp do schedule(runtime)
    do i = 1, n
      q(i) = 4 * p(i)
      if (i > 1) q(i) = q(i) - p(i - 1)
      if (i < n) q(i) = q(i) - p(i + 1)
    end do
    !$omp end do
  end subroutine multiply

  subroutine product_pq()
    integer :: i
    !$omp do reduction(+: pq) schedule(runtime)
    do i = 1, n
      pq = pq + p(i) * q(i)
    end do
    !$omp end do
  end subroutine product_pq

  subroutine advance()
    integer :: i
    !$omp do reduction(+: rr) schedule(runtime)
    do i = 1, n
      x(i) = x(i) + alpha * p(i)
      r(i) = r(i) - alpha * q(i)
      rr = rr + r(i) * r(i)
    end do
    !$omp end do
    !$omp do schedule(runtime)
    do i = 1, n
      p(i) = r(i) + rr / before * p(i)
    end do
    !$omp end do
  end subroutine advance
end module vectors

program cg
  use vectors
  implicit none
  integer :: i, k
  do i = 1, n
    x(i) = 0
    r(i) = 1 + mod(5 * i, 7)
  end do
  p = r
  rr = dot_product(r, r)
  !$omp parallel private(k)
  do k = 1, 6
    call multiply()
    !$omp single
    pq = 0
    !$omp end single
    call product_pq()
    !$omp single
    alpha = rr / pq
    before = rr
    rr = 0
    !$omp end single
    call advance()
  end do
  !$omp end parallel
  print '(a, es23.15)', 'checksum ', sum(x)
end program cg
