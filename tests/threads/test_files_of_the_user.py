"""`safepoint threads build`, `instrument` and `export` replace no file of the user's, and name it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("fparser")
pytest.importorskip("numpy")
if shutil.which("gfortran") is None or shutil.which("gcc") is None:
    pytest.skip("no gfortran and gcc: programs are not built", allow_module_level=True)

from safepoint.errors import UsageError
from safepoint.threads import owned, texts
from safepoint.threads.building import build
from safepoint.threads.choices import Choices

SOURCE = """\
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
LINE = ["gfortran", "-fopenmp", "a.f90"]
MINE = "what I have measured\n"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.f90").write_text(SOURCE)
    return tmp_path


def stays(place: Path, words: list[str], out: str | None, match: str) -> None:
    """The build is refused, and nothing in the directory is another."""

    def all_of() -> dict[str, bytes]:
        return {str(path): path.read_bytes() for path in sorted(place.rglob("*")) if path.is_file()}

    before = all_of()
    with pytest.raises(UsageError, match=match):
        build(words, Path(out) if out else None)
    assert all_of() == before


@pytest.mark.parametrize("words", [LINE, [*LINE, "-o", "a.f90"]])
def test_the_source_is_no_place_for_the_program(here: Path, words: list[str]) -> None:
    stays(here, words, None if "-o" in words else "a.f90", r"a\.f90 is what the program is made of")


def test_nor_is_a_link_to_the_source_nor_another_source(here: Path) -> None:
    os.link("a.f90", "linked")
    stays(here, LINE, "linked", "linked is what the program is made of")
    (here / "other.f90").write_text(SOURCE)
    stays(here, LINE, "other.f90", r"other\.f90 is there, and is no program")


def test_nor_is_the_source_of_an_object_on_the_line_nor_the_object_nor_its_note(here: Path) -> None:
    build(["gfortran", "-fopenmp", "-c", "a.f90"])
    linking = ["gfortran", "-fopenmp", "a.o"]
    for name in ("a.f90", "a.o"):
        stays(here, linking, name, f"{name} is what the program is made of")
    stays(here, linking, "a.o.threads.json", "is no program")


@pytest.mark.parametrize("name", ["notes", "run.sh", "libm.a", "fifo"])
def test_a_file_that_is_no_program_stays(here: Path, name: str) -> None:
    if name == "fifo":
        os.mkfifo(name)
    else:
        (here / name).write_text(MINE)
        (here / name).chmod(0o755)
    stays(here, LINE, name, f"{name} is there, and is no program")


@pytest.mark.parametrize("end", [".serial", ".sites.jsonl"])
def test_a_file_beside_the_program_that_no_build_made_stays(here: Path, end: str) -> None:
    (here / f"heat{end}").write_text(MINE)
    stays(here, LINE, "heat", rf"heat\{end} is in the way, and not of a build")


@pytest.mark.parametrize("end", [".serial", ".sites.jsonl"])
def test_and_so_it_does_beside_the_directory_of_a_build(here: Path, end: str) -> None:
    build(LINE, Path("heat"))
    os.unlink(f"heat{end}")
    (here / f"heat{end}").write_text(MINE)
    stays(here, LINE, "heat", rf"heat\{end} is in the way, and not of a build")


def test_a_serial_program_of_the_users_own_stays(here: Path) -> None:
    build(LINE, Path("other"))
    os.rename("other", "heat.serial")
    stays(here, LINE, "heat", r"heat\.serial is in the way")


def test_a_file_that_the_user_put_into_the_directory_of_texts_stays(here: Path) -> None:
    build(LINE, Path("heat"))
    (here / "heat.instrumented" / "notes").write_text(MINE)
    stays(here, LINE, "heat", r"heat\.instrumented/notes is not of a build")


def test_what_a_build_made_is_replaced_by_the_next_and_so_is_a_program_of_a_linker(here: Path) -> None:
    os.system("gfortran a.f90 -o heat")
    for _ in range(3):
        build(LINE, Path("heat"))
    assert sorted(os.listdir()) == ["a.f90", "heat", "heat.instrumented", "heat.serial", "heat.sites.jsonl"]


def test_a_build_that_was_killed_between_the_two_programs_can_be_done_again(here: Path) -> None:
    build(LINE, Path("heat"))
    shutil.copy("heat.serial", "old")
    (here / "a.f90").write_text(SOURCE.replace("u(i) = i", "u(i) = 7 * i"))
    build(LINE, Path("heat"))
    assert owned.checksum(Path("old")) != owned.checksum(Path("heat.serial"))
    os.replace("old", "heat.serial")
    build(LINE, Path("heat"))


def test_a_note_that_is_none_stays(here: Path) -> None:
    (here / "b.o.threads.json").write_text('{"line": 3}\n')
    words = ["gfortran", "-fopenmp", "-c", "a.f90", "-o", "b.o"]
    stays(here, words, None, r"b\.o\.threads\.json is in the way, and no note of a build")
    os.unlink("b.o.threads.json")
    for _ in range(2):
        build(words)
    stays(here, [*words[:-1], "a.f90"], None, r"a\.f90 is what the object is made of")


@pytest.mark.parametrize("name", ["a.f90", "mine", "out.f90"])
def test_the_text_of_a_source_replaces_such_a_text_alone(here: Path, name: str) -> None:
    (here / "mine").write_text(MINE)
    (here / "out.f90.sites.jsonl").write_text(MINE)
    with pytest.raises(UsageError, match="nothing was written"):
        texts.instrument(Path("a.f90"), Path(name), Choices())
    assert (here / "a.f90").read_text() == SOURCE
    assert (here / "mine").read_text() == (here / "out.f90.sites.jsonl").read_text() == MINE
    for _ in range(2):
        texts.instrument(Path("a.f90"), Path("new.f90"), Choices())


@pytest.mark.parametrize("name", ["nodir/heat", "a.f90/heat"])
def test_a_place_that_is_none_is_named_and_not_what_would_be_made_there(here: Path, name: str) -> None:
    stays(here, LINE, name, rf"^{name}: {name.partition('/')[0]} (does not exist|is no directory); nothing was built$")


def test_a_name_that_the_system_refuses_is_named_too(here: Path) -> None:
    with pytest.raises(OSError, match="too long") as error:
        build(LINE, Path("x" * 250))
    assert error.value.filename == "x" * 250


def test_a_place_for_traces_that_is_none_is_refused(here: Path) -> None:
    build(LINE, Path("heat"))
    line = [sys.executable, "-m", "safepoint", "threads", "test", "--keep", "nodir/kept", "--", "./heat"]
    done = subprocess.run(line, capture_output=True, text=True)
    assert done.returncode == 10 and "--keep nodir/kept: No such file or directory; nothing was run" in done.stderr
