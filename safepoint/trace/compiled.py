"""The code of wrappers, compiled once: it is the same in each rank of each run, and to compile it takes longer than all
else that the tracer does at its beginning."""

from __future__ import annotations

import contextlib
import hashlib
import marshal
import os
import sys
import tempfile
from importlib.util import MAGIC_NUMBER
from pathlib import Path
from types import CodeType

from safepoint.c import cache
from safepoint.errors import UsageError


def compiled(source: str, filename: str) -> CodeType:
    """As `compile(source, filename, "exec")`. What is kept is known by the source and this Python, and begins with its
    own digest; a file of another user, and one that is not whole, are as none. Where none can be kept nothing fails."""
    about = f"{sys.version}\0{sys.flags.optimize}\0{filename}\0".encode() + MAGIC_NUMBER + source.encode()
    try:
        path = cache(f"wrappers-{hashlib.sha256(about).hexdigest()[:16]}.marshal")
    except UsageError:  # there is no place that is the user's alone
        return compile(source, filename, "exec")
    with contextlib.suppress(OSError, ValueError, EOFError, TypeError):
        return _read(path)
    code = compile(source, filename, "exec")
    with contextlib.suppress(OSError):
        _keep(path, marshal.dumps(code))
    return code


def _read(path: Path) -> CodeType:
    with open(path, "rb") as file:
        if hasattr(os, "geteuid") and os.fstat(file.fileno()).st_uid != os.geteuid():  # Windows has none
            raise ValueError("another user's")
        digest, body = file.read(32), file.read()
    if hashlib.sha256(body).digest() != digest:
        raise ValueError("not whole")
    found = marshal.loads(body)
    if not isinstance(found, CodeType):
        raise TypeError("no code")
    return found


def _keep(path: Path, body: bytes) -> None:
    """Whole, or not at all: many ranks may be at it."""
    descriptor, made = tempfile.mkstemp(dir=path.parent)
    try:
        with open(descriptor, "wb") as file:
            file.write(hashlib.sha256(body).digest() + body)
        os.replace(made, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.remove(made)
        raise
