"""The functions of the package: they act on the session that the last `init` made."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, NoReturn, SupportsIndex

from safepoint.callbacks import OnDurable, OnFailed
from safepoint.errors import ManifestError, UsageError
from safepoint.kept import StoredSet
from safepoint.ledger.log import MODIFY
from safepoint.listener import SavePoint
from safepoint.program import Session
from safepoint.root import REAL
from safepoint.state.one_file import replacing
from safepoint.state.variables import State, list_state

if TYPE_CHECKING:
    from pathlib import Path

_default: Session | None = None
_refused = ""  # where the last init failed, and why: then the default session is not the one that is meant


marked: Callable[[], None] | None = None  # what a tracer has registered


def init(
    directory: str | os.PathLike[str] = ".", *, comm: Any = None, saver: int | None = 0,
    coordinate: bool | None = None, keep: int | str | None = None, background: bool = True, inflight: str = "warn",
    signals: Sequence[str | int] = (), stop_at: str | float | None = None, stop_after: str | float | None = None,
    store: str | None = None, on_durable: OnDurable | None = None, on_failed: OnFailed | None = None,
) -> Session:  # fmt: skip
    """Begin: read `.safepoint` in `directory` and take its lock.

    `keep`: how many complete sets stay, or a text with rules, such as "2 + every 100 steps + best 3 by loss" (default:
    the manifest's setting, else 2). `background=False`: every `hide` waits until its set is durable. `store="every"`:
    every set is stored, so `hide` waits for the one before; else a set that waits for the saver gives way to a newer
    one (default: the manifest's setting, else "newest"). On return the session is the default of the module's
    functions. On error nothing was changed: `ManifestError`, `LockedError` (another run is at work here),
    `FormatError`, `SaveError`, `UsageError`, `DamagedError` (what had the sets is gone; else that is an error of
    `restore`).

    `on_durable(set)` is called when a set survives a power cut, `on_failed(set, error)` when one could not be stored:
    in the thread of the program, at the end of its next verb (`sets()` says what a set is), not at the end of the
    process. What they raise is logged. With ranks that coordinate they may call no verb that all must call.

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
            on_durable=on_durable, on_failed=on_failed,
        )  # fmt: skip
    except BaseException as error:
        # A session at work in that very directory is the one that is meant. (With ranks: perhaps not on all of them.)
        why = (str(error) or type(error).__name__).partition("\n")[0]
        _refused = "" if comm is None and _works_in(directory) else f"in {directory} ({why})"
        raise
    _refused = ""
    return _default


def restore(
    *, step: SupportsIndex | None = None, set: SupportsIndex | None = None,
    progress: Callable[[int, int], object] | None = None,
) -> SavePoint | None:  # fmt: skip
    """Put the last complete set back into place; or that of this `step`, or the set of this number.

    Call it once after `init`, before the program reads its files. Returns that set; one with `finished` true if the run
    was finished, and the files in place are the result; None if there never was a set: a first start. With `step` or
    `set` newer sets are removed. `progress` is called with the bytes read and those of the set. Killed inside: call it
    again. Collective.

    Raises:
        DamagedError: there are sets, but none is whole, or not the one asked for. No file was touched.
        RestoreError: the disk failed. What holds is said.
        UsageError: there is no such set; or the sets are of another number of ranks.
    """
    return _session("restore").restore(step=step, set=set, progress=progress)


def hide(
    step: SupportsIndex | None = None, *, wait: bool | str = False, extra: Mapping[str, Any] | None = None
) -> SavePoint | None:
    """Move the listed files into safekeeping as one set, labelled `step`.

    The files must be closed, and belong together. On return they are out of the way and safe from the death of the
    program; a thread stores them. With `wait` they are safe from power loss too, with `wait="partner"` from the loss of
    one node (the setting `partner`), with `wait="remote"` from that of all: the set is at the place of the setting
    `remote`. `extra`: a few JSON values, such as `{"loss": 0.3}`, that `restore` and `sets` give back. Returns None if
    none of the files exists. Collective.

    Raises:
        SaveError: the set was not taken, or the set before could not be stored. Where the files are is said. Or the set
            is not at the remote place: then it is durable here.
        MissingFilesError: some of the files exist, and others do not.
        RefusedFileError: what cannot be saved, such as a file that another process writes to.
        UsageError: the step is no integer; or sets are here, and `restore` was not called.
    """
    return _session("hide").hide(step, wait=wait, extra=extra)


def wait(level: str = "local", timeout: float | None = None) -> None:
    """Return when everything hidden so far is durable: it survives a power cut. Collective.

    With level "partner": when the newest set is on the disks of two nodes. With "remote": when it is at the place of
    the setting `remote`.

    Raises:
        SaveError: a set could not be stored. Where its files are is said. Or it is not there after `timeout` seconds,
            or, without one, as soon as something hinders that: then it is durable here.
        UsageError: "partner" or "remote" without that setting.
    """
    _session("wait").wait(level, timeout)


def finish(step: SupportsIndex | None = None) -> None:
    """Declare the files now in place the result of the run, and end the session.

    On return they are durable, the sets are gone, and a later `restore` leaves the files alone. On error files and sets
    are as they were. Collective.

    Raises:
        SaveError: the files could not be made durable.
        MissingFilesError: there is nothing that could be the result, or only a part.
        UsageError: sets are here, and `restore` was not called.
    """
    _session("finish").finish(step)


def close() -> None:
    """End the session, and leave everything for the next start. Waits for the set that is being stored.

    Without it the end of the process does the same. Not collective: a rank that fails must not wait for the others.

    Raises:
        SaveError: that set could not be stored. Where its files are is said.
    """
    _session("close").close()


def save_state(step: SupportsIndex, /, **state: Any) -> SavePoint:
    """Save these variables, labelled `step`: arrays of numpy, numbers, strings, lists and dicts of them, generators.

        safepoint.save_state(step, u=u, rng=rng)

    They are written to `state.npz` (`state-{rank}.npz` with ranks), which numpy alone can read, and that is hidden with
    all else that is listed. On return they are safe from the death of the program. Collective.

    Raises:
        UsageError: naming what cannot be kept, or the step; or `load_state` was not called. Nothing was changed.
        SaveError: as `hide`.
    """
    return _session("save_state").save_state(step, **state)


def load_state(directory: str | os.PathLike[str] = ".", **options: Any) -> State | None:
    """The variables of the last complete set, or of the result; None at a first start.

        state = safepoint.load_state()
        step, u, rng = (state.step, state["u"], state["rng"]) if state else (0, initial(), default_rng(1))

    A dict of them by name, with the attributes `step` and `finished`. If there is no session yet, one is begun: with
    these arguments of `init`, and, if there is no manifest, with one that lists the state alone. Collective.

    Raises:
        MissingFilesError: that set was saved without `save_state`.
        FormatError: its file is none that `save_state` has written.
        UsageError: there is a session, and arguments for another one.
        SafepointError: as `init` and `restore`.
    """
    begun = _default is not None and not _default._closed and not _refused
    named = os.fspath(directory) != "."
    if begun and (options or (named and os.path.realpath(directory) != _session("load_state")._root.work)):
        raise UsageError("load_state takes the arguments of init, and a session was begun before: call it without them")
    if not begun:
        try:
            init(directory, **options)
        except ManifestError as error:  # the same on all ranks
            if "no manifest" not in str(error):
                raise
            comm: Any = options.get("comm")
            saver = options.get("saver", 0)
            shared = saver is not None and comm is not None and comm.Get_size() > 1
            if not shared or comm.Get_rank() == saver:
                list_state(REAL, directory, per_rank=shared)
            init(directory, **options)
    return _session("load_state").load_state()


def atomic(
    path: str | os.PathLike[str], mode: str = "w", *, encoding: str | None = None
) -> AbstractContextManager[Any]:
    """Write one file as a whole or not at all: for those who need no more than that. There need be no session.

        with safepoint.atomic("result.json") as file:
            json.dump(result, file)

    It takes this name when the block has ended, and is durable then. After an error in the block, or a kill, the old
    file of that name is there as it was (after a kill also, perhaps, a hidden one that ends with `.new`). `mode`: "w"
    or "wb"; `encoding`: UTF-8 if none is given.

    Raises:
        SaveError: the disk failed.
        UsageError: another mode.
    """
    return replacing(REAL, path, mode, encoding)


def sets() -> list[StoredSet]:
    """The sets that are there, newest first: those of this rank. Nothing is changed. Not collective.

    Raises:
        UsageError: there is no session.
    """
    return _session("sets").sets()


def reading(
    which: SupportsIndex | StoredSet, *, directory: str | os.PathLike[str] | None = None
) -> AbstractContextManager[Path]:
    """The files of an older set, read-only, in a temporary directory (below `directory`) as long as the block lasts.

        with safepoint.reading(12) as old:
            u = numpy.load(old / "u.npy")

    The run is not touched, and its sets are not. Not collective: the files of this rank.

    Raises:
        NothingSavedError: there is no such set, or it was removed meanwhile.
        DamagedError: it is not whole.
    """
    return _session("reading").reading(which, directory=directory)


def due() -> bool:
    """Whether it is time to save: call it once in every step, right before the files would be written and hidden.

    By the setting `every` of the manifest: `every = 100 steps`, `every = 15min`, or `auto`, the default, by what saves
    cost here and how often the run fails. Collective, though most calls only count.

    Raises:
        UsageError: there is no session, or it has ended.
    """
    return _session("due").due()


def should_stop() -> bool:
    """Whether this process had better save and end: the time limit is near, a signal came, or `safepoint halt` asked.

    Call it once in every step; then `hide`, and `stop`. Collective, though most calls only count.

    Raises:
        UsageError: there is no session, or it has ended.
    """
    return _session("should_stop").should_stop()


def stop() -> NoReturn:
    """End the process so that it can be started again from the last set: with status 75, or 79 after `safepoint halt`.

    Waits until everything hidden is durable. Collective.

    Raises:
        SystemExit: with that status.
        SaveError: a set could not be stored; the process does not end.
    """
    _session("stop").stop()


def watch(step: SupportsIndex, /, **values: Any) -> None:
    """Note digests of these values at `step`, in the ledger, to compare two runs: see `safepoint compare`.

    Only with `ledger = modify` or more; otherwise nothing is done, in less than a microsecond. Not collective.

    Raises:
        UsageError: for what is no number, and no array.
    """
    if _default is None or _refused:
        _session("watch")
    elif _default._scribe.ledger.level >= MODIFY:
        _default.watch(step, **values)


def mark() -> None:
    """Name this line as one where the program might call `hide`: `safepoint places` judges it as if it did.

    Without `safepoint trace` nothing is done. Not collective. It raises nothing.
    """
    if marked is not None:
        marked()


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
