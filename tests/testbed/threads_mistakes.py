"""Bodies of programs with a mistake that `build` tells, with its line; and such that look alike and are right."""

# Behind !!, at the line of the warning: what it says.
WARNED = (
    """
!$omp parallel do
do i = 1, n
  t = i  !! t is shared; PRIVATE
  a(i) = t
end do
""",
    """
!$omp parallel do
do i = 1, n
  a(3) = a(i)  !! a(3) is shared
end do
""",
    """
!$omp parallel do private(j)
do i = 1, n
  do j = 1, 5
    a(j) = i  !! a(j) is shared
  end do
end do
""",
    """
!$omp parallel do
do i = 1, n
  s = s + a(i)  !! REDUCTION(+:s)
end do
""",
    """
!$omp parallel do
do i = 1, n
  s = max(s, a(i))  !! REDUCTION(max:s)
end do
""",
    """
!$omp parallel
!$omp parallel do num_threads(1)
do i = 1, n
  s = s + a(i)  !! REDUCTION(+:s)
end do
!$omp end parallel
""",
    """
!$omp parallel do num_threads(10) if(n > 1)
do i = 1, n
  s = s + a(i)  !! REDUCTION(+:s)
end do
""",
    """
t = 2
!$omp parallel do private(t)
do i = 1, n
  a(i) = t * i  !! t is PRIVATE; FIRSTPRIVATE
end do
""",
    """
!$omp parallel do shared(j)
do i = 1, n
  do j = 1, n  !! j is shared
    b(j, i) = 1
  end do
end do
""",
    """
!$omp parallel do private(t)
do i = 1, n
  t = i
  a(i) = t
end do
s = t  !! LASTPRIVATE; t is read
""",
    """
!$omp parallel
!$omp do schedule(dynamic)
do i = 1, n
  a(i) = i
end do
!$omp end do nowait
!$omp do
do i = 1, n
  b(1, i) = a(i)  !! a is used; NOWAIT
end do
!$omp end parallel
""",
    """
!$omp parallel
!$omp do schedule(static)
do i = 1, n
  a(i) = i
end do
!$omp end do nowait
!$omp do schedule(static)
do i = 1, n
  b(1, i) = a(n + 1 - i)  !! NOWAIT
end do
!$omp end parallel
""",
)

RIGHT = {
    "constant flag": """\
!$omp parallel do
do i = 1, n
  if (a(i) > 2) flag = .true.
end do
""",
    "one iteration": """\
!$omp parallel do
do i = 1, n
  if (i == n) s = a(i)
end do
""",
    "else of one iteration": """\
!$omp parallel do
do i = 1, n
  if (i /= 3) then
    a(i) = 1
  else if (i == 3) then
    s = a(i)
  end if
end do
""",
    "index of an index": """\
!$omp parallel do private(k)
do i = 1, n
  k = n + 1 - i
  a(k) = i
end do
""",
    "computed range": """\
!$omp parallel do private(j)
do i = 1, 3
  do j = 1 + 8 * (i - 1), 8 * i
    a(j) = i
  end do
end do
""",
    "one thread": """\
!$omp parallel do num_threads(1)
do i = 1, n
  s = s + a(i)
end do
!$omp parallel do if(.false.)
do i = 1, n
  s = s + a(i)
end do
!$omp parallel if(parallel: .FALSE.)
!$omp do
do i = 1, n
  s = s + a(i)
end do
!$omp end parallel
""",
    "one thread, inner loop and nowait": """\
!$omp parallel shared(j) num_threads(1)
!$omp do schedule(dynamic)
do i = 1, n
  do j = 1, n
    a(i) = j
  end do
end do
!$omp end do nowait
!$omp do
do i = 1, n
  b(1, i) = a(n + 1 - i)
end do
!$omp end parallel
""",
    "one thread inside of a loop": """\
!$omp parallel do private(m, t)
do i = 1, n
  t = i
  !$omp parallel do num_threads(1)
  do j = 1, 2
    m = j
    a(i) = m * t
    if (i == 5) s = j
  end do
end do
m = 1
t = 1
""",
    "set on each way": """\
!$omp parallel do private(t)
do i = 1, n
  if (i > 3) then
    t = 1
  else
    t = 2
  end if
  a(i) = t
end do
t = 1
""",
    "carried, guarded": """\
!$omp parallel private(t, j)
!$omp do
do i = 1, n
  do j = 1, n
    if (j > 1) b(j, i) = t
    t = b(j, i)
  end do
end do
!$omp end parallel
t = 1
""",
    "written again": """\
!$omp parallel do private(t)
do i = 1, n
  t = i
  a(i) = t
end do
t = 2
s = t
""",
    "nowait, same thread": """\
!$omp parallel
!$omp do schedule(static)
do i = 1, n
  a(i) = i
end do
!$omp end do nowait
!$omp do schedule(static)
do i = 1, n
  b(1, i) = a(i)
end do
!$omp end parallel
""",
    "nowait, other planes": """\
!$omp parallel private(k)
k = 1
!$omp do
do i = 1, n
  b(i, k) = i
end do
!$omp end do nowait
k = 2
!$omp do
do i = 1, n
  b(i, k) = i
end do
!$omp end parallel
""",
    "nowait, barrier": """\
!$omp parallel
!$omp do schedule(dynamic)
do i = 1, n
  a(i) = i
end do
!$omp end do nowait
!$omp barrier
!$omp do
do i = 1, n
  b(1, i) = a(i)
end do
!$omp end parallel
""",
    "private in the region": """\
!$omp parallel private(t)
t = 3
!$omp do
do i = 1, n
  a(i) = t
end do
!$omp end parallel
t = 1
""",
}
