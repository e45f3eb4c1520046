! Units that are open, with something in their buffers, when hide is called: of numbers, of newunit=, and of strings,
! whose number gfortran says is open.
program units
    use safepoint
    use, intrinsic :: iso_fortran_env, only: int64, real64
    implicit none
    integer :: text, bytes, lines, number, ierr, status
    integer(int64) :: step
    logical :: found, flag
    character(80) :: word

    write (word, '(a)') ".                          "  ! with blanks at its end
    call safepoint_init(word, options="keep=3   ", ierr=ierr)
    if (ierr /= safepoint_ok) error stop "init"
    call safepoint_restore(found, step, ierr)
    if (found .or. step /= 0) error stop "first start"
    write (word, '(a,i0)') "x", 3
    open (newunit=text, file="recl.txt", recl=200)
    write (word, '(a,i0)') "x", 42
    open (newunit=bytes, file="stream.dat", access="stream", form="unformatted")
    open (7, file="seven.txt")
    read (word(2:), *) number
    open (newunit=lines, file="lines.txt")
    read (word(2:), *) number
    write (text, '(a)') "hello"
    write (bytes) 1.0_real64, 2.0_real64
    write (7, '(i0)') number
    write (lines, '(a)') "of newunit"
    call safepoint_due(flag)
    call safepoint_should_stop(flag, ierr)
    if (flag) error stop "should not stop"
    call safepoint_hide(1_int64, wait=.true.)
    close (text)
    close (bytes)
    close (7)
    close (lines)
    call safepoint_hide(2, wait=.true., ierr=ierr)
    if (ierr /= safepoint_ok) error stop "hide"
    call safepoint_wait()
    call safepoint_restore(found, number, ierr)
    if (ierr /= safepoint_ok .or. .not. found .or. number /= 2) error stop "restore"
    call safepoint_init(ierr=ierr)
    if (ierr /= safepoint_locked) error stop "init twice"
    print '(a)', safepoint_error()
    call safepoint_stop(status)
    print '(i0)', status
    call safepoint_hide(3)  ! without ierr: the end
end program units
