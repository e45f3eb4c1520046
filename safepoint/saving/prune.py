"""Remove what a newer set makes superfluous. Rule (2) of `saving`."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from safepoint.disk.files import exists, remove_files, remove_tree
from safepoint.record import Record
from safepoint.root import Root, State


class Sets:
    """The sets below a root, as the last prune has left them, so that the next need not look for them. It does if a
    number was left out: then a save has failed."""

    def __init__(self) -> None:
        self.committed: list[int] = []
        self.others: list[int] = []
        self.known = False

    def look(self, root: Root, newest: int) -> None:
        """Find those up to `newest`. The one after it may have been prepared."""
        self.committed, self.others = [], []
        for number in root.numbers("set"):
            if number <= newest:
                (self.committed if exists(root.disk, root.record(number)) else self.others).append(number)


def prune(
    root: Root, record: Record, keep: int, agreed: int, sets: Sets | None = None, *, just_committed: bool = True
) -> None:
    """Remove what `record` makes superfluous. `agreed`: the newest set that all ranks have committed, as far as this
    one knows. `sets`: what the last prune of this session has left. `just_committed`: `record` was committed just now,
    so what is left of a set that failed before goes too.

    Killed inside, or failing: nothing is lost but space, and the next prune or restore goes on.
    """
    sets = sets or Sets()
    looks = not (sets.known and sets.committed and sets.committed[-1] == record.number - just_committed)
    sets.known = False  # until all went well
    if looks:
        sets.look(root, record.number)
    elif just_committed:
        sets.committed.append(record.number)
    old = [number for number in (*sets.committed[:-keep], *sets.others) if number < agreed]
    drop(root, old)
    if looks and just_committed:
        drop(root, root.numbers("failed"), "failed")
    if looks and exists(root.disk, root.baseline):  # it speaks of the time before the first set
        root.disk.remove(root.baseline)
    if old:
        sets.committed, sets.others = ([n for n in some if n not in old] for some in (sets.committed, sets.others))
    _remove_second_copies(root, record)
    for number in root.numbers("gone") if looks else ():
        with contextlib.suppress(OSError):  # what could not be removed before may still not be
            remove_tree(root.disk, root.state("gone", number))
    sets.known = just_committed or not looks


def _remove_second_copies(root: Root, record: Record) -> None:
    """Only when it is committed: until then they were the set."""
    files = [file for file in record.files if file.kind == "file"]
    if files and all(file.kept != "raw" for file in files):
        if exists(root.disk, root.stored(record.number, "")):
            remove_tree(root.disk, root.stored(record.number, ""))
        return
    copies = [root.stored(record.number, file.path) for file in files if file.kept != "raw"]
    remove_files(root.disk, [path for path in copies if exists(root.disk, path)])


def drop(root: Root, numbers: Sequence[int], state: State = "set") -> None:
    """Remove sets. First each gets a name that nobody restores: a kill must not leave a half that looks damaged."""
    gone = []
    for number in numbers:
        path = root.state("gone", number)
        try:
            root.disk.rename(root.state(state, number), path)
        except FileNotFoundError:  # somebody removed it by hand
            continue
        except OSError:
            if not exists(root.disk, path):
                raise
            remove_tree(root.disk, path)  # of an earlier run, which had a set of this number too
            root.disk.rename(root.state(state, number), path)
        gone.append(path)
    if gone:
        # These names before anything in them goes: else a power cut could bring back a set without its files, or, after
        # a restore, one that this rank alone has, from a history that was given up.
        root.disk.sync_dir(root.path)
    for path in gone:
        remove_tree(root.disk, path)
