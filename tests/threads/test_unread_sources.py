"""A source that cannot be read is compiled as it is: `test` says so, when nothing of the program is recorded."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

pytest.importorskip("fparser")
pytest.importorskip("numpy")
if shutil.which("gfortran") is None:
    pytest.skip("no gfortran: programs are not built", allow_module_level=True)

from safepoint.threads.building import build
from safepoint.threads.compare import Rules
from safepoint.threads.passes import Passes, Plan

SOURCE = """\
module m
  interface
    module subroutine fill(u)
      real(8), intent(out) :: u(:)
    end subroutine fill
  end interface
end module m
submodule (m) body
contains
  module procedure fill
    integer :: i
!$omp parallel do
    do i = 1, size(u)
      u(i) = i
    end do
!$omp end parallel do
  end procedure fill
end submodule body
program a
  use m
  real(8) :: u(20)
  call fill(u)
  print *, sum(u)
end program a
"""
WARNED = "a.f90:1: the file is compiled as it is: no reader"


def outcome(place: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[int, str]:
    """Code and text of `test`, for a program whose only source nothing can read."""
    from safepoint.threads import fortran

    def instrument(*_: object, **__: object) -> object:
        raise fortran.Unreadable(1, "no reader")

    monkeypatch.chdir(place)
    monkeypatch.setattr(fortran, "instrument", instrument)
    (place / "a.f90").write_text(SOURCE)
    build(["gfortran", "-fopenmp", "a.f90"], Path("a"))
    (place / "t").mkdir()
    found = Passes(["./a"], place / "t", Rules(), Plan(1, 0, False, 60), lambda _: None).run()
    return found.code, "\n".join(found.lines)


def test_a_program_without_a_trace_is_told_with_what_could_not_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, text = outcome(tmp_path, monkeypatch)
    assert code == 2
    assert text == (f"A has left no trace, so nothing can be compared; `build` has recorded nothing of\n  {WARNED}")
