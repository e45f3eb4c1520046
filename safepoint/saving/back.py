"""Give the files of an uncommitted set back, and mark a set as failed. Rule (3) of `saving`.

Nothing that the program has written anew is replaced, and nothing is deleted that W does not have.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator, Mapping

from safepoint.disk import Disk, SyncFailed
from safepoint.disk.files import entries, exists, listdir, move, read, remove_tree, stat_or_none, sync
from safepoint.disk.signals import uncut
from safepoint.errors import SaveError
from safepoint.record import Item, Record, label, parse_taken
from safepoint.root import Root, State, is_ours
from safepoint.saving.contents import ancestors, directories_up_to, make_parents
from safepoint.saving.prune import drop
from safepoint.sealed import Unsealed

Initial = Mapping[str, tuple[int, int]]  # size and time of each file that the first start found


class NotPutBack(SaveError):
    """Files of a set could not go back into W: what is there is no step of the program."""


def put_back(root: Root, number: int, what: str, state: State = "set", *, initial: Initial | None = None) -> str:
    """Move the files of an uncommitted set back into W, and remove the set with what is left of it: snapshots, of which
    W has the originals. `what` begins the error's text.

    Under the name of a file that was moved W may have another by now: the program wrote it, so it stays, and what was
    taken goes to `discarded/`, as the returned end of a message says. At a start it is the other way round where the
    file of the set is the `initial` one by size and time, and that of W is not.
    """
    kept = os.path.join(root.state(state, number), "files")
    aside: list[str] = []
    with (
        uncut(),
        _told(root, kept),
        root.reporting(SaveError, f"{what}; not put back", f"what is missing is in {root.shown(kept)}"),
    ):
        if state == "failed":
            # The name before its files leave it: else a power cut could bring back a committed set without them. That
            # this may fail too, on a disk that has failed, is no reason to keep the files from the program.
            with contextlib.suppress(SyncFailed):
                root.disk.sync_dir(root.path)
        if is_ours(root.disk, root.state(state, number), kept):  # behind a link are files of somebody else
            copies = _copies(root.disk, root.state(state, number))
            for item in copies:
                # What the set before has too: in W the program would write to the very file of that set.
                with contextlib.suppress(OSError):
                    if item.carried:
                        remove_tree(root.disk, os.path.join(kept, item.path))
            aside = _move_back(root, kept, "", {item.path for item in copies}, initial)
        drop(root, [number], state)
    if not aside:
        return ""
    where = root.shown(root.discarded)
    return f", but for what was written anew: what had been taken is in {where}: {', '.join(aside)}"


@contextlib.contextmanager
def _told(root: Root, kept: str) -> Iterator[None]:
    """It is `NotPutBack` only if W lacks a file: not if, say, all are back and the set could not be removed."""
    try:
        yield
    except SaveError as error:
        if missing(root, kept):
            raise NotPutBack(str(error), error.errno) from error
        raise


def missing(root: Root, kept: str, path: str = "") -> bool:
    """Whether a file below this directory of a set is not in W, or that cannot be seen."""
    try:
        for name, is_directory in entries(root.disk, os.path.join(kept, path)):
            inner = os.path.join(path, name)
            if missing(root, kept, inner) if is_directory else not exists(root.disk, os.path.join(root.work, inner)):
                return True
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return False


def _copies(disk: Disk, top: str) -> list[Item]:
    """What is only a copy in this set; nothing, if its list cannot be read: then it is kept like a file that moved."""
    with contextlib.suppress(OSError, Unsealed):
        return [item for item in parse_taken(read(disk, f"{top}/taken.json")).files if item.kind == "copy"]
    return []


def _move_back(
    root: Root, kept: str, path: str, snapshots: set[str], initial: Initial | None
) -> list[str]:  # fmt: skip
    """Move what is in this directory of a set into that of W; the names of what was set aside for it."""
    names, aside = listdir(root.disk, os.path.join(kept, path)), []
    for name in reversed(names):
        inner = f"{path}/{name}" if path else name
        one, other = os.path.join(kept, inner), os.path.join(root.work, inner)
        if not exists(root.disk, other):
            try:
                root.disk.rename(one, other)
                continue
            except OSError as error:
                if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):  # another rank was first with this directory
                    raise
        ours, theirs = root.disk.stat(one), root.disk.stat(other)
        if stat.S_ISDIR(ours.st_mode) and stat.S_ISDIR(theirs.st_mode):
            aside += _move_back(root, kept, inner, snapshots, initial)
        elif initial is not None and _is_initial(initial.get(inner), ours) > _is_initial(initial.get(inner), theirs):
            aside.append(inner)
            _set_aside_durably(root, inner)
            root.disk.rename(one, other)
        elif not any(inner == copy or inner.startswith(f"{copy}/") for copy in snapshots):
            aside.append(inner)
            _set_aside_durably(root, inner, one)
    if names:
        # The names in W before the set goes for good: else a power cut could leave the files without any.
        root.disk.sync_dir(os.path.join(root.work, path))
    return aside


def _set_aside_durably(root: Root, path: str, full: str = "") -> None:
    set_aside(root, path, full)
    # The new name before another file gets the old one, or the set goes: else a power cut could leave it without any.
    sync(root.disk, (), directories_up_to({os.path.dirname(os.path.join(root.discarded, path))}, {root.path}))


def _is_initial(row: tuple[int, int] | None, info: os.stat_result) -> bool:
    """Whether it is what the first start found. A directory is that if it holds such files."""
    return stat.S_ISDIR(info.st_mode) if row is None else (info.st_size, info.st_mtime_ns) == row


def set_aside(root: Root, path: str, full: str = "") -> None:
    """Move a file or directory of W, or what is at `full`, to `discarded/`, beside what may be there under its name."""
    if exists(root.disk, root.discarded) and not stat.S_ISDIR(root.disk.stat(root.discarded).st_mode):
        root.disk.remove(root.discarded)  # a link: W's files must not leave through it
    if not exists(root.disk, root.discarded):
        root.disk.mkdir(root.discarded, root.mode)
    target = os.path.join(root.discarded, path)
    for way in ancestors({os.path.dirname(path)}):
        there = os.path.join(root.discarded, way)
        if (info := stat_or_none(root.disk, there)) and not stat.S_ISDIR(info.st_mode):
            root.disk.rename(there, _free(root.disk, there))  # a link, say, that was set aside before
    make_parents(root.disk, target, root.discarded, root.mode_of)
    move(root.disk, full or os.path.join(root.work, path), _free(root.disk, target))


def _free(disk: Disk, path: str) -> str:
    """This path, or one beside it that nothing has."""
    name, n = path, 0
    while exists(disk, name):
        n += 1
        name = f"{path}~{n}"
    return name


def intact(previous: Record | None) -> str:
    """What still holds when a set could not be saved."""
    return f"{previous.label} is intact" if previous else "there is no earlier set"


def fail(root: Root, number: int) -> State:
    """Give a set a name that nobody restores, in one step: a kill must not leave a half that looks damaged.

    On error it may have its old name still.
    """
    failed = root.state("failed", number)
    if exists(root.disk, failed):  # of an earlier run, which had a set of this number too
        remove_tree(root.disk, failed)
    root.disk.rename(root.set(number), failed)
    return "failed"


def spoil(root: Root, number: int) -> bool:
    """For a set that cannot be renamed: take away what could vouch for it, or prove it whole, in this life or the next.
    Whether that is done; if not, its files must not leave it, as it may be committed."""
    try:
        root.disk.truncate(root.taken(number), 0)
        if exists(root.disk, root.record(number)):
            root.disk.remove(root.record(number))
            root.disk.sync_dir(root.set(number))
    except OSError:
        return False
    return True


def revoke(root: Root, number: int, what: str, *, initial: Initial | None = None) -> str:
    """Take back a set that another rank could not save or did not take: its files are in W again, and it is gone. As
    `put_back`."""
    with root.reporting(NotPutBack, f"{what}; not put back", f"what is missing is in {root.shown(root.set(number))}"):
        # A record must not vouch for files that are being moved out from under it.
        state: State = fail(root, number) if exists(root.disk, root.record(number)) else "set"
    return put_back(root, number, what, state, initial=initial)


def save_error(
    root: Root, number: int, step: int | None, error: Exception, holds: str, kind: type[SaveError] = SaveError
) -> SaveError:
    text = f"{label(number, step)} not stored: {cause_of(root, error)}; {holds}"
    return kind(text, getattr(error, "errno", None))


def cause_of(root: Root, error: BaseException) -> str:
    if isinstance(error, OSError):
        return root.said(error)
    return str(error) or type(error).__name__
