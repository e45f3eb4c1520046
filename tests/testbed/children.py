"""Child processes that run some lines of Python with a disk."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import safepoint

SOURCE = Path(safepoint.__file__).parents[1]


@contextmanager
def child(code: str, *arguments: object, **options: Any) -> Iterator[subprocess.Popen[str]]:
    """A Python process that runs this code, with `os`, `sys` and `Disk()` as `disk`; killed at the end."""
    begin = f"import os, sys; sys.path.insert(0, {str(SOURCE)!r}); from safepoint.disk import Disk; disk = Disk()\n"
    command = [sys.executable, "-I", "-W", "error", "-c", begin + code, *map(str, arguments)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, **options) as process:
        try:
            yield process
        finally:
            process.kill()


def ran(code: str, *arguments: object, cwd: Path | None = None) -> str:
    """What a Python process says that runs this code to its end."""
    command, environment = [sys.executable, "-c", code, *map(str, arguments)], {**os.environ, "PYTHONPATH": str(SOURCE)}
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done
    return done.stdout.strip()


def says(process: subprocess.Popen[str]) -> str:
    """The next line of a child; empty if it died."""
    assert process.stdout
    return process.stdout.readline().strip()


def tell(process: subprocess.Popen[str]) -> None:
    """Let a child that waits in `input()` go on."""
    assert process.stdin
    process.stdin.write("\n")
    process.stdin.flush()
