module t
  implicit none
  type field
    real(8), allocatable :: d(:, :)
    real(8) :: v(3) = 0, s = 0, m(2, 2) = 0
  end type
  type tile
    type(field) :: f
    integer :: n = 0
    real(8), pointer :: p(:) => null()
  end type
  type chunk
    type(tile), allocatable :: tiles(:)
    type(tile) :: fixed(2)
  end type
  type(chunk) :: c
end module
program tiles
  use t
  implicit none
  integer :: i, j
  type(field) :: grid(3, 2)
  allocate(c%tiles(4))
  do i = 1, 4
    allocate(c%tiles(i)%f%d(5, 6))
  end do
  do j = 1, 2
  !$omp parallel do
  do i = 1, 4
    c%tiles(i)%f%d = i
    c%tiles(i)%f%v(2) = i
    c%tiles(i)%f%m(2, 1) = i
    c%tiles(i)%f%s = i
    c%tiles(i)%n = i
    allocate(c%tiles(i)%p(2))
    c%tiles(i)%p(1) = i
    c%tiles(i)%p = 3
  end do
  !$omp parallel do
  do i = 1, 2
    c%fixed(i)%f%s = 3
    c%fixed(i)%f%v = 3
    grid(:, i)%s = 4
    grid(2, i)%v(3) = 4
    grid(2, i)%m = 4
    c%fixed(i)%f = c%fixed(1)%f
  end do
  end do
  print *, c%tiles(3)%f%d(1, 1), grid%s
end program
