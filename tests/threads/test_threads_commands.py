"""`safepoint threads compare`, `follow` and `export` on traces that are there: answers, exit codes, JSON."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("numpy")

from testbed import threads_fake


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


def threads(here: Path, *words: str) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "safepoint", "threads", *words]
    return subprocess.run(line, cwd=here, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("verb", ["compare", "follow"])
def test_equal_and_different_traces_have_their_exit_codes(here: Path, verb: str) -> None:
    equal, other = threads(here, verb, "a", "same"), threads(here, verb, "a", "other")
    assert (equal.returncode, equal.stderr) == (0, "")
    assert equal.stdout == "Completed comparing. No inconsistencies detected.\n"
    assert other.returncode == 1 and other.stdout.startswith("Inconsistency: A(5): heat.f90:5=digest u")


def test_the_object_of_json_names_the_place(here: Path) -> None:
    found = json.loads(threads(here, "compare", "--json", "a", "other").stdout)
    assert (found["a"], found["b"], found["equal"], found["code"]) == ("a", "other", False, 1)
    assert (found["difference"]["region"], found["difference"]["region_line"]) == (2, 3)


def test_what_was_left_out_does_not_count(here: Path) -> None:
    assert threads(here, "compare", "--exclude", "u", "a", "other").returncode == 0


@pytest.mark.parametrize("verb", ["compare", "follow"])
def test_traces_of_other_levels_are_neither_equal_nor_different(here: Path, verb: str) -> None:
    done = threads(here, verb, "a", "full")
    assert (done.returncode, done.stdout) == (2, "") and "record both alike" in done.stderr


def test_what_is_no_trace_is_refused(here: Path) -> None:
    (here / "empty").mkdir()
    done = threads(here, "compare", "a", "empty")
    assert done.returncode == 10 and "empty: no trace there" in done.stderr
    (here / "a" / "run.json").write_text("{")
    done = threads(here, "compare", "a", "same")
    assert done.returncode == 12 and "a/run.json: not JSON" in done.stderr


def test_a_trace_as_text(here: Path) -> None:
    done = threads(here, "export", "a", "-o", "text")
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
    done = threads(here, "export", "a")
    assert (done.returncode, done.stdout) == (10, "") and f"{file} is there, and not of this run" in done.stderr
    assert (here / file).read_text() == "what I have measured\n"
    assert len(list(here.glob("*_trace_*"))) == 1
    assert threads(here, "export", "--force", "a").returncode == 0
    whole = (here / file).read_text()
    (here / file).write_text(whole[:-9])  # an export that was killed
    assert threads(here, "export", "a").returncode == threads(here, "export", "a").returncode == 0
    assert (here / file).read_text() == whole
    assert threads(here, "export", "other", "--name", "a").returncode == 10  # of another run


@pytest.mark.parametrize("name", ["../../evil", "sub/evil", "/tmp/evil", "evil/"])
def test_the_name_of_a_text_leads_out_of_no_directory(here: Path, name: str) -> None:
    (here / "ex" / "sub").mkdir(parents=True)
    done = threads(here, "export", "a", "--name", name, "-o", "ex/sub")
    assert done.returncode == 10 and f"{name!r} is no first part of the name of a file" in done.stderr
    assert not list(here.rglob("*_trace_*"))


def test_a_file_is_no_directory_for_a_text(here: Path) -> None:
    (here / "mine").write_text("what I have measured")
    done = threads(here, "export", "a", "-o", "mine")
    assert done.returncode == 10 and done.stderr.startswith("safepoint: mine is there, and no directory for the text")
    assert (here / "mine").read_text() == "what I have measured"


def test_the_text_of_an_instrumented_source(here: Path) -> None:
    pytest.importorskip("fparser")
    (here / "x.f90").write_text(
        "program x\n  integer :: i\n!$omp parallel do\n  do i = 1, 3\n  end do\nend program x\n"
    )
    done = threads(here, "instrument", "x.f90", "-o", "out.f90")
    assert (done.returncode, done.stderr) == (0, "") and done.stdout.startswith("x.f90: ")
    assert "sp_region(" in (here / "out.f90").read_text()
    assert json.loads((here / "out.f90.sites.jsonl").read_text().splitlines()[0])["build"]


def test_a_source_that_cannot_be_read_is_refused_and_nothing_is_written(here: Path) -> None:
    pytest.importorskip("fparser")
    (here / "x.f90").write_text("program x\n  if (1 then\nend program x\n")
    done = threads(here, "instrument", "x.f90", "-o", "out.f90")
    assert done.returncode == 10 and done.stderr.startswith("safepoint: x.f90:")
    assert not [name for name in os.listdir(here) if name.startswith("out")]


@pytest.mark.parametrize("verb", ["build", "test", "compare", "follow", "export", "instrument"])
def test_each_command_has_its_help(here: Path, verb: str) -> None:
    done = threads(here, verb, "--help")
    assert done.returncode == 0 and f"safepoint threads {verb}" in done.stdout


def test_without_a_line_or_a_program_it_is_said_what_to_write(here: Path) -> None:
    assert "safepoint threads build -o heat -- gfortran" in threads(here, "build").stderr
    assert "safepoint threads build -o heat -- gfortran" in threads(here, "test", "--", "./heat").stderr


@pytest.mark.parametrize(
    "words",
    [("test", "--runs", "0", "--", "./heat"), ("test", "--noise", "-1", "--", "./heat"), ("test",), ("compare", "a"),
     ("compare", "a", "nowhere"), ("compare", "--rtol", "-1", "a", "same"), ("follow", "--nothing", "a", "b"),
     ("export", "nowhere"), ("export",), ("build", "--settings", "nowhere"), ("instrument", "x.f90"), ("nosuch",),
     ("--runs", "3")],
)  # fmt: skip
def test_a_command_that_is_called_wrongly_is_not_one_that_cannot_tell(here: Path, words: tuple[str, ...]) -> None:
    done = threads(here, *words)
    assert done.returncode == 10 and done.stdout == ""
