"""What depends on the number of a thread, or on how many there are, is not compared, and what does not is."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("fparser")
pytest.importorskip("numpy")

from testbed.threads_chain import built, traced, two_passes
from testbed.threads_corpus import has

PROGRAM = """\
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


def program(name: str, place: Path) -> Path:
    body, after = BODIES[name]
    path = place / "p.f90"
    path.write_text(PROGRAM.format(body=body, after=after))
    return path


@pytest.mark.skipif(not has("gfortran"), reason="no gfortran")
@pytest.mark.parametrize("name", BODIES)
def test_what_the_number_of_a_thread_makes_is_no_difference(name: str, tmp_path: Path) -> None:
    from safepoint.threads.compare import compare
    from safepoint.threads.telling import lines
    from safepoint.threads.trace import Run

    made = built(program(name, tmp_path), tmp_path)
    a = Run(traced(tmp_path / made.serial, tmp_path / "a", 1, "static", "full"))
    b = Run(traced(tmp_path / made.parallel, tmp_path / "b", 4, "static", "full"))
    found = compare(a, b)
    assert found.code == 0, lines(found)
    if name != "an element that a thread reads":
        passes = two_passes(tmp_path / made.parallel, tmp_path, threads=4)
        assert passes.code == 0, str(passes)


def digests(name: str, tmp_path: Path) -> tuple[set[str], str]:
    from safepoint.threads import fortran

    made = fortran.instrument(program(name, tmp_path))
    return {site.name for site in made.sites if site.type == "array"}, "\n".join(text for _, text in made.left_out)


@pytest.mark.parametrize(
    ("name", "kept", "left"),
    [("a place for each thread", "x", "mine"), ("a section of it in a procedure", "w%u", "w%buf"),
     ("all of it in a procedure", "", "b"), ("a component for each thread", "", "w%calls"),
     ("the number of the owner", "x", "own"), ("the number as an argument", "x", ""),
     ("the number in a list", "x", "hits"), ("an extent in a procedure", "", "part"),
     ("procedures that are called with it and without", "z", "")],
)  # fmt: skip
def test_only_what_depends_on_it_is_in_no_digest(name: str, kept: str, left: str, tmp_path: Path) -> None:
    found, said = digests(name, tmp_path)
    assert not kept or kept in found, found
    assert not left or (left not in found and f"{left} is in no digest" in said), (found, said)


@pytest.mark.skipif(not has("gfortran"), reason="no gfortran")
def test_a_bound_that_is_wrong_is_found_where_threads_share_out_by_number(tmp_path: Path) -> None:
    path = program("the number as an argument", tmp_path)
    path.write_text(
        path.read_text().replace("hi = (id + 1) * n / of", "hi = (id + 1) * n / of\n    if (id > 1) hi = hi - 1")
    )
    found = two_passes(tmp_path / built(path, tmp_path).parallel, tmp_path, threads=4)
    assert found.code == 1 and "x" in str(found), str(found)
