"""Who drives the graphs of a directory: one process, by a kernel lock, as `owner` takes it for save points."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections.abc import Iterator

from safepoint.disk import Disk
from safepoint.disk.files import cause, exists, listdir, read, remove_tree
from safepoint.errors import FormatError, LockedError, SaveError, UsageError
from safepoint.owner import Waiting, claim
from safepoint.patterns import SIDE
from safepoint.root import Root, refuse_link
from safepoint.sealed import write_durably
from safepoint.tasks import names

logger = logging.getLogger("safepoint")
LATELY_S = 3600.0
_one = threading.Lock()  # of the two below
_taking: set[str] = set()  # what a thread of this process is about to hold
_held: dict[str, tuple[int, int]] = {}  # the locks of this process: device and inode of each, by directory


class _Root(Root):
    """The names of the lock and of its owner, as `owner` wants them."""

    def __init__(self, directory: str, disk: Disk) -> None:
        super().__init__(os.path.dirname(os.path.dirname(directory)), disk=disk)
        self._lie_in(directory)


@contextlib.contextmanager
def held(directory: str, disk: Disk) -> Iterator[None]:
    """Inside, this process drives the store. `LockedError`, `FormatError`: nothing was changed in it."""
    if os.path.basename(os.path.dirname(directory)) != SIDE:
        raise UsageError(f"{directory} is no store of tasks: it lies in a directory {SIDE}")
    with _one:  # another thread is told the same before it is held and after
        if directory in _held or directory in _taking:
            text = f"{directory} is in use by this very process: one graph runs at a time; nothing was changed"
            raise LockedError(text)
        _taking.add(directory)
    with contextlib.ExitStack() as leaving:
        try:
            _take(directory, disk, leaving)
        except OSError as error:
            text = f"no results can be kept in {directory}: {error.filename}: {cause(error)}; nothing was run"
            raise SaveError(text, error.errno) from error
        finally:
            _taking.discard(directory)
        try:
            yield
        finally:
            with contextlib.suppress(OSError):  # what stays is removed by the next driver
                _empty(disk, directory, names.LOOSE)


def _take(directory: str, disk: Disk, leaving: contextlib.ExitStack) -> None:
    root = _Root(directory, disk)
    refuse_link(disk, root.side)
    root.make_side()
    disk.sync_dir(root.work)  # its name: else a power cut could take all that is made durable below it
    _make(disk, root.side, directory)
    refuse_link(disk, directory)
    leaving.callback(_held.pop, directory, None)  # when the lock is free again, not before
    leaving.callback(claim(root, Waiting()))
    if root.locked is not None:
        _held[directory] = root.locked
    _check_format(disk, directory)
    for name in (names.DONE, names.LOOSE):
        _make(disk, directory, f"{directory}/{name}")
    _sweep(disk, directory)
    _settle(disk, directory)


def _make(disk: Disk, parent: str, path: str) -> None:
    if not exists(disk, path):
        with contextlib.suppress(FileExistsError):  # another process did it
            disk.mkdir(path)
        # Its name, as that of the side directory.
        disk.sync_dir(parent)


def _check_format(disk: Disk, directory: str) -> None:
    path = f"{directory}/{names.FORMAT}"
    if not exists(disk, path):
        write_durably(disk, path, names.TEXT)
        return
    text = read(disk, path, 1 << 10)
    if text != names.TEXT:
        said = text.decode("utf-8", "replace").strip()
        raise FormatError(f"{path} says {said!r}, and this safepoint knows 'tasks 1'; nothing was changed")


def _sweep(disk: Disk, directory: str) -> None:
    """Remove what runs before have left. A worker of such a run may be at work still: first the name goes, so that it
    cannot rename what is removed in part."""
    for name in listdir(disk, directory):
        if name.startswith(names.STAGE):
            with contextlib.suppress(FileNotFoundError):
                disk.rename(f"{directory}/{name}", f"{names.make(disk, directory, names.GONE)}/{name}")
    for name in listdir(disk, directory):
        if name.startswith(names.GONE):
            remove_tree(disk, f"{directory}/{name}")
    _empty(disk, directory, names.LOOSE)


def _settle(disk: Disk, directory: str) -> None:
    """Make durable what dead runs had handed over and not flushed: this run counts on it, and a power cut after its end
    would take it. Journals to which nothing was added for an hour the kernel has written by itself."""
    for name in listdir(disk, directory):
        path = f"{directory}/{name}"
        try:
            if name.startswith(names.JOURNAL) and time.time() - disk.stat(path).st_mtime < LATELY_S:
                disk.sync_files([path])
        except OSError as error:
            logger.warning("%s: %s; a power cut may take what an earlier run has kept there", path, cause(error))
    for path in (directory, f"{directory}/{names.DONE}"):  # names that a kill left before their flush, or a removal
        disk.sync_dir(path)


def _empty(disk: Disk, directory: str, below: str) -> None:
    remove_tree(disk, f"{directory}/{below}", keep={f"{directory}/{below}"})


def _let_go() -> None:
    """In a child: it must not hold the lock on when its parent has died. The descriptor stays, and leads elsewhere: to
    close it, as the lock's own object would do later, could then close another file of the child."""
    locks = set(_held.values())
    _held.clear()
    _taking.clear()
    if not locks:
        return
    with contextlib.suppress(OSError):
        nothing = os.open(os.devnull, os.O_RDONLY)
        for name in os.listdir("/dev/fd"):
            with contextlib.suppress(OSError):
                info = os.fstat(int(name))
                if (info.st_dev, info.st_ino) in locks:
                    os.dup2(nothing, int(name), inheritable=False)
        os.close(nothing)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_let_go)
