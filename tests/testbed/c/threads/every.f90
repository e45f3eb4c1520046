! Each generic of the module for each kind of argument, and digests of arrays of all shapes. Sites are plain numbers.
program every
  use sp_trace
  implicit none
  integer(8) :: v
  integer :: k
  real(8) :: a(6, 5), s
  real(8), allocatable :: al(:)
  real(8), pointer :: p(:)
  complex(8) :: z(4)
  logical(4) :: l(3)
  character(5) :: t(2)
  integer(2) :: h(7)
  integer(1) :: tiny(0)

  v = sp_region(1)
  call sp_enter(1, v)
  call sp_loop(2, 1, 9, 2)
  if (.not. sp_iter(3, 5)) stop 3
  if (.not. sp_iter(3, 5_8)) stop 4
  call sp_loop_end(2)
  call sp_loop(2, 1_8, 9, 2)
  call sp_loop_end(2)
  call sp_loop2(4, 1, 2, 1, 3, 4, 1)
  if (.not. sp_iter(5, 2, 3)) stop 5
  if (.not. sp_iter(5, 2_8, 3)) stop 6
  call sp_loop_end(4)
  call sp_loop3(6, 1_8, 2_8, 1_8, 3_8, 4_8, 1_8, 5_8, 6_8, 1_8)
  if (.not. sp_iter(7, 1, 3, 5)) stop 7
  if (.not. sp_iter(7, 1, 3, 5_8)) stop 8
  call sp_loop_end(6)
  do k = sp_kind_call, sp_kind_private_unset
    call sp_event(100 + k, k, merge(3, 0, k == sp_kind_sections))
  end do
  call sp_event(9, sp_kind_barrier, 0_8)
  call sp_leave(1, v)
  call sp_region_end(1, v)

  call sp_write(20, -1_1);  call sp_write(20, -2_2);  call sp_write(20, -3);  call sp_write(20, -4_8)
  call sp_write(20, 0.5);   call sp_write(20, 1d300)
  call sp_write(20, (1.0, -2.0));  call sp_write(20, (3d0, -4d0))
  call sp_write(20, .true._1); call sp_write(20, .false._2); call sp_write(20, .true.); call sp_write(20, .false._8)
  call sp_write(20, 'a text')
  call sp_read(21, 7);  call sp_read(21, 7d0);  call sp_read(21, 'x');  call sp_read(21, .true.)
  if (.not. sp_on(1)) stop 9

  a = reshape([(k * 1d0, k = 1, 30)], [6, 5])
  s = 2.5d0
  allocate(al(4), source=[1d0, 2d0, 3d0, 4d0])
  allocate(p(3), source=[7d0, 8d0, 9d0])
  z = [(cmplx(k, -k, 8), k = 1, 4)]
  l = [.true., .false., .true.]
  t = ['abcde', 'fghij']
  h = [(int(k, 2), k = 1, 7)]
  call sp_digest(30, a)
  call sp_digest(31, a(2:5, 1:5:2))
  call sp_digest(32, a(6:1:-2, 3))
  call sp_digest(33, s)
  call sp_digest(34, al)
  call sp_digest(35, p)
  call sp_digest(36, z)
  call sp_digest(37, l)
  call sp_digest(38, t)
  call sp_digest(39, h(::3))
  call sp_digest(40, tiny)
  call sp_digest(41, t(2)(2:4))
  call sp_digest(42, z(4:1:-1))
  call inner(a, a(:, 2), 6)
contains
  subroutine inner(x, y, n)
    integer, intent(in) :: n
    real(8), intent(in) :: x(:, :), y(n)
    call sp_digest(43, x)
    call sp_digest(44, y)
    call sp_digest(45, x(2, :))
  end subroutine inner
end program every
