"""The command line in this process or in another, and directories for it to look at."""

from __future__ import annotations

import json
import os
import pty
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy
import pytest
import write_cli
from click.testing import CliRunner, Result

import safepoint
from safepoint.cli.group import program
from safepoint.record import dump, parse_taken
from safepoint.root import Root

MANIFEST = "u.npy\nbig.dat compress\nhistory.csv append\nrun.zarr/\nfields/*.vtk\nkeep = 3\n"


damages = pytest.mark.leaves_damage


def cli(*arguments: object) -> Result:
    """A command in this process; a traceback is an error of the test."""
    result = CliRunner().invoke(program, [str(each) for each in arguments])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def answer(*arguments: object, code: int = 0) -> dict[str, Any]:
    """What a command says with --json."""
    result = cli(*arguments, "--json")
    assert result.exit_code == code, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def process(*arguments: object, **options: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "error", "-m", "safepoint", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, **options)


def ask(reply: str, *arguments: object) -> tuple[int, str]:
    """A command in a terminal, where somebody replies."""
    mine, its = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "safepoint", *map(str, arguments)], stdin=its, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True,
    ) as running:  # fmt: skip
        os.close(its)
        os.write(mine, f"{reply}\n".encode())
        output = running.communicate(timeout=60)[0]
    os.close(mine)
    return running.returncode, output


def write(work: Path, step: int) -> None:
    numpy.save(work / "u.npy", numpy.arange(12.0).reshape(3, 4) + step * 0.5)
    (work / "big.dat").write_text(f"the same at {step}\n" * 500)
    with (work / "history.csv").open("a") as file:
        file.write(f"{step}, {step * 0.25}\n")
    for name in ("run.zarr", "fields"):
        (work / name).mkdir(exist_ok=True)
    (work / "run.zarr/0.0").write_bytes(bytes([step]) * 64)
    (work / f"fields/{step}.vtk").write_text(f"field {step}")


def make(work: Path, *, sets: int = 3, torn: bool = True, finish: bool = False) -> Path:
    """Sets 1, 2, 3 hold the steps 0, 10, 20; then, if `torn`, the program died while it wrote its next files."""
    work.mkdir(exist_ok=True)
    (work / ".safepoint").write_text(MANIFEST)
    with_session = safepoint.Session(work)
    with_session.restore()
    for n in range(sets):
        write(work, n * 10)
        with_session.hide(n * 10, wait=True)
    if finish:
        write(work, 99)
        with_session.finish(99)
        return work
    with_session.close()
    if torn:
        (work / "u.npy").write_bytes(b"torn")
        (work / "fields/30.vtk").write_text("fie")
        with (work / "history.csv").open("a") as file:
            file.write("30, 7")
    return work


@pytest.fixture(autouse=True)
def no_width(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a pipe; some environments say how wide a terminal would be."""
    monkeypatch.delenv("COLUMNS", raising=False)


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("pristine") / "work")


@pytest.fixture
def work(pristine: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(pristine, tmp_path / "work"))


@pytest.fixture(scope="module")
def four(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four ranks; set 3 is lacking on rank 2, whose node went down."""
    top = tmp_path_factory.mktemp("four") / "work"
    top.mkdir()
    write_cli.example(str(top))
    return top


@pytest.fixture
def ranked(four: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(four, tmp_path / "ranked"))


def snapshot(directory: Path) -> dict[str, bytes | None]:
    """Every file with its bytes, every directory with None."""
    return {
        path.relative_to(directory).as_posix(): path.read_bytes() if path.is_file() else None
        for path in directory.rglob("*")
    }


def in_place(work: Path) -> dict[str, bytes | None]:
    return {name: data for name, data in snapshot(work).items() if not name.startswith(".safepoint")}


def hurt(work: Path, number: int, name: str = "files/u.npy", rank: int = 0) -> None:
    """Flip a bit in the middle of a file of a set; its size and time stay."""
    path = Path(Root(str(work), rank).set(number), name)
    data, info = bytearray(path.read_bytes()), path.stat()
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(info.st_atime_ns, info.st_mtime_ns))


def unrecorded(work: Path, number: int, boot: str = "another", rank: int = 0) -> None:
    """As if the process had died before the commit, and, with another boot, the machine with it."""
    root = Root(str(work), rank)
    taken = Path(root.taken(number))
    taken.write_bytes(dump(parse_taken(taken.read_bytes())._replace(boot=boot)))
    os.unlink(root.record(number))


@contextmanager
def a_run(work: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that is at work there until the block ends."""
    code = "import sys, safepoint; safepoint.init(sys.argv[1]); print('ready', flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", code, str(work)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as running:
        try:
            assert running.stdout and running.stdout.readline() == "ready\n"
            yield running
        finally:
            running.kill()


# A table that was begun anew after a restart.
@pytest.fixture
def anew(work: Path) -> Path:
    """Set 3 was given back, and the program has begun its table anew, with more rows than there were."""
    cli("restore", work)
    assert (work / "history.csv").read_text() == "0, 0.0\n10, 2.5\n20, 5.0\n"
    (work / "history.csv").write_text("other rows, and longer than those of the set\n")
    return work
