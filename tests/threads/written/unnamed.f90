integer :: i
real :: x(5)
!$omp parallel do
do i = 1, 5
x(i) = i
end do
print *, x
end
