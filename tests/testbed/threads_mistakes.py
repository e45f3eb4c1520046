"""Bodies of programs with a mistake that `build` tells, with its line; and such that look alike and are right."""

from __future__ import annotations

from typing import NamedTuple


class Warned(NamedTuple):
    """`line`: counted in the body. `words`: that the warning has."""

    body: str
    line: int
    words: tuple[str, ...]


WARNED = {
    "shared scalar": Warned(
        """\
!$omp parallel do
do i = 1, n
  t = i
  a(i) = t
end do
""",
        3,
        (
            "t is shared",
            "PRIVATE",
        ),
    ),
    "shared element": Warned(
        """\
!$omp parallel do
do i = 1, n
  a(3) = a(i)
end do
""",
        3,
        ("a(3) is shared",),
    ),
    "shared by inner loop": Warned(
        """\
!$omp parallel do private(j)
do i = 1, n
  do j = 1, 5
    a(j) = i
  end do
end do
""",
        4,
        ("a(j) is shared",),
    ),
    "accumulated": Warned(
        """\
!$omp parallel do
do i = 1, n
  s = s + a(i)
end do
""",
        3,
        ("REDUCTION(+:s)",),
    ),
    "maximum": Warned(
        """\
!$omp parallel do
do i = 1, n
  s = max(s, a(i))
end do
""",
        3,
        ("REDUCTION(max:s)",),
    ),
    "one thread in each of many": Warned(
        """\
!$omp parallel
!$omp parallel do num_threads(1)
do i = 1, n
  s = s + a(i)
end do
!$omp end parallel
""",
        4,
        ("REDUCTION(+:s)",),
    ),
    "as many threads as a condition says": Warned(
        """\
!$omp parallel do num_threads(10) if(n > 1)
do i = 1, n
  s = s + a(i)
end do
""",
        3,
        ("REDUCTION(+:s)",),
    ),
    "private is unset": Warned(
        """\
t = 2
!$omp parallel do private(t)
do i = 1, n
  a(i) = t * i
end do
""",
        4,
        (
            "t is PRIVATE",
            "FIRSTPRIVATE",
        ),
    ),
    "inner loop variable": Warned(
        """\
!$omp parallel do shared(j)
do i = 1, n
  do j = 1, n
    b(j, i) = 1
  end do
end do
""",
        3,
        ("j is shared",),
    ),
    "lastprivate": Warned(
        """\
!$omp parallel do private(t)
do i = 1, n
  t = i
  a(i) = t
end do
s = t
""",
        6,
        (
            "LASTPRIVATE",
            "t is read",
        ),
    ),
    "nowait": Warned(
        """\
!$omp parallel
!$omp do schedule(dynamic)
do i = 1, n
  a(i) = i
end do
!$omp end do nowait
!$omp do
do i = 1, n
  b(1, i) = a(i)
end do
!$omp end parallel
""",
        9,
        (
            "a is used",
            "NOWAIT",
        ),
    ),
    "nowait, other index": Warned(
        """\
!$omp parallel
!$omp do schedule(static)
do i = 1, n
  a(i) = i
end do
!$omp end do nowait
!$omp do schedule(static)
do i = 1, n
  b(1, i) = a(n + 1 - i)
end do
!$omp end parallel
""",
        9,
        ("NOWAIT",),
    ),
}

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
    "critical": """\
!$omp parallel do
do i = 1, n
  !$omp critical
  s = s + a(i)
  !$omp end critical
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
