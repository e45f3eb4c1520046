! A step of the heat equation, and how much it has changed. One name is missing on purpose: see docs/threads.md.
subroutine step(u, v, n, f, change)
  implicit none
  integer, intent(in) :: n
  real(8), intent(inout) :: u(n, n), v(n, n)
  real(8), intent(in) :: f
  real(8), intent(out) :: change
  real(8) :: flux
  integer :: i, j

!$omp parallel do private(i)
  do j = 2, n - 1
    do i = 2, n - 1
      flux = v(i - 1, j) + v(i + 1, j) + v(i, j - 1) + v(i, j + 1) - 4 * v(i, j)
      u(i, j) = v(i, j) + f * flux
    end do
  end do
!$omp end parallel do

  change = 0
!$omp parallel do private(i) reduction(+:change)
  do j = 2, n - 1
    do i = 2, n - 1
      change = change + abs(u(i, j) - v(i, j))
      v(i, j) = u(i, j)
    end do
  end do
!$omp end parallel do
end subroutine step
