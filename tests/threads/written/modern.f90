module shapes
  implicit none
  private
  public :: shape, disc, scale_all, grow, counter, op_max
  type, abstract :: shape
    real(8) :: area = 0
  contains
    procedure(scaling), deferred :: scale
    procedure :: set => set_area
  end type shape
  type, extends(shape) :: disc
    real(8) :: r = 1
  contains
    procedure :: scale => scale_disc
  end type disc
  abstract interface
    subroutine scaling(self, by)
      import :: shape
      class(shape), intent(inout) :: self
      real(8), intent(in) :: by
    end subroutine scaling
  end interface
  interface grow
    module procedure grow_one
    module procedure grow_many
  end interface grow
  integer, save :: counter = 0
  !$omp threadprivate(counter)
  interface op_max
    module procedure op_max_r
  end interface
contains
  real(8) function op_max_r(a, b)
    real(8), intent(in) :: a, b
    op_max_r = max(a, b)
  end function op_max_r
  subroutine scale_disc(self, by)
    class(disc), intent(inout) :: self
    real(8), intent(in) :: by
    self%r = self%r * by
    self%area = 3.14d0 * self%r**2
  end subroutine scale_disc
  subroutine set_area(self, a)
    class(shape), intent(inout) :: self
    real(8), intent(in) :: a
    self%area = a
    select type (self)
    type is (disc)
      self%r = sqrt(a)
    class default
      self%area = -1
    end select
  end subroutine set_area
  subroutine grow_one(x)
    real(8), intent(inout) :: x
    x = x + 1
  end subroutine grow_one
  subroutine grow_many(x)
    real(8), intent(inout) :: x(:)
    integer :: i
    !$omp do
    do i = 1, size(x)
      x(i) = x(i) + 1
      counter = counter + 1
    end do
    !$omp end do
  end subroutine grow_many
  subroutine scale_all(d, by)
    type(disc), intent(inout) :: d(:)
    real(8), intent(in) :: by
    integer :: i
    !$omp parallel do
    do i = 1, size(d)
      call d(i)%scale(by)
      call d(i)%set(d(i)%area + i)
      if (inner(i) > 3) d(i)%r = inner(i)
    end do
    !$omp end parallel do
  contains
    function inner(k) result(m)
      integer, intent(in) :: k
      real(8) :: m
      m = k * by
      if (m > 100) then
        m = 100
        return
      end if
    end function inner
  end subroutine scale_all
end module shapes

program modern
  use shapes
  implicit none
  type(disc) :: d(6)
  class(shape), allocatable :: one
  real(8) :: x(20), y(20), w(3), acc(3), h, total
  real(8), allocatable :: tmp(:)
  integer :: i, j, k, last
  logical :: found
  integer(2) :: short
  real(16) :: quad
  complex(4) :: c4
  character(len=:), allocatable :: name
  x = 1; y = 2; acc = 0; h = 3; total = 0
  call scale_all(d, 1.5d0)
  allocate(disc :: one)
  call one%set(4d0)
  allocate(character(len=3) :: name)
  name = 'xyz'
  short = 5_2; quad = 1.25_16; c4 = (1., 2.)
  c4%re = 3.; x(2:4) = x(4:6) + 1; x([1, 5]) = 7
  !$omp parallel default(private) shared(x, y, total, acc, last) firstprivate(h)
  allocate(tmp(3))
  tmp = h
  !$omp do reduction(+: acc) lastprivate(last) firstprivate(last)
  do i = 1, 20
    last = i
    do concurrent (k = 1:3)
      acc(k) = acc(k) + tmp(k)
    end do
    check: if (i > 3) then
      x(i) = y(i)
    else if (i == 2) then check
      x(i) = 4
    else check
      x(i) = -y(i)
    end if check
  end do
  !$omp end do
  deallocate(tmp)
  call grow(y)
  !$omp single
  total = sum(y)
  !$omp end single nowait
  !$omp end parallel
  i = 0
  do while (i < 5)
    i = i + 1
    total = total + i
  end do
  do
    i = i - 1
    if (i < 2) exit
    if (i == 3) cycle
    total = total * 1.5d0
  end do
  !$omp parallel do lastprivate(j, k) collapse(3) private(h)
  do i = 1, 2
    do j = 1, 3
      do k = 1, 2
        h = i * j * k
        x(i + 2 * j + 6 * k - 7) = h
      end do
    end do
  end do
  !$omp end parallel do
  found = .false.
  !$omp parallel do reduction(.or.: found) schedule(guided, 2) if(total > 0) num_threads(3)
  do i = 20, 1, -2
    if (x(i) > 3) found = .true.
  end do
  !$omp parallel sections private(i) lastprivate(h)
  w(1) = 3
  do i = 1, 2
    w(1) = w(1) + i
  end do
  !$omp section
  w(2) = 4; h = 5
  !$omp section
  h = 7
  !$omp end parallel sections
  w(3) = h
  !$omp parallel master
  w(3) = w(3) + 1
  !$omp end parallel master
  !$omp parallel workshare
  x = x + 1
  !$omp end parallel workshare
  !$omp parallel do ordered(1)
  do i = 2, 5
    !$omp ordered depend(sink: i - 1)
    x(i) = x(i - 1) + 1
    !$omp ordered depend(source)
  end do
  !$omp taskloop
  do i = 1, 3
    y(i) = 0
  end do
  counter = counter + 1
  print '(10es12.4)', x, y, acc, w, total, d%r, d%area
  print *, found, short, quad, c4, name, last, j, k, one%area
end program modern
