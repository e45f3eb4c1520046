"""What is done between the set and the unset of a lock is in an order of chance, as in CRITICAL: no difference."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("fparser")
pytest.importorskip("numpy")

from testbed.threads_chain import built, traced, two_passes
from testbed.threads_corpus import has

from safepoint.threads import fortran

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


def written(name: str, place: Path) -> Path:
    path = place / "p.f90"
    path.write_text(PROGRAM.format(body=BODIES[name]))
    return path


@pytest.mark.skipif(not has("gfortran"), reason="no gfortran")
@pytest.mark.parametrize("name", BODIES)
def test_a_sum_under_a_lock_is_no_difference(name: str, tmp_path: Path) -> None:
    from safepoint.threads.compare import compare
    from safepoint.threads.telling import lines
    from safepoint.threads.trace import Run

    made = built(written(name, tmp_path), tmp_path)
    assert made.warnings == []
    a = Run(traced(tmp_path / made.serial, tmp_path / "a", 1, "static", "full", SP_STATISTICS="1"))
    b = Run(traced(tmp_path / made.parallel, tmp_path / "b", 4, "dynamic", "full", SP_STATISTICS="1", SP_NOISE="20"))
    found = compare(a, b)
    assert found.code == 0, lines(found)
    passes = two_passes(tmp_path / made.parallel, tmp_path, threads=4, schedule="dynamic", noise=20)
    assert passes.code == 0, str(passes)


def test_a_lock_that_is_freed_elsewhere_is_said(tmp_path: Path) -> None:
    made = fortran.instrument(written("freed before cycle", tmp_path))
    why = {text.partition(" ")[0] for _, text in made.left_out if "set and unset of a lock" in text}
    assert why == {"n", "s", "q"}
    assert not fortran.instrument(written("a lock", tmp_path)).left_out


STRANGE = """\
contains
  logical function strange(i)
    integer, intent(in) :: i
    strange = .false.
    !$ strange = i == 77
  end function strange
"""


@pytest.mark.skipif(not has("gfortran"), reason="no gfortran")
@pytest.mark.parametrize("wrong", ["s = s + merge(2, 1, strange(i))", "a(i) = a(i) + merge(1, 0, strange(i))"])
def test_a_wrong_value_that_is_made_under_a_lock_is_found(wrong: str, tmp_path: Path) -> None:
    """By the digest after the region."""
    path = written("a lock", tmp_path)
    text = path.read_text().replace("s = s + a(i)\n", f"{wrong}\n", 1)
    path.write_text(text.replace("contains\n", STRANGE, 1))
    made = built(path, tmp_path)
    found = two_passes(tmp_path / made.parallel, tmp_path, threads=4, schedule="dynamic")
    assert found.code == 1, str(found)
