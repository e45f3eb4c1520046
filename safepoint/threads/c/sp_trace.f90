! Made by `python -m safepoint.threads.interface`: change that. The calls are described in sp_trace.h.
module sp_trace
  use, intrinsic :: iso_c_binding
  implicit none
  private
  public :: sp_region, sp_region_end, sp_enter, sp_leave, sp_loop, sp_loop2, sp_loop3, sp_iter, sp_loop_end
  public :: sp_on, sp_event, sp_write, sp_read, sp_digest, sp_site
  integer(c_int32_t), parameter, public :: sp_kind_call = 11
  integer(c_int32_t), parameter, public :: sp_kind_return = 12
  integer(c_int32_t), parameter, public :: sp_kind_single = 13
  integer(c_int32_t), parameter, public :: sp_kind_single_end = 14
  integer(c_int32_t), parameter, public :: sp_kind_master = 15
  integer(c_int32_t), parameter, public :: sp_kind_master_end = 16
  integer(c_int32_t), parameter, public :: sp_kind_critical = 17
  integer(c_int32_t), parameter, public :: sp_kind_critical_end = 18
  integer(c_int32_t), parameter, public :: sp_kind_ordered = 19
  integer(c_int32_t), parameter, public :: sp_kind_ordered_end = 20
  integer(c_int32_t), parameter, public :: sp_kind_barrier = 21
  integer(c_int32_t), parameter, public :: sp_kind_atomic = 22
  integer(c_int32_t), parameter, public :: sp_kind_atomic_end = 23
  integer(c_int32_t), parameter, public :: sp_kind_sections = 24
  integer(c_int32_t), parameter, public :: sp_kind_sections_end = 25
  integer(c_int32_t), parameter, public :: sp_kind_private_unset = 26

  interface
    function sp_region(site) bind(c, name="sp_region")
      import
      integer(c_int32_t), value :: site
      integer(c_int64_t) :: sp_region
    end function sp_region
    subroutine sp_region_end(site, visit) bind(c, name="sp_region_end")
      import
      integer(c_int32_t), value :: site
      integer(c_int64_t), value :: visit
    end subroutine sp_region_end
    subroutine sp_enter(site, visit) bind(c, name="sp_enter")
      import
      integer(c_int32_t), value :: site
      integer(c_int64_t), value :: visit
    end subroutine sp_enter
    subroutine sp_leave(site, visit) bind(c, name="sp_leave")
      import
      integer(c_int32_t), value :: site
      integer(c_int64_t), value :: visit
    end subroutine sp_leave
    subroutine sp_loop_end(site) bind(c, name="sp_loop_end")
      import
      integer(c_int32_t), value :: site
    end subroutine sp_loop_end
    subroutine sp_loop_c(site, lower1, upper1, step1) bind(c, name="sp_loop")
      import
      integer(c_int32_t), value :: site
      integer(c_int64_t), value :: lower1, upper1, step1
    end subroutine sp_loop_c
    subroutine sp_loop2_c(site, lower1, upper1, step1, lower2, upper2, step2) bind(c, name="sp_loop2")
      import
      integer(c_int32_t), value :: site
      integer(c_int64_t), value :: lower1, upper1, step1, lower2, upper2, step2
    end subroutine sp_loop2_c
    subroutine sp_loop3_c(site, lower1, upper1, step1, lower2, upper2, step2, lower3, upper3, step3) bind(c, name="sp_loop3")
      import
      integer(c_int32_t), value :: site
      integer(c_int64_t), value :: lower1, upper1, step1, lower2, upper2, step2, lower3, upper3, step3
    end subroutine sp_loop3_c
    function sp_iter_i4(site, i) bind(c, name="sp_iter_i4")
      import
      integer(c_int32_t), value :: site
      integer(c_int32_t), value :: i
      logical(c_bool) :: sp_iter_i4
    end function sp_iter_i4
    function sp_iter_i8(site, i) bind(c, name="sp_iter_i8")
      import
      integer(c_int32_t), value :: site
      integer(c_int64_t), value :: i
      logical(c_bool) :: sp_iter_i8
    end function sp_iter_i8
    function sp_iter2_c(site, i, j) bind(c, name="sp_iter2")
      import
      integer(c_int32_t), value :: site
      integer(c_int64_t), value :: i, j
      integer(c_int) :: sp_iter2_c
    end function sp_iter2_c
    function sp_iter3_c(site, i, j, k) bind(c, name="sp_iter3")
      import
      integer(c_int32_t), value :: site
      integer(c_int64_t), value :: i, j, k
      integer(c_int) :: sp_iter3_c
    end function sp_iter3_c
    function sp_on(site) bind(c, name="sp_on_b")
      import
      integer(c_int32_t), value :: site
      logical(c_bool) :: sp_on
    end function sp_on
    subroutine sp_event_8(site, kind, number) bind(c, name="sp_event")
      import
      integer(c_int32_t), value :: site
      integer(c_int32_t), value :: kind
      integer(c_int64_t), value :: number
    end subroutine sp_event_8
    subroutine sp_digest(site, x) bind(c, name="sp_digest_d")
      import
      integer(c_int32_t), value :: site
      type(*), dimension(..), intent(in) :: x
    end subroutine sp_digest
    function sp_site_c(type, name, file, line, line2) bind(c, name="sp_site")
      import
      character(kind=c_char), intent(in) :: type(*), name(*), file(*)
      integer(c_int32_t), value :: line, line2
      integer(c_int32_t) :: sp_site_c
    end function sp_site_c
    subroutine sp_write_i1(site, x) bind(c, name="sp_write_i1")
      import
      integer(c_int32_t), value :: site
      integer(c_int8_t), value :: x
    end subroutine sp_write_i1
    subroutine sp_write_i2(site, x) bind(c, name="sp_write_i2")
      import
      integer(c_int32_t), value :: site
      integer(c_int16_t), value :: x
    end subroutine sp_write_i2
    subroutine sp_write_i4(site, x) bind(c, name="sp_write_i4")
      import
      integer(c_int32_t), value :: site
      integer(c_int32_t), value :: x
    end subroutine sp_write_i4
    subroutine sp_write_i8(site, x) bind(c, name="sp_write_i8")
      import
      integer(c_int32_t), value :: site
      integer(c_int64_t), value :: x
    end subroutine sp_write_i8
    subroutine sp_write_r4(site, x) bind(c, name="sp_write_r4")
      import
      integer(c_int32_t), value :: site
      real(c_float), value :: x
    end subroutine sp_write_r4
    subroutine sp_write_r8(site, x) bind(c, name="sp_write_r8")
      import
      integer(c_int32_t), value :: site
      real(c_double), value :: x
    end subroutine sp_write_r8
    subroutine sp_write_parts4(site, re, im) bind(c, name="sp_write_parts4")
      import
      integer(c_int32_t), value :: site
      real(c_float), value :: re, im
    end subroutine sp_write_parts4
    subroutine sp_write_parts8(site, re, im) bind(c, name="sp_write_parts8")
      import
      integer(c_int32_t), value :: site
      real(c_double), value :: re, im
    end subroutine sp_write_parts8
    subroutine sp_write_r16c(site, low, high) bind(c, name="sp_write_r16")
      import
      integer(c_int32_t), value :: site
      integer(c_int64_t), value :: low, high
    end subroutine sp_write_r16c
    subroutine sp_write_c16c(site, a, b, c, d) bind(c, name="sp_write_c16")
      import
      integer(c_int32_t), value :: site
      integer(c_int64_t), value :: a, b, c, d
    end subroutine sp_write_c16c
    subroutine sp_write_l1c(site, x) bind(c, name="sp_write_l1")
      import
      integer(c_int32_t), value :: site
      integer(c_int8_t), value :: x
    end subroutine sp_write_l1c
    subroutine sp_write_l2c(site, x) bind(c, name="sp_write_l2")
      import
      integer(c_int32_t), value :: site
      integer(c_int16_t), value :: x
    end subroutine sp_write_l2c
    subroutine sp_write_l4c(site, x) bind(c, name="sp_write_l4")
      import
      integer(c_int32_t), value :: site
      integer(c_int32_t), value :: x
    end subroutine sp_write_l4c
    subroutine sp_write_l8c(site, x) bind(c, name="sp_write_l8")
      import
      integer(c_int32_t), value :: site
      integer(c_int64_t), value :: x
    end subroutine sp_write_l8c
    subroutine sp_write_sc(site, x, length) bind(c, name="sp_write_s")
      import
      integer(c_int32_t), value :: site
      character(kind=c_char), intent(in) :: x(*)
      integer(c_size_t), value :: length
    end subroutine sp_write_sc
    subroutine sp_read_i1(site, x) bind(c, name="sp_read_i1")
      import
      integer(c_int32_t), value :: site
      integer(c_int8_t), value :: x
    end subroutine sp_read_i1
    subroutine sp_read_i2(site, x) bind(c, name="sp_read_i2")
      import
      integer(c_int32_t), value :: site
      integer(c_int16_t), value :: x
    end subroutine sp_read_i2
    subroutine sp_read_i4(site, x) bind(c, name="sp_read_i4")
      import
      integer(c_int32_t), value :: site
      integer(c_int32_t), value :: x
    end subroutine sp_read_i4
    subroutine sp_read_i8(site, x) bind(c, name="sp_read_i8")
      import
      integer(c_int32_t), value :: site
      integer(c_int64_t), value :: x
    end subroutine sp_read_i8
    subroutine sp_read_r4(site, x) bind(c, name="sp_read_r4")
      import
      integer(c_int32_t), value :: site
      real(c_float), value :: x
    end subroutine sp_read_r4
    subroutine sp_read_r8(site, x) bind(c, name="sp_read_r8")
      import
      integer(c_int32_t), value :: site
      real(c_double), value :: x
    end subroutine sp_read_r8
    subroutine sp_read_parts4(site, re, im) bind(c, name="sp_read_parts4")
      import
      integer(c_int32_t), value :: site
      real(c_float), value :: re, im
    end subroutine sp_read_parts4
    subroutine sp_read_parts8(site, re, im) bind(c, name="sp_read_parts8")
      import
      integer(c_int32_t), value :: site
      real(c_double), value :: re, im
    end subroutine sp_read_parts8
    subroutine sp_read_r16c(site, low, high) bind(c, name="sp_read_r16")
      import
      integer(c_int32_t), value :: site
      integer(c_int64_t), value :: low, high
    end subroutine sp_read_r16c
    subroutine sp_read_c16c(site, a, b, c, d) bind(c, name="sp_read_c16")
      import
      integer(c_int32_t), value :: site
      integer(c_int64_t), value :: a, b, c, d
    end subroutine sp_read_c16c
    subroutine sp_read_l1c(site, x) bind(c, name="sp_read_l1")
      import
      integer(c_int32_t), value :: site
      integer(c_int8_t), value :: x
    end subroutine sp_read_l1c
    subroutine sp_read_l2c(site, x) bind(c, name="sp_read_l2")
      import
      integer(c_int32_t), value :: site
      integer(c_int16_t), value :: x
    end subroutine sp_read_l2c
    subroutine sp_read_l4c(site, x) bind(c, name="sp_read_l4")
      import
      integer(c_int32_t), value :: site
      integer(c_int32_t), value :: x
    end subroutine sp_read_l4c
    subroutine sp_read_l8c(site, x) bind(c, name="sp_read_l8")
      import
      integer(c_int32_t), value :: site
      integer(c_int64_t), value :: x
    end subroutine sp_read_l8c
    subroutine sp_read_sc(site, x, length) bind(c, name="sp_read_s")
      import
      integer(c_int32_t), value :: site
      character(kind=c_char), intent(in) :: x(*)
      integer(c_size_t), value :: length
    end subroutine sp_read_sc
  end interface

  interface sp_loop
    procedure sp_loop1_444
    procedure sp_loop1_448
    procedure sp_loop1_484
    procedure sp_loop1_488
    procedure sp_loop1_844
    procedure sp_loop1_848
    procedure sp_loop1_884
    procedure sp_loop1_888
  end interface
  interface sp_loop2
    procedure sp_loop2_4
    procedure sp_loop2_8
  end interface
  interface sp_loop3
    procedure sp_loop3_4
    procedure sp_loop3_8
  end interface
  interface sp_event
    procedure sp_event_4
    procedure sp_event_8
  end interface
  interface sp_iter
    procedure sp_iter_i1
    procedure sp_iter_i2
    procedure sp_iter_i4
    procedure sp_iter_i8
    procedure sp_iter_44
    procedure sp_iter_48
    procedure sp_iter_84
    procedure sp_iter_88
    procedure sp_iter_444
    procedure sp_iter_448
    procedure sp_iter_484
    procedure sp_iter_488
    procedure sp_iter_844
    procedure sp_iter_848
    procedure sp_iter_884
    procedure sp_iter_888
  end interface
  interface sp_write
    procedure sp_write_i1
    procedure sp_write_i2
    procedure sp_write_i4
    procedure sp_write_i8
    procedure sp_write_r4
    procedure sp_write_r8
    procedure sp_write_c4
    procedure sp_write_c8
    procedure sp_write_l1
    procedure sp_write_l2
    procedure sp_write_l4
    procedure sp_write_l8
    procedure sp_write_s
  end interface
  !if x87
  interface sp_write
    procedure sp_write_real10
    procedure sp_write_complex10
  end interface
  !end x87
  !if quad
  interface sp_write
    procedure sp_write_real16
    procedure sp_write_complex16
  end interface
  !end quad
  interface sp_read
    procedure sp_read_i1
    procedure sp_read_i2
    procedure sp_read_i4
    procedure sp_read_i8
    procedure sp_read_r4
    procedure sp_read_r8
    procedure sp_read_c4
    procedure sp_read_c8
    procedure sp_read_l1
    procedure sp_read_l2
    procedure sp_read_l4
    procedure sp_read_l8
    procedure sp_read_s
  end interface
  !if x87
  interface sp_read
    procedure sp_read_real10
    procedure sp_read_complex10
  end interface
  !end x87
  !if quad
  interface sp_read
    procedure sp_read_real16
    procedure sp_read_complex16
  end interface
  !end quad

contains
  subroutine sp_loop1_444(site, lower1, upper1, step1)
    integer(c_int32_t), intent(in) :: site
    integer(c_int32_t), intent(in) :: lower1
    integer(c_int32_t), intent(in) :: upper1
    integer(c_int32_t), intent(in) :: step1
    call sp_loop_c(site, &
      int(lower1, c_int64_t), &
      int(upper1, c_int64_t), &
      int(step1, c_int64_t))
  end subroutine sp_loop1_444
  subroutine sp_loop1_448(site, lower1, upper1, step1)
    integer(c_int32_t), intent(in) :: site
    integer(c_int32_t), intent(in) :: lower1
    integer(c_int32_t), intent(in) :: upper1
    integer(c_int64_t), intent(in) :: step1
    call sp_loop_c(site, &
      int(lower1, c_int64_t), &
      int(upper1, c_int64_t), &
      int(step1, c_int64_t))
  end subroutine sp_loop1_448
  subroutine sp_loop1_484(site, lower1, upper1, step1)
    integer(c_int32_t), intent(in) :: site
    integer(c_int32_t), intent(in) :: lower1
    integer(c_int64_t), intent(in) :: upper1
    integer(c_int32_t), intent(in) :: step1
    call sp_loop_c(site, &
      int(lower1, c_int64_t), &
      int(upper1, c_int64_t), &
      int(step1, c_int64_t))
  end subroutine sp_loop1_484
  subroutine sp_loop1_488(site, lower1, upper1, step1)
    integer(c_int32_t), intent(in) :: site
    integer(c_int32_t), intent(in) :: lower1
    integer(c_int64_t), intent(in) :: upper1
    integer(c_int64_t), intent(in) :: step1
    call sp_loop_c(site, &
      int(lower1, c_int64_t), &
      int(upper1, c_int64_t), &
      int(step1, c_int64_t))
  end subroutine sp_loop1_488
  subroutine sp_loop1_844(site, lower1, upper1, step1)
    integer(c_int32_t), intent(in) :: site
    integer(c_int64_t), intent(in) :: lower1
    integer(c_int32_t), intent(in) :: upper1
    integer(c_int32_t), intent(in) :: step1
    call sp_loop_c(site, &
      int(lower1, c_int64_t), &
      int(upper1, c_int64_t), &
      int(step1, c_int64_t))
  end subroutine sp_loop1_844
  subroutine sp_loop1_848(site, lower1, upper1, step1)
    integer(c_int32_t), intent(in) :: site
    integer(c_int64_t), intent(in) :: lower1
    integer(c_int32_t), intent(in) :: upper1
    integer(c_int64_t), intent(in) :: step1
    call sp_loop_c(site, &
      int(lower1, c_int64_t), &
      int(upper1, c_int64_t), &
      int(step1, c_int64_t))
  end subroutine sp_loop1_848
  subroutine sp_loop1_884(site, lower1, upper1, step1)
    integer(c_int32_t), intent(in) :: site
    integer(c_int64_t), intent(in) :: lower1
    integer(c_int64_t), intent(in) :: upper1
    integer(c_int32_t), intent(in) :: step1
    call sp_loop_c(site, &
      int(lower1, c_int64_t), &
      int(upper1, c_int64_t), &
      int(step1, c_int64_t))
  end subroutine sp_loop1_884
  subroutine sp_loop1_888(site, lower1, upper1, step1)
    integer(c_int32_t), intent(in) :: site
    integer(c_int64_t), intent(in) :: lower1
    integer(c_int64_t), intent(in) :: upper1
    integer(c_int64_t), intent(in) :: step1
    call sp_loop_c(site, &
      int(lower1, c_int64_t), &
      int(upper1, c_int64_t), &
      int(step1, c_int64_t))
  end subroutine sp_loop1_888
  subroutine sp_loop2_4(site, lower1, upper1, step1, lower2, upper2, step2)
    integer(c_int32_t), intent(in) :: site
    integer(c_int32_t), intent(in) :: lower1
    integer(c_int32_t), intent(in) :: upper1
    integer(c_int32_t), intent(in) :: step1
    integer(c_int32_t), intent(in) :: lower2
    integer(c_int32_t), intent(in) :: upper2
    integer(c_int32_t), intent(in) :: step2
    call sp_loop2_c(site, &
      int(lower1, c_int64_t), &
      int(upper1, c_int64_t), &
      int(step1, c_int64_t), &
      int(lower2, c_int64_t), &
      int(upper2, c_int64_t), &
      int(step2, c_int64_t))
  end subroutine sp_loop2_4
  subroutine sp_loop2_8(site, lower1, upper1, step1, lower2, upper2, step2)
    integer(c_int32_t), intent(in) :: site
    integer(c_int64_t), intent(in) :: lower1
    integer(c_int64_t), intent(in) :: upper1
    integer(c_int64_t), intent(in) :: step1
    integer(c_int64_t), intent(in) :: lower2
    integer(c_int64_t), intent(in) :: upper2
    integer(c_int64_t), intent(in) :: step2
    call sp_loop2_c(site, &
      int(lower1, c_int64_t), &
      int(upper1, c_int64_t), &
      int(step1, c_int64_t), &
      int(lower2, c_int64_t), &
      int(upper2, c_int64_t), &
      int(step2, c_int64_t))
  end subroutine sp_loop2_8
  subroutine sp_loop3_4(site, lower1, upper1, step1, lower2, upper2, step2, lower3, upper3, step3)
    integer(c_int32_t), intent(in) :: site
    integer(c_int32_t), intent(in) :: lower1
    integer(c_int32_t), intent(in) :: upper1
    integer(c_int32_t), intent(in) :: step1
    integer(c_int32_t), intent(in) :: lower2
    integer(c_int32_t), intent(in) :: upper2
    integer(c_int32_t), intent(in) :: step2
    integer(c_int32_t), intent(in) :: lower3
    integer(c_int32_t), intent(in) :: upper3
    integer(c_int32_t), intent(in) :: step3
    call sp_loop3_c(site, &
      int(lower1, c_int64_t), &
      int(upper1, c_int64_t), &
      int(step1, c_int64_t), &
      int(lower2, c_int64_t), &
      int(upper2, c_int64_t), &
      int(step2, c_int64_t), &
      int(lower3, c_int64_t), &
      int(upper3, c_int64_t), &
      int(step3, c_int64_t))
  end subroutine sp_loop3_4
  subroutine sp_loop3_8(site, lower1, upper1, step1, lower2, upper2, step2, lower3, upper3, step3)
    integer(c_int32_t), intent(in) :: site
    integer(c_int64_t), intent(in) :: lower1
    integer(c_int64_t), intent(in) :: upper1
    integer(c_int64_t), intent(in) :: step1
    integer(c_int64_t), intent(in) :: lower2
    integer(c_int64_t), intent(in) :: upper2
    integer(c_int64_t), intent(in) :: step2
    integer(c_int64_t), intent(in) :: lower3
    integer(c_int64_t), intent(in) :: upper3
    integer(c_int64_t), intent(in) :: step3
    call sp_loop3_c(site, &
      int(lower1, c_int64_t), &
      int(upper1, c_int64_t), &
      int(step1, c_int64_t), &
      int(lower2, c_int64_t), &
      int(upper2, c_int64_t), &
      int(step2, c_int64_t), &
      int(lower3, c_int64_t), &
      int(upper3, c_int64_t), &
      int(step3, c_int64_t))
  end subroutine sp_loop3_8
  function sp_iter_i1(site, i) result(on)
    integer(c_int32_t), intent(in) :: site
    integer(c_int8_t), intent(in) :: i
    logical(c_bool) :: on
    on = sp_iter_i4(site, int(i, c_int32_t))
  end function sp_iter_i1
  function sp_iter_i2(site, i) result(on)
    integer(c_int32_t), intent(in) :: site
    integer(c_int16_t), intent(in) :: i
    logical(c_bool) :: on
    on = sp_iter_i4(site, int(i, c_int32_t))
  end function sp_iter_i2
  function sp_iter_44(site, i, j) result(on)
    integer(c_int32_t), intent(in) :: site
    integer(c_int32_t), intent(in) :: i
    integer(c_int32_t), intent(in) :: j
    logical(c_bool) :: on
    on = sp_iter2_c(site, int(i, c_int64_t), int(j, c_int64_t)) /= 0
  end function sp_iter_44
  function sp_iter_48(site, i, j) result(on)
    integer(c_int32_t), intent(in) :: site
    integer(c_int32_t), intent(in) :: i
    integer(c_int64_t), intent(in) :: j
    logical(c_bool) :: on
    on = sp_iter2_c(site, int(i, c_int64_t), int(j, c_int64_t)) /= 0
  end function sp_iter_48
  function sp_iter_84(site, i, j) result(on)
    integer(c_int32_t), intent(in) :: site
    integer(c_int64_t), intent(in) :: i
    integer(c_int32_t), intent(in) :: j
    logical(c_bool) :: on
    on = sp_iter2_c(site, int(i, c_int64_t), int(j, c_int64_t)) /= 0
  end function sp_iter_84
  function sp_iter_88(site, i, j) result(on)
    integer(c_int32_t), intent(in) :: site
    integer(c_int64_t), intent(in) :: i
    integer(c_int64_t), intent(in) :: j
    logical(c_bool) :: on
    on = sp_iter2_c(site, int(i, c_int64_t), int(j, c_int64_t)) /= 0
  end function sp_iter_88
  function sp_iter_444(site, i, j, k) result(on)
    integer(c_int32_t), intent(in) :: site
    integer(c_int32_t), intent(in) :: i
    integer(c_int32_t), intent(in) :: j
    integer(c_int32_t), intent(in) :: k
    logical(c_bool) :: on
    on = sp_iter3_c(site, int(i, c_int64_t), int(j, c_int64_t), int(k, c_int64_t)) /= 0
  end function sp_iter_444
  function sp_iter_448(site, i, j, k) result(on)
    integer(c_int32_t), intent(in) :: site
    integer(c_int32_t), intent(in) :: i
    integer(c_int32_t), intent(in) :: j
    integer(c_int64_t), intent(in) :: k
    logical(c_bool) :: on
    on = sp_iter3_c(site, int(i, c_int64_t), int(j, c_int64_t), int(k, c_int64_t)) /= 0
  end function sp_iter_448
  function sp_iter_484(site, i, j, k) result(on)
    integer(c_int32_t), intent(in) :: site
    integer(c_int32_t), intent(in) :: i
    integer(c_int64_t), intent(in) :: j
    integer(c_int32_t), intent(in) :: k
    logical(c_bool) :: on
    on = sp_iter3_c(site, int(i, c_int64_t), int(j, c_int64_t), int(k, c_int64_t)) /= 0
  end function sp_iter_484
  function sp_iter_488(site, i, j, k) result(on)
    integer(c_int32_t), intent(in) :: site
    integer(c_int32_t), intent(in) :: i
    integer(c_int64_t), intent(in) :: j
    integer(c_int64_t), intent(in) :: k
    logical(c_bool) :: on
    on = sp_iter3_c(site, int(i, c_int64_t), int(j, c_int64_t), int(k, c_int64_t)) /= 0
  end function sp_iter_488
  function sp_iter_844(site, i, j, k) result(on)
    integer(c_int32_t), intent(in) :: site
    integer(c_int64_t), intent(in) :: i
    integer(c_int32_t), intent(in) :: j
    integer(c_int32_t), intent(in) :: k
    logical(c_bool) :: on
    on = sp_iter3_c(site, int(i, c_int64_t), int(j, c_int64_t), int(k, c_int64_t)) /= 0
  end function sp_iter_844
  function sp_iter_848(site, i, j, k) result(on)
    integer(c_int32_t), intent(in) :: site
    integer(c_int64_t), intent(in) :: i
    integer(c_int32_t), intent(in) :: j
    integer(c_int64_t), intent(in) :: k
    logical(c_bool) :: on
    on = sp_iter3_c(site, int(i, c_int64_t), int(j, c_int64_t), int(k, c_int64_t)) /= 0
  end function sp_iter_848
  function sp_iter_884(site, i, j, k) result(on)
    integer(c_int32_t), intent(in) :: site
    integer(c_int64_t), intent(in) :: i
    integer(c_int64_t), intent(in) :: j
    integer(c_int32_t), intent(in) :: k
    logical(c_bool) :: on
    on = sp_iter3_c(site, int(i, c_int64_t), int(j, c_int64_t), int(k, c_int64_t)) /= 0
  end function sp_iter_884
  function sp_iter_888(site, i, j, k) result(on)
    integer(c_int32_t), intent(in) :: site
    integer(c_int64_t), intent(in) :: i
    integer(c_int64_t), intent(in) :: j
    integer(c_int64_t), intent(in) :: k
    logical(c_bool) :: on
    on = sp_iter3_c(site, int(i, c_int64_t), int(j, c_int64_t), int(k, c_int64_t)) /= 0
  end function sp_iter_888
  subroutine sp_write_c4(site, x)
    integer(c_int32_t), intent(in) :: site
    complex(c_float), intent(in) :: x
    call sp_write_parts4(site, real(x, c_float), real(aimag(x), c_float))
  end subroutine sp_write_c4
  subroutine sp_write_c8(site, x)
    integer(c_int32_t), intent(in) :: site
    complex(c_double), intent(in) :: x
    call sp_write_parts8(site, real(x, c_double), real(aimag(x), c_double))
  end subroutine sp_write_c8
  subroutine sp_write_l1(site, x)
    integer(c_int32_t), intent(in) :: site
    logical(1), intent(in) :: x
    call sp_write_l1c(site, merge(1_c_int8_t, 0_c_int8_t, x))
  end subroutine sp_write_l1
  subroutine sp_write_l2(site, x)
    integer(c_int32_t), intent(in) :: site
    logical(2), intent(in) :: x
    call sp_write_l2c(site, merge(1_c_int16_t, 0_c_int16_t, x))
  end subroutine sp_write_l2
  subroutine sp_write_l4(site, x)
    integer(c_int32_t), intent(in) :: site
    logical(4), intent(in) :: x
    call sp_write_l4c(site, merge(1_c_int32_t, 0_c_int32_t, x))
  end subroutine sp_write_l4
  subroutine sp_write_l8(site, x)
    integer(c_int32_t), intent(in) :: site
    logical(8), intent(in) :: x
    call sp_write_l8c(site, merge(1_c_int64_t, 0_c_int64_t, x))
  end subroutine sp_write_l8
  subroutine sp_write_s(site, x)
    integer(c_int32_t), intent(in) :: site
    character(*), intent(in) :: x
    call sp_write_sc(site, x, int(len(x), c_size_t))
  end subroutine sp_write_s
  !if x87
  subroutine sp_write_real10(site, x)
    integer(c_int32_t), intent(in) :: site
    real(10), intent(in) :: x
    integer(c_int64_t) :: h(2)
    h = transfer(x, h)
    call sp_write_r16c(site, h(1), iand(h(2), 65535_c_int64_t))
  end subroutine sp_write_real10
  subroutine sp_write_complex10(site, x)
    integer(c_int32_t), intent(in) :: site
    complex(10), intent(in) :: x
    integer(c_int64_t) :: h(4)
    h = transfer(x, h)
    call sp_write_c16c(site, h(1), iand(h(2), 65535_c_int64_t), h(3), iand(h(4), 65535_c_int64_t))
  end subroutine sp_write_complex10
  !end x87
  !if quad
  subroutine sp_write_real16(site, x)
    integer(c_int32_t), intent(in) :: site
    real(16), intent(in) :: x
    integer(c_int64_t) :: h(2)
    h = transfer(x, h)
    call sp_write_r16c(site, h(1), h(2))
  end subroutine sp_write_real16
  subroutine sp_write_complex16(site, x)
    integer(c_int32_t), intent(in) :: site
    complex(16), intent(in) :: x
    integer(c_int64_t) :: h(4)
    h = transfer(x, h)
    call sp_write_c16c(site, h(1), h(2), h(3), h(4))
  end subroutine sp_write_complex16
  !end quad
  subroutine sp_read_c4(site, x)
    integer(c_int32_t), intent(in) :: site
    complex(c_float), intent(in) :: x
    call sp_read_parts4(site, real(x, c_float), real(aimag(x), c_float))
  end subroutine sp_read_c4
  subroutine sp_read_c8(site, x)
    integer(c_int32_t), intent(in) :: site
    complex(c_double), intent(in) :: x
    call sp_read_parts8(site, real(x, c_double), real(aimag(x), c_double))
  end subroutine sp_read_c8
  subroutine sp_read_l1(site, x)
    integer(c_int32_t), intent(in) :: site
    logical(1), intent(in) :: x
    call sp_read_l1c(site, merge(1_c_int8_t, 0_c_int8_t, x))
  end subroutine sp_read_l1
  subroutine sp_read_l2(site, x)
    integer(c_int32_t), intent(in) :: site
    logical(2), intent(in) :: x
    call sp_read_l2c(site, merge(1_c_int16_t, 0_c_int16_t, x))
  end subroutine sp_read_l2
  subroutine sp_read_l4(site, x)
    integer(c_int32_t), intent(in) :: site
    logical(4), intent(in) :: x
    call sp_read_l4c(site, merge(1_c_int32_t, 0_c_int32_t, x))
  end subroutine sp_read_l4
  subroutine sp_read_l8(site, x)
    integer(c_int32_t), intent(in) :: site
    logical(8), intent(in) :: x
    call sp_read_l8c(site, merge(1_c_int64_t, 0_c_int64_t, x))
  end subroutine sp_read_l8
  subroutine sp_read_s(site, x)
    integer(c_int32_t), intent(in) :: site
    character(*), intent(in) :: x
    call sp_read_sc(site, x, int(len(x), c_size_t))
  end subroutine sp_read_s
  !if x87
  subroutine sp_read_real10(site, x)
    integer(c_int32_t), intent(in) :: site
    real(10), intent(in) :: x
    integer(c_int64_t) :: h(2)
    h = transfer(x, h)
    call sp_read_r16c(site, h(1), iand(h(2), 65535_c_int64_t))
  end subroutine sp_read_real10
  subroutine sp_read_complex10(site, x)
    integer(c_int32_t), intent(in) :: site
    complex(10), intent(in) :: x
    integer(c_int64_t) :: h(4)
    h = transfer(x, h)
    call sp_read_c16c(site, h(1), iand(h(2), 65535_c_int64_t), h(3), iand(h(4), 65535_c_int64_t))
  end subroutine sp_read_complex10
  !end x87
  !if quad
  subroutine sp_read_real16(site, x)
    integer(c_int32_t), intent(in) :: site
    real(16), intent(in) :: x
    integer(c_int64_t) :: h(2)
    h = transfer(x, h)
    call sp_read_r16c(site, h(1), h(2))
  end subroutine sp_read_real16
  subroutine sp_read_complex16(site, x)
    integer(c_int32_t), intent(in) :: site
    complex(16), intent(in) :: x
    integer(c_int64_t) :: h(4)
    h = transfer(x, h)
    call sp_read_c16c(site, h(1), h(2), h(3), h(4))
  end subroutine sp_read_complex16
  !end quad
  subroutine sp_event_4(site, kind, number)
    integer(c_int32_t), intent(in) :: site, kind, number
    call sp_event_8(site, kind, int(number, c_int64_t))
  end subroutine sp_event_4
  function sp_site(type, name, file, line, line2) result(number)
    character(*), intent(in) :: type, name, file
    integer(c_int32_t), intent(in) :: line, line2
    integer(c_int32_t) :: number
    number = sp_site_c(trim(type) // c_null_char, trim(name) // c_null_char, trim(file) // c_null_char, line, line2)
  end function sp_site
end module sp_trace
