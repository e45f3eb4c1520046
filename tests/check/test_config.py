"""`.safepoint-check`: what it may say, and what is said of a line that is wrong."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from safepoint.check import config, hosts
from safepoint.errors import UsageError


def test_every_line_may_be_left_out(tmp_path: Path) -> None:
    assert config.read(tmp_path) == config.Config()
    assert config.parse(b"\xef\xbb\xbf# nothing\r\n\r\n") == config.Config()


def test_what_it_says(tmp_path: Path) -> None:
    text = (
        b"command = ./solver 'an argument'\nranks = 4\nhang = 2.5\ntemplates = standard my.tpl\nmpicc = mpicc.mpich\n"
        b"nodes = a b,c\nport = 0\n"
    )
    found = config.parse(text)
    assert config.program(found) == ("mpiexec", "-n", "4", "./solver", "an argument")
    assert (found.hang, found.templates, found.mpicc) == (2.5, ("standard", "my.tpl"), "mpicc.mpich")
    assert (found.nodes, found.port, config.Config().port) == (("a", "b", "c"), 0, -1)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("x = 1", ":1: there is no 'x'"),
        ("\nhangs = 1", ":2: there is no 'hangs'; hang?"),
        ("command", ":1: a line is `name = value`, and this is 'command'"),
        ("command = a\ncommand = b", ":2: command is said in line 1 already"),
        ("hang =", ":1: hang has no value"),
        ("nodes = a a", ":1: nodes takes names of hosts, each once"),
        ("nodes = a -x", ":1: nodes takes names of hosts, each once, and '-x' is none"),
        ("port = -1", ":1: port takes a number up to 65535, or 0 for any"),
        ("port = 65536", ":1: port takes a number up to 65535"),
        ("hang = soon", ":1: hang takes seconds"),
        ("ranks = 0\ncommand = a", ":1: ranks takes a whole number from 1"),
        ("ranks = 2", ":1: ranks needs command too"),
        ("build = make", ":1: build needs sources too"),
        ("command = 'a", ":1: command: No closing quotation"),
    ],
)
def test_a_line_that_is_wrong_is_told_with_its_number(text: str, told: str) -> None:
    with pytest.raises(UsageError) as raised:
        config.parse(text.encode())
    assert f"{config.NAME}{told}" in str(raised.value)


def test_what_is_no_text_is_told_with_its_line() -> None:
    with pytest.raises(UsageError, match=":2: this is no UTF-8"):
        config.parse(b"hang = 1\n\xff\n")


def test_a_build_is_needed_if_a_source_is_newer(tmp_path: Path) -> None:
    found = config.parse(b"command = solver\nbuild = make\nsources = *.c\n")
    with pytest.raises(UsageError, match=r":3: no file is like \*\.c"):
        config.outdated(found, "solver", tmp_path)
    (tmp_path / "a.c").touch()
    assert config.outdated(found, "solver", tmp_path) == "there is no solver"
    (tmp_path / "solver").touch()
    os.utime(tmp_path / "a.c", (1000, 1000))
    assert config.outdated(found, "solver", tmp_path) == ""
    os.utime(tmp_path / "solver", (500, 500))
    assert "a.c is newer than solver" in config.outdated(found, "solver", tmp_path)


# Nodes.


@pytest.fixture
def launchers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Programs that say what they are."""
    for name, says in (("mpiexec", "HYDRA build details:"), ("mpirun", "mpirun (Open MPI) 5.0"), ("srun", "slurm")):
        (tmp_path / name).write_text(f"#!/bin/sh\necho '{says}'\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    for name in ("SLURM_JOB_NUM_NODES", "SLURM_NNODES", "PBS_NODEFILE"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def test_mpiexec_is_told_of_nodes_in_its_own_words(launchers: Path) -> None:
    """Open MPI takes a host for one rank, and passes no environment on, if it is not told otherwise."""
    two = config.Config(nodes=("a", "b"))
    assert hosts.placed(("mpiexec", "-n", "4", "./solver"), two, {}) == (
        "mpiexec", "-hosts", "a,b", "-n", "4", "./solver",
    )  # fmt: skip
    passed = {"SAFEPOINT_TRACE": "/t", "LD_PRELOAD": "x.so", "HOME": "/"}
    assert hosts.placed(("mpirun", "-np", "5", "./solver"), two, passed) == (
        "mpirun", "--host", "a:3,b:3", "-x", "SAFEPOINT_TRACE", "-x", "LD_PRELOAD", "-np", "5", "./solver",
    )  # fmt: skip
    assert hosts.placed(("mpiexec", "-hosts", "a,b", "./solver"), config.Config(port=0), passed)[1] == "-hosts"
    assert hosts.placed(("srun", "./solver"), config.Config(port=0), passed) == ("srun", "./solver")
    with pytest.raises(UsageError, match="srun is not told of nodes here: name them in the command"):
        hosts.placed(("srun", "./solver"), two, {})


@pytest.mark.parametrize(
    ("words", "environment", "expected"),
    [
        ("mpiexec -n 4 PROGRAM", {}, False),
        ("mpiexec -n 4 PROGRAM -hosts a,b", {}, False),  # the program's own
        ("mpiexec -hosts a,b -n 4 PROGRAM", {}, True),
        ("mpiexec -n 4 numactl -N 0 PROGRAM", {}, False),
        ("numactl -N 0 PROGRAM", {}, False),
        ("srun -n 4 PROGRAM", {"SLURM_JOB_NUM_NODES": "2"}, True),
        ("srun -n 4 PROGRAM", {"SLURM_JOB_NUM_NODES": "1", "SLURM_JOB_ID": "7"}, False),
        ("srun -n 4 PROGRAM", {}, True),  # it asks for a node first
        ("srun -N 2 -n 4 PROGRAM", {}, True),
        ("mpiexec PROGRAM", {"PBS_NODEFILE": "TOP/two"}, True),
        ("mpiexec PROGRAM", {"PBS_NODEFILE": "TOP/one"}, False),
    ],
)
def test_it_is_listened_for_other_nodes_only_if_there_may_be_some(
    words: str, environment: dict[str, str], expected: bool, launchers: Path
) -> None:
    (launchers / "two").write_text("a\na\nb\n")
    (launchers / "one").write_text(f"{socket.gethostname()}\n" * 2)
    (launchers / "solver").write_text("#!/bin/sh\n")
    (launchers / "solver").chmod(0o755)
    told = [word.replace("PROGRAM", str(launchers / "solver")) for word in words.split()]
    given = {name: value.replace("TOP", str(launchers)) for name, value in environment.items()}
    assert hosts.several(config.Config(), told, given) is expected
    assert hosts.several(config.Config(port=7), told, given) and hosts.several(config.Config(nodes=("a",)), told, given)


@pytest.mark.parametrize("whose", ["another user's", "writable"])
def test_a_file_that_somebody_else_has_written_runs_nothing(tmp_path: Path, whose: str) -> None:
    """It names programs: `command`, `build`, `mpicc`."""
    path = tmp_path / config.NAME
    path.write_text("command = ./solver\n")
    assert config.read(tmp_path).command == ("./solver",)
    path.chmod(0o666)
    if whose == "another user's":
        path.chmod(0o644)
        try:
            os.chown(path, 4321, -1)
        except PermissionError:
            pytest.skip("only root can give a file away")
    why = "belongs to user 4321" if whose == "another user's" else r"others may write to .* \(mode 0666\)"
    with pytest.raises(UsageError, match=f"{config.NAME} is not read, .*{why}.*make it yours: cp"):
        config.read(tmp_path)


def test_what_has_no_effect_is_no_setting() -> None:
    with pytest.raises(UsageError, match="there is no 'library'"):
        config.parse(b"library = ./libtrace.so\n")
