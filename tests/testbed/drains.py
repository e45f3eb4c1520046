"""Drains that follow a program at work, and what is at their place."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from safepoint.restoring.verify import verify
from safepoint.root import Root
from testbed.commands import answer


def there(place: Path) -> list[int]:
    """The numbers of the sets at a place, the newest first."""
    return [each["number"] for each in answer("fetch", place, "--list")["sets"]]


def at_work(a: Path, steps: int, pause: float, first: float = 0.0) -> subprocess.Popen[bytes]:
    """A program that goes on with so many steps, the first of them after so many seconds."""
    code = (
        "import sys, time, pathlib, safepoint\n"
        "time.sleep(float(sys.argv[4]))\n"
        "with safepoint.Session(sys.argv[1]) as s:\n"
        "    p = s.restore(); n = p.step if p else 0\n"
        "    for k in range(n + 1, n + 1 + int(sys.argv[2])):\n"
        "        for name in ('u.dat', 'big.dat'): pathlib.Path(sys.argv[1], name).write_text(f'{k} ' * 9000)\n"
        "        open(pathlib.Path(sys.argv[1], 'log.csv'), 'a').write(f'row {k}\\n')\n"
        "        for j in range(5): pathlib.Path(sys.argv[1], f'small-{j}.txt').write_text(f'{k} {j}')\n"
        "        pathlib.Path(sys.argv[1], 'tree').mkdir(exist_ok=True)\n"
        "        s.hide(k); time.sleep(float(sys.argv[3]))\n"
        "    s.close()\n"
    )
    return subprocess.Popen([sys.executable, "-c", code, *map(str, (a, steps, pause, first))])


FAST = (
    "import safepoint.cli.act.follow as f; f.PAUSE = f.LONGEST_PAUSE = 0.2\n"
    "from safepoint.cli.group import program; program()"
)


@contextlib.contextmanager
def following(a: Path, program: subprocess.Popen[bytes]) -> Iterator[IO[str]]:
    """What a drain says that ends well, after the program, whose newest set is at its place then."""
    command = [sys.executable, "-u", "-c", FAST, "drain", str(a), "--follow", "--pid", str(program.pid)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as drain:
        try:
            assert drain.stdout
            yield drain.stdout
            program.wait()
            said = drain.stdout.read()
            assert drain.wait() == 0, said
        finally:
            drain.kill()
            program.kill()
            program.wait()
    newest = max(n for n, state in verify(Root(str(a))).items() if state == "committed")
    assert there(a.parent / "place") == [newest], said


def until(said: IO[str], text: str) -> str:
    """All lines before the first with this text."""
    before = ""
    for line in said:
        if text in line:
            return before
        before += line
    raise AssertionError(f"it has ended, and not said: {text}: {before}")
