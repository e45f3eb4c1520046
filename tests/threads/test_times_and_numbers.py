"""Times, and what numbers of threads decide, are not compared; all else is."""

from __future__ import annotations

from pathlib import Path

import pytest
from testbed.sweep import some_of
from testbed.threads_chain import built, instrumented, made, outcome, two_passes, whole, written

from safepoint.threads import runs, telling
from safepoint.threads.fortran import Instrumented

# What depends on the number of a thread, or on how many there are, is not compared, and what does not is.

NUMBERS = """\
module m
  !$ use omp_lib
  implicit none
  type work
    real(8), allocatable :: buf(:, :)
    real(8) :: u(100)
    integer :: calls(0:63)
  end type work
  type cell
    integer :: owner
    real(8) :: v
  end type cell
  real(8), allocatable :: mine(:, :)
  integer :: many = 1
contains
  integer function me()
    me = 0
    !$ me = omp_get_thread_num()
  end function me
  subroutine add(b, n, x)
    integer, intent(in) :: n
    real(8), intent(inout) :: b(:)
    real(8), intent(in) :: x
    integer :: k
    do k = 1, n
      b(k) = b(k) + x * k
    end do
  end subroutine add
  subroutine into(b, t, x)
    real(8), intent(inout) :: b(4, 0:*)
    integer, intent(in) :: t
    real(8), intent(in) :: x
    b(:, t) = b(:, t) + x
  end subroutine into
  subroutine chunk(id, n, of, lo, hi)
    integer, intent(in) :: id, n, of
    integer, intent(out) :: lo, hi
    lo = 1 + id * n / of
    hi = (id + 1) * n / of
  end subroutine chunk
  subroutine fill(a, lo, hi)
    real(8), intent(inout) :: a(:)
    integer, intent(in) :: lo, hi
    a(lo:hi) = a(lo:hi) + 1
    call more(a(lo:hi))
  end subroutine fill
  subroutine more(a)
    real(8), intent(inout) :: a(:)
    integer :: i
    do i = 1, size(a)
      a(i) = a(i) * 2
    end do
  end subroutine more
  subroutine wrap(i, n, k)
    integer, intent(in) :: i, n
    integer, intent(out) :: k
    k = mod(i - 1, n) + 1
  end subroutine wrap
  integer function wrapped(i, n)
    integer, intent(in) :: i, n
    wrapped = mod(i - 1, n) + 1
  end function wrapped
  real(8) function share(t, n)
    integer, intent(in) :: t, n
    share = dble(t) / n
  end function share
  subroutine around(z)
    real(8), intent(inout) :: z(100)
    integer :: i, k
    !$omp parallel do private(k)
    do i = 1, 100
      call wrap(i + 1, 100, k)
      z(k) = z(k) + wrapped(i, 100)
    end do
  end subroutine around
  real(8) function weigh(t, x)
    integer, intent(in) :: t
    real(8), intent(in) :: x
    integer :: k
    k = t + 1
    weigh = x * 2
    if (k < 0) weigh = 0
  end function weigh
  subroutine slices(a, n, nt)
    integer, intent(in) :: n, nt
    real(8), intent(inout) :: a(n)
    real(8) :: part(n, 0:nt - 1)
    integer :: t, i
    part = 0
    !$omp parallel private(t)
    t = me()
    !$omp do
    do i = 1, n
      part(i, t) = part(i, t) + a(i)
    end do
    !$omp end parallel
    a = a + sum(part, 2)
  end subroutine slices
end module m
program p
  use m
  implicit none
  type(work) :: w
  type(cell) :: c(100)
  integer :: i, t, lo, hi, lst(2), hits(0:63), own(100)
  real(8) :: r, s, b(4, 0:63), a(100), x(100), y(100)
  !$ many = omp_get_max_threads()
  allocate (mine(10, 0:many - 1), w%buf(4, many))
  mine = 0; w%buf = 0; w%u = 1; w%calls = 0; b = 0; hits = 0; a = 1; x = 1; s = 0; own = 0; y = 1
  !$omp parallel private(t, lo, hi, lst, r, i)
  t = me()
{body}
  !$omp end parallel
{after}
  print *, s, sum(a), sum(x), sum(y), sum(w%u)
end program p
"""

BODIES = {
    "a place for each thread": (
        "!$omp do\ndo i = 1, 100\nmine(1, t) = mine(1, t) + i\nx(i) = i\nend do",
        "do i = 0, many - 1\ns = s + mine(1, i)\nend do",
    ),
    "a section of it in a procedure": (
        "!$omp do\ndo i = 1, 100\ncall add(w%buf(:, t + 1), 4, w%u(i))\nw%u(i) = i\nend do",
        "do i = 1, many\ns = s + sum(w%buf(:, i))\nend do",
    ),
    "all of it in a procedure": (
        "!$omp do\ndo i = 1, 100\ncall into(b, t, a(i))\nend do",
        "do i = 0, 63\ns = s + b(1, i)\nend do",
    ),
    "a component for each thread": (
        "!$omp do\ndo i = 1, 100\nw%calls(t) = w%calls(t) + 1\nhits(t) = hits(t) + 1\nend do",
        "do i = 0, 63\ns = s + w%calls(i) + hits(i)\nend do",
    ),
    "the number in a list": (
        "lst = [0, 1]\n!$ lst = [omp_get_thread_num(), omp_get_num_threads()]\n"
        "do i = 1 + lst(1) * 100 / lst(2), (1 + lst(1)) * 100 / lst(2)\n"
        "x(i) = x(i) + 1\nhits(lst(1)) = hits(lst(1)) + 1\nend do",
        "s = sum(hits)",
    ),
    "the number in a real": (
        "r = 0\n!$ r = dble(omp_get_thread_num()) + 1\nif (r < 0) a(1) = 2\nr = r * 2\n"
        "lo = 1 + int(r) / 2 * 0\n!$omp do\ndo i = 1, 100\nx(i) = x(i) + lo\nif (r < 0) x(i) = 0\nend do",
        "",
    ),
    "the number of the owner": (
        "!$omp do\ndo i = 1, 100\nown(i) = t\nc(i)%owner = t\nx(i) = 2\nend do",
        "do i = 1, 100\nif (own(i) < 0 .or. c(i)%owner < 0) s = s + 1\nend do",
    ),
    "the number as an argument": (
        "i = 1\n!$ i = omp_get_num_threads()\ncall chunk(t, 100, i, lo, hi)\ncall fill(x, lo, hi)",
        "",
    ),
    "the number as an argument of a function": (
        "!$omp do\ndo i = 1, 100\nx(i) = weigh(t, x(i))\nw%u(i) = weigh(me(), w%u(i))\nend do",
        "",
    ),
    "procedures that are called with it and without": (
        "call wrap(t + 1, 100, lo)\nhi = wrapped(t + 2, 100)\nr = share(t, 4)\nhits(lo) = 1\nif (r < 0) x(1) = hi",
        "call around(y)",
    ),
    "an element that a thread reads": ("r = x(t + 1)\nhi = t + 1\ny(hi) = x(hi) + r", ""),
    "an extent in a procedure": ("lo = t", "call slices(a, 100, many)"),
}


def numbered(name: str) -> str:
    body, after = BODIES[name]
    return NUMBERS.format(body=body, after=after)


@pytest.mark.parametrize("name", some_of(list(BODIES), 3, 6))
def test_what_the_number_of_a_thread_makes_is_no_difference(name: str, tmp_path: Path) -> None:
    built(written(tmp_path, "p.f90", numbered(name)), tmp_path)
    found = whole(tmp_path / "p")
    assert found.code == 0, telling.lines(found)
    if name != "an element that a thread reads":
        passes = two_passes(tmp_path / "p", tmp_path)
        assert passes.code == 0, str(passes)


KEPT_AND_LEFT = {
    "a place for each thread": ("x", "mine"), "a section of it in a procedure": ("w%u", "w%buf"),
    "all of it in a procedure": ("", "b"), "a component for each thread": ("", "w%calls"),
    "the number of the owner": ("x", "own"), "the number as an argument": ("x", ""),
    "the number in a list": ("x", "hits"),
    "an extent in a procedure": ("", "part"), "procedures that are called with it and without": ("z", ""),
}  # fmt: skip


@pytest.mark.parametrize("name", some_of(list(KEPT_AND_LEFT), 5, 9))
def test_only_what_depends_on_it_is_in_no_digest(name: str, tmp_path: Path) -> None:
    kept, left = KEPT_AND_LEFT[name]
    made = instrumented(tmp_path, numbered(name))
    found, said = digests(made), "\n".join(text for _, text in made.left_out)
    assert not kept or kept in found, found
    assert not left or (left not in found and f"{left} is in no digest" in said), (found, said)


def test_a_bound_that_is_wrong_is_found_where_threads_share_out_by_number(tmp_path: Path) -> None:
    right = "hi = (id + 1) * n / of"
    text = numbered("the number as an argument").replace(right, f"{right}\n    if (id > 1) hi = hi - 1")
    code, said, _ = outcome(tmp_path, text)
    assert code == 1 and "x" in said.partition("first difference: ")[2].splitlines()[0], said


# A variable that is given a time when all has been done is none before: what was made of it is compared.

LATER = """\
program p
  implicit none
  integer :: i, k
  real(8) :: a(100), s, t
  s = 0; t = 0
{begin}
  !$omp parallel do reduction(+: s)
  do i = 1, 100
    a(i) = i
    s = s + a(i)
  end do
  t = 2 * s
  !$omp parallel do
  do i = 1, 100
    a(i) = a(i) / t
    !$ if (i == {wrong}) a(i) = 0
  end do
{end}
  if (t < 0) print *, t
  print '(f12.6)', sum(a)
{more}
end program p
"""
TIMED = ["call cpu_time(t)", "if (s > 0) call cpu_time(t)", "call cpu_time(t)\n  s = t - s"]


def later(end: str, begin: str = "", more: str = "", wrong: int = 0) -> str:
    return LATER.format(begin=begin, end=f"  {end}", more=more, wrong=wrong)


def digests(made: Instrumented) -> set[str]:
    """The variables that have a digest at the end of a region."""
    return {site.name for site in made.sites if site.type == "array"}


@pytest.mark.parametrize("end", some_of(TIMED, 1, 3))
def test_what_was_made_of_it_before_is_compared(end: str, tmp_path: Path) -> None:
    """All that is assigned has a digest, and a wrong value is found."""
    assert "a" in digests(instrumented(tmp_path, later(end)))
    for wrong in (0, 50):
        code, said, _ = outcome(tmp_path, later(end, wrong=wrong))
        assert code == (wrong > 0) and "in no digest" not in said, said


BEFORE = {
    "in a loop": ("do k = 1, 2", "call cpu_time(t)\n  end do", ""),
    "at first": ("call cpu_time(t)", "", ""),
    "with a way back": ("1 continue", "call cpu_time(t)\n  if (s < 0) goto 1", ""),
    "seen by a procedure": ("", "call cpu_time(t)", "contains\n  subroutine u()\n    t = 2\n  end subroutine u"),
}


def test_where_it_may_be_one_before_it_is_left_out(tmp_path: Path) -> None:
    for where, (begin, end, more) in BEFORE.items():
        assert "a" not in digests(instrumented(tmp_path, later(end, begin, more))), where


# A component that is a time is one in all variables of its type, whoever gives it; the others are compared.

TIMERS = """\
module timers
  implicit none
  type timer
    real(8) :: t0 = 0, total = 0
    integer(8) :: c0 = 0
    integer :: calls = 0
  contains
    procedure :: start
    procedure :: halt => stopped
    procedure :: so_far => doubled
    procedure :: into
  end type timer
  type, extends(timer) :: named
    integer :: rank = 3
  end type named
  type held
    type(named) :: clock
    real(8) :: x = 0
  end type held
  type(timer) :: tm(3)
contains
  subroutine start(self)
    class(timer), intent(inout) :: self
    integer(8) :: rate
    call system_clock(self%c0, rate)
    call cpu_time(self%t0)
  end subroutine start
  subroutine stopped(self)
    class(timer), intent(inout) :: self
    integer(8) :: c, rate
    real(8) :: t
    call system_clock(c, rate)
    call cpu_time(t)
    self%total = self%total + (t - self%t0) + dble(c - self%c0) / rate
    self%calls = self%calls + 1
  end subroutine stopped
  real(8) function doubled(self)
    class(timer), intent(in) :: self
    doubled = 2 * self%total
  end function doubled
  subroutine into(self, twice)
    class(timer), intent(in) :: self
    real(8), intent(out) :: twice
    twice = 2 * self%total
  end subroutine into
end module timers
program p
  use timers
  implicit none
  type(held) :: h
  real(8) :: a(100), t, f
  integer :: i, it
  do it = 1, 3
    call tm(1)%start()
    call h%clock%start()
    !$omp parallel do
    do i = 1, 100
      a(i) = i * it
    end do
    call tm(1)%halt()
    call h%clock%halt()
    {given}
    !$omp parallel do
    do i = 1, 100
      a(i) = a(i) + 1
    end do
    if (t > 1d9) exit
  end do
  print *, sum(a), tm(1)%calls, h%x, h%clock%rank
  write (*, '(a,f10.6)') 'time ', tm(1)%total
end program p
"""
WAYS = ["t = tm(1)%total", "t = h%clock%total", "f = tm(1)%so_far(); t = f + 1", "call tm(1)%into(f); t = f",
        "associate (l => h%clock%total)\n t = l\n end associate",
        "associate (c => h%clock)\n t = c%total\n end associate"]  # fmt: skip


def timers(given: str) -> str:
    return TIMERS.replace("{given}", given)


@pytest.mark.parametrize("given", some_of(WAYS, 2, 4))
def test_what_a_timer_has_or_gives_is_no_difference(given: str, tmp_path: Path) -> None:
    code, said, _ = outcome(tmp_path, timers(given))
    assert code == 0, said
    assert whole(tmp_path / "x").code == 0


@pytest.mark.parametrize(("name", "wrong"), [("tm(1)%calls", "call tm(1)%halt()"), ("h%x", "h%x = 4")])
def test_other_components_are_compared(name: str, wrong: str, tmp_path: Path) -> None:
    code, said, _ = outcome(tmp_path, timers(f"t = tm(1)%total\n    !$ {wrong}\n    a(1) = {name}"))
    assert code == 1 and f"read {name}" in said, said


def test_components_are_left_by_type_and_name(tmp_path: Path) -> None:
    names = {site.name for site in instrumented(tmp_path, timers("t = 0; h%x = 1; a(1) = h%clock%calls")).sites}
    assert {"self%calls", "h%x", "h%clock%calls"} <= names
    assert not any(name.endswith(("%total", "%t0", "%c0")) for name in names), names


def test_what_is_printed_of_them_is_known_as_a_time(tmp_path: Path) -> None:
    made(tmp_path, timers("t = 0\nprint '(a,2f10.6)', 'both', tm(1)%total, tm(1)%so_far()"))
    (found,) = [shown for shown in runs.shown([str(tmp_path / "x.serial")]) if "both" in shown.words]
    assert found.values == "RN"
