"""Give back the room of the begin of a file that somebody else still writes: a hole, which keeps its length."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

from safepoint.errors import UsageError

PAGE = 4096  # the head of a trace is in the first one
_KEEP_SIZE, _PUNCH_HOLE = 1, 2


def punched(path: Path, end: int) -> None:
    """Discard what is in a file before byte `end`, but for its first page. Raises `UsageError` where that cannot be.

    Killed inside: the room is given back or not; nobody reads it again.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    file = os.open(path, os.O_RDWR)
    try:
        size = ctypes.c_int64(end - PAGE)
        if libc.fallocate(file, _KEEP_SIZE | _PUNCH_HOLE, ctypes.c_int64(PAGE), size):
            number = ctypes.get_errno()
            raise UsageError(f"cannot discard what was compared of {path}: {os.strerror(number)}", number)
    finally:
        os.close(file)
