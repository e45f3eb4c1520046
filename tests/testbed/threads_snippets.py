"""Each OpenMP construct alone, in a program of a few lines that is right."""

from __future__ import annotations

from pathlib import Path

HEAD = """\
program one
  implicit none
  integer, parameter :: n = 24
  integer :: i, j, k, m
  real(8) :: a(n), b(n, n), s, t, h
  logical :: flag
  !$ integer, external :: omp_get_thread_num, omp_get_num_threads
  a = 1
  b = 2
  s = 0
  t = 0
  h = 3
  m = 0
  flag = .false.
"""
TAIL = """\
  print *, a, sum(b), s, t, m, flag
end program one
"""

CONSTRUCTS = {
    "parallel": """\
  !$omp parallel private(i)
  !$omp do
  do i = 1, n
    a(i) = i
  end do
  !$omp end parallel
""",
    "parallel do": """\
  !$omp parallel do schedule(runtime)
  do i = 1, n
    a(i) = i * h
  end do
""",
    "two loops": """\
  !$omp parallel default(none) shared(a, b, h) private(j)
  !$omp do schedule(runtime)
  do i = 1, n
    a(i) = a(i) + h
  end do
  !$omp end do
  !$omp do schedule(runtime)
  do i = 1, n
    do j = 1, n
      if (j > i) cycle
      b(j, i) = a(j)
    end do
  end do
  !$omp end do nowait
  !$omp end parallel
""",
    "collapse": """\
  !$omp parallel do collapse(2) schedule(runtime)
  do i = 1, n
    do j = 2, n, 2
      b(j, i) = i - j
    end do
  end do
  !$omp end parallel do
""",
    "step down": """\
  !$omp parallel do schedule(runtime)
  do i = n, 1, -3
    a(i) = i
  end do
""",
    "reduction": """\
  !$omp parallel do reduction(+: m) reduction(max: s) reduction(.or.: flag) schedule(runtime)
  do i = 1, n
    m = m + i
    if (i * 7 > s) s = i * 7
    if (i == 5) flag = .true.
  end do
""",
    "firstprivate and lastprivate": """\
  !$omp parallel do default(private) shared(a) firstprivate(h, t) lastprivate(t) schedule(runtime)
  do i = 1, n
    t = i + h
    a(i) = t
  end do
""",
    "sections": """\
  !$omp parallel private(i)
  !$omp sections
  s = 4
  !$omp section
  do i = 1, n
    a(i) = i
  end do
  !$omp section
  t = 5
  !$omp end sections
  !$omp end parallel
""",
    "parallel sections": """\
  !$omp parallel sections lastprivate(t)
  !$omp section
  s = 1
  t = 1
  !$omp section
  t = 2
  b(2, 3) = t
  !$omp end parallel sections
""",
    "single, copyprivate": """\
  !$omp parallel private(h) shared(s)
  !$omp single
  h = 5
  s = h
  !$omp end single copyprivate(h)
  !$omp do schedule(runtime)
  do i = 1, n
    a(i) = h
  end do
  !$omp end parallel
""",
    "master and barrier": """\
  !$omp parallel
  !$omp master
  s = 3
  a(1) = s
  !$omp end master
  !$omp barrier
  !$omp do schedule(runtime)
  do i = 2, n
    a(i) = s * i
  end do
  !$omp end parallel
""",
    "critical": """\
  !$omp parallel do private(k) schedule(runtime)
  do i = 1, n
    k = i * i
    !$omp critical (sum_of_all)
    m = m + k
    if (k > t) t = k
    !$omp end critical (sum_of_all)
    a(i) = k
  end do
""",
    "atomic": """\
  !$omp parallel do schedule(runtime)
  do i = 1, n
    !$omp atomic
    m = m + i
    !$omp atomic update
    s = s + 1
    !$omp end atomic
    a(i) = i
  end do
""",
    "ordered": """\
  !$omp parallel do ordered schedule(runtime)
  do i = 1, n
    a(i) = i
    !$omp ordered
    s = 0.5d0 * s + a(i)
    !$omp end ordered
    b(1, i) = a(i)
  end do
""",
    "nested": """\
  !$omp parallel do private(j) schedule(runtime)
  do i = 1, n
    !$omp parallel do default(none) shared(b, i)
    do j = 1, n
      b(j, i) = i * j
    end do
    !$omp end parallel do
    a(i) = b(2, i)
  end do
""",
    "sum of each thread": """\
  !$omp parallel private(k)
  k = 0
  !$omp do schedule(runtime)
  do i = 1, n
    k = k + i
    a(i) = i
  end do
  !$omp end do nowait
  !$omp atomic
  m = m + k
  !$omp end parallel
""",
    "workshare": """\
  !$omp parallel workshare
  a = a + 1
  where (b > 1) b = 1
  !$omp end parallel workshare
""",
    "task": """\
  !$omp parallel
  !$omp single
  do i = 1, 4
    !$omp task firstprivate(i) shared(a)
    a(i) = i
    !$omp end task
  end do
  !$omp taskwait
  !$omp end single
  !$omp end parallel
""",
    "simd": """\
  !$omp simd
  do i = 1, n
    a(i) = a(i) * 2
  end do
  !$omp parallel do private(j) schedule(runtime)
  do i = 1, n
    !$omp simd
    do j = 1, n
      b(j, i) = i + j
    end do
  end do
  !$omp parallel do simd
  do i = 1, n
    a(i) = a(i) + 1
  end do
""",
    "number of a thread": """\
  !$omp parallel private(i, k, j)
  k = 0
  j = 1
  !$ k = omp_get_thread_num()
  !$ j = omp_get_num_threads()
  do i = 1 + k, n, j
    a(i) = i
  end do
  if (k == 0) s = 3
  !$omp end parallel
""",
    "names and labels": """\
  !$omp parallel do private(j) schedule(runtime)
  outer: do i = 1, n
    inner: do j = 1, n
      if (j > 3) exit inner
      if (j == i) cycle outer
      b(j, i) = j
    end do inner
    do 10 j = 4, n
      if (j == i) goto 10
      b(j, i) = 2
10  continue
  end do outer
""",
    "where, forall, select": """\
  !$omp parallel do private(j) schedule(runtime)
  do i = 1, n
    where (b(:, i) > 1) b(:, i) = i
    forall (j = 1:n, j > i) b(j, i) = j
    select case (mod(i, 3))
    case (0)
      a(i) = 0
    case default
      a(i) = i
    end select
  end do
""",
    "block and associate": """\
  !$omp parallel do schedule(runtime)
  do i = 1, n
    block
      real(8) :: own
      own = i
      associate (x => b(:, i), y => a(i))
        x(2) = own
        y = own + x(2)
      end associate
    end block
  end do
""",
}


def program(body: str) -> str:
    return HEAD + body + TAIL


def written(name: str, directory: Path) -> Path:
    path = directory / "one.f90"
    path.write_text(program(CONSTRUCTS[name]))
    return path
