"""`safepoint threads build`: two programs from the user's line, and no file of the user's changes."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from testbed.threads_chain import command, inside, needs, written

from safepoint.errors import UsageError
from safepoint.threads import fortran, owned, runs, sites, texts
from safepoint.threads.building import Built, build
from safepoint.threads.choices import Choices

# `safepoint threads build`: two programs from the user's line, and nothing changed if that fails.

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
    needs("gfortran")
    monkeypatch.chdir(tmp_path)
    written(tmp_path, "heat.f90", MAIN)
    written(tmp_path, "solver.f90", SOLVER)
    return tmp_path


def made(words: list[str], out: str = "heat") -> Built:
    built = build(words, Path(out))
    assert isinstance(built, Built)
    return built


@pytest.fixture(scope="module")
def heat(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Built]:
    """The same, built: for those who only read and run it."""
    needs("gfortran")
    place = tmp_path_factory.mktemp("heat")
    written(place, "heat.f90", MAIN)
    written(place, "solver.f90", SOLVER)
    with inside(place):
        return place, made(LINE)


def printed(program: str | Path, **variables: str) -> str:
    done = subprocess.run([program], capture_output=True, text=True, env={**os.environ, **variables})
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_both_programs_print_what_the_plain_one_does(heat: tuple[Path, Built]) -> None:
    place, built = heat
    assert built.told[0].startswith("solver.f90: ") and "1 region, 1 parallel loop" in built.told[0]
    assert not [name for name in os.listdir(place) if name.endswith((".mod", ".o")) and name != "solver.mod"]
    subprocess.run([*LINE, "-o", "plain"], check=True, cwd=place)
    assert printed(place / "heat") == printed(place / "heat.serial") == printed(place / "plain")


def test_the_sites_of_all_files_are_numbered_through(heat: tuple[Path, Built]) -> None:
    """And a run that records has these sites."""
    found = sites.read(heat[0] / "heat.sites.jsonl")
    assert found.build and {site.file for site in found.by_number.values()} == {"solver.f90", "heat.f90"}
    assert sorted(found.by_number) == list(range(1, len(found.by_number) + 1))
    assert [site.line for site in found.by_number.values() if site.type == "region"] == [7]
    printed(heat[0] / "heat", SP_LEVEL="minimal", SP_DIR=str(heat[0] / "t"))
    assert sites.read(heat[0] / "t" / "sites.jsonl") == found


def test_the_same_text_has_the_same_id(here: Path, heat: tuple[Path, Built]) -> None:
    made(["gfortran", "-O0", *LINE[2:]], "other")
    assert sites.read(here / "other.sites.jsonl").build == sites.read(heat[0] / "heat.sites.jsonl").build


def test_a_mistake_of_the_user_is_told_as_the_compiler_does_and_nothing_changes(here: Path) -> None:
    made(LINE)
    before = {name: (here / name).stat().st_mtime_ns for name in os.listdir(here)}
    (here / "heat.f90").write_text(MAIN.replace("call advance(u)", "call advanced(u)"))
    with pytest.raises(UsageError, match="advanced"):
        made(LINE)
    assert {name: (here / name).stat().st_mtime_ns for name in os.listdir(here) if name != "heat.f90"} == {
        name: time for name, time in before.items() if name != "heat.f90"
    }


@pytest.mark.parametrize(
    ("name", "old", "new", "told"),
    [("heat.f90", "\nend ", "\nthis is no Fortran\nend ", r"heat\.f90: not compiled, and nothing was changed"),
     ("solver.f90", "\nend ", "\nthis is no Fortran\nend ", r"solver\.f90: not compiled, and nothing was changed"),
     ("heat.f90", "call advance(u)", "call nowhere(u)", "nowhere")],
)  # fmt: skip
def test_what_does_not_compile_or_link_names_the_users_file_and_changes_nothing(
    here: Path, name: str, old: str, new: str, told: str
) -> None:
    written(here, name, (here / name).read_text().replace(old, new))
    with pytest.raises(UsageError, match=told):
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


def test_the_edges_of_the_settings_hold_for_the_runs_of_pass_2(here: Path) -> None:
    written(here, "threads.toml", "edges = 2\n")
    assert command(here, "build", "-o", "heat", "--", *LINE).exit_code == 0
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
    written(here, "threads.toml", SETTINGS)
    done = command(here, "build", "-o", "heat", "--", *LINE)
    assert [line for line in done.stdout.splitlines() if "threads.toml" in line] == TOLD and done.exit_code == 0
    written(here, "threads.toml", SETTINGS.replace("level", "lvl", 1))
    done = command(here, "build", "-o", "heat", "--", *LINE)
    assert done.exit_code == 10 and "threads.toml: lvl in [file.heat.f90] is not known" in done.stderr


def test_a_source_that_is_newer_than_the_program_is_told(
    heat: tuple[Path, Built], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(heat[0])
    assert runs.outdated(["./heat.serial"]) == ""
    later = os.stat("heat").st_mtime + 5
    os.utime("solver.f90", (later, later))
    assert runs.outdated(["./heat.serial"]).startswith("solver.f90 is newer than ./heat: build again")


# `safepoint threads build`, `instrument` and `export` replace no file of the user's, and name it.

LONE = """\
program a
  integer :: i
  real(8) :: u(20)
!$omp parallel do
  do i = 1, 20
    u(i) = i
  end do
  print *, sum(u)
end program a
"""
ONE = ["gfortran", "-fopenmp", "a.f90"]
MINE = "what I have measured\n"


@pytest.fixture
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    needs("gfortran")
    monkeypatch.chdir(tmp_path)
    written(tmp_path, "a.f90", LONE)
    return tmp_path


def stays(place: Path, words: list[str], out: str | None, match: str) -> None:
    """The build is refused, and nothing in the directory is another."""

    def all_of() -> dict[str, bytes]:
        return {str(path): path.read_bytes() for path in sorted(place.rglob("*")) if path.is_file()}

    before = all_of()
    with pytest.raises(UsageError, match=match):
        build(words, Path(out) if out else None)
    assert all_of() == before


@pytest.mark.parametrize("words", [ONE, [*ONE, "-o", "a.f90"]])
def test_the_source_is_no_place_for_the_program(alone: Path, words: list[str]) -> None:
    stays(alone, words, None if "-o" in words else "a.f90", r"a\.f90 is what the program is made of")


def test_nor_is_a_link_to_the_source_nor_another_source(alone: Path) -> None:
    os.link("a.f90", "linked")
    stays(alone, ONE, "linked", "linked is what the program is made of")
    (alone / "other.f90").write_text(LONE)
    stays(alone, ONE, "other.f90", r"other\.f90 is there, and is no program")


def test_nor_is_the_source_of_an_object_on_the_line_nor_the_object_nor_its_note(alone: Path) -> None:
    build(["gfortran", "-fopenmp", "-c", "a.f90"])
    linking = ["gfortran", "-fopenmp", "a.o"]
    for name in ("a.f90", "a.o"):
        stays(alone, linking, name, f"{name} is what the program is made of")
    stays(alone, linking, "a.o.threads.json", "is no program")


@pytest.mark.parametrize("name", ["notes", "run.sh", "libm.a", "fifo"])
def test_a_file_that_is_no_program_stays(alone: Path, name: str) -> None:
    if name == "fifo":
        os.mkfifo(name)
    else:
        (alone / name).write_text(MINE)
        (alone / name).chmod(0o755)
    stays(alone, ONE, name, f"{name} is there, and is no program")


@pytest.mark.parametrize("end", [".serial", ".sites.jsonl"])
def test_a_file_beside_the_program_that_no_build_made_stays(alone: Path, end: str) -> None:
    (alone / f"heat{end}").write_text(MINE)
    stays(alone, ONE, "heat", rf"heat\{end} is in the way, and not of a build")


@pytest.mark.parametrize("end", [".serial", ".sites.jsonl"])
def test_and_so_it_does_beside_the_directory_of_a_build(alone: Path, end: str) -> None:
    build(ONE, Path("heat"))
    os.unlink(f"heat{end}")
    (alone / f"heat{end}").write_text(MINE)
    stays(alone, ONE, "heat", rf"heat\{end} is in the way, and not of a build")


def test_a_serial_program_of_the_users_own_stays(alone: Path) -> None:
    build(ONE, Path("other"))
    os.rename("other", "heat.serial")
    stays(alone, ONE, "heat", r"heat\.serial is in the way")


def test_a_file_that_the_user_put_into_the_directory_of_texts_stays(alone: Path) -> None:
    build(ONE, Path("heat"))
    (alone / "heat.instrumented" / "notes").write_text(MINE)
    stays(alone, ONE, "heat", r"heat\.instrumented/notes is not of a build")


def test_what_a_build_made_is_replaced_by_the_next_and_so_is_a_program_of_a_linker(alone: Path) -> None:
    os.system("gfortran a.f90 -o heat")
    for _ in range(3):
        build(ONE, Path("heat"))
    assert sorted(os.listdir()) == ["a.f90", "heat", "heat.instrumented", "heat.serial", "heat.sites.jsonl"]


def test_a_build_that_was_killed_between_the_two_programs_can_be_done_again(alone: Path) -> None:
    build(ONE, Path("heat"))
    shutil.copy("heat.serial", "old")
    (alone / "a.f90").write_text(LONE.replace("u(i) = i", "u(i) = 7 * i"))
    build(ONE, Path("heat"))
    assert owned.checksum(Path("old")) != owned.checksum(Path("heat.serial"))
    os.replace("old", "heat.serial")
    build(ONE, Path("heat"))


def test_a_note_that_is_none_stays(alone: Path) -> None:
    (alone / "b.o.threads.json").write_text('{"line": 3}\n')
    words = ["gfortran", "-fopenmp", "-c", "a.f90", "-o", "b.o"]
    stays(alone, words, None, r"b\.o\.threads\.json is in the way, and no note of a build")
    os.unlink("b.o.threads.json")
    for _ in range(2):
        build(words)
    stays(alone, [*words[:-1], "a.f90"], None, r"a\.f90 is what the object is made of")


@pytest.mark.parametrize("name", ["a.f90", "mine", "out.f90"])
def test_the_text_of_a_source_replaces_such_a_text_alone(alone: Path, name: str) -> None:
    (alone / "mine").write_text(MINE)
    (alone / "out.f90.sites.jsonl").write_text(MINE)
    with pytest.raises(UsageError, match="nothing was written"):
        texts.instrument(Path("a.f90"), Path(name), Choices())
    assert (alone / "a.f90").read_text() == LONE
    assert (alone / "mine").read_text() == (alone / "out.f90.sites.jsonl").read_text() == MINE
    for _ in range(2):
        texts.instrument(Path("a.f90"), Path("new.f90"), Choices())


@pytest.mark.parametrize("name", ["nodir/heat", "a.f90/heat"])
def test_a_place_that_is_none_is_named_and_not_what_would_be_made_there(alone: Path, name: str) -> None:
    stays(alone, ONE, name, rf"^{name}: {name.partition('/')[0]} (does not exist|is no directory); nothing was built$")


def test_a_name_that_the_system_refuses_is_named_too(alone: Path) -> None:
    with pytest.raises(OSError, match="too long") as error:
        build(ONE, Path("x" * 250))
    assert error.value.filename == "x" * 250


def test_a_place_for_traces_that_is_none_is_refused(alone: Path) -> None:
    build(ONE, Path("heat"))
    done = command(alone, "test", "--keep", "nodir/kept", "--", "./heat")
    assert done.exit_code == 10 and "--keep nodir/kept: No such file or directory; nothing was run" in done.stderr
