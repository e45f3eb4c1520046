"""The commands of `safepoint threads`: answers, exit codes, JSON; and the three of the page docs/threads.md."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from testbed import threads_fake
from testbed.threads_chain import command, needs, written

# `safepoint threads compare`, `follow` and `export` on traces that are there: answers, exit codes, JSON.


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Traces `a`, `same`, and `other`, which has another digest in region 2; `full` is of another level."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SP_LEVEL", "minimal")
    for name, said in (("a", set[str]()), ("same", set[str]()), ("other", {"b2"})):
        threads_fake.trace(tmp_path / name, "B", said, 1, "")
    monkeypatch.setenv("SP_LEVEL", "full")
    threads_fake.trace(tmp_path / "full", "B", set(), 1, "")
    return tmp_path


@pytest.mark.parametrize("verb", ["compare", "follow"])
def test_equal_and_different_traces_have_their_exit_codes(here: Path, verb: str) -> None:
    equal, other = command(here, verb, "a", "same"), command(here, verb, "a", "other")
    assert (equal.exit_code, equal.stderr) == (0, "")
    assert equal.stdout == "Completed comparing. No inconsistencies detected.\n"
    assert other.exit_code == 1 and other.stdout.startswith("Inconsistency: A(5): heat.f90:5=digest u")


def test_the_object_of_json_names_the_place(here: Path) -> None:
    found = json.loads(command(here, "compare", "--json", "a", "other").stdout)
    assert (found["a"], found["b"], found["equal"], found["code"]) == ("a", "other", False, 1)
    assert (found["difference"]["region"], found["difference"]["region_line"]) == (2, 3)


def test_what_was_left_out_does_not_count(here: Path) -> None:
    assert command(here, "compare", "--exclude", "u", "a", "other").exit_code == 0


@pytest.mark.parametrize("verb", ["compare", "follow"])
def test_traces_of_other_levels_are_neither_equal_nor_different(here: Path, verb: str) -> None:
    done = command(here, verb, "a", "full")
    assert (done.exit_code, done.stdout) == (2, "") and "record both alike" in done.stderr


def test_what_is_no_trace_is_refused(here: Path) -> None:
    (here / "empty").mkdir()
    done = command(here, "compare", "a", "empty")
    assert done.exit_code == 10 and "empty: no trace there" in done.stderr
    (here / "a" / "run.json").write_text("{")
    done = command(here, "compare", "a", "same")
    assert done.exit_code == 12 and "a/run.json: not JSON" in done.stderr


def test_a_trace_as_text(here: Path) -> None:
    done = command(here, "export", "a", "-o", "text")
    assert done.stdout.splitlines() == ["text/a_trace_main.log", "text/a_trace_0.log"]
    assert (here / "text" / "a_trace_0.log").read_text().startswith("E 1 C 1|PID 1")


def test_the_text_of_a_trace_tells_how_far_it_is(here: Path) -> None:
    from safepoint.threads import export
    from safepoint.threads.trace import Run

    done: list[int] = []
    run = Run("a")
    export.write(run, here / "text", done=done.append)
    export.write(run, here / "text", done=done.append)  # what is there is read first
    assert sum(done) == 2 * export.size(run) > 0


@pytest.mark.parametrize("file", ["a_trace_main.log", "a_trace_0.log"])
def test_the_text_of_a_trace_replaces_no_other_file(here: Path, file: str) -> None:
    (here / file).write_text("what I have measured\n")
    done = command(here, "export", "a")
    assert (done.exit_code, done.stdout) == (10, "") and f"{file} is there, and not of this run" in done.stderr
    assert (here / file).read_text() == "what I have measured\n"
    assert len(list(here.glob("*_trace_*"))) == 1
    assert command(here, "export", "--force", "a").exit_code == 0
    whole = (here / file).read_text()
    (here / file).write_text(whole[:-9])  # an export that was killed
    assert command(here, "export", "a").exit_code == command(here, "export", "a").exit_code == 0
    assert (here / file).read_text() == whole
    assert command(here, "export", "other", "--name", "a").exit_code == 10  # of another run


def test_the_name_of_a_text_leads_out_of_no_directory(here: Path) -> None:
    (here / "ex" / "sub").mkdir(parents=True)
    for name in ("../../evil", "sub/evil", "/tmp/evil", "evil/"):
        done = command(here, "export", "a", "--name", name, "-o", "ex/sub")
        assert done.exit_code == 10 and f"{name!r} is no first part of the name of a file" in done.stderr
        assert not list(here.rglob("*_trace_*"))


def test_a_file_is_no_directory_for_a_text(here: Path) -> None:
    (here / "mine").write_text("what I have measured")
    done = command(here, "export", "a", "-o", "mine")
    assert done.exit_code == 10 and done.stderr.startswith("safepoint: mine is there, and no directory for the text")
    assert (here / "mine").read_text() == "what I have measured"


def test_the_text_of_an_instrumented_source(here: Path) -> None:
    pytest.importorskip("fparser")
    (here / "x.f90").write_text(
        "program x\n  integer :: i\n!$omp parallel do\n  do i = 1, 3\n  end do\nend program x\n"
    )
    done = command(here, "instrument", "x.f90", "-o", "out.f90")
    assert (done.exit_code, done.stderr) == (0, "") and done.stdout.startswith("x.f90: ")
    assert "sp_region(" in (here / "out.f90").read_text()
    assert json.loads((here / "out.f90.sites.jsonl").read_text().splitlines()[0])["build"]


def test_a_source_that_cannot_be_read_is_refused_and_nothing_is_written(here: Path) -> None:
    pytest.importorskip("fparser")
    (here / "x.f90").write_text("program x\n  if (1 then\nend program x\n")
    done = command(here, "instrument", "x.f90", "-o", "out.f90")
    assert done.exit_code == 10 and done.stderr.startswith("safepoint: x.f90:")
    assert not [name for name in os.listdir(here) if name.startswith("out")]


def test_each_command_has_its_help(tmp_path: Path) -> None:
    for verb in ("build", "test", "compare", "follow", "export", "instrument"):
        done = command(tmp_path, verb, "--help")
        assert done.exit_code == 0 and f"threads {verb}" in done.stdout


def test_without_a_line_or_a_program_it_is_said_what_to_write(here: Path) -> None:
    assert "safepoint threads build -o heat -- gfortran" in command(here, "build").stderr
    assert "safepoint threads build -o heat -- gfortran" in command(here, "test", "--", "./heat").stderr


WRONG = (
    "test --runs 0 -- ./heat", "test --noise -1 -- ./heat", "test", "compare a", "compare a nowhere",
    "compare --rtol -1 a same", "follow --nothing a b", "export nowhere", "export", "build --settings nowhere",
    "instrument x.f90", "nosuch", "--runs 3",
)  # fmt: skip


def test_a_command_that_is_called_wrongly_is_not_one_that_cannot_tell(here: Path) -> None:
    for words in WRONG:
        done = command(here, *words.split())
        assert (done.exit_code, done.stdout) == (10, ""), words


# From a mistake to its line in three commands, as docs/threads.md shows it, on real programs.

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "threads"
LINE = ("build", "-o", "heat", "--", "gfortran", "-O2", "-fopenmp", "solver.f90", "heat.f90")
STEP = """\
subroutine step(u, n)
  implicit none
  integer, intent(in) :: n
  real(8), intent(inout) :: u(n)
  real(8) :: v(n), h
  integer :: i
  h = 0.5d0
  v = u
!$omp parallel do private(h)
  do i = 2, n - 1
    u(i) = h * (v(i - 1) + v(i + 1))
  end do
!$omp end parallel do
end subroutine step
"""
RIGHT = STEP.replace("private(h)", "firstprivate(h)")


MAIN = """\
program smooth
  implicit none
  real(8) :: u(40)
  integer :: k
  u = [(real(k * k, 8), k = 1, 40)]
  do k = 1, 3
    call step(u, 40)
  end do
  print '(f0.6)', sum(u)
end program smooth
"""


def smooth(here: Path, step: str) -> str:
    """What `build` says of the step and the program that calls it."""
    needs("gfortran")
    written(here, "step.f90", step)
    written(here, "smooth.f90", MAIN)
    done = command(here, "build", "-o", "smooth", "--", "gfortran", "-O1", "-fopenmp", "step.f90", "smooth.f90")
    assert (done.exit_code, done.stderr) == (0, ""), done.stderr
    return done.stdout


@pytest.mark.proof
def test_the_example_of_the_page_does_what_the_page_shows(tmp_path: Path) -> None:
    """The line of its mistake, before any run; a run that shows it; and the mended program. In processes, as users have
    them."""
    needs("gfortran")
    for name in ("solver.f90", "heat.f90"):
        shutil.copy(EXAMPLE / name, tmp_path)

    def safepoint(*words: str) -> subprocess.CompletedProcess[str]:
        line = [sys.executable, "-m", "safepoint", "threads", *words]
        return subprocess.run(line, cwd=tmp_path, env={**os.environ, "COLUMNS": "200"}, capture_output=True, text=True)

    page = (ROOT / "docs" / "threads.md").read_text()
    said = safepoint(*LINE).stdout
    assert f"$ safepoint threads {' '.join(LINE)}\n{said}```" in page, said
    assert "\n".join((tmp_path / "solver.f90").read_text().splitlines()[10:18]) in page
    found = safepoint("test", "--runs", "5", "--noise", "50", "--", "./heat")
    assert found.returncode == 1 and "121 regions;  first difference: region " in found.stdout, found.stdout
    assert "solver.f90:11-18, " in found.stdout, found.stdout
    text = (tmp_path / "solver.f90").read_text()
    (tmp_path / "solver.f90").write_text(text.replace("private(i)\n", "private(i, flux)\n", 1))
    safepoint(*LINE)
    mended = safepoint("test", "--", "./heat")
    assert mended.returncode == 0 and "121 regions;  no difference" in mended.stdout, mended.stdout


def test_a_program_that_make_has_linked_without_the_calls_is_told_to_be_one(tmp_path: Path) -> None:
    smooth(tmp_path, RIGHT)
    line = ["gfortran", "-fopenmp", "step.f90", "smooth.f90", "-o", "smooth"]
    subprocess.run(line, cwd=tmp_path, check=True)
    done = command(tmp_path, "test", "--", "./smooth")
    assert done.exit_code == 2 and "B has left no trace" in done.stdout, done.stdout
    assert "./smooth was not made by `safepoint threads build`" in done.stdout and "make FC=" in done.stdout


def test_a_private_variable_without_a_value_is_found_at_its_line_and_the_mended_program_is_equal(
    tmp_path: Path,
) -> None:
    assert "step.f90: " in smooth(tmp_path, STEP)
    done = command(tmp_path, "test", "--", "./smooth")
    assert done.exit_code == 1 and "first difference: region 1, step.f90:9-13, u" in done.stdout, done.stdout
    assert "step.f90:11=" in done.stdout
    assert "h is PRIVATE in step.f90:9 and read at line 11 before it is written" in done.stdout
    smooth(tmp_path, RIGHT)
    mended = command(tmp_path, "test", "--", "./smooth")
    assert (mended.exit_code, mended.stderr) == (0, ""), mended.stdout
    assert "3 regions;  no difference" in mended.stdout
