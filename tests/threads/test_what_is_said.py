"""What is said beside a difference, or where nothing was found or compared, and the exit code."""

from __future__ import annotations

import shutil
import struct
import subprocess
from pathlib import Path

import pytest
from testbed.threads_chain import command, made, needs, outcome, recorded

from safepoint.threads import fortran, hints, kinds, lacking, telling
from safepoint.threads.difference import Difference, Event
from safepoint.threads.sites import Site

# A digest that differs where all writes are equal: what is said of it, and the exit code.

HALO = """\
program u
!$ use omp_lib
  implicit none
  real(8) :: w(0:101)
  integer :: i
  w(0) = 1
!$ w(0) = 2
!$omp parallel do
  do i = 1, 100
    w(i) = i + 5
  end do
!$omp end parallel do
  print *, sum(w(1:100))
end program u
"""
TWICE = """\
program t
  implicit none
  real(8) :: w(4)
  integer :: i, at(4)
  w = 0
  at = [1, 1, 1, 1]
!$omp parallel do schedule(static, 1)
  do i = 1, 4
    call turn(i, .false.)
    w(at(i)) = 5 - i
    call turn(i, .true.)
  end do
!$omp end parallel do
  print *, w
end program t
!$sp off
subroutine turn(i, over)
  integer, intent(in) :: i
  logical, intent(in) :: over
  integer, save :: next = 4
  integer :: now
!$ do
!$omp atomic read
!$ now = next
!$ if (now == i) exit
!$ end do
!$ if (over) then
!$omp atomic write
!$ next = i - 1
!$ end if
end subroutine turn
"""  # with OpenMP from the last to the first
LEFT = """\
program l
  use omp_lib
  implicit none
  real(8), target :: w(4)
  integer :: i
  w = 0
!$omp parallel
!$ w(1) = 7
!$omp do
  do i = 2, 4
    w(i) = i
  end do
!$omp end parallel
  print *, w
end program l
"""


def test_elements_that_nobody_assigns_are_no_difference_of_the_program(tmp_path: Path) -> None:
    code, said, _ = outcome(tmp_path, HALO)
    assert code == 2, said
    assert "Cannot tell: all that is recorded in it is equal; line 7, outside of it, may assign to w" in said
    assert "PRIVATE" not in said


def test_a_value_that_is_overwritten_in_one_run_alone_is_a_difference(tmp_path: Path) -> None:
    code, said, _ = outcome(tmp_path, TWICE)
    assert code == 1 and "another thread was the last to write w" in said, said


def test_a_write_that_is_not_recorded_is_named(tmp_path: Path) -> None:
    code, said, _ = outcome(tmp_path, LEFT)
    assert code == 1 and "what line 8 may assign to w is not recorded" in said, said
    assert "PRIVATE" not in said


BY_ALL = """\
program b
  implicit none
  real(8), target :: a(8)
  real(8), pointer :: q
  a = 1
  q => a(3)
!$omp parallel
!$omp critical
  call more
!$omp end critical
!$omp end parallel
  print *, 'done'
contains
  subroutine more
    a(3) = a(3) + 1
  end subroutine more
end program b
"""


def test_what_each_thread_has_done_and_not_one_alone_is_a_difference_for_certain(tmp_path: Path) -> None:
    """Writes of the procedure are in the order of chance, and as often as there are threads."""
    code, said, _ = outcome(tmp_path, BY_ALL)
    assert code == 1, said


UNSET = """\
program n
  implicit none
  real(8), allocatable :: junk(:), w(:)
  integer :: i
  allocate (junk(5000))
  do i = 1, 5000
    junk(i) = i
!$  junk(i) = -i
  end do
  deallocate (junk)
  allocate (w(5000))
!$omp parallel do
  do i = 2, 4999
    w(i) = i
  end do
  print *, sum(w(2:4999))
end program n
"""


def test_elements_that_never_had_a_value_are_no_difference_of_two_whole_traces(tmp_path: Path) -> None:
    assert outcome(tmp_path, UNSET).code == 2
    recorded(tmp_path / "x")
    done = command(tmp_path, "compare", "a", "b")
    assert done.exit_code == 2 and "had it ever a value?" in done.stdout, done.output


COUNTED = """\
program c
  implicit none
  integer :: s
  s = 0
  !$omp parallel
  !$omp atomic
  s = s + 1
  !$omp end parallel
  print *, s
end program c
"""
AT_THE_ENDS = """\
program e
  implicit none
  integer :: i
  real(8) :: a(100), t
  a = 1
!$omp parallel do private(t)
  do i = 1, 100
    t = i
!$  if (i == 50) t = 0
    a(i) = t
  end do
  print *, 'done'
end program e
"""


def test_of_what_is_in_an_order_of_chance_it_is_not_said_that_its_writes_are_equal(tmp_path: Path) -> None:
    code, said, _ = outcome(tmp_path, COUNTED)
    assert code == 1, said
    assert "what threads assign to s at line 7 is their own, or in an order of chance" in said, said
    assert "all writes in it are equal" not in said and "PRIVATE" not in said


def test_where_only_the_ends_of_loops_are_recorded_nothing_is_said_of_the_rest(tmp_path: Path) -> None:
    (tmp_path / "threads.toml").write_text("edges = 2\n")
    code, said, _ = outcome(tmp_path, AT_THE_ENDS)
    assert code == 2, said
    assert "Cannot tell where: of each loop only the first and the last 2 iterations are recorded" in said
    assert "--exclude" not in said


EXCHANGED = """\
program x
  implicit none
  integer :: i
  real(8) :: h(10), x_(1000)
  h = 0
  x_ = [(sin(1d0 * i), i = 1, 1000)]
!$omp parallel do
  do i = 1, 1000
!$omp critical
    h(mod(i, 10) + 1) = h(mod(i, 10) + 1) + x_(i)
!$omp end critical
  end do
!$ h = h([2, 1, 3, 4, 5, 6, 7, 8, 9, 10])
!$omp parallel
!$omp single
  h(3) = h(3) + 1
!$omp end single
!$omp end parallel
  print *, 'done'
end program x
"""


def test_sums_that_changed_places_differ_though_they_are_the_same_numbers(tmp_path: Path) -> None:
    code, said, _ = outcome(tmp_path, EXCHANGED)
    assert code in (1, 2) and "No inconsistencies" not in said, said
    assert "digest h (10 real(8)," in said and "by place" in said and "REDUCTION" not in said
    assert "line 13, outside of it, may assign to h, and is not recorded" in said, said


def test_without_any_region_nothing_was_compared(tmp_path: Path) -> None:
    needs("gfortran")
    (tmp_path / "l.f90").write_text("subroutine l(a)\n  real :: a(9)\n  integer :: i\n!$omp parallel do\n"
                                    "  do i = 1, 9\n    a(i) = i\n  end do\nend subroutine\n")  # fmt: skip
    subprocess.run(["gfortran", "-fopenmp", "-c", "l.f90"], cwd=tmp_path, check=True)
    text = "program m\n  real :: a(9)\n  call l(a)\n  print *, a\nend program\n"
    code, said, _ = outcome(tmp_path, text, "l.o")
    assert code == 2 and "no region was recorded" in said and "l.o: linked as it is" in said, said


# What is said beside a difference: where it may come from, and what to try next.

SUM = """\
program r
  real(8) :: a(100), s
  integer :: i
  a = 1.5d0
  s = 0
!$omp parallel do reduction(*:s)
  do i = 1, 100
    s = s + a(i)
  end do
!$omp end parallel do
  print *, s
end program r
"""
LAST = """\
program p
  integer :: i, k
  logical :: some
  k = 0
!$omp parallel
!$omp do
  do i = 1, 100
    k = i
  end do
!$omp end do
!$omp end parallel
  some = k == 0
  if (some) print *, k
end program p
"""


def test_a_reduction_with_another_operator_is_not_to_be_private(tmp_path: Path) -> None:
    said = outcome(tmp_path, SUM).said
    assert "the REDUCTION of s is not: is its operator the one by which the loop makes s?" in said
    assert "PRIVATE" not in said


def test_a_warning_of_the_build_is_repeated_where_nothing_was_found(tmp_path: Path) -> None:
    made(tmp_path, LAST)
    (tmp_path / "x").unlink()
    shutil.copy(tmp_path / "x.serial", tmp_path / "x")
    said = command(tmp_path, "test", "--", "./x").stdout.splitlines()
    assert said[-3] == "but `build` has warned:" and said[-2].startswith("  x.f90:8: k is shared and assigned")
    assert said[-1] == "races are chance, and none showed in 1 run of B: try --runs 5 --noise 50"


def site(name: str, loose: str = "", type: str = "array") -> Site:
    return Site(1, type, name, "x.f90", 3, 5, loose=loose)


def test_lastprivate_is_said_to_stand_on_the_loop_where_a_region_may_not_have_it() -> None:
    assert hints.by_digest(site("k"), site("parallel do", type="region")).endswith("PRIVATE, or LASTPRIVATE?")
    assert hints.by_digest(site("k"), site("parallel", type="region")).endswith(
        "Is it to be PRIVATE, or LASTPRIVATE on the DO, FOR or SECTIONS in the region?"
    )


def digest(type: int, value: float) -> Event:
    statistics = struct.unpack("<4Q", struct.pack("<4d", value, value, value, abs(value)))
    return Event(0, 0, 1, site("k"), kinds.DIGEST, type, 1, (1, 2, 3, *statistics))


@pytest.mark.parametrize(
    ("type", "value", "shown"),
    [(kinds.INTEGER4, 25.0, "25)"), (kinds.LOGICAL4, 1.0, "T)"), (kinds.REAL8, 0.5, "0.5)")],
)
def test_a_digest_of_one_value_shows_it(type: int, value: float, shown: str) -> None:
    assert f"({telling.shown(digest(type, value))})".endswith(", " + shown)


def test_rounding_is_named_if_the_statistics_are_near() -> None:
    def difference(value: float) -> Difference:
        a, b = digest(kinds.REAL8, 1.0), digest(kinds.REAL8, value)
        return Difference("value", 1, True, None, a, b, None, (), 1, 0, 0, 0, None, None, (), False)

    assert hints.near(difference(1 + 1e-12)) and not hints.near(difference(1.001))


# Two runs that are equal as far as they were compared: what was not is said, with what to do next.

RACE = "x.f90:8: k is shared and assigned in a parallel loop, outside critical and atomic: a race; is it to be PRIVATE?"
TASK = "x.f90:9: TASK is passed through"


@pytest.mark.parametrize(
    ("runs", "noise", "last"),
    [(1, 0, "none showed in 1 run of B: try --runs 5 --noise 50"), (5, 0, "none showed in 5 runs of B: try --noise 50"),
     (1, 50, "none showed in 1 run of B: try --runs 5"),
     (5, 50, "none showed in 5 runs of B: ThreadSanitizer is the next step")],
)  # fmt: skip
def test_options_that_were_used_are_not_advised(runs: int, noise: int, last: str) -> None:
    assert lacking.ending([TASK, RACE], runs, noise)[-1] == f"races are chance, and {last}"


def test_of_what_is_no_race_it_is_not_said_that_it_is_chance() -> None:
    assert lacking.ending([TASK], 1, 0) == ["but `build` has warned:", f"  {TASK}"]
    assert lacking.ending([], 1, 0) == []


ASSIGNED_LATER = """\
program later
  implicit none
  real(8) :: a(20), s
  integer :: i, k
  s = 1
  do k = 1, 5
!$omp parallel do
    do i = 1, 20
      a(i) = i * k
    end do
!$omp end parallel do
!$  if (k == 3) s = 7
  end do
  s = s * 2
  print *, s
end program later
"""


def test_what_is_found_after_the_last_region_may_differ_earlier(tmp_path: Path) -> None:
    code, said, _ = outcome(tmp_path, ASSIGNED_LATER)
    assert code == 1 and "\n  after region 5; A: thread" in said and "before region 6" not in said, said
    last = said.splitlines()[-1]
    assert last.startswith("  it may differ earlier, as it is in none of the digests"), said
    assert "`!$sp watch NAME`, or by SP_LEVEL=full" in last


# A source that cannot be read is compiled as it is: `test` says so, when nothing of the program is recorded.

WARNED = "x.f90:1: the file is compiled as it is: no reader"


def test_a_program_without_a_trace_is_told_with_what_could_not_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def instrument(*_: object, **__: object) -> object:
        raise fortran.Unreadable(1, "no reader")

    monkeypatch.setattr(fortran, "instrument", instrument)
    code, said, _ = outcome(tmp_path, SUM)
    assert code == 2
    assert said == f"A has left no trace, so nothing can be compared; `build` has recorded nothing of\n  {WARNED}\n"
