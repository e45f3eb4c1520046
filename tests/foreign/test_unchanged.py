"""A program is what it was without us: nothing of a process changes but one descriptor more; and what it has about it
does not reach the helper."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from contextlib import suppress
from pathlib import Path

import pytest
from testbed.foreign import PATIENCE, environment, found, needs, program, ran, with_library
from testbed.sweep import LONG, some_of
from testbed.waiting import wait_for

from safepoint import Session

pytestmark = needs("cc")


@pytest.mark.parametrize("how", [(), ("buffered",)])
def test_nothing_of_the_process_changes_but_one_descriptor_more(how: tuple[str, ...], tmp_path: Path) -> None:
    """Handlers, mask, environment, umask, locale, floating point, threads, descriptors, limits, working directory,
    children: before, within and after a session, while a SIGALRM comes each millisecond; and no SIGCHLD of ours."""
    (tmp_path / ".safepoint").write_text("u.dat\n")
    status, output, said = ran(tmp_path, program("unchanged.c"), *how)
    assert status == 0, output + said
    values: dict[str, set[str]] = {}
    for line in output.splitlines():
        _, what, value = line.split(" ", 2)
        values.setdefault(what, set()).add(value)
    assert len(values) == 11
    assert all(len(value) == 1 for value in values.values()), values
    assert (tmp_path / "u.dat").read_text() == "end\n"
    if how:  # what lay in the buffer was flushed, and is in the set
        kept = tmp_path / ".safepoint.d/rank-00000"
        assert [len(path.read_text().split()) for path in kept.rglob("set-*/files/u.dat")] == [10000] * 2


HOSTILE = {
    "PYTHONHOME": "/nonexistent", "PYTHONPATH": "SHADOW", "PYTHONSTARTUP": "/nonexistent", "PYTHONWARNINGS": "error",
    "LD_LIBRARY_PATH": "SHADOW", "LD_PRELOAD": "SHADOW/preload.so", "PYTHONSAFEPATH": "1", "PYTHONUTF8": "0",
    "LANG": "C", "LC_ALL": "C", "HOME": "/nonexistent", "SAFEPOINT_PYTHON": "",
}  # fmt: skip


def test_what_is_made_for_the_solver_does_not_reach_the_helper(tmp_path: Path) -> None:
    """Modules of a cluster set these. A shadow of our package, a library of another Python's, a preloaded one."""
    shadow = tmp_path / "shadow"
    (shadow / "safepoint").mkdir(parents=True)
    for name in ("safepoint/__init__.py", "xxhash.py", "json.py"):
        (shadow / name).write_text("raise SystemExit('the shadow was imported')\n")
    (shadow / "preload.c").write_text(
        "#include <stdlib.h>\n#include <string.h>\n#include <unistd.h>\nextern char *program_invocation_short_name;\n"
        "__attribute__((constructor)) static void begin(void)\n"
        '{ if (strstr(program_invocation_short_name, "python")) _exit(77); }\n'
    )
    command = ["cc", "-D_GNU_SOURCE", "-shared", "-fPIC", "preload.c", "-o", "preload.so"]
    subprocess.run(command, cwd=shadow, check=True)
    for library in ("libpython3.so", "libc++.so", f"libpython3.{sys.version_info[1]}.so.1.0", "libz.so.1"):
        (shadow / library).write_bytes(b"not a library")
    work = tmp_path / "work"
    work.mkdir()
    (work / ".safepoint").write_text("u.dat\n")
    more = {name: value.replace("SHADOW", str(shadow)) for name, value in HOSTILE.items()}
    status, output, said = ran(work, program("misuse.c"), "nulls", more=more)
    assert status == 0 and "shadow" not in output + said, said
    assert "safepoint_hide(SAFEPOINT_NO_STEP)\t0" in output, output


@pytest.mark.parametrize("python", ["/no/such/python", "/bin/false", "/bin/true", "/etc/passwd"])
def test_a_python_that_cannot_be_started_is_named(python: str, tmp_path: Path) -> None:
    """No hang, and no child is left: the program can go on without, or end."""
    (tmp_path / ".safepoint").write_text("u.dat\n")
    status, output, _ = ran(tmp_path, program("misuse.c"), "just", more={"SAFEPOINT_PYTHON": python})
    assert status == 0 and output.startswith("begin(NULL, NULL)\t30\t") and python in output
    assert not (tmp_path / ".safepoint.d").exists()


def test_another_version_of_the_protocol_is_refused(tmp_path: Path) -> None:
    """A library that was compiled with an older package: a code that says so, not a crash."""
    (tmp_path / ".safepoint").write_text("u.dat\n")
    _, output, _ = ran(tmp_path, with_library("misuse.c", "-DSAFEPOINT_PROTOCOL=99"), "just")
    assert output.startswith(
        "begin(NULL, NULL)\t30\tthis program was linked with another version of the C library (99) than"
    ), output


@pytest.mark.parametrize("name", ["with blanks", "Größe €", "x" * 200 + "/" + "y" * 200 + "/" + "z" * 200])
def test_a_directory_may_have_any_name(name: str, tmp_path: Path) -> None:
    work = tmp_path / name
    work.mkdir(parents=True)
    (work / ".safepoint").write_text("u.dat\n")
    status, output, said = ran(work, program("misuse.c"), "nulls", more={"LC_ALL": "C"})
    assert status == 0 and "safepoint_stop(NULL)\t0" in output, output + said
    with Session(work) as session:
        saved = session.restore()
        assert saved is not None
        assert (work / "u.dat").read_text() == "1\n"
        session.hide(2)
        session.close()


ENDS = "exit", "_exit", "abort", "kill", "exec", "fork and kill", "return"


@pytest.mark.parametrize("end", some_of(ENDS, 3, 7))
def test_however_the_program_ends_the_helper_ends_and_the_set_is_there(end: str, tmp_path: Path) -> None:
    """G2k, G8: the helper of an ended program holds nothing, even while a child of it lives that has our socket; the
    next start is not refused, and has the newest set."""
    (tmp_path / ".safepoint").write_text("u.dat\n")
    marker = f"SAFEPOINT_TEST_JOB={uuid.uuid4()}"
    name, _, value = marker.partition("=")
    exe = program("ends.c")
    running = subprocess.Popen(
        [str(exe), end], cwd=tmp_path, env=environment(**{name: value}), stdout=subprocess.PIPE, text=True
    )
    assert running.stdout and running.stdout.readline() == "hidden\n"
    running.wait(PATIENCE)
    with Session(tmp_path) as session:
        saved = session.restore()
        assert saved is not None and saved.step == 1
        assert (tmp_path / "u.dat").read_text() == "1" * 3_000_000
        session.close()
    wait_for(lambda: not [process for process in found(marker, exe) if process.helper])
    for process in found(marker, exe):  # the child of "fork and kill"
        os.kill(process.pid, 9)
    running.stdout.close()


@pytest.mark.proof
def test_other_threads_of_the_program_may_be_given_its_signals(tmp_path: Path) -> None:
    """A SIGCHLD of ours that another thread takes is not waited for. (It was: one init of a hundred hung.)"""
    (tmp_path / ".safepoint").write_text("u.dat\n")
    status, output, said = ran(tmp_path, program("threaded.c", None, "-pthread"), 200 if LONG else 6)
    assert (status, output) == (0, "done\n"), said


def test_a_helper_that_flushes_yet_is_waited_for_not_refused(tmp_path: Path) -> None:
    """G8: after a kill -9 a slow disk may keep the helper, and with it the lock, for longer than a dead process would.
    The next start says what it waits for, and goes on when the helper has ended."""
    (tmp_path / ".safepoint").write_text("u.dat\n")
    exe, marker = program("holds.c"), f"SAFEPOINT_TEST_JOB={uuid.uuid4()}"
    name, _, value = marker.partition("=")
    holds = [str(exe), "60"]
    with subprocess.Popen(holds, cwd=tmp_path, env=environment(**{name: value}), stdout=subprocess.PIPE) as first:
        assert first.stdout and first.stdout.readline() == b"ready\n"
        (helper,) = [process.pid for process in found(marker, exe) if process.helper]
        os.kill(helper, signal.SIGSTOP)  # as in an fsync that lasts
        first.kill()
    try:
        with subprocess.Popen(
            [str(exe), "0"], cwd=tmp_path, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as second:
            assert second.stderr and second.stderr.readline().startswith("safepoint: waiting up to 300 s for process ")
            os.kill(helper, signal.SIGCONT)
            output, _ = second.communicate(timeout=PATIENCE)
    finally:
        with suppress(ProcessLookupError):
            os.kill(helper, signal.SIGKILL)
    assert (second.returncode, output) == (0, "ready\n")


def test_a_limit_of_the_program_s_files_cuts_no_module_of_the_helper_s(tmp_path: Path) -> None:
    """`ulimit -f` is inherited, and Python (3.11) leaves a compiled module cut off at it: no start after that would
    know the package any more."""
    (tmp_path / ".safepoint").write_text("u.dat\n")
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -X pycache_prefix={tmp_path}/kept "$@"\n')
    python.chmod(0o755)
    command = f"trap '' XFSZ; ulimit -S -f 8; exec {program('misuse.c')} nulls"
    status, output, said = ran(tmp_path, "bash", "-c", command, more={"SAFEPOINT_PYTHON": str(python)})
    assert status == 0 and "safepoint_hide(SAFEPOINT_NO_STEP)\t0" in output, output + said
    assert not [path for path in (tmp_path / "kept").rglob("*.pyc") if path.stat().st_size == 8 << 10]


def test_a_program_that_has_closed_its_output_does_not_print_into_the_socket(tmp_path: Path) -> None:
    """Descriptors 0, 1 and 2 are not ours, even if they are free."""
    (tmp_path / ".safepoint").write_text("u.dat\n")
    command = f"{program('misuse.c')} nulls <&- >&- 2>&-"
    assert ran(tmp_path, "sh", "-c", command)[0] == 0
    with Session(tmp_path) as session:
        assert session.restore() is not None
        session.close()


def test_a_signal_after_the_helper_has_died_is_the_program_s_own_again(tmp_path: Path) -> None:
    """Nobody looks at what our handler notes then; and the next session does not take that for the program's."""
    (tmp_path / ".safepoint").write_text("u.dat\n")
    status, output, said = ran(tmp_path, program("misuse.c"), "signals", start_new_session=True)
    assert status == 0 and "own 2" in output, output + said
