! Reals and complex numbers of 16 bytes, and of 10 where they are.
program quads
  use sp_trace
  implicit none
  real(16) :: q(2)
  q = [1.25_16, -3.0_16]
  call sp_write(20, q(1))
  call sp_write(20, cmplx(q(1), q(2), 16))
  call sp_write(20, 1.25_10)
  call sp_write(20, cmplx(1.25_10, -3.0_10, 10))
  call sp_digest(30, q)
  call sp_digest(31, [1.25_10, -3.0_10])
end program quads
