"""Crash-safe save points for long computations.

    import safepoint

    safepoint.init()                          # reads ./.safepoint, the list of files
    saved = safepoint.restore()               # puts the last complete set back into place
    if saved and saved.finished:
        raise SystemExit                      # with status 0: the files in place are the result
    u = read_files() if saved else initial()
    for step in range(saved.step if saved else 0, n):
        safepoint.hide(step=step)             # the files hold `step`; they move away in microseconds
        u = advance(u)
        write_files(u)                        # new files, under the same names
    safepoint.finish(step=n)                  # the files now in place are the result

Kill the program at any instant and start it again: `restore` gives back all listed files of one save point, byte for
byte, never torn and never mixed. The functions act on the session that the last `init` made and returned; after an
`init` that failed they refuse, until one succeeds.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, NoReturn, SupportsIndex

from safepoint.errors import (
    DamagedError,
    FormatError,
    LockedError,
    ManifestError,
    MissingFilesError,
    NothingSavedError,
    OverwrittenError,
    RefusedFileError,
    RestoreError,
    SafepointError,
    SaveError,
    UsageError,
)
from safepoint.ledger.log import MODIFY
from safepoint.listener import SavePoint
from safepoint.program import Session
from safepoint.session import __version__

__all__ = [
    "DamagedError", "FormatError", "LockedError", "ManifestError", "MissingFilesError", "NothingSavedError",
    "OverwrittenError", "RefusedFileError", "RestoreError", "SafepointError", "SaveError", "SavePoint", "Session",
    "UsageError", "__version__", "due", "finish", "hide", "init", "restore", "should_stop", "stop", "wait", "watch",
]  # fmt: skip

_default: Session | None = None
_refused = ""  # where the last init failed, and why: then the default session is not the one that is meant


def init(
    directory: str | os.PathLike[str] = ".", *, comm: Any = None, saver: int | None = 0,
    coordinate: bool | None = None, keep: int | None = None, background: bool = True, inflight: str = "warn",
    signals: Sequence[str | int] = (), stop_at: str | float | None = None, stop_after: str | float | None = None,
    store: str | None = None,
) -> Session:  # fmt: skip
    """Begin: read `.safepoint` in `directory` and take its lock.

    `keep`: how many complete sets stay (default: the manifest's setting, else 2). `background=False`: every `hide`
    waits until its set is durable. `store="every"`: every set is stored, so `hide` waits for the one before; else a set
    that waits for the saver gives way to a newer one (default: the manifest's setting, else "newest"). On return the
    session is the default of the module's functions. On error nothing was changed: `ManifestError`, `LockedError`
    (another run is at work here), `FormatError`, `SaveError`, `UsageError`, `DamagedError` (what had the sets is gone;
    else that is an error of `restore`).

    With `comm`, an intracommunicator of mpi4py, all its ranks call this, and all return or all raise the same. Files
    listed with `{rank}` belong to each rank, all others to the rank `saver`. `saver=None`: every rank has a directory
    of its own, and all that is listed there. The ranks agree on every set, unless `coordinate=False`: then each saves
    and restores at its own pace. `inflight`: what to do about a message of `comm` that was sent before `hide` and not
    received: "warn", "error" or "off".

    For `should_stop`: `signals`, names or numbers, are caught from now on to the end of the session, and the program's
    own handlers still called; Ctrl-C ("SIGINT") asks the first time, and interrupts the second. `stop_at`: a moment, as
    seconds since the epoch or a text; `stop_after`: seconds from now, or a text such as "11h 50min". The limit that a
    job scheduler has set counts without being named.
    """
    global _default, _refused
    try:
        _default = Session(
            directory, comm=comm, saver=saver, coordinate=coordinate, keep=keep, background=background,
            inflight=inflight, signals=signals, stop_at=stop_at, stop_after=stop_after, store=store,
        )  # fmt: skip
    except BaseException as error:
        # A session at work in that very directory is the one that is meant. (With ranks: perhaps not on all of them.)
        why = (str(error) or type(error).__name__).partition("\n")[0]
        _refused = "" if comm is None and _works_in(directory) else f"in {directory} ({why})"
        raise
    _refused = ""
    return _default


def restore(*, progress: Callable[[int, int], object] | None = None) -> SavePoint | None:
    return _session("restore").restore(progress=progress)


def hide(step: SupportsIndex | None = None, *, wait: bool = False) -> SavePoint | None:
    return _session("hide").hide(step, wait=wait)


def wait() -> None:
    _session("wait").wait()


def finish(step: SupportsIndex | None = None) -> None:
    _session("finish").finish(step)


def due() -> bool:
    return _session("due").due()


def should_stop() -> bool:
    return _session("should_stop").should_stop()


def stop() -> NoReturn:
    _session("stop").stop()


def watch(step: SupportsIndex, /, **values: Any) -> None:
    if _default is None or _refused:
        _session("watch")
    elif _default._scribe.ledger.level >= MODIFY:
        _default.watch(step, **values)


def _works_in(directory: str | os.PathLike[str]) -> bool:
    try:
        return bool(_default and not _default._closed and _default._root.work == os.path.realpath(directory))
    except (OSError, TypeError, ValueError):  # it is none
        return False


def _session(verb: str) -> Session:
    if _refused:
        raise UsageError(f"{verb} after an init that failed, {_refused}: call init again; nothing was changed")
    if _default is None:
        raise UsageError(f"{verb} before init: call safepoint.init() first")
    return _default


for _verb in (restore, hide, wait, due, should_stop, stop, watch, finish):
    _verb.__doc__ = getattr(Session, _verb.__name__).__doc__
