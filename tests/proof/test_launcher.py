"""The launcher that starts the ranks: which one it is, and what is said if it is that of another MPI library.

`foreign` starts processes as such a launcher does: they have its variables, and mpi4py finds one rank in each of them.
They are real processes, with a real MPI library.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import launcher
import pytest
from testbed.jobs import mpiexec
from testbed.paths import HOUSE

from safepoint import Session

pytestmark = pytest.mark.xdist_group("mpi-examples")
OPEN_MPI = "OMPI_COMM_WORLD_SIZE=$SIZE OMPI_COMM_WORLD_RANK=$RANK"
SLURM = "SLURM_STEP_NUM_TASKS=$SIZE SLURM_NTASKS=$SIZE SLURM_PROCID=$RANK"
VARIABLES = {  # and what names them
    OPEN_MPI: "Open MPI's mpiexec started 2 processes (OMPI_COMM_WORLD_SIZE)",
    "PMI_SIZE=$SIZE PMI_RANK=$RANK": "a launcher of MPICH's kind started 2 processes (PMI_SIZE)",
    SLURM + " SLURM_TASK_PID=$$": "srun started 2 processes (SLURM_STEP_NUM_TASKS)",
}
each_launcher = pytest.mark.parametrize("variables", VARIABLES)
PROGRAM = """
import os, sys
from mpi4py import MPI
import safepoint
try:
    safepoint.init(sys.argv[2].format(os.environ.get("RANK")), comm=eval(sys.argv[1])).close()
    sys.stdout.write("began\\n")
except safepoint.SafepointError as error:
    print(type(error).__name__, error.code, error, flush=True)
"""


def script(path: Path, text: str) -> str:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def foreign(path: Path, variables: str) -> str:
    """The mpiexec of another MPI library, called as `mpiexec -n N command`; its processes come one after the other."""
    one = f'sh -c \'export {variables}; shift 2; exec "$@"\' sh "$@"'
    return script(path, f"for RANK in $(seq 0 $(($2 - 1))); do export RANK SIZE=$2; {one} || exit; done")


def said(command: list[str]) -> list[str]:
    """What each of these processes says, in the order in which they were started."""
    inherited = re.compile("(OMPI|PMI|PMIX|MPI|SLURM)_")
    environment = {name: value for name, value in os.environ.items() if not inherited.match(name)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def two(path: str, comm: str, where: object) -> list[str]:
    return said([path, "-n", "2", sys.executable, "-W", "ignore", "-c", PROGRAM, comm, str(where)])


@pytest.fixture
def work(tmp_path: Path) -> Path:
    for name in ("w", "w0", "w1"):
        (tmp_path / name).mkdir()
        (tmp_path / name / ".safepoint").write_text("u.txt\n")
    return tmp_path / "w"


@each_launcher
def test_ranks_that_do_not_know_each_other_are_refused_before_one_of_them_begins(work: Path, variables: str) -> None:
    """G5, G8: the first to come could save, and even finish, as if it were the whole program."""
    lines = two(foreign(work.with_name("mpiexec"), variables), "MPI.COMM_WORLD", work)
    assert len(lines) == 2
    for line in lines:
        assert line.startswith("UsageError 10 ") and VARIABLES[variables] in line, line
        assert re.search(r"mpi4py works with [A-Z][\w ]+ [0-9.]+, which", line) and "nothing was changed" in line, line
    assert os.listdir(work) == [".safepoint"]


@each_launcher
def test_processes_alone_in_a_directory_of_their_own_need_no_launcher_that_fits(work: Path, variables: str) -> None:
    """Any launcher may start programs that have nothing to do with each other: they give no communicator."""
    assert two(foreign(work.with_name("mpiexec"), variables), "None", f"{work}{{}}") == ["began", "began"]


@each_launcher
def test_who_finds_the_directory_locked_is_told_of_a_launcher_that_does_not_fit(work: Path, variables: str) -> None:
    """G8: they gave no communicator, so that only the lock tells; the other ranks may be those who hold it."""
    with closing(Session(work)):
        lines = two(foreign(work.with_name("mpiexec"), variables), "None", work)
    for line in lines:
        assert line.startswith("LockedError 13 ") and f"process {os.getpid()} on" in line, line
        assert VARIABLES[variables] in line and "call init(comm" not in line, line


@pytest.mark.parametrize(
    "variables",
    [
        "SLURM_NTASKS=4 SLURM_PROCID=0 SLURM_TASK_PID=$$",  # a batch script that becomes the program
        "SLURM_STEP_NUM_TASKS=4 SLURM_NTASKS=4 SLURM_PROCID=0 SLURM_TASK_PID=1",  # started by a task of srun
        "OMPI_COMM_WORLD_SIZE=4 PMI_SIZE=1",  # a launcher that started one, under one that started four
        "PMI_SIZE= OMPI_COMM_WORLD_SIZE=many",
    ],
)
def test_one_process_with_a_communicator_works_where_variables_of_a_launcher_were_inherited(
    work: Path, variables: str
) -> None:
    """What Slurm says to the one process of a batch script is no sign that there are others."""
    path = foreign(work.with_name("mpiexec"), variables)
    assert two(path, "MPI.COMM_WORLD", f"{work}{{}}") == ["began", "began"]


def test_a_rank_may_be_alone_in_a_communicator_where_the_launcher_fits(work: Path) -> None:
    """`COMM_SELF`, say, with a directory for each: the library knows of the other ranks."""
    program = PROGRAM.replace('os.environ.get("RANK")', "MPI.COMM_WORLD.rank")
    assert said(mpiexec(2, "-c", program, "MPI.COMM_SELF", f"{work}{{}}")) == ["began", "began"]


def test_a_program_that_has_ended_mpi_is_not_asked_for_its_ranks(work: Path) -> None:
    """G8: MPI ends a program that calls it after `Finalize`; the error must be about the lock."""
    with closing(Session(work)):
        for line in two(foreign(work.with_name("mpiexec"), OPEN_MPI), "MPI.Finalize()", work):
            assert line.startswith("LockedError 13 ") and "call init(comm" in line, line


def test_the_mpiexec_of_this_environment_comes_before_any_other_of_the_path(tmp_path: Path) -> None:
    """Debian's Open MPI, say: its ranks would not see each other. All tests, `make demo` and benchmarks ask this."""
    other = script(tmp_path / "mpiexec", "exec sleep 1000")
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    command = [sys.executable, "-c", "import launcher; print(launcher.mpiexec())"]
    done = subprocess.run(command, cwd=HOUSE / "examples", env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() != other and done.stdout.strip() == launcher.mpiexec()


REFUSES = "echo 'You must not be root'; exit 213"
MISFITS = {
    "alone": ("", "took themselves for the only one each"),
    "refuses": (REFUSES, "ended with status 213. Take the mpiexec of that library: a wheel puts its own beside python; "
                "they said: You must not be root"),
    "waits": ("exec sleep 1000", "did not end within 2 s"),
    "silent": ("exit 0", "ended with status 0"),
}  # fmt: skip


@pytest.mark.parametrize("kind", MISFITS)
def test_an_mpiexec_of_another_mpi_library_is_noticed_and_named(tmp_path: Path, kind: str) -> None:
    """A line that says which launcher, and which MPI library mpi4py has; and no test waits for its ranks."""
    text, what = MISFITS[kind]
    path = script(tmp_path / "mpiexec", text) if text else foreign(tmp_path / "mpiexec", OPEN_MPI)
    line = launcher.misfit(path, patience=2 if kind == "waits" else launcher.PATIENCE)
    assert line.startswith(f"{path} does not start ranks of mpi4py, which works with ") and "\n" not in line
    assert what in line and re.search(r"works with [A-Z][\w ]+ [0-9.]+: ", line), line


@pytest.mark.skipif(sys.prefix == sys.base_prefix, reason="needs a virtual environment")
@pytest.mark.parametrize("where", ["bin", "path"])
def test_the_demonstration_says_at_once_which_mpiexec_does_not_fit(tmp_path: Path, where: str) -> None:
    """Not after a minute of work on one rank, and not as a traceback: beside python, or the first one of PATH."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "path").mkdir()
    shutil.copy(Path(sys.prefix, "pyvenv.cfg"), tmp_path)  # an environment as this one, but for its mpiexec
    (tmp_path / "lib").symlink_to(Path(sys.prefix, "lib"))
    (tmp_path / "bin/python").symlink_to(sys.executable)
    other = foreign(tmp_path / where / "mpiexec", OPEN_MPI)
    environment = {**os.environ, "PATH": f"{tmp_path / 'path'}:{os.environ['PATH']}"}
    command = [tmp_path / "bin/python", HOUSE / "examples/demo.py"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 1 and done.stdout == "", done.stdout
    assert done.stderr.startswith(f"no ranks: {other} does not start ranks of mpi4py") and done.stderr.count("\n") == 1


def test_nobody_looks_for_mpiexec_but_the_one_place_that_knows_which_fits() -> None:
    """A test that takes the first of PATH fails, or waits, on a machine with another MPI library."""
    searched = re.compile(r"""(which|with_name)\(\s*["']mpi(exec|run)["']""")
    for directory in ("tests", "examples", "benchmarks", "safepoint"):
        for path in sorted((HOUSE / directory).rglob("*.py")):
            found = searched.search(path.read_text())
            assert found is None or path.name in ("launcher.py", Path(__file__).name), (path, found)
