"""`safepoint threads build`: two programs from the user's line, and nothing changed if that fails."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fparser")
pytest.importorskip("numpy")
if shutil.which("gfortran") is None:
    pytest.skip("no gfortran: programs are not built", allow_module_level=True)

from safepoint.errors import UsageError
from safepoint.threads import fortran, runs, sites
from safepoint.threads.building import Built, build

MAIN = """\
program heat
  use omp_lib
  use solver
  implicit none
  real(8) :: u(50)
  integer :: step
  u = [(real(step, 8), step = 1, 50)]
  do step = 1, 3
    call advance(u)
  end do
  if (omp_get_max_threads() < 1) stop 3
  print '(f12.6)', sum(u)
end program heat
"""
SOLVER = """\
module solver
contains
  subroutine advance(u)
    real(8), intent(inout) :: u(:)
    integer :: i
    real(8) :: v(size(u))
!$omp parallel do
    do i = 2, size(u) - 1
      v(i) = 0.5d0 * (u(i - 1) + u(i + 1))
    end do
!$omp end parallel do
    u(2:size(u) - 1) = v(2:size(u) - 1)
  end subroutine advance
end module solver
"""
LINE = ["gfortran", "-O1", "-fopenmp", "solver.f90", "heat.f90"]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with a program in two files."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "heat.f90").write_text(MAIN)
    (tmp_path / "solver.f90").write_text(SOLVER)
    return tmp_path


def made(words: list[str], out: str = "heat") -> Built:
    built = build(words, Path(out))
    assert isinstance(built, Built)
    return built


def printed(program: str, **variables: str) -> str:
    done = subprocess.run([program], capture_output=True, text=True, env={**os.environ, **variables}, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_both_programs_print_what_the_plain_one_does(here: Path) -> None:
    subprocess.run([*LINE, "-o", "plain"], check=True)
    built = made(LINE)
    assert printed("./heat") == printed("./heat.serial") == printed("./plain")
    assert built.told[0].startswith("solver.f90: ") and "1 region, 1 parallel loop" in built.told[0]
    assert not [name for name in os.listdir(here) if name.endswith((".mod", ".o")) and name != "solver.mod"]


def test_the_sites_of_all_files_are_numbered_through(here: Path) -> None:
    made(LINE)
    found = sites.read(here / "heat.sites.jsonl")
    assert found.build and {site.file for site in found.by_number.values()} == {"solver.f90", "heat.f90"}
    assert sorted(found.by_number) == list(range(1, len(found.by_number) + 1))
    assert [site.line for site in found.by_number.values() if site.type == "region"] == [7]


def test_the_same_text_has_the_same_id(here: Path) -> None:
    made(LINE)
    first = sites.read(here / "heat.sites.jsonl").build
    made(["gfortran", "-O0", *LINE[2:]], "other")
    assert sites.read(here / "other.sites.jsonl").build == first


def test_a_run_that_records_has_these_sites(here: Path) -> None:
    made(LINE)
    printed("./heat", SP_LEVEL="minimal", SP_DIR="t")
    assert sites.read(here / "t" / "sites.jsonl") == sites.read(here / "heat.sites.jsonl")


def test_a_mistake_of_the_user_is_told_as_the_compiler_does_and_nothing_changes(here: Path) -> None:
    made(LINE)
    before = {name: (here / name).stat().st_mtime_ns for name in os.listdir(here)}
    (here / "heat.f90").write_text(MAIN.replace("call advance(u)", "call advanced(u)"))
    with pytest.raises(UsageError, match="advanced"):
        made(LINE)
    assert {name: (here / name).stat().st_mtime_ns for name in os.listdir(here) if name != "heat.f90"} == {
        name: time for name, time in before.items() if name != "heat.f90"
    }


@pytest.mark.parametrize("name", ["heat.f90", "solver.f90"])
def test_what_cannot_be_parsed_by_the_compiler_names_the_users_file(here: Path, name: str) -> None:
    (here / name).write_text((here / name).read_text().replace("\nend ", "\nthis is no Fortran\nend "))
    with pytest.raises(UsageError, match=rf"{name}: not compiled, and nothing was changed"):
        made(LINE)
    assert sorted(os.listdir(here)) == ["heat.f90", "solver.f90"]


def test_what_does_not_link_changes_nothing(here: Path) -> None:
    (here / "heat.f90").write_text(MAIN.replace("call advance(u)", "call nowhere(u)"))
    with pytest.raises(UsageError, match="nowhere"):
        made(LINE)
    assert sorted(os.listdir(here)) == ["heat.f90", "solver.f90"]


def spoiled(monkeypatch: pytest.MonkeyPatch, line: int, *, always: bool = False) -> list[frozenset[int]]:
    """Let the instrumenter insert a call that no compiler takes; what was asked to be left untouched, each time."""
    real, asked = fortran.instrument, list[frozenset[int]]()

    def instrument(source: Path, **more: Any) -> Any:
        made = real(source, **more)
        asked.append(more["untouched"])
        if source.name != "solver.f90" or (line in more["untouched"] and not always):
            return made
        return made._replace(text=f'{made.text}# {line} "{source}"\n call sp_write(7, (nothing%of%this))\n')

    monkeypatch.setattr(fortran, "instrument", instrument)
    return asked


def test_a_call_that_the_compiler_refuses_is_named_and_left_out(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = spoiled(monkeypatch, 9)
    built = made(LINE)
    assert asked[:2] == [frozenset(), frozenset([9])]
    assert built.warnings[0].startswith("solver.f90:9: the compiler refuses what was inserted here, call sp_write(7, ")
    assert "Error" in built.warnings[0]
    assert printed("./heat")


def test_what_it_refuses_again_is_compiled_as_it_is(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spoiled(monkeypatch, 9, always=True)
    built = made(LINE)
    assert built.warnings[-1] == "solver.f90:1: the file is compiled as it is: the compiler refuses what was inserted"
    assert {site.file for site in sites.read(here / "heat.sites.jsonl").by_number.values()} == {"heat.f90"}
    assert printed("./heat") == printed("./heat.serial")


def test_lines_of_make_build_when_they_link(here: Path) -> None:
    objects = [here / "solver.o", here / "heat.o"]
    for source in ("solver.f90", "heat.f90"):
        assert build(["gfortran", "-O1", "-fopenmp", "-c", source]) == [Path(source).with_suffix(".o")]
    assert all(path.exists() for path in objects)
    built = made(["gfortran", "-fopenmp", "heat.o", "solver.o", "-lm"])
    assert [told.partition(":")[0] for told in built.told] == ["solver.f90", "heat.f90"]  # as their modules need it
    assert printed("./heat") == printed("./heat.serial")


def test_an_object_of_elsewhere_is_linked_as_it_is_and_told(here: Path) -> None:
    subprocess.run(["gfortran", "-fopenmp", "-c", "solver.f90"], check=True)
    built = made(["gfortran", "-fopenmp", "heat.f90", "solver.o", "-I."])
    assert any(text.startswith("solver.o: linked as it is") for text in built.told)


def test_an_object_that_was_made_again_by_hand_is_not_that_of_its_note(here: Path) -> None:
    build(["gfortran", "-O1", "-fopenmp", "-c", "solver.f90"])
    (here / "by_hand.f90").write_text(SOLVER.replace("0.5d0", "0.25d0"))
    subprocess.run(["gfortran", "-O1", "-fopenmp", "-c", "by_hand.f90", "-o", "solver.o"], check=True)
    built = made(["gfortran", "-O1", "-fopenmp", "heat.f90", "solver.o", "-I."])
    assert any(text.startswith("solver.o: not the object that its note") for text in built.told)
    subprocess.run(["gfortran", "-O1", "-fopenmp", "solver.o", "heat.f90", "-o", "plain"], check=True)
    assert printed("./heat") == printed("./plain")
    with pytest.raises(UsageError, match=r"solver\.o: not the object that its note"):
        made(["gfortran", "-fopenmp", "solver.o"])


def test_objects_alone_of_elsewhere_are_refused_with_what_to_do(here: Path) -> None:
    subprocess.run(["gfortran", "-fopenmp", "-c", "solver.f90"], check=True)
    with pytest.raises(UsageError, match="FC = safepoint threads build -- gfortran"):
        made(["gfortran", "-fopenmp", "solver.o"])


def test_a_line_without_openmp_is_refused_with_the_flag(here: Path) -> None:
    with pytest.raises(UsageError, match="add -fopenmp"):
        made(["gfortran", "solver.f90", "heat.f90"])


def test_a_directory_that_is_not_ours_stays(here: Path) -> None:
    (here / "heat.instrumented").mkdir()
    with pytest.raises(UsageError, match=r"heat\.instrumented is in the way"):
        made(LINE)


BY_HAND = """\
#include <stdio.h>
#include "sp_trace.h"
int main(void) {
    double sum = 0, u[8];
    SP_REGION("fill")
    #pragma omp parallel
    {
        SP_ENTER
        SP_LOOP("fill", 0, 7, 1)
        #pragma omp for
        for (int i = 0; i < 8; i++) {
            u[i] = i;
            if (SP_ITER(i)) SP_WRITE(u[i]);
        }
        SP_LOOP_END
        SP_LEAVE
    }
    SP_DIGEST(u, 8);
    SP_REGION_END
    for (int i = 0; i < 8; i++) sum += u[i];
    printf("%g\\n", sum);
}
"""


def test_a_program_in_c_has_its_calls_by_hand(here: Path) -> None:
    (here / "fill.c").write_text(BY_HAND)
    built = made(["gcc", "-O1", "-fopenmp", "fill.c"], "fill")
    assert built.sites is None
    assert printed("./fill", SP_LEVEL="full", SP_DIR="t") == printed("./fill.serial") == "28\n"
    assert {site.name for site in sites.read(here / "t" / "sites.jsonl").by_number.values()} >= {"fill", "u"}


def test_the_flags_for_a_program_by_hand(here: Path) -> None:
    (here / "fill.c").write_text(BY_HAND)
    command = [sys.executable, "-m", "safepoint", "threads", "build", "--print-flags", "gcc"]
    flags = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    subprocess.run(["gcc", "-fopenmp", "-DSP_TRACE", "fill.c", "-o", "fill", *flags], check=True)
    assert printed("./fill") == "28\n"


def test_the_edges_of_the_settings_hold_for_the_runs_of_pass_2(here: Path) -> None:
    (here / "threads.toml").write_text("edges = 2\n")
    subprocess.run([sys.executable, "-m", "safepoint", "threads", "build", "-o", "heat", "--", *LINE], check=True)
    assert runs.edges(["./heat.serial"]) == {"SP_EDGES": "2"}
    made(LINE)
    assert runs.edges(["./heat.serial"]) == {}


SETTINGS = """\
digest = ["u", "zzz"]
[file."heat.f90"]
level = "write"
[file."nope.f90"]
level = "off"
[procedure.Advance]
level = "write"
[procedure.nope]
level = "off"
"""
TOLD = [
    'threads.toml: [file."nope.f90"] is no Fortran source of this program',
    "threads.toml: [procedure.nope] is no procedure of this program",
    "threads.toml: digest: zzz is no variable that any region could digest",
]


def test_settings_that_name_nothing_are_told(here: Path) -> None:
    (here / "threads.toml").write_text(SETTINGS)
    command = [sys.executable, "-m", "safepoint", "threads", "build", "-o", "heat", "--", *LINE]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert [line for line in done.stdout.splitlines() if "threads.toml" in line] == TOLD
    (here / "threads.toml").write_text(SETTINGS.replace("level", "lvl", 1))
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 10 and "threads.toml: lvl in [file.heat.f90] is not known" in done.stderr


def test_a_source_that_is_newer_than_the_program_is_told(here: Path) -> None:
    made(LINE)
    assert runs.outdated(["./heat.serial"]) == ""
    later = (here / "heat").stat().st_mtime + 5
    os.utime(here / "solver.f90", (later, later))
    assert runs.outdated(["./heat.serial"]).startswith("solver.f90 is newer than ./heat: build again")
