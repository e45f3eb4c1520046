"""Build once what many tests need: the first process that asks builds it, all others take what lies there.

A build is keyed by its command and by all sources that it may read, and counts when it is whole. It stays in
`build/compiled` until `make clean`, so that a second run compiles nothing.
"""

from __future__ import annotations

import functools
import hashlib
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

from filelock import FileLock

from testbed.paths import HOUSE


@functools.cache
def home() -> Path:
    """Return the directory of all builds; where the repository cannot be written, one for each user."""
    mine = HOUSE / "build" / "compiled"
    try:
        mine.mkdir(parents=True, exist_ok=True)
    except OSError:
        mine = Path(tempfile.gettempdir(), f"safepoint-compiled-{os.getuid()}")
    if not os.access(mine, os.W_OK):
        mine = Path(tempfile.gettempdir(), f"safepoint-compiled-{os.getuid()}")
    mine.mkdir(mode=0o700, exist_ok=True)
    return mine


@functools.cache
def digest_of(*paths: Path) -> str:
    """Digest the text of these files, and of all files below these directories."""
    found = hashlib.sha256()
    for path in paths:
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if file.is_file() and "__pycache__" not in file.parts:
                found.update(str(file.relative_to(path)).encode() + b"\0" + file.read_bytes() + b"\0")
    return found.hexdigest()


@functools.cache
def version(compiler: str) -> str:
    """Return where a compiler lies, and when it was changed: another version is another build."""
    path = os.path.realpath(shutil.which(compiler) or compiler)
    return f"{path} {os.stat(path).st_mtime_ns if os.path.exists(path) else ''}"


def built_once(name: str, key: Iterable[object], make: Callable[[Path], object]) -> Path:
    """Return the directory that `make` fills when nobody has filled it for this key yet.

    `make` gets the directory under the name that it keeps, so that paths in what it builds stay true. Killed inside,
    the next process begins anew.
    """
    words = [sys.executable, str(HOUSE), os.environ.get("LD_LIBRARY_PATH", ""), *map(str, key)]
    digest = hashlib.sha256("\0".join(words).encode()).hexdigest()[:16]
    place = home() / f"{name}-{digest}".replace(" ", "_")
    whole = place / ".whole"
    if not whole.exists():
        with FileLock(f"{place}.lock"):
            if not whole.exists():
                shutil.rmtree(place, ignore_errors=True)
                place.mkdir()
                make(place)
                whole.touch()
    return place
