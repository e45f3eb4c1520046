module kinds_m
  implicit none
  integer, parameter :: dp = kind(1.0d0)
  real(dp), save :: table(20) = 0
  real(dp) :: module_total
contains
  pure function square(x) result(y)
    real(dp), intent(in) :: x
    real(dp) :: y
    y = x * x
  end function square
  elemental subroutine twice(x)
    real(dp), intent(inout) :: x
    x = 2 * x
  end subroutine twice
  recursive function fact(n) result(f)
    integer, intent(in) :: n
    integer :: f
    if (n <= 1) then
      f = 1
      return
    end if
    f = n * fact(n - 1)
  end function fact
end module kinds_m

subroutine outer_sub(a, n, flag, opt)
  use kinds_m, only: dp, sq => square
  implicit none
  integer, intent(in) :: n
  real(dp), intent(inout) :: a(n, *)
  logical, intent(out) :: flag
  real(dp), intent(in), optional :: opt
  integer :: i, j; real(dp) :: tmp
  flag = .false.
  if (present(opt)) tmp = opt
  !$omp parallel do default(none) shared(a, n) private(i, tmp) &
  !$omp&  schedule(static) collapse(1)
  do j = 1, 3
    do i = 1, n
      tmp = sq(real(i, dp)); a(i, j) = tmp + &
        ! a comment in between
        1.0_dp
      if (tmp > 10) cycle
      if (i == 2) a(i, j) = a(i, j) + 1; if (i == 3) a(i, j) = 7
    end do
  end do
  !$omp end parallel do
  flag = any(a(:, 1:3) > 10)
end subroutine outer_sub

program awkward
  use kinds_m
  implicit none
  interface
    subroutine outer_sub(a, n, flag, opt)
      import :: dp
      integer, intent(in) :: n
      real(dp), intent(inout) :: a(n, *)
      logical, intent(out) :: flag
      real(dp), intent(in), optional :: opt
    end subroutine outer_sub
  end interface
  type :: inner_t
    integer :: k = 0
    real(dp) :: v(3) = 0
  end type
  type, extends(inner_t) :: cell
    real(dp) :: x = 0
    complex(dp) :: z = (0, 0)
    type(inner_t) :: inner
    real(dp), allocatable :: d(:)
    real(dp), pointer :: p(:) => null()
    character(len=8) :: name = 'none'
  end type cell
  real(dp), allocatable :: a(:, :), b(:)
  real(dp), target :: t(10)
  real(dp), pointer :: p(:)
  type(cell) :: c, cells(4)
  integer :: i, j, k, idx(10), n, ios
  logical :: flag
  character(len=40) :: text, line
  complex(dp) :: z
  real(4) :: r4
  integer(8) :: big
  logical(1) :: small
  real(dp) :: total, best, s
  n = 10
  allocate(a(n, 3), b(n), source = 1.0_dp)
  a = 1; b = 2
  call outer_sub(a, n, flag)
  p => t
  p = [(real(i, dp), i = 1, 10)]
  idx = [(11 - i, i = 1, 10)]
  total = 0; best = -1
  !$omp parallel do private(j, s) reduction(+:total) reduction(max: best) ordered
  outer: do i = 1, n
    s = 0
    inner: do j = 1, n
      if (j > i) exit inner
      if (mod(j, 2) == 0) cycle inner
      s = s + b(j)
      select case (j)
      case (1)
        s = s + 1
      case (2:5)
        s = s - 1
      case default
        s = s * 2
      end select
    end do inner
    if (s < 0) cycle outer
    total = total + s; best = max(best, s)
    t(idx(i)) = s
    !$omp ordered
    text = 'it''s'; t(idx(i)) = s ! comment
    !$omp end ordered
  end do outer
  !$omp end parallel do
  !$omp parallel private(k)
  !$omp single
  c%x = 3; c%k = 4; c%v(2) = 5; c%inner%k = 6
  allocate(c%d(3)); c%d = 1.5_dp
  c%name = 'abc'
  !$omp end single
  !$omp do
  do i = 1, 4
    cells(i)%x = i
    cells(i)%v = i * 2
    cells(i)%inner%v(2:3) = 4
    cells(i)%z = cmplx(i, 2 * i, dp)
    block
      integer :: loc_k
      loc_k = i
      cells(i)%k = loc_k
    end block
    associate (cc => cells(i), v => cells(i)%v)
      cc%inner%k = 3
      v(1) = 9
    end associate
  end do
  !$omp end do
  !$omp master
  k = 3; r4 = 1.5; big = 12345678901_8; small = .true.; z = (1, 2)
  !$omp end master
  !$omp barrier
  !$omp critical (upd)
  module_total = module_total + 0
  !$omp end critical (upd)
  !$omp atomic
  k = k + 1
  !$omp atomic update
  module_total = module_total + 0
  !$omp end atomic
  !$omp sections
  do i = 1, 3
    a(i, 1) = i
  end do
  !$omp section
  a(:, 2) = 4
  !$omp section
  where (a(:, 3) > 2)
    a(:, 3) = 2
  elsewhere
    a(:, 3) = 1
  end where
  !$omp end sections
  !$omp workshare
  t = t + 1
  !$omp end workshare
  !$omp end parallel
  forall (i = 1:n) b(i) = b(i) + i
  where (b > 5) b = 5
  write (line, '(i5)') n
  read (line, *) k
  read (line, *, iostat=ios) n
  call twice(b)
  call twice(b(3))
  !$omp parallel do collapse(2) private(i, j) schedule(dynamic)
  do j = 1, 3
    ! perfectly nested
    do i = 1, n
      a(i, j) = a(i, j) + fact(3)
      if (i > 100) stop 'never'
    end do
  end do
  !$omp simd
  do i = 1, n
    b(i) = b(i) + 1
  end do
  !$omp parallel
  !$omp do simd private(s)
  do i = 1, n
    s = b(i)
    b(i) = s + 1
  end do
  !$omp end do simd nowait
  !$omp single
  !$omp task shared(k)
  k = k + 1
  !$omp end task
  !$omp taskwait
  !$omp end single
  !$omp end parallel
  !$ k = k + 0
  print '(a,10f10.4)', 'b ', b
  print *, sum(a), total, best, trim(text), trim(line), cells%x, cells%z, c%d, r4, big, small, z, k, module_total, table(1)
end program awkward
