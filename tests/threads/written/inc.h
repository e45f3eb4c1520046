  integer, parameter :: m = 5
  real :: w(m)
  common /wblk/ w
