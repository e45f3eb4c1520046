#define N 10
#ifdef _OPENMP
#  define PAR 1
#endif
program cppp
#ifdef _OPENMP
  use omp_lib
#endif
  implicit none
  integer :: i, nt
  real :: a(N)
#ifdef _OPENMP
  nt = omp_get_max_threads()
#else
  nt = 1
#endif
  !$omp parallel do
  do i = 1, N
#if defined(PAR) && N > 5
    a(i) = i
#else
    a(i) = i + 0
#endif
  end do
  !$omp end parallel do
  print *, sum(a), nt > 0
end program
