! Crash-safe save points for programs in Fortran: docs/c-and-fortran.md. Compiled by the program's own compiler.
!
! ierr comes last and is optional: without it an error is printed and ends the program, all of its ranks, as in MPI.
! Strings need no NUL; blanks at their end do not count.
module safepoint
    use, intrinsic :: iso_c_binding
    use, intrinsic :: iso_fortran_env, only: compiler_version, int32, int64, error_unit, input_unit, output_unit
    implicit none
    private

    integer(int64), parameter, public :: safepoint_no_step = -huge(0_int64) - 1_int64
    integer, parameter, public :: safepoint_ok = 0, safepoint_failed = 1, safepoint_usage = 10, &
        safepoint_manifest = 11, safepoint_format = 12, safepoint_locked = 13, safepoint_missing = 14, &
        safepoint_refused = 15, safepoint_save = 16, safepoint_restore_failed = 17, safepoint_damaged = 18, &
        safepoint_overwritten = 19, safepoint_nothing = 20, safepoint_no_helper = 30

    public :: safepoint_init, safepoint_restore, safepoint_hide, safepoint_wait, safepoint_due, safepoint_should_stop, &
        safepoint_stop, safepoint_finish, safepoint_close, safepoint_error, safepoint_finished, safepoint_directory, &
        safepoint_mark

    interface safepoint_restore
        module procedure restore32, restore64
    end interface
    interface safepoint_hide
        module procedure hide32, hide64, hide_none
    end interface
    interface safepoint_finish
        module procedure finish32, finish64, finish_none
    end interface

    interface
        integer(c_int) function c_init(directory, options) bind(c, name="safepoint_init")
            import :: c_int, c_char
            character(kind=c_char), intent(in) :: directory(*), options(*)
        end function
        integer(c_int) function c_init_fortran(directory, comm, options) bind(c, name="safepoint_init_fortran")
            import :: c_int, c_char
            character(kind=c_char), intent(in) :: directory(*), options(*)
            integer(c_int), value :: comm
        end function
        integer(c_int) function c_restore(found, step) bind(c, name="safepoint_restore")
            import :: c_int, c_long_long
            integer(c_int), intent(out) :: found
            integer(c_long_long), intent(out) :: step
        end function
        integer(c_int) function c_hide(step) bind(c, name="safepoint_hide")
            import :: c_int, c_long_long
            integer(c_long_long), value :: step
        end function
        integer(c_int) function c_hide_wait(step) bind(c, name="safepoint_hide_wait")
            import :: c_int, c_long_long
            integer(c_long_long), value :: step
        end function
        subroutine safepoint_mark() bind(c, name="safepoint_mark")
        end subroutine
        integer(c_int) function c_wait() bind(c, name="safepoint_wait")
            import :: c_int
        end function
        integer(c_int) function c_due(flag) bind(c, name="safepoint_due")
            import :: c_int
            integer(c_int), intent(out) :: flag
        end function
        integer(c_int) function c_should_stop(flag) bind(c, name="safepoint_should_stop")
            import :: c_int
            integer(c_int), intent(out) :: flag
        end function
        integer(c_int) function c_stop(status) bind(c, name="safepoint_stop")
            import :: c_int
            integer(c_int), intent(out) :: status
        end function
        integer(c_int) function c_finish(step) bind(c, name="safepoint_finish")
            import :: c_int, c_long_long
            integer(c_long_long), value :: step
        end function
        integer(c_int) function c_close() bind(c, name="safepoint_close")
            import :: c_int
        end function
        type(c_ptr) function c_error() bind(c, name="safepoint_error")
            import :: c_ptr
        end function
        type(c_ptr) function c_directory() bind(c, name="safepoint_directory")
            import :: c_ptr
        end function
        integer(c_size_t) function c_strlen(text) bind(c, name="strlen")
            import :: c_size_t, c_ptr
            type(c_ptr), value :: text
        end function
        integer(c_long_long) function c_bytes_of(path) bind(c, name="safepoint_bytes_of")
            import :: c_char, c_long_long
            character(kind=c_char), intent(in) :: path(*)
        end function
        subroutine c_unflushed(why) bind(c, name="safepoint_unflushed")
            import :: c_char
            character(kind=c_char), intent(in) :: why(*)
        end subroutine
        subroutine c_end_all(status) bind(c, name="safepoint_end_all")
            import :: c_int
            integer(c_int), value :: status
        end subroutine
    end interface

    logical :: finished = .false.

contains

    ! Begin. comm: the handle that mpif.h and "use mpi" have; with mpi_f08 its MPI_VAL. Without it one rank.
    subroutine safepoint_init(directory, comm, options, ierr)
        character(*), intent(in), optional :: directory, options
        integer, intent(in), optional :: comm
        integer, intent(out), optional :: ierr
        character(:), allocatable :: place, words
        integer(c_int) :: code
        place = "."
        words = ""
        if (present(directory)) place = trim(directory)
        if (present(options)) words = trim(options)
        if (present(comm)) then
            code = c_init_fortran(place // c_null_char, int(comm, c_int), words // c_null_char)
        else
            code = c_init(place // c_null_char, words // c_null_char)
        end if
        call told(code, ierr)
    end subroutine

    ! found: a set, or the result of a finished run (safepoint_finished() is true then), is in place.
    subroutine restore64(found, step, ierr)
        logical, intent(out) :: found
        integer(int64), intent(out) :: step
        integer, intent(out), optional :: ierr
        integer(c_int) :: what, code
        integer(c_long_long) :: number
        code = c_restore(what, number)
        found = what /= 0
        finished = what == 2
        step = 0
        if (found .and. number /= safepoint_no_step) step = number
        call told(code, ierr)
    end subroutine

    subroutine restore32(found, step, ierr)
        logical, intent(out) :: found
        integer(int32), intent(out) :: step
        integer, intent(out), optional :: ierr
        integer(int64) :: number
        call restore64(found, number, ierr)
        step = int(number, int32)
        if (step == number) return
        found = .false.
        if (present(ierr)) then
            ierr = safepoint_usage
        else
            write (error_unit, '(a,i0)') "safepoint: an integer of 64 bits is needed for step ", number
            call c_end_all(int(safepoint_usage, c_int))
        end if
    end subroutine

    ! Whether the last safepoint_restore has found the run finished.
    logical function safepoint_finished()
        safepoint_finished = finished
    end function

    subroutine hide64(step, wait, ierr)
        integer(int64), intent(in) :: step
        logical, intent(in), optional :: wait
        integer, intent(out), optional :: ierr
        logical :: waits
        waits = .false.
        if (present(wait)) waits = wait
        call flush_units()
        if (waits) then
            call told(c_hide_wait(int(step, c_long_long)), ierr)
        else
            call told(c_hide(int(step, c_long_long)), ierr)
        end if
    end subroutine

    subroutine hide32(step, wait, ierr)
        integer(int32), intent(in) :: step
        logical, intent(in), optional :: wait
        integer, intent(out), optional :: ierr
        call hide64(int(step, int64), wait, ierr)
    end subroutine

    subroutine hide_none()
        call hide64(safepoint_no_step)
    end subroutine

    subroutine safepoint_wait(ierr)
        integer, intent(out), optional :: ierr
        call told(c_wait(), ierr)
    end subroutine

    subroutine safepoint_due(flag, ierr)
        logical, intent(out) :: flag
        integer, intent(out), optional :: ierr
        integer(c_int) :: answer, code
        code = c_due(answer)
        flag = answer /= 0
        call told(code, ierr)
    end subroutine

    subroutine safepoint_should_stop(flag, ierr)
        logical, intent(out) :: flag
        integer, intent(out), optional :: ierr
        integer(c_int) :: answer, code
        code = c_should_stop(answer)
        flag = answer /= 0
        call told(code, ierr)
    end subroutine

    ! The program then calls MPI_Finalize and "stop status", or exit(status).
    subroutine safepoint_stop(status, ierr)
        integer, intent(out) :: status
        integer, intent(out), optional :: ierr
        integer(c_int) :: answer, code
        code = c_stop(answer)
        status = int(answer)
        call told(code, ierr)
    end subroutine

    subroutine finish64(step, ierr)
        integer(int64), intent(in) :: step
        integer, intent(out), optional :: ierr
        call flush_units()
        call told(c_finish(int(step, c_long_long)), ierr)
    end subroutine

    subroutine finish32(step, ierr)
        integer(int32), intent(in) :: step
        integer, intent(out), optional :: ierr
        call finish64(int(step, int64), ierr)
    end subroutine

    subroutine finish_none()
        call finish64(safepoint_no_step)
    end subroutine

    subroutine safepoint_close(ierr)
        integer, intent(out), optional :: ierr
        call told(c_close(), ierr)
    end subroutine

    ! The text of the last call that failed.
    function safepoint_error() result(text)
        character(:), allocatable :: text
        text = text_of(c_error())
    end function

    ! Where the listed files are.
    function safepoint_directory() result(text)
        character(:), allocatable :: text
        text = text_of(c_directory())
    end function

    function text_of(words) result(text)
        type(c_ptr), intent(in) :: words
        character(:), allocatable :: text
        character(kind=c_char), pointer :: letters(:)
        integer(c_size_t) :: length, at
        length = c_strlen(words)
        call c_f_pointer(words, letters, [length])
        allocate (character(length) :: text)
        do at = 1, length
            text(at:at) = letters(at)
        end do
    end function

    subroutine told(code, ierr)
        integer(c_int), intent(in) :: code
        integer, intent(out), optional :: ierr
        if (present(ierr)) then
            ierr = int(code)
        else if (code /= 0) then
            write (error_unit, '(a)') "safepoint: " // safepoint_error()
            flush (error_unit)
            call c_end_all(code)
        end if
    end subroutine

    ! What is still in the buffer of an open unit is in no file. (A set would have files of 0 bytes.) The numbers of
    ! newunit= are negative: from -10 down with gfortran, from -2 with flang, from -129 with ifx; of the free ones it is
    ! the first. So the last one is found when many below it are free.
    subroutine flush_units()
        integer, parameter :: lowest = -10000, many = 200
        integer :: unit, length, failed, free, last
        logical :: there, gcc
        logical, save :: doubtful(lowest:-1)
        character(16) :: access, form
        do unit = 0, 999
            inquire (unit=unit, opened=there, iostat=failed)
            if (failed == 0 .and. there) call flush_unit(unit)
        end do
        gcc = index(compiler_version(), "GCC") > 0
        doubtful = .false.
        free = 0
        last = 0
        do unit = merge(-10, -2, gcc), lowest, -1
            inquire (unit=unit, opened=there, iostat=failed)
            if (failed /= 0 .or. .not. there) then
                free = free + 1
                if (free > many .and. unit < -129 - many) exit
                cycle
            end if
            free = 0
            if (gcc) then
                inquire (unit=unit, access=access, form=form, recl=length, iostat=failed)
                doubtful(unit) = access == "SEQUENTIAL" .and. form == "FORMATTED" .and. length < 2**30
                if (doubtful(unit)) last = unit
            end if
            if (.not. doubtful(unit)) call flush_unit(unit)
        end do
        if (last < 0) call leave_out_free_numbers(doubtful(last:))
        do unit = last, -1
            if (doubtful(unit)) call flush_unit(unit)
        end do
    end subroutine

    ! gfortran says of the number that it last had for reading or writing a string that it is open, and dies when that is
    ! flushed. But it gives it to the next newunit=, as it is free: of the numbers it gives the first free one. If they
    ! cannot be tried, as there is no descriptor left, nothing that is doubtful is flushed.
    subroutine leave_out_free_numbers(doubtful)
        logical, intent(inout) :: doubtful(:)  ! the last is that of -1
        integer :: lowest, count, at, failed, held(size(doubtful))
        lowest = findloc(doubtful, .true., dim=1) - 1 - size(doubtful)
        count = 0
        do while (count < size(held))
            if (count == 0) then
                open (newunit=held(1), file="/dev/null", action="write", iostat=failed)
            else  ! no file can be opened twice
                open (newunit=held(count + 1), status="scratch", iostat=failed)
            end if
            if (failed /= 0) exit
            count = count + 1
            at = held(count) + 1 + size(doubtful)
            if (at >= 1 .and. at <= size(doubtful)) doubtful(at) = .false.
            if (held(count) <= lowest) exit
        end do
        if (count == 0) then
            doubtful = .false.
        else if (held(count) > lowest) then
            doubtful = .false.
        end if
        do at = 1, count
            close (held(at))
        end do
    end subroutine

    ! A failure is an error of hide or finish, on all ranks; but what is printed is nobody's file. gfortran (12) knows of
    ! no failure: then the file is shorter than it says.
    subroutine flush_unit(unit)
        integer, intent(in) :: unit
        character(120) :: why
        character(4096) :: name
        character(60) :: numbers
        logical :: named, printed
        integer :: failed, known
        integer(int64) :: written
        integer(c_long_long) :: there
        why = ""
        flush (unit, iostat=failed, iomsg=why)
        written = -1
        name = ""
        inquire (unit=unit, named=named, iostat=known)
        if (known == 0 .and. named) inquire (unit=unit, name=name, size=written, iostat=known)
        there = -1
        if (known == 0 .and. named) there = c_bytes_of(trim(name) // c_null_char)
        printed = unit == output_unit .or. unit == error_unit .or. unit == input_unit
        if (failed /= 0 .and. (there >= 0 .or. .not. printed)) then
            write (numbers, '(a,i0,a)') "unit ", unit, ": "
            call c_unflushed(trim(numbers) // " " // trim(why) // c_null_char)
        else if (there >= 0 .and. there < written) then
            write (numbers, '(a,i0,a,i0,a,i0,a)') "unit ", unit, ": ", there, " of ", written, " bytes are in"
            call c_unflushed(trim(numbers) // " " // trim(name) // c_null_char)
        end if
    end subroutine

end module safepoint
