"""Remove what a newer set makes superfluous. Rule (2) of `saving`."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence

from safepoint.disk.files import exists, listdir, read, remove_files, remove_tree
from safepoint.record import Record, parse_record
from safepoint.retention import EVERY, Fact, Keep
from safepoint.root import Root, State
from safepoint.sealed import Unsealed

logger = logging.getLogger("safepoint")
SPARES = 2  # pairs of directories that are kept for the next sets


class Sets:
    """The sets below a root, as the last prune has left them, so that the next need not look for them."""

    def __init__(self) -> None:
        self.committed: list[int] = []
        self.others: list[int] = []
        self.left: list[int] = []  # of those that were given up, what could not be removed
        # Sets that could not be stored: the error, which says where their files are, until the program is told of it;
        # then the newest set of that moment. The files go when a set is committed that was taken after that.
        self.failures: dict[int, BaseException | int] = {}
        self.facts: dict[int, Fact | None] = {}
        self.pruned: list[int] = []  # since somebody took note of it
        # These stay: other nodes have copies of them, and may have none of newer ones. Without the parts that are here,
        # the copies of a lost node's would be of no set.
        self.held: frozenset[int] = frozenset()
        self.ended = 0
        # Of those that were given up, whose directories are empty now and of use to the next set: to make new ones may
        # take as long as the disk takes to write its log (XFS). `own`: these too, and what is still being emptied.
        self.spare: deque[int] = deque()
        self.own: set[int] = set()
        self._now: object = object()  # another one with each doubt; of any thread, so nothing is counted
        self._known: object = None  # that of the last prune

    def doubt(self) -> None:
        """Something has failed, or was put back: the next prune looks again."""
        self._now = object()

    def failed(self, number: int, why: BaseException | int) -> None:
        """This set could not be stored. `why`: its error, or, if the program is told here and now, the newest set."""
        self.failures[number] = why
        self.doubt()

    def told(self, error: BaseException | None, newest: int) -> None:
        """The program has been told of this error, when this was the newest set."""
        for number, why in list(self.failures.items()):
            if why is error:
                self.failures[number] = newest

    def may_go(self, number: int, newest: int) -> bool:
        """Whether the program needs nothing of this set when that one is committed."""
        why = self.failures.get(number, 0)
        return isinstance(why, int) and newest > why

    def forget(self, ended: int) -> None:
        """A restart looks at all that is there, and may use numbers again. Sets up to `ended` are those of a run that
        was finished."""
        self.ended = ended
        for each in (self.left, self.failures, self.spare, self.own, self.facts):
            each.clear()
        self.doubt()

    def begin(self, root: Root, number: int) -> bool:
        """Whether spare directories could be made those of this new set: its own, and `files/` in it."""
        while self.spare:
            spare = self.spare.popleft()
            try:
                root.disk.rename(root.state("gone", spare), root.set(number))
                return True
            except OSError:  # somebody removed it, or there is something of this name
                self.doubt()
            finally:
                self.own.discard(spare)
        return False

    def end(self, root: Root) -> None:
        """No set will come any more."""
        while self.spare and root.is_ours():
            with contextlib.suppress(OSError):
                remove_tree(root.disk, root.state("gone", self.spare.popleft()))

    def fact(self, root: Root) -> Callable[[int], Fact | None]:
        """What a rule of `keep` may know of a set; None if it is damaged. It is read once, and `OSError` is raised."""

        def of(number: int) -> Fact | None:
            if number not in self.facts:
                data = read(root.disk, root.record(number))
                self.facts[number] = None
                with contextlib.suppress(Unsealed):
                    record = parse_record(data)
                    self.facts[number] = Fact(number, record.step, record.time, record.extra)
            return self.facts[number]

        return of

    def learn(self, committed: list[int], others: list[int]) -> None:
        """A restart has found these, and nothing else that could be removed."""
        self.committed, self.others, self._known = committed, others, self._now

    def look(self, root: Root, newest: int) -> None:
        """Find those up to `newest`. What is newer waits, or is being taken."""
        self.committed, self.others = [], []
        for number in root.numbers("set"):
            if number <= newest:
                (self.committed if exists(root.disk, root.record(number)) else self.others).append(number)

    @contextlib.contextmanager
    def changing(self) -> Iterator[bool]:
        """While this prunes; whether it must look first. An error is a doubt."""
        known, now, self._known = self._known, self._now, None
        yield known is not now
        self._known = now


def prune(
    root: Root, record: Record, keep: Keep, agreed: int, sets: Sets | None = None, *, just_committed: bool = True
) -> None:
    """Remove what `record` makes superfluous. `agreed`: the newest set that all ranks have committed, as far as this
    one knows. `sets`: what the last prune of this session has left; it is told what was removed.
    `just_committed`: `record` was committed just now, so what is left of a set that failed before goes too.

    What a rule of `keep` wants stays. That takes nothing from rule (2), as it only ever makes the list of those that go
    shorter: the newest, and the newest that all ranks have, are never on it. The rules look at what all ranks have
    alike, so the same old sets stay on all; but for a set that one of them could not store.
    Killed inside, or failing: nothing is lost but space, and the next prune or restore goes on.
    """
    sets = sets or Sets()
    with sets.changing() as looks:
        if looks:
            sets.look(root, record.number)
        elif just_committed:
            sets.committed.append(record.number)
        sets.facts[record.number] = Fact(record.number, record.step, record.time, record.extra)
        mine = [number for number in sets.committed if number > sets.ended]
        ended = [number for number in sets.committed if number <= sets.ended] if keep.newest < EVERY else []
        known = *ended, *keep.superfluous(mine, sets.fact(root)), *sets.others, *sets.left
        going = [number for number in known if number < agreed and number not in sets.held]
        old = [number for number in going if sets.may_go(number, record.number)]
        drop(root, old)
        sets.pruned += [number for number in sets.committed if number in old]
        told = all(sets.may_go(number, record.number) for number in sets.failures)
        if looks and just_committed:
            drop(root, [n for n in root.numbers("failed") if sets.may_go(n, record.number)], "failed")
        if looks and exists(root.disk, root.baseline):  # it speaks of the time before the first set
            root.disk.remove(root.baseline)
        if old:
            for some in (sets.committed, sets.others, sets.left):
                for number in {*old} & {*some}:
                    some.remove(number)
            for number in old:
                sets.facts.pop(number, None)
        _remove_second_copies(root, record)
        gone = [n for n in root.numbers("gone") if n not in sets.own] if looks else []
        for number in (n for n in gone if n <= record.number):  # what is newer the program may be removing itself
            with contextlib.suppress(OSError):  # what could not be removed before may still not be
                remove_tree(root.disk, root.state("gone", number))
        if looks and not (just_committed and told and max(gone, default=0) <= record.number):
            sets.doubt()


def give_up(root: Root, number: int, sets: Sets) -> None:
    """Remove a set that was never stored, since a newer one was taken on all ranks. In a thread that nobody waits for.

    Nothing of it is flushed: it has no record, so a power cut cannot make it look like damage. Its directories stay,
    empty, for a set to come.
    """
    sets.own.add(number)
    kept = False
    try:
        for path in _put_away(root, [number], "set"):
            keep = (path, f"{path}/files") if len(sets.spare) < SPARES else ()
            remove_tree(root.disk, path, keep=keep)
            if keep and listdir(root.disk, keep[0]) + listdir(root.disk, keep[1]) != ["files"]:
                raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), path)  # NFS: somebody has a file open
            if kept := bool(keep):
                sets.spare.append(number)
    except FileNotFoundError:  # a prune was first, or is at it
        sets.doubt()
    except BaseException as error:  # it is space, and the next prune tries again
        sets.left.append(number)
        sets.doubt()
        if not isinstance(error, OSError):
            raise
        logger.warning("set %d, of which nobody needs anything, not removed: %s", number, error)
    finally:
        if not kept:
            sets.own.discard(number)


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
    """Remove sets. First each gets a name that nobody restores: a kill must not leave a half that looks damaged, nor
    must a power cut, or bring one of them back."""
    gone = _put_away(root, numbers, state)
    if gone:
        # These names before anything in them goes: else a power cut could bring back a set without its files, or, after
        # a restore, one that this rank alone has, from a history that was given up.
        root.disk.sync_dir(root.path)
    for path in gone:
        remove_tree(root.disk, path)


def _end_in_place(root: Root, top: str) -> None:
    """Take away what could vouch for a set that cannot be renamed. The list first: without it no restart completes a
    set that has lost its record."""
    for name in ("taken.json", "record.json"):
        if exists(root.disk, f"{top}/{name}"):
            root.disk.remove(f"{top}/{name}")
            root.disk.sync_dir(top)  # in this order, whatever a power cut leaves


def _put_away(root: Root, numbers: Sequence[int], state: State) -> list[str]:
    """Under a name that nobody restores; which."""
    gone = []
    for number in numbers:
        path = root.state("gone", number)
        try:
            root.disk.rename(root.state(state, number), path)
        except FileNotFoundError:  # somebody removed it by hand
            continue
        except OSError as error:
            if error.errno == errno.EXDEV:  # it came with the image below an overlay: it ends where it is
                _end_in_place(root, path := root.state(state, number))
                gone.append(path)
                continue
            if not exists(root.disk, path):
                raise
            remove_tree(root.disk, path)  # of an earlier run, which had a set of this number too
            root.disk.rename(root.state(state, number), path)
        gone.append(path)
    return gone
