! The four names of the library of 2003 (Popova and Scharf). nproc is the rank that has what is not of each rank.
module safepoint_df
    use, intrinsic :: iso_c_binding
    use, intrinsic :: iso_fortran_env, only: int64
    use safepoint, only: safepoint_finish, safepoint_hide, safepoint_no_step, safepoint_restore
    implicit none
    private
    public :: iInitDF, iRestoreDF, iHideDF, iEOWDF

    interface
        integer(c_int) function c_init_world(saver) bind(c, name="safepoint_init_world")
            import :: c_int
            integer(c_int), value :: saver
        end function
    end interface

contains

    integer function iInitDF(nproc)
        integer, intent(in) :: nproc
        iInitDF = int(c_init_world(int(nproc, c_int)))
    end function

    integer function iRestoreDF()
        logical :: found
        integer(int64) :: step
        call safepoint_restore(found, step, iRestoreDF)
    end function

    integer function iHideDF()
        call safepoint_hide(safepoint_no_step, ierr=iHideDF)
    end function

    integer function iEOWDF()
        call safepoint_finish(safepoint_no_step, iEOWDF)
    end function

end module safepoint_df
