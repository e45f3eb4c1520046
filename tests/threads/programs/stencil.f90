! A stencil of nine points on grids that are allocated, and particles of a derived type that the field moves.
module grids
  implicit none
  type :: grid
    integer :: nx = 0, ny = 0
    real(8), allocatable :: now(:, :), next(:, :)
  end type grid
  type :: particle
    real(8) :: x, y
    integer :: moved
  end type particle
contains
  function mean(u, i, j) result(m)
    real(8), intent(in) :: u(:, :)
    integer, intent(in) :: i, j
    real(8) :: m, near(9)
    integer :: k
    do k = 1, 9
      near(k) = u(i + mod(k, 3) - 1, j + (k - 1) / 3 - 1)
    end do
    m = sum(near) / 9
  end function mean

  subroutine advance(g, p, largest)
    type(grid), intent(inout) :: g
    type(particle), intent(inout) :: p(:)
    real(8), intent(out) :: largest
    integer :: i, j
    largest = 0
    !$omp parallel private(i, j)
    !$omp do schedule(runtime)
    do j = 2, g%ny - 1
      do i = 2, g%nx - 1
        g%next(i, j) = mean(g%now, i, j)
      end do
    end do
    !$omp end do
    !$omp do schedule(runtime)
    do j = 2, g%ny - 1
      g%now(2:g%nx - 1, j) = g%next(2:g%nx - 1, j)
    end do
    !$omp end do nowait
    !$omp do schedule(runtime) reduction(max: largest)
    do i = 1, size(p)
      p(i)%x = p(i)%x + 0.1d0 * g%next(2 + mod(i, g%nx - 2), 3)
      p(i)%y = p(i)%y - 0.1d0 * p(i)%x
      p(i)%moved = p(i)%moved + 1
      largest = max(largest, abs(p(i)%y))
    end do
    !$omp end do
    !$omp end parallel
  end subroutine advance
end module grids

program stencil
  use grids
  implicit none
  type(grid) :: g
  type(particle), allocatable :: p(:)
  real(8) :: largest
  integer :: i, j, k
  g%nx = 26
  g%ny = 30
  allocate(g%now(g%nx, g%ny), g%next(g%nx, g%ny), p(50))
  do j = 1, g%ny
    do i = 1, g%nx
      g%now(i, j) = mod(i * i + 3 * j, 10)
    end do
  end do
  g%next = g%now
  do i = 1, size(p)
    p(i) = particle(0.5d0 * i, 1d0 / i, 0)
  end do
  do k = 1, 6
    call advance(g, p, largest)
  end do
  print '(a, es23.15, i6)', 'largest  ', largest, sum(p%moved)
  print '(a, 2es23.15)', 'checksum ', sum(g%now), sum(p%x + p%y)
end program stencil
