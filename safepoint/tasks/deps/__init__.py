"""What the statements of a function read and write, and which of them may run side by side. It changes no program."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from safepoint.errors import UsageError
from safepoint.tasks.deps.statements import Analysis

__all__ = ["Analysis", "analyses"]

PYTHON, C = {".py", ".pyw"}, {".c", ".h"}


def analyses(path: str, function: str = "", inside: int = 0) -> list[Analysis]:
    """Of one function of a file, or of all. `inside`: of what the loop, `if`, … that begins in this line holds.

    Raises `UsageError` with file and line for a source that cannot be read, and for what is not there.
    """
    kind = Path(path).suffix.lower()
    if kind not in PYTHON | C:
        raise UsageError(f"{path}: read are Python (.py) and C (.c, .h)")
    try:
        source = Path(path).read_bytes().decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise UsageError(f"{path}:{line}: not in UTF-8") from error
    if kind in C:
        from safepoint.tasks.deps.c import File
    else:
        from safepoint.tasks.deps.python import File  # type: ignore[assignment]
    try:
        file = File(path, source)
        return _asked(path, file, function, inside)
    except RecursionError as error:
        raise UsageError(f"{path}: an expression in it is nested too deeply to be read") from error


def _asked(path: str, file: Any, function: str, inside: int) -> list[Analysis]:
    if not file.functions:
        raise UsageError(f"{path}: no function in it")
    if function and function not in file.functions:
        raise UsageError(f"{path}: no function {function}; there are {', '.join(file.functions)}")
    if inside and not function and len(file.functions) > 1:
        raise UsageError(f"{path}: --inside needs the name of a function; there are {', '.join(file.functions)}")
    return [file.analysis(name, inside) for name in ([function] if function else file.functions)]
