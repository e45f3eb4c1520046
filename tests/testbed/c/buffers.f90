! Units of a program in Fortran with something in their buffers when hide is called:
!   short N   N units in a file system, or under a limit, that has no room for them; prints the code and the text
!   holes N   N units were open and are closed again, and a string was written: their numbers are free
!   many N    N units; the set is whole though they are never closed
!   out       unit 6 is a file of the program's
program buffers
    use safepoint
    use, intrinsic :: iso_fortran_env, only: int64
    implicit none
    integer :: count, at, ierr, step
    integer, allocatable :: units(:)
    logical :: found
    character(16) :: which, word
    call get_command_argument(1, which)
    call get_command_argument(2, word)
    read (word, *) count
    allocate (units(count))
    call safepoint_init()
    call safepoint_restore(found, step)
    if (which == "out") open (6, file="f-1.txt")
    if (which /= "out") call open_all()
    select case (which)
    case ("holes")
        do at = 1, count
            write (word, '(i0)') at
            close (units(at))
        end do
    case ("out")
        write (6, '(a)') "into unit 6"
    case default
        do at = 1, count
            write (units(at), '(a)') repeat("0123456789", merge(4, 1, which == "short"))
            if (which == "short") write (units(at), '(a)') repeat("x", 3000)
        end do
    end select
    call safepoint_hide(1_int64, wait=.true., ierr=ierr)
    write (0, '(i0)') ierr
    write (0, '(a)') safepoint_error()
    call safepoint_close()

contains

    subroutine open_all()
        do at = 1, count
            write (word, '(a,i0,a)') "f-", at, ".txt"
            open (newunit=units(at), file=word)
        end do
    end subroutine
end program buffers
