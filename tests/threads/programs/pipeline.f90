! Blocks are computed by many and passed on in their order; the weights of the stages add up to one.
program pipeline
  implicit none
  integer, parameter :: blocks = 40, length = 32, stages = 10
  real(8) :: block(length), out(blocks), weights(stages), state, total
  integer :: b, i, written

  total = 0
  !$omp parallel do reduction(+: total) schedule(static)
  do i = 1, stages
    weights(i) = 0.1d0
    total = total + weights(i)
  end do
  !$omp end parallel do
  if (total < 1 - 1d-9) then
    weights(1) = weights(1) + (1 - total)
    print '(a)', 'the weights did not add up to one'
  end if
  state = 1
  written = 0
  !$omp parallel do ordered private(block, i) schedule(runtime)
  do b = 1, blocks
    do i = 1, length
      block(i) = weights(1 + mod(i, stages)) * mod(i * b, 23)
    end do
    !$omp ordered
    state = 0.5d0 * state + sum(block)
    written = written + 1
    out(written) = state
    !$omp end ordered
  end do
  !$omp end parallel do
  print '(a, i6)', 'written  ', written
  print '(a, 2es23.15)', 'checksum ', sum(out), state
end program pipeline
