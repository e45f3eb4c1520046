! noded START: one rank in Fortran writes where safepoint_directory() says.
program noded
    use safepoint
    implicit none
    character(1000) :: start
    character(:), allocatable :: path
    logical :: found
    integer :: step, unit, had
    call get_command_argument(1, start)
    call safepoint_init(trim(start))
    call safepoint_restore(found, step)
    path = safepoint_directory() // "/z-0.dat"
    had = -1
    if (found) then
        open (newunit=unit, file=path, status="old")
        read (unit, *) had
        close (unit)
        if (had /= step) error stop 4
    end if
    print '(a,i0)', "restored ", had
    open (newunit=unit, file=path, status="replace")
    write (unit, *) had + 1
    close (unit)
    call safepoint_hide(had + 1, wait=.true.)
    call safepoint_close()
end program
