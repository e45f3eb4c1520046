program incl
  implicit none
  include 'inc.h'
  integer i
!$omp parallel do
  do i = 1, m; w(i) = i; end do
  print *, w
end
