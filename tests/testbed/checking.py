"""`safepoint check` of programs, as a command in a process of its own, and its report."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from testbed.foreign import environment

Done = subprocess.CompletedProcess[str]
PATIENCE_S = 300  # only what hangs reaches it
# The two templates of 2014, as they were printed.
REUSED = """Name=Repeated using of active request
1block
N=1
2block
F1=p1:IPTP
F2=p1:Wait! && p1:Test!
F3=p1:IPTP
3block
F1(7)=F2(1)
F1(7)=F3(7)
"""
NOT_FREED = """Name=Derived datatype is not freed
1block
N=1
2block
F1=p1:Type_contiguous
F2=p1:Type_free!
3block
F1(3)=F2(1)
"""


def safepoint(cwd: Path, *words: object, **more: str) -> Done:
    """A command of safepoint; `more` is in its environment."""
    return subprocess.run(
        [sys.executable, "-m", "safepoint", *map(str, words)], cwd=cwd, env=environment(**more), text=True,
        stdin=subprocess.DEVNULL, capture_output=True, errors="replace", timeout=PATIENCE_S,
    )  # fmt: skip


def report(said: str) -> dict[str, Any]:
    """What --json has printed."""
    found = last_object(said)
    assert found is not None, said[-2000:]
    return found


def situations(said: str) -> list[Any]:
    return list(report(said)["situations"])


def last_object(said: str) -> dict[str, Any] | None:
    """The report: what the program itself prints stands before it, its last line maybe without an end."""
    at = len(said)
    while (at := said.rfind("{", 0, at)) >= 0:
        with suppress(ValueError):
            found = json.loads(said[at:])
            if isinstance(found, dict) and "situations" in found:
                return found
    return None
