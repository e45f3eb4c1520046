"""One file, written as a whole or not at all: for those who need no more."""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Iterator
from typing import Any

from safepoint.disk import Disk
from safepoint.disk.files import cause, stat_or_none, sync
from safepoint.errors import SaveError, UsageError

MODES = ("w", "wb", "wt")


@contextlib.contextmanager
def replacing(disk: Disk, path: str | os.PathLike[str], mode: str, encoding: str | None) -> Iterator[Any]:
    """A new file, open for writing, that takes this name when the block has ended well, and is durable then.

    Killed inside: the file of this name is the old one, or the new one, whole; a file that ends with `.new` may stay.
    """
    if mode not in MODES:
        raise UsageError(f'atomic takes the mode "w" or "wb", not {mode!r}')
    target = os.path.realpath(path)  # through a link, as open() would
    top, name = os.path.split(target)
    new = os.path.join(top, f".{name}.{os.urandom(6).hex()}.new")
    with contextlib.ExitStack() as on_error, contextlib.ExitStack() as opened:
        with _reporting(target):
            raw = opened.enter_context(disk.create(new))
            on_error.callback(_remove, disk, new)
            before = stat_or_none(disk, target)
        file: Any = io.BufferedWriter(raw)
        yield (text := io.TextIOWrapper(file, encoding or "utf-8")) if mode != "wb" else file
        with _reporting(target):
            (file if mode == "wb" else text).flush()
            if before is not None:
                disk.set_mode_and_time(new, before.st_mode, disk.stat(new).st_mtime_ns)
            sync(disk, [new], (), {new: raw})  # before its name: else a power cut could leave that of an empty file
            opened.close()
            disk.rename(new, target)
            on_error.pop_all()
            disk.sync_dir(top)


def _remove(disk: Disk, path: str) -> None:
    with contextlib.suppress(OSError):
        disk.remove(path)


@contextlib.contextmanager
def _reporting(target: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise SaveError(
            f"{target} not written: {cause(error)}; the file of that name is as it was, or the new one, whole",
            error.errno,
        ) from error
