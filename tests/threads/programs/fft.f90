! A Fourier transform forth and back, radix two; the butterflies of a stage are one parallel loop.
module transform
  implicit none
  integer, parameter :: bits = 7, n = 2**bits
  complex(8), save :: w(0:n / 2 - 1)
contains
  subroutine reversed(z)
    complex(8), intent(inout) :: z(0:n - 1)
    complex(8) :: t(0:n - 1)
    integer :: i, k, m
    !$omp parallel do private(k, m) schedule(runtime)
    do i = 0, n - 1
      m = 0
      do k = 0, bits - 1
        if (btest(i, k)) m = ibset(m, bits - 1 - k)
      end do
      t(m) = z(i)
    end do
    !$omp end parallel do
    z = t
  end subroutine reversed

  subroutine fft(z, back)
    complex(8), intent(inout) :: z(0:n - 1)
    logical, intent(in) :: back
    complex(8) :: even, odd, c
    integer :: half, stage, k, at
    call reversed(z)
    do stage = 1, bits
      half = 2**(stage - 1)
      !$omp parallel do default(none) shared(z, w, half, back) private(at, c, even, odd) schedule(runtime)
      do k = 0, n / 2 - 1
        at = k / half * 2 * half + mod(k, half)
        c = w(mod(k, half) * (n / 2 / half))
        if (back) c = conjg(c)
        even = z(at)
        odd = c * z(at + half)
        z(at) = even + odd
        z(at + half) = even - odd
      end do
      !$omp end parallel do
    end do
    if (back) z = z / n
  end subroutine fft
end module transform

program forth_and_back
  use transform
  implicit none
  complex(8) :: z(0:n - 1), first(0:n - 1)
  real(8), parameter :: pi = 3.14159265358979312d0
  integer :: k
  do k = 0, n / 2 - 1
    w(k) = exp(cmplx(0, -2 * pi * k / n, 8))
  end do
  do k = 0, n - 1
    z(k) = cmplx(mod(3 * k, 17), mod(5 * k, 13), 8)
  end do
  first = z
  call fft(z, .false.)
  print '(a, es23.15)', 'checksum ', sum(abs(z))
  call fft(z, .true.)
  print '(a, l2)', 'the same ', maxval(abs(z - first)) < 1d-12
end program forth_and_back
