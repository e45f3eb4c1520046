"""The calls of C: right ones, and wrong ones, which give a code and a text and never a crash."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from testbed.foreign import MPICH, OPEN_MPI, Mpi, each_mpi, needs, program, ran, with_library
from testbed.sweep import one_of, some_of

import safepoint
from safepoint import SafepointError, Session, errors
from safepoint.foreign import line

pytestmark = needs("cc")
C = Path(safepoint.__file__).parent / "c"
CASES = "before", "nulls", "twice", "after", "child", "lost", "options", "full", "shut"


OF_PYTHON = {"SafepointError", "GraphError", "TaskError"}  # graphs of tasks are of programs in Python alone


def subclasses() -> dict[str, int]:
    return {name: kind.code for name, kind in vars(errors).items() if isinstance(kind, type) and name not in OF_PYTHON}


def test_the_codes_of_c_and_fortran_are_those_of_the_errors() -> None:
    """A code means one thing in every language, and each error has one."""
    names = {code: re.sub(r"Error$|Files?Error$|FileError$", "", name).upper() for name, code in subclasses().items()}
    names |= {14: "MISSING", 15: "REFUSED", 20: "NOTHING", 0: "OK", 1: "FAILED", 30: "NO_HELPER"}
    header = dict(
        re.findall(r"SAFEPOINT_([A-Z_]+) = (\d+)", (C / "safepoint.h").read_text().partition("FIRST_START")[0])
    )
    assert {int(code): name for name, code in header.items()} == names
    module = dict(re.findall(r"safepoint_([a-z_]+) = (\d+)", (C / "safepoint.f90").read_text()))
    assert {int(code): name.upper() for name, code in module.items()} == {**names, 17: "RESTORE_FAILED"}
    assert 30 not in subclasses().values()


def test_both_ends_count_the_verbs_and_the_questions_alike() -> None:
    source = (C / "safepoint.c").read_text()
    for names in re.findall(r"^enum (?:verb|kind) \{ (.*) \};", source, re.M):
        value = -1
        for word in names.split(", "):
            name, _, told = word.partition(" = ")
            value = int(told) if told else value + 1
            assert getattr(line, name) == value, name
    assert re.search(r"define SAFEPOINT_PROTOCOL (\d+)", source).group(1) == str(line.VERSION)  # type: ignore[union-attr]


def lines(output: str) -> list[tuple[str, int, str]]:
    """Call, code and text."""
    found = [row.split("\t") for row in output.splitlines() if row.count("\t") == 2]
    return [(call, int(code), text) for call, code, text in found]


EXPECTED = {  # the codes of the calls, in order
    "before": [10] * 9,
    "nulls": [0, 0, 0, 0, 10, 10, 10, 10, 10, 0, 0, 0, 0, 0],
    "twice": [0, 13, 0, 0, 0, 0, 0, 0, 0, 0],
    "after": [0, 0, 0, *[10] * 9, 0],
    "child": [0, 0, 0, *[10] * 9, 10, 10, 0, 0],
    "lost": [0, 0, *[30] * 9, 30, 0, 0, 0, 0],
    "options": [*[10] * 14, 11, 11, 0, 0],
    "full": [0, 0, 16, 16, 0, 16, 0],  # an error is told once: the C library has then dropped what it held
    "shut": [0, 0, 0, 30, 30, 30],
}


MISUSE = [(case, "sanitized") for case in CASES]  # and some with the library as it is installed
MISUSE += some_of([(case, how) for case in CASES for how in ("plain", "valgrind")], 3, 18)


@pytest.mark.parametrize(("case", "how"), MISUSE)
def test_misuse_gives_a_code_and_a_text_and_never_a_crash(case: str, how: str, tmp_path: Path) -> None:
    """Nothing leaks, nothing is read that was not written, and the run after it is as ever."""
    if how == "valgrind" and not shutil.which("valgrind"):
        pytest.skip("needs valgrind")
    (tmp_path / ".safepoint").write_text("u.dat\nledger = modify\n")
    watched = "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover"
    exe = with_library("misuse.c", *watched) if how == "sanitized" else program("misuse.c")
    check = ["valgrind", "-q", "--error-exitcode=55", "--leak-check=full", "--child-silent-after-fork=yes"]
    status, output, said = ran(tmp_path, *(check if how == "valgrind" else []), exe, case, start_new_session=True)
    assert status == 0 and "Sanitizer" not in said and "runtime error" not in said, said
    calls = lines(output)
    assert [code for _, code, _ in calls] == EXPECTED[case], output
    assert all(bool(text) == bool(code) for _, code, text in calls), output
    assert not re.search(r"^(\w+ )?left", output, re.M), output


@each_mpi
def test_misuse_with_ranks_gives_the_same_code_on_all_and_never_a_crash(mpi: Mpi, tmp_path: Path) -> None:
    """Before MPI_Init, with no communicator or one between groups, after the communicator was freed, and after
    MPI_Finalize: a code, and no call of MPI that would abort."""
    (tmp_path / ".safepoint").write_text("u.dat\n")
    status, output, said = ran(tmp_path, *mpi.started(2, program("misuse.c", mpi), "mpi"))
    assert status == 0, said
    calls = lines(output)
    assert [code for _, code, _ in calls] == [10, 10, 10, 0, 0, 0, 0, 0, 0, *[10] * 9, 10, 0, 10], output
    texts = [text for _, _, text in calls]
    for expected in ("before MPI_Init", "MPI_COMM_NULL", "intracommunicator", "after MPI_Finalize"):
        assert any(expected in text for text in texts), (expected, output)


# What the helper says is what Python says.

SCENES = {  # the manifest, and the files
    "no manifest": (None, {}),
    "wrong manifest": ("u.dat nonsense\n", {}),
    "missing file": ("u.dat\nv.dat\n", {"u.dat": b"1"}),
    "newer format": ("u.dat\n", {".safepoint.d/FORMAT": b"99\n"}),
    "not ours": ("u.dat\n", {".safepoint.d": b"a file"}),
    "a link": ("u.dat\n", {"u.dat": None}),
}


@pytest.mark.parametrize("scene", SCENES)
def test_an_error_has_the_code_and_the_text_that_it_has_in_python(scene: str, tmp_path: Path) -> None:
    manifest, files = SCENES[scene]
    for name in ("in-c", "python"):
        work = tmp_path / name / "work"
        work.mkdir(parents=True)
        if manifest is not None:
            (work / ".safepoint").write_text(manifest)
        for path, data in files.items():
            (work / path).parent.mkdir(exist_ok=True)
            if data is None:
                (work / path).symlink_to("nowhere")
            else:
                (work / path).write_bytes(data)
    calls = lines(ran(tmp_path / "in-c" / "work", program("misuse.c"), "just")[1])
    wrong = [(code, text) for _, code, text in calls if code]
    with pytest.raises(SafepointError) as caught, safepoint.Session(tmp_path / "python" / "work") as session:
        session.restore()
        session.hide(1)
    text = str(caught.value).splitlines()[0].replace("/python/", "/in-c/")
    assert wrong[0] == (caught.value.code, text)


def test_the_second_run_in_a_directory_is_told_of_the_program_not_of_its_helper(tmp_path: Path) -> None:
    """G8: the holder is the process that the user has started, with its own command line."""
    (tmp_path / ".safepoint").write_text("u.dat\n")
    wait = ["sh", "-c", f"exec {program('holds.c')} 60"]
    with subprocess.Popen(wait, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as running:
        try:
            assert running.stdout and running.stdout.readline() == "ready\n"
            with pytest.raises(safepoint.LockedError, match=f"process {running.pid} .*holds.c"):
                Session(tmp_path)
            calls = lines(ran(tmp_path, program("misuse.c"), "just")[1])
            assert calls[0][1] == 13 and f"process {running.pid} " in calls[0][2]
        finally:
            running.kill()
    Session(tmp_path).close()  # the helper is gone with its program


def test_a_rank_that_fails_gives_all_ranks_the_same_code(tmp_path: Path) -> None:
    """Promise of agreement: a file that one rank lacks, a step that one has otherwise, a message in flight."""
    if not MPICH.there:
        pytest.skip("needs mpich")
    (tmp_path / ".safepoint").write_text("u-{rank}.dat\nv-{rank}.dat\n")
    status, output, said = ran(tmp_path, *MPICH.started(3, program("agree.c", MPICH)))
    assert status == 0, said
    by_call: dict[str, set[str]] = {}
    for row in output.splitlines():
        call, _, code = row.split()
        by_call.setdefault(call, set()).add(code)
    assert by_call == {
        "init": {"0"}, "restore": {"0"}, "missing": {"14"}, "steps": {"10"}, "in-flight": {"10"},
        "options": {"10"}, "words": {"10"}, "helper": {"30"}, "good": {"0"},
        "full": {"16"}, "closed": {"10"}, "again": {"13"}, "anew": {"0"},
    }, output  # fmt: skip


def test_what_cannot_be_flushed_is_an_error_that_says_why(tmp_path: Path) -> None:
    """G4: what is not in its file is in no set. A stream that leads to nobody is no file, and hinders nothing."""
    (tmp_path / ".safepoint").write_text("u.dat\n")
    calls = lines(ran(tmp_path, program("misuse.c"), "full")[1])
    wrong = {text for _, code, text in calls if code}
    assert sorted(re.findall(r"in its files \((.*?)\)", text)[0] for text in wrong) == [
        "No space left on device", "unit 12: as a module of Fortran says"
    ], wrong  # fmt: skip
    gone = "import os, sys; r, w = os.pipe(); os.close(r); os.dup2(w, 1); os.execv(sys.argv[1], sys.argv[1:])"
    status, _, said = ran(tmp_path, sys.executable, "-c", gone, program("misuse.c"), "piped")
    assert (status, said) == (0, "hide 0\nclose 0\n")


def test_a_line_that_the_program_has_closed_is_said_to_be_and_its_own_file_is_left_alone(tmp_path: Path) -> None:
    """As daemons do, it closes all descriptors, and opens files of its own, one of them under our number."""
    (tmp_path / ".safepoint").write_text("u.dat\n")
    status, output, said = ran(tmp_path, program("misuse.c"), "shut")
    assert status == 0, said
    (text,) = {text for _, code, text in lines(output) if code}
    assert text.startswith("the program has closed the line to its helper: what was hidden is safe"), text
    assert (tmp_path / "own.txt").read_text() == "its own"
    with Session(tmp_path) as session:  # the helper has ended: nothing is locked
        assert session.restore() is not None
        session.close()


@pytest.mark.skipif(not (MPICH.there and OPEN_MPI.there), reason="needs mpich and openmpi")
@pytest.mark.parametrize("linked", one_of([MPICH, OPEN_MPI]), ids=lambda mpi: mpi.name)
def test_the_launcher_of_another_mpi_library_is_refused(linked: Mpi, tmp_path: Path) -> None:
    """Each would be a rank 0 of 1, and the first of them would save as if the others were not there."""
    (tmp_path / ".safepoint").write_text("u.dat\n")
    other = OPEN_MPI if linked is MPICH else MPICH
    _, output, said = ran(tmp_path, *other.started(2, program("misuse.c", linked), "just"))
    calls = [(code, text) for call, code, text in lines(output) if call.startswith("begin")]
    assert len(calls) == 2, output + said
    for code, text in calls:
        assert code == 10 and "these processes are no ranks of one program" in text, text
        assert "started 2 processes" in text and "Use the launcher of that library" in text, text
    assert not (tmp_path / ".safepoint.d").exists()


@pytest.mark.proof
@each_mpi
def test_ranks_end_even_if_mpi_abort_does_not_return(mpi: Mpi, tmp_path: Path) -> None:
    """MPI_Abort of MPICH 4 may spin for ever, if the other ranks are in MPI_Finalize."""
    (tmp_path / ".safepoint").write_text("u-{rank}.dat\n")
    status, output, said = ran(
        tmp_path, *mpi.started(2, program("misuse.c", mpi, "-DABORT_SPINS"), "alone"), start_new_session=True
    )
    assert status not in (0, None) and "MPI_Abort spins" in said, output + said


EDGES = {
    "second": ({("second", "13"), ("steps", "10")}, 0),  # it agrees on its own communicator still
    "second of one": ({("second", "13"), ("steps", "0")}, 0),
    "freed": ({("again", "0"), ("hide", "0")}, 0),
    "one": ({("one", "13")}, 0),
    "ended": ({("again", "0"), ("finish", "0")}, 7),
    "closed": ({("close", "0"), ("hide", "10")}, 0),
    "lost": ({("close", "30")}, 30),
    "many": ({("many", "0")}, 0),
}


@each_mpi
@pytest.mark.parametrize("case", some_of([*EDGES], 2, 8))
def test_neither_a_refused_init_nor_a_lost_helper_lets_the_others_wait(case: str, mpi: Mpi, tmp_path: Path) -> None:
    """All ranks get the same code, or all end; and what is refused changes nothing of the session that is open."""
    (tmp_path / ".safepoint").write_text("u-{rank}.dat\n")
    status, output, said = ran(tmp_path, *mpi.started(2, program("edges.c", mpi), case))
    found = {(" ".join(row.split()[:-2]), row.split()[-1]) for row in output.splitlines() if row[-1:].isdigit()}
    expected, ends = EDGES[case]
    # Of two ranks that end, that of MPICH may kill one while the other ends: its status is then that of the killed.
    exact = ends == 7 and mpi != MPICH
    assert expected <= found and (status == ends if exact else bool(status) == bool(ends)), output + said
    for call in {call for call, _ in expected} - {"close"}:
        assert len({code for other, code in found if other == call}) == 1, output


@needs("gfortran")
@pytest.mark.parametrize(
    ("words", "code"),
    some_of([
        (("holes", 15), 0), (("short", 1), 16), (("holes", 40), 0), (("many", 40), 0), (("holes", 250), 0),
        (("short", 3), 16), (("many", 400), 0), (("out", 1), 0),
    ], 3, 8),
    ids=str,
)  # fmt: skip
def test_units_of_gfortran(words: tuple[str, int], code: int, tmp_path: Path) -> None:
    """Of whatever number; the number that it last had for a string is not flushed, which would be the end; and a file
    that has become shorter than what was written is an error, of which gfortran itself tells nothing."""
    which, count = words
    (tmp_path / ".safepoint").write_text("f-*.txt\nbundle_from = 1000\n")
    limit = "trap '' XFSZ; ulimit -S -f 2; " if which == "short" else ""
    exe = program("buffers.f90", None, "-fno-backtrace", fc="gfortran")
    if which == "short":
        (tmp_path / ".safepoint.d").mkdir()
    status, _, said = ran(tmp_path, "bash", "-c", f"{limit}exec {exe} {which} {count}")
    lines = said.splitlines()
    assert status == 0 and lines, said
    assert str(code) in lines, said
    if code:
        assert re.search(r"unit -\d+: \d+ of \d+ bytes are in f-\d\.txt", said), said
    else:
        kept = list((tmp_path / ".safepoint.d").rglob("set-*1/files/f-*.txt"))
        assert len(kept) == count and all((path.stat().st_size > 10) == (which != "holes") for path in kept)


@pytest.mark.parametrize("where", ["/dev/full", "a terminal that is gone"])
def test_what_is_printed_costs_no_set(where: str, tmp_path: Path) -> None:
    """A log on a full disk, or a terminal after a hang-up; and what hides behind it is seen all the same."""
    (tmp_path / ".safepoint").write_text("u.dat\n")
    run = (
        "import os, pty, sys\nm, s = pty.openpty()\nos.dup2(s, 1); os.close(s); os.close(m)\n"
        "os.execv(sys.argv[1], sys.argv[1:])"
    )
    for case, code in (("piped", 0), ("masked", 16)):
        exe = program("misuse.c")
        command = (
            ["sh", "-c", f"exec {exe} {case} > /dev/full"]
            if where == "/dev/full"
            else [sys.executable, "-c", run, exe, case]
        )
        _, _, said = ran(tmp_path, *command)
        assert said.splitlines()[0] == f"hide {code}", said


def test_a_step_that_only_python_can_have_is_an_error_not_the_end_of_the_helper(tmp_path: Path) -> None:
    (tmp_path / ".safepoint").write_text("u.dat\n")
    with Session(tmp_path) as session:
        session.restore()
        (tmp_path / "u.dat").write_text("u")
        session.hide(2**70)
        session.close()
    calls = lines(ran(tmp_path, program("misuse.c"), "just")[1])
    assert calls[1][1] == 10 and "does not fit into 64 bits" in calls[1][2], calls
