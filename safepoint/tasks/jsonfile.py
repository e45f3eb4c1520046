"""Files of one JSON object that people keep: a measured network, a schedule. Read with errors that name the file."""

from __future__ import annotations

import contextlib
import json
import math
import os
from typing import Any

from safepoint.disk import Disk, files
from safepoint.errors import FormatError, UsageError


def read(path: str, what: str, remedy: str) -> dict[str, Any]:
    """The object in this file. `what` it is to be, and what the user may do if it is not there or is none."""
    try:
        text = files.read(Disk(), os.path.abspath(path))
    except OSError as error:
        raise UsageError(f"cannot read {what} {path}: {files.cause(error)}; {remedy}", error.errno) from error
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{path} is no {what}: {error}; {remedy}") from error
    if not isinstance(content, dict):
        raise FormatError(f"{path} is no {what}: it is not one JSON object; {remedy}")
    return content


def write(disk: Disk, path: str, content: dict[str, Any]) -> None:
    """In the place of what is there. On error, and killed inside, the older file is as it was."""
    path = os.path.abspath(path)
    beside = f"{path}.{os.getpid()}.new"
    data = _text(content).encode()
    try:
        with contextlib.suppress(FileNotFoundError):
            disk.remove(beside)  # of a process that was killed, and had this number
        files.write(disk, beside, data)
        # Before the rename: else a power cut could leave the name with no contents, and the older file gone.
        disk.sync_files([beside])
        # A kill leaves the older file or the new one: half of a schedule would be an error at the next start.
        disk.rename(beside, path)
    except OSError as error:
        with contextlib.suppress(OSError):
            disk.remove(beside)
        raise UsageError(
            f"cannot write {path}: {files.cause(error)}; what was there is as it was", error.errno
        ) from error


def _text(content: dict[str, Any]) -> str:
    """A line for each key, and for each row of a table: to be read, and compared line by line."""
    lines = []
    for key, value in content.items():
        text = json.dumps(value, allow_nan=False)
        if isinstance(value, list) and value and isinstance(value[0], (list, dict)):
            rows = ",\n  ".join(json.dumps(row, allow_nan=False) for row in value)
            text = f"[\n  {rows}\n ]"
        lines.append(f"{json.dumps(key)}: {text}")
    return "{\n " + ",\n ".join(lines) + "\n}\n"


def number(value: Any, least: float = 0.0, *, above: bool = False) -> float | None:
    """A finite number that is not below `least` (and not `least` itself with `above`); None for anything else."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        value = float(value)
    except OverflowError:
        return None
    return value if math.isfinite(value) and (value > least if above else value >= least) else None
