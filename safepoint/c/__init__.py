"""The library for C and Fortran: its sources, and what compiles them. A program that it serves has `foreign` beside."""

from __future__ import annotations

import functools
import logging
import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

from safepoint.errors import UsageError

logger = logging.getLogger("safepoint")


def cache(name: str) -> Path:
    """Where what is built under this name is kept from run to run; its directory is there on return.

    Files there are executed, so only this user and root may be able to write to them or to replace them: a cache that
    is shared, or was made with umask 000, is not used. Raises `UsageError` if there is no such place.
    """
    reasons = list[str]()
    for top in _tops():
        if top.is_absolute() and not (why := _refused(top) or _not_alone(top, top / name)):
            if reasons:
                _warn(f"{reasons[0]}: what is compiled is kept in {top}")
            return top / name
        reasons.append(why if top.is_absolute() else f"{top} is no absolute path")
    raise UsageError(f"nothing that is compiled can be kept: {'; '.join(reasons)}. Set XDG_CACHE_HOME to a directory "
                     f"that only you can write to")  # fmt: skip


def _tops() -> Iterator[Path]:
    home = Path(os.path.expanduser("~/.cache"))
    yield Path(os.environ.get("XDG_CACHE_HOME") or home, "safepoint")
    yield home / "safepoint"
    yield Path(tempfile.gettempdir(), f"safepoint-cache-{_user()}")


def _user() -> int:
    return os.geteuid() if hasattr(os, "geteuid") else 0  # Windows has none, and no such modes


def _refused(top: Path) -> str:
    """Create this directory if it is missing. Return why it must not be used, "" if only this user can change it."""
    try:
        for way in (*reversed(top.parents), top):  # each with this mode, whatever the umask
            if not way.exists():
                way.mkdir(mode=0o700, exist_ok=True)
        real = Path(os.path.realpath(top))
        return next(filter(None, map(others_may_write, [*reversed(real.parents), real])), "")
    except OSError as error:
        return f"{error.filename}: {error.strerror}"


def _not_alone(top: Path, path: Path) -> str:
    """Why what is there under its name, with all that it holds, may be somebody else's."""
    if not os.path.lexists(path):
        return ""
    inside = [os.path.join(way, each) for way, *names in os.walk(path) for each in (*names[0], *names[1])]
    return next(filter(None, map(others_may_write, [str(path), *inside])), "")


def others_may_write(path: str | Path) -> str:
    """Return who besides this user and root could change this file or directory, as text; "" if there is none."""
    if not hasattr(os, "geteuid"):
        return ""
    try:
        info = os.lstat(path)
    except OSError as error:
        return f"{path}: {error.strerror}"
    if info.st_uid not in (0, os.geteuid()):
        return f"{path} belongs to user {info.st_uid}"
    held = stat.S_ISDIR(info.st_mode) and info.st_mode & stat.S_ISVTX  # there each changes only what is their own
    own = info.st_gid == info.st_uid  # a group for each user, as many systems have
    if stat.S_ISLNK(info.st_mode) or held or not info.st_mode & (stat.S_IWOTH if own else stat.S_IWOTH | stat.S_IWGRP):
        return ""
    return f"others may write to {path} (mode {stat.S_IMODE(info.st_mode):04o})"


@functools.cache
def _warn(text: str) -> None:
    logger.warning("%s", text)
