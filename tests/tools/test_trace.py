"""`safepoint trace`, the command: the program is what it was, and its notes are where they were asked for."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from launcher import mpiexec

from safepoint.trace import launch

PROGRAM = "import sys\nfrom mpi4py import MPI\nsys.stdout.write(f'sum {MPI.COMM_WORLD.allreduce(1)}\\n')\n"


def traced(cwd: Path, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "safepoint", "trace", *words]
    return subprocess.run(command, cwd=cwd, env={**os.environ, **more}, capture_output=True, text=True, timeout=300)


def test_the_notes_of_each_rank_are_in_the_directory_and_the_exit_code_is_that_of_the_program(tmp_path: Path) -> None:
    (tmp_path / "solver.py").write_text(PROGRAM + "raise SystemExit(3)\n")
    done = traced(tmp_path, "--", mpiexec(), "-n", "2", sys.executable, "solver.py")
    assert (done.returncode, done.stdout) == (3, "sum 2\nsum 2\nrun.trace: 2 ranks, 2 calls\n"), done.stderr
    about = [json.loads((tmp_path / f"run.trace/rank-{rank:05d}.json").read_text()) for rank in range(2)]
    assert [(one["rank"], one["size"], one["ended"]) for one in about] == [(0, 2, "exit"), (1, 2, "exit")]


def test_behind_the_launcher_it_is_the_program_of_each_rank(tmp_path: Path) -> None:
    (tmp_path / "solver.py").write_text(PROGRAM)
    command = [mpiexec(), "-n", "2", sys.executable, "-m", "safepoint", "trace", "-o", "there", "--", sys.executable]
    done = subprocess.run([*command, "solver.py"], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout) == (0, "sum 2\nsum 2\n"), done.stderr
    assert len(list((tmp_path / "there").glob("rank-*.calls"))) == 2


def test_a_trace_that_is_there_is_not_touched_and_a_program_without_mpi_leaves_none(tmp_path: Path) -> None:
    (tmp_path / "run.trace").mkdir()
    (tmp_path / "run.trace/rank-00000.json").write_text("{}")
    done = traced(tmp_path, "--", "true")
    assert done.returncode and "run.trace is there already: remove it, or name another with -o" in done.stderr
    assert (tmp_path / "run.trace/rank-00000.json").read_text() == "{}"
    done = traced(tmp_path, "-o", "new", "--", sys.executable, "-c", "pass")
    assert done.returncode == 0 and "nothing was traced" in done.stderr and not (tmp_path / "new").exists()


def test_what_cannot_be_started_or_read_is_one_clear_line(tmp_path: Path) -> None:
    for words, text in (
        (("--", "no-such-program"), "names no program that can be started"),
        (("--with", "python", "--", "no-such-program"), "no-such-program: No such file or directory"),
        (("--limit", "much", "--", "true"), "--limit much: takes a size, such as 64 MiB"),
    ):
        done = traced(tmp_path, *words)
        assert done.returncode and done.stderr.count("\n") == 1 and text in done.stderr, done.stderr
    assert list(tmp_path.iterdir()) == []


def test_the_tracer_is_that_of_the_program_and_not_of_what_it_is_given(tmp_path: Path) -> None:
    firsts = {"solver": "#!/bin/sh\n", "script": f"#!{sys.executable}\n", "found": "#!/usr/bin/env python3\n"}
    for name, first in firsts.items():
        (tmp_path / name).write_text(first)
        (tmp_path / name).chmod(0o755)
    (tmp_path / "config.py").write_text("")
    solver = str(tmp_path / "solver")
    assert not launch.interpreted([mpiexec(), "-n", "2", solver, str(tmp_path / "config.py")])
    assert not launch.interpreted(["env", "A=1", "nice", "-n", "5", solver])
    scripts = [str(tmp_path / "script")], [str(tmp_path / "found")]
    for words in ([sys.executable, solver], ["env", "A=1", sys.executable], *scripts):
        assert launch.interpreted(["mpiexec", "-n", "2", *words])


def test_python_dash_m_mpi4py_is_traced_and_ranks_that_cannot_start_say_why(tmp_path: Path) -> None:
    (tmp_path / "solver.py").write_text(PROGRAM)
    done = traced(tmp_path, "--", mpiexec(), "-n", "2", sys.executable, "-m", "mpi4py", "solver.py")
    assert done.stdout.endswith("run.trace: 2 ranks, 2 calls\n"), done.stderr
    command = [mpiexec(), "-n", "2", sys.executable, "-m", "safepoint", "trace", "-o", "no", "--with", "python"]
    said = subprocess.run([*command, "--", "nosuch"], cwd=tmp_path, capture_output=True, text=True, timeout=300).stderr
    assert said.count("nosuch: No such file or directory") == 2, said
    assert not (tmp_path / "no").exists()
