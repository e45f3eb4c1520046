! Gauss and Seidel's iteration for Poisson's equation: red points, then black ones: none needs another of its colour.
module plate
  implicit none
  integer, parameter :: n = 34
  real(8), parameter :: omega = 1.4d0
contains
  subroutine sweep(u, f, colour)
    real(8), intent(inout) :: u(n, n)
    real(8), intent(in) :: f(n, n)
    integer, intent(in) :: colour
    real(8) :: r
    integer :: i, j
    !$omp parallel do private(i, r) schedule(runtime)
    do j = 2, n - 1
      do i = 2 + mod(j + colour, 2), n - 1, 2
        r = u(i - 1, j) + u(i + 1, j) + u(i, j - 1) + u(i, j + 1) - 4 * u(i, j) - f(i, j)
        u(i, j) = u(i, j) + omega / 4 * r
      end do
    end do
    !$omp end parallel do
  end subroutine sweep

  subroutine remainder(u, f, total)
    real(8), intent(in) :: u(n, n), f(n, n)
    real(8), intent(out) :: total
    integer :: i, j
    total = 0
    !$omp parallel do private(i) reduction(+: total) schedule(runtime)
    do j = 2, n - 1
      do i = 2, n - 1
        total = total + abs(u(i - 1, j) + u(i + 1, j) + u(i, j - 1) + u(i, j + 1) - 4 * u(i, j) - f(i, j))
      end do
    end do
    !$omp end parallel do
  end subroutine remainder
end module plate

program redblack
  use plate
  implicit none
  real(8) :: u(n, n), f(n, n), total
  integer :: k
  u = 0
  f = 0
  u(1, :) = 1.1d0
  f(n / 2, n / 3) = -0.5d0
  do k = 1, 8
    call sweep(u, f, 0)
    call sweep(u, f, 1)
  end do
  call remainder(u, f, total)
  print '(a, es23.15)', 'remainder', total
  print '(a, es23.15)', 'checksum ', sum(u)
end program redblack
