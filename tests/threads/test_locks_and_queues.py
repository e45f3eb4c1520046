"""What is in an order of chance is no difference: under locks, and where a counter hands out work."""

from __future__ import annotations

from pathlib import Path

import pytest
from testbed.sweep import some_of
from testbed.threads_chain import built, instrumented, outcome, two_passes, whole, written

from safepoint.threads.telling import lines

# What is done between the set and the unset of a lock is in an order of chance, as in CRITICAL: no difference.

PROGRAM = """\
program p
  use omp_lib
  implicit none
  integer(omp_lock_kind) :: l, ls(4)
  integer(omp_nest_lock_kind) :: nl
  integer :: i, k, n, q
  logical :: got
  real(8) :: s, h(4), a(400)
  s = 0; h = 0; n = 0; q = 0
  call omp_init_lock(l); call omp_init_nest_lock(nl)
  do i = 1, 4
    call omp_init_lock(ls(i))
  end do
  !$omp parallel do private(k, got)
  do i = 1, 400
    a(i) = sin(dble(i))
{body}
  end do
  print '(6f12.6)', s, h, sum(a)
  print *, n, q
contains
  subroutine grab()
    call omp_set_lock(l)
  end subroutine grab
  subroutine drop()
    call omp_unset_lock(l)
  end subroutine drop
  subroutine add(x)
    real(8), intent(in) :: x
    call omp_set_lock(l)
    s = s + x
    call omp_unset_lock(l)
  end subroutine add
end program p
"""

BODIES = {
    "a lock": "call omp_set_lock(l)\ns = s + a(i)\nn = n + 1\ncall omp_unset_lock(l)",
    "a lock for each place": """\
k = mod(i, 4) + 1
call omp_set_lock(ls(k))
h(k) = h(k) + a(i)
call omp_unset_lock(ls(k))""",
    "nested": """\
call omp_set_nest_lock(nl)
s = s + a(i)
call omp_set_nest_lock(nl)
n = n + 1
call omp_unset_nest_lock(nl)
s = s + 1
call omp_unset_nest_lock(nl)""",
    "waiting": "do while (.not. omp_test_lock(l))\nend do\ns = s + a(i)\ncall omp_unset_lock(l)",
    "trying": """\
do
  if (omp_test_lock(l)) then
    s = s + a(i)
    call omp_unset_lock(l)
    exit
  end if
end do""",
    "trying first": "got = omp_test_lock(l)\nif (.not. got) call omp_set_lock(l)\ns = s + a(i)\ncall omp_unset_lock(l)",
    "by procedures": "call grab()\ns = s + a(i)\ncall drop()",
    "in a procedure": "call add(a(i))",
    "set in two ways": """\
if (i > 100) then
  call omp_set_lock(l)
else
  call omp_set_lock(l)
end if
s = s + a(i)
call omp_unset_lock(l)""",
    "freed before cycle": """\
call omp_set_lock(l)
if (a(i) < 0) then
  n = n + 1
  call omp_unset_lock(l)
  cycle
end if
s = s + a(i)
q = n
if (q < 0) s = 0
q = 0
call omp_unset_lock(l)""",
}


def under_lock(name: str, place: Path, text: str = PROGRAM) -> Path:
    return written(place, "p.f90", text.format(body=BODIES[name]))


@pytest.mark.parametrize("name", some_of(list(BODIES), 3, 5))
def test_a_sum_under_a_lock_is_no_difference(name: str, tmp_path: Path) -> None:
    made = built(under_lock(name, tmp_path), tmp_path)
    assert made.warnings == []
    found = whole(tmp_path / "p", 4, "dynamic", SP_STATISTICS="1", SP_NOISE="20")
    assert found.code == 0, lines(found)
    passes = two_passes(tmp_path / "p", tmp_path, schedule="dynamic", noise=20)
    assert passes.code == 0, str(passes)


def test_a_lock_that_is_freed_elsewhere_is_said(tmp_path: Path) -> None:
    found = instrumented(tmp_path, PROGRAM.format(body=BODIES["freed before cycle"]))
    assert {text.partition(" ")[0] for _, text in found.left_out if "set and unset of a lock" in text} == {
        "n",
        "s",
        "q",
    }
    assert not instrumented(tmp_path, PROGRAM.format(body=BODIES["a lock"])).left_out


STRANGE = """\
contains
  logical function strange(i)
    integer, intent(in) :: i
    strange = .false.
    !$ strange = i == 77
  end function strange
"""


@pytest.mark.parametrize("wrong", ["s = s + merge(2, 1, strange(i))", "a(i) = a(i) + merge(1, 0, strange(i))"])
def test_a_wrong_value_that_is_made_under_a_lock_is_found(wrong: str, tmp_path: Path) -> None:
    """By the digest after the region."""
    text = PROGRAM.format(body=BODIES["a lock"]).replace("s = s + a(i)\n", f"{wrong}\n", 1)
    code, said, _ = outcome(tmp_path, text.replace("contains\n", STRANGE, 1))
    assert code == 1, said


# A lock that procedures set and free: given to them, of a type, through another procedure, and of another file.

MODULE = """\
module locks
  use omp_lib
  implicit none
  integer(omp_lock_kind), save :: one
  type guard
    integer(omp_lock_kind) :: l
  contains
    procedure :: lock => guard_lock
    procedure :: free => guard_free
  end type guard
contains
  subroutine guard_lock(self)
    class(guard), intent(inout) :: self
    call omp_set_lock(self%l)
  end subroutine guard_lock
  subroutine guard_free(self)
    class(guard), intent(inout) :: self
    call omp_unset_lock(self%l)
  end subroutine guard_free
  subroutine take(given)
    integer(omp_lock_kind), intent(inout) :: given
    call omp_set_lock(given)
  end subroutine take
  subroutine give(given)
    integer(omp_lock_kind), intent(inout) :: given
    call omp_unset_lock(given)
  end subroutine give
  subroutine take_one()
    call take(one)
  end subroutine take_one
  subroutine give_one()
    call give(one)
  end subroutine give_one
end module locks
"""
MAIN = """\
program p
  use locks, only: omp_lock_kind, omp_init_lock, one, guard, take, give, through => take_one, back => give_one
  implicit none
  type(guard) :: g(2)
  integer :: i, n
  real(8) :: s
  call omp_init_lock(one)
  call omp_init_lock(g(1)%l)
  n = 0; s = 0
  !$omp parallel do
  do i = 1, 100
    call {set}
    n = n + 1
    s = s + 0.1d0 * i
    call {free}
  end do
  print '(i4,f12.6)', n, s
end program p
"""


def locked(tmp_path: Path, set: str, free: str) -> list[str]:
    """The warnings of a build."""
    module = written(tmp_path, "locks.f90", MODULE)
    return built(written(tmp_path, "p.f90", MAIN.format(set=set, free=free)), tmp_path, str(module)).warnings


@pytest.mark.parametrize(
    ("set", "free"), [("take(one)", "give(one)"), ("g(1)%lock()", "g(1)%free()"), ("through()", "back()")]
)
def test_what_is_done_under_it_is_no_race_and_no_difference(tmp_path: Path, set: str, free: str) -> None:
    assert locked(tmp_path, set, free) == []
    found = two_passes(tmp_path / "p", tmp_path, noise=5)
    assert found.code == 0, found


def test_a_procedure_that_does_nothing_with_locks_protects_nothing(tmp_path: Path) -> None:
    assert len(locked(tmp_path, "omp_init_lock(g(2)%l)", "omp_init_lock(g(2)%l)")) == 2


def test_a_lock_is_in_no_trace(tmp_path: Path) -> None:
    """Locks are numbers for the compiler, and addresses for the machine."""
    main = MAIN.format(set="take(one)", free="give(one)").replace("n = 0;", "one = one; n = 0;")
    for text in (
        PROGRAM.format(body=BODIES["a lock for each place"]),
        PROGRAM.format(body=BODIES["nested"]),
        MODULE + main,
    ):
        names = {site.name.partition("(")[0].rpartition("%")[2] for site in instrumented(tmp_path, text).sites}
        assert names & {"a", "n", "s"} and not names & {"l", "ls", "nl", "one", "given", "g", "self"}, names


# Work that a counter hands out, in CRITICAL or ATOMIC CAPTURE: which thread gets what is chance.

QUEUE = """\
program q
  implicit none
  integer :: k, pos
  real(8) :: a(20)
  a = 1
  pos = 0
  !$omp parallel private(k)
  do
    !$omp atomic capture
    pos = pos + 1
    k = pos
    !$omp end atomic
    if (k > 20) exit
    a(k) = a(k) + k
  end do
  !$omp end parallel
  print *, a
end program
"""


def queue(way: str, more: str = "") -> str:
    text = QUEUE.replace("atomic capture", way).replace("end atomic", f"end {way.split()[0]}")
    return text.replace("= a(k) + k\n", f"= a(k) + k\n{more}")


each_way = pytest.mark.parametrize("way", ["atomic capture", "critical"])


@each_way
def test_a_queue_is_no_difference_and_what_it_hands_out_is_compared(tmp_path: Path, way: str) -> None:
    code, said, _ = outcome(tmp_path, queue(way))
    assert code == 0 and "pos is in no digest, as it hands out work" in said, said
    assert '"name": "a"' in (tmp_path / "x.sites.jsonl").read_text()  # it has a digest


@each_way
def test_a_wrong_element_is_told_and_not_who_was_given_it(tmp_path: Path, way: str) -> None:
    code, said, _ = outcome(tmp_path, queue(way, "    !$ if (k == 15) a(k) = -1\n"))
    assert code == 1 and "=digest a (" in said, said
    assert "what lines 14, 15 may assign to a is not recorded" in said, said


FILLED = """\
program q
  implicit none
  integer :: i, j, k, t, m, list(400), a(400)
  a = [(mod(i * i, 23), i = 1, 400)]
  m = 0
  list = 0
  !$omp parallel do private(k) schedule(dynamic, 5)
  do i = 1, 400{off}
    if (a(i) == 4) then
      {way}
      m = m + 1
      k = m
      {end}
      list({at}) = {value}
    end if
  end do
  {sort}
  !$omp parallel do
  do i = 1, 400
    a(i) = a(i) + list(i)
  end do
  print *, {shown}
end program
"""
SORT = """do i = 2, m
    t = list(i); j = i - 1
    do while (j >= 1)
      if (list(j) <= t) exit
      list(j + 1) = list(j); j = j - 1
    end do
    list(j + 1) = t
  end do"""
ATOMIC = {"way": "!$omp atomic capture", "end": "!$omp end atomic", "at": "k"}
CRITICAL = {"way": "!$omp critical", "end": "!$omp end critical", "at": "k"}
WITHIN = {"way": "!$omp critical", "end": "list(m) = i\n!$omp end critical", "at": "400 - k * 0", "value": "0"}
RIGHT = {"off": "", "value": "i", "sort": SORT, "shown": "m, sum(a)"}


def filled(tmp_path: Path, **given: str) -> tuple[int, str]:
    return outcome(tmp_path, FILLED.format(**{**RIGHT, **given}))[:2]


@pytest.mark.parametrize("way", some_of([ATOMIC, CRITICAL, WITHIN], 2, 3))
def test_a_list_that_is_filled_in_an_order_of_chance_is_compared_once_it_is_sorted(
    tmp_path: Path, way: dict[str, str]
) -> None:
    code, said = filled(tmp_path, **way)
    assert code == 0 and "list is in no digest, as it has an order of chance" in said, said


def test_what_is_wrong_in_a_list_is_found_after_it_was_sorted(tmp_path: Path) -> None:
    code, said = filled(tmp_path, **ATOMIC, sort=SORT + "\n  !$ list(3) = list(3) + 1")
    assert code == 1 and "x.f90" in said, said


def test_a_counter_that_iterations_count_has_a_digest(tmp_path: Path) -> None:
    code, said = filled(tmp_path, **ATOMIC, off="\n    !$ if (i == 2) cycle", shown="'done'")
    assert code == 1 and "x.f90:7-17, m" in said, said


def test_what_a_queue_counts_beyond_the_end_is_printed_and_no_mistake_for_certain(tmp_path: Path) -> None:
    code, said, _ = outcome(tmp_path, QUEUE.replace("print *, a", "print *, 'end', pos"))
    assert code == 2 and "Cannot tell: it is made of" in said, said
