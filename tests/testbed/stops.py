"""What the tests of when to save and when to stop share."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from safepoint.root import Root

UNIX = pytest.mark.skipif(os.name != "posix", reason="needs signals of Unix")


def put(work: Path, step: int = 0) -> None:
    (work / "u.dat").write_text(f"step {step}\n")


def logged(work: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(Root(str(work)).log).read_text().splitlines()]


# When to stop: the operator
def safepoint(work: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "safepoint", arguments[0], str(work), *arguments[1:]]
    return subprocess.run(command, capture_output=True, text=True)
