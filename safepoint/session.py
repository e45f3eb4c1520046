"""The verbs, for one program in one directory: the only module that knows threads and writes the log.

    init --> open --restore--> ready --finish--> closed
               |                 |  ^
               +--hide, if the   +--+ hide, wait, restore (a roll-back)
                  directory has  |
                  no past        +--close, or the end of the process--> closed

Between two calls at most one set is in flight: taken, and being stored and committed by the saver thread. The next
`hide`, `wait`, `restore`, `finish` or `close` waits for it and raises its error, once.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import logging
import operator
import os
import reprlib
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotYet  # another one than Python's own before 3.11
from queue import SimpleQueue
from types import TracebackType
from typing import Any, NamedTuple, NoReturn, SupportsIndex, TypeVar, cast

from safepoint import codec, ledger, restore, save, store
from safepoint.choose import choose
from safepoint.disk import Disk
from safepoint.errors import (
    DamagedError,
    MissingFilesError,
    RestoreError,
    SafepointError,
    SaveError,
    UsageError,
)
from safepoint.interrupts import deliver, undisturbed
from safepoint.ledger import Ledger
from safepoint.manifest import EVERY, NAME, Entry
from safepoint.opening import Opening, check_same, new_life
from safepoint.ranks import LARGEST, Serial, code, groups, join, span
from safepoint.record import Item, Record, StoredFile, Taken, label, life_of, mark_key
from safepoint.restore import Candidate, Progress
from safepoint.stop import REQUEUE, Signals, limits, numbers
from safepoint.store import How
from safepoint.when import When

__version__ = "0.1.0"
logger = logging.getLogger("safepoint")
REAL = Disk()
PATIENCE = 0.1  # seconds of waiting between two looks whether a signal has come


class SavePoint(NamedTuple):
    """One set of files, as `hide` took it or `restore` gave it back.

    `step` is the program's own label, None if it gave none; `time` is when the set was taken, in seconds since the
    epoch; `files` are paths relative to the working directory. `finished`: the run was finished, and the files in place
    are its result.
    """

    number: int
    step: int | None
    time: float
    files: tuple[str, ...]
    finished: bool = False


Verb = TypeVar("Verb", bound=Callable[..., Any])


def _verb(verb: Verb) -> Verb:
    """What all ranks call together, from here on: nothing but an agreement may end it on one of them alone."""

    @functools.wraps(verb)
    def call(self: Session, *arguments: Any, **options: Any) -> Any:
        if self._left or os.getpid() != self._pid:  # there are no others to agree with any more
            self._check(verb.__name__.removeprefix("_decide_"))
        self._remember_failed()
        try:
            with self._ranks.undisturbed():
                return verb(self, *arguments, **options)
        except BaseException as error:
            if self._failed and (isinstance(error, SafepointError) or error is self._failed.exception()):
                self._failed = None  # it is told now; else a handler has raised instead
            raise
        finally:
            if self._closed:
                self._caught.remove()
            # With a saver they stay for the next set; a program without threads can fork undisturbed.
            if self._thread is None and verb.__name__ in ("restore", "hide", "finish"):
                self._disk.dismiss_helpers()

    return cast(Verb, call)


class Session:
    """One program at work in one directory. A context manager: it ends with `finish()`, or, on an exception, `close`.
    A block that knows its last step calls `finish(step)` itself, since files written after the last set have none."""

    def __init__(
        self, directory: str | os.PathLike[str] = ".", *, comm: Any = None, saver: int | None = 0,
        coordinate: bool | None = None, keep: int | None = None, background: bool = True, inflight: str = "warn",
        signals: Sequence[str | int] = (), stop_at: str | float | None = None, stop_after: str | float | None = None,
        in_place: bool = False, disk: Disk = REAL,
    ) -> None:  # fmt: skip
        """As `safepoint.init`. `in_place`: the files stay where they are, and a set is a snapshot of them: for programs
        that know nothing of this."""
        self._disk, self._pid = disk, os.getpid()
        self._ranks = join(comm)
        self._thread: _Saver | None = None
        self._flight: Future[Record] | None = None
        self._failed: Future[Record] | None = None  # that was in flight, and whose error this call raises
        self._committed: Record | None = None
        self._agreed = 0  # the newest set that all peers are known to have committed
        self._hidden = 0  # the newest set whose files are not in W
        self._warned: set[str] = set()
        self._in_vain = 0  # calls of hide in a row that found nothing
        self._closed, self._left = "", False
        self._adopted = False
        self._sets = save.Sets()
        self._began = time.time()  # until the first line of the log has said so
        self._at = ("", 0)  # where the program called hide for the set in flight
        # (set, seconds) of each hide, for the next line of the log: a write of its own would double what hide costs.
        # Bounded, for a program that goes on and on although no set can be taken.
        self._blocked: deque[tuple[int, float]] = deque(maxlen=64)
        self._when: When | None = None  # before the program asks when to save, or to stop
        self._due: dict[str, Any] = {}  # what the log says of that for the set in flight
        self._caught = Signals(())
        self._release: Callable[[], object] = lambda: None  # the lock, when it is held
        try:
            with self._ranks.undisturbed():
                caught, self._limits = self._ranks.together(
                    lambda: (numbers(signals), limits(stop_at, stop_after, self._began, os.environ))
                )
                self._open(directory, saver, coordinate, keep, background, inflight, in_place)
            self._since = self._ready = time.perf_counter()  # the last set was hidden or given back; the session began
            self._caught = Signals(caught)
            atexit.register(_at_exit, weakref.ref(self))
        except BaseException:  # also by a handler: there is no session that could be closed
            self._caught.remove()
            self._release()
            raise

    def _open(
        self, directory: str | os.PathLike[str], saver: int | None, coordinate: bool | None, keep: int | None,
        background: bool, inflight: str, in_place: bool,
    ) -> None:  # fmt: skip
        ranks = self._ranks
        options = ranks.together(lambda: _options(ranks.size, saver, coordinate, keep, background, inflight))
        check_same(ranks, **options)
        saver, keep, self._background = options["saver"], options["keep"], options["background"]
        self._inflight = inflight
        self._peers = Serial() if options["coordinate"] is False else ranks  # who agree on every set
        opening = Opening(self._disk, ranks, directory, saver, keep)
        self._root, self._keep = opening.root, opening.keep
        self._manifest, self._sampled = opening.manifest.in_place() if in_place else opening.manifest, in_place
        self._active, self._lead, self._release = opening.active, opening.lead, opening.release
        self._place, self._fresh = opening.place, opening.fresh
        setting = opening.manifest.setting
        log = self._root.log if self._active else self._root.apart
        self._ledger = Ledger(self._disk, self._root, log, opening.level, opening.edges)
        self._how = How(__version__, setting("pack_threads"), setting("bundle_from"))
        self._number, self._past, self._life, self._newest_life = opening.number, opening.past, opening.life, 0

    @_verb
    def restore(self, *, progress: Progress | None = None) -> SavePoint | None:
        """Put the last complete set back into place.

        On return all listed files belong to one set, byte for byte, and that set is what is returned; or `finished`
        is true, and the files in place are the result; or None: there never was a set, this is a first start.
        On error no file of the working directory was changed, unless the message says so. Killed inside: call it again.
        Raises `DamagedError` if there are sets but none is whole, `UsageError` if they are of another number of ranks.
        Collective: with ranks that coordinate it is the newest set that every rank has, and all get that one. No rank
        returns before all files of all ranks are in place.
        `progress` is called, from any thread but never twice at once, with the bytes read and the bytes of the set;
        from the beginning again if that set turns out damaged and an older one is tried.
        """
        mark = self._ranks.share(self._ranks.together(self._before_restore), self._lead)
        if self._peers is self._ranks:
            point = self._restore(mark, progress)
        else:
            point = self._ranks.together(lambda: self._restore(mark, progress))
        self._life = new_life(self._ranks, self._lead, self._newest_life)
        self._since = time.perf_counter()
        if self._when:
            self._when.restored(self._since)
        return point

    def _before_restore(self) -> dict[str, Any] | None:
        disk, root = self._disk, self._root
        self._check("restore")
        self._collect()
        self._refuse_other(RestoreError, "cannot restore", "the listed files are untouched")
        if self._ranks.rank != self._lead:
            return None
        with root.reporting(RestoreError, "cannot restore", "the listed files are untouched"):
            mark = restore.finish_mark(disk, root)
            if mark:
                disk.sync_dir(root.side)  # the life that wrote it may have died before it did this; then the sets go
            return mark

    def _restore(self, mark: dict[str, Any] | None, progress: Progress | None) -> SavePoint | None:
        peers, finished = self._peers, mark_key(mark)
        self._sets.known = False
        foreign = peers.together(lambda: self._refuse_foreign(finished))
        candidates, history, fresh = peers.together(lambda: self._settle(finished, foreign))
        root = self._root if self._active else None
        choice = choose(self._disk, self._root.work, root, peers, candidates, history, fresh, self._how, progress)
        if choice.number is not None:
            return self._give_back(choice.number, choice.record, choice.passed, fresh, finished)
        torn = peers.together(lambda: self._give_up(finished, fresh, check=mark is None))
        peers.together(self._renew_baseline)
        after = peers.together(lambda: self._after_finish(mark)) if mark else None
        self._committed, self._past, self._fresh, self._agreed, self._hidden = None, False, True, 0, 0
        self._how.left = 0
        if torn:
            logger.warning("a first start again; torn first files moved to %s: %s", self._discarded, ", ".join(torn))
        if choice.passed:
            self._say(
                logging.WARNING, f"no set was ever complete, so the initial files are: {'; '.join(choice.passed)}"
            )
        if mark is None or after is None:
            self._say(logging.INFO, f"nothing to restore in {self._root.work}: a first start")
            self._note("start", aside=torn)
            return None
        files, changed = after
        but = f", but these are no longer what they were: {', '.join(changed)}" if changed else ""
        level = logging.WARNING if changed else logging.INFO
        at = "" if mark["step"] is None else f" at step {mark['step']}"
        self._say(level, f"the run was finished{at}; its files are left alone{but}")
        self._note("restored", set=mark["number"], step=mark["step"], finished=True)
        return SavePoint(mark["number"], mark["step"], mark["time"], files, True)

    def _refuse_foreign(self, finished: int) -> dict[int, str]:
        if not self._active:
            return {}
        with self._root.reporting(RestoreError, "cannot restore", "the listed files are untouched"):
            restore.refuse_outside(self._disk, self._root, self._manifest)
            return restore.refuse_foreign(self._disk, self._root, finished, alone=self._peers.size == 1)

    def _settle(self, finished: int, foreign: dict[int, str]) -> tuple[list[Candidate], bool, bool]:
        """The sets of this rank; whether there was a complete one, of all ranks, as far as it knows; and whether no
        restore was killed before this one, which else repeats that."""
        disk, root = self._disk, self._root
        if not self._active:
            return [], False, True
        with root.reporting(RestoreError, "cannot restore", "the listed files are untouched"):
            candidates = restore.settle(disk, root, self._place, finished, self._how)
            large = [c.record.label for c in candidates if c.record and self._too_large(c.record.step)]
            if large:
                raise UsageError(f"{large[0]} cannot be agreed on: with several ranks a step must fit into 62 bits")
            self._newest_life = max([life_of(finished), *(life_of(c.key) for c in candidates)])
            candidates = [
                c._replace(record=None, reason=foreign[c.number]) if c.number in foreign else c for c in candidates
            ]
            return candidates, restore.once_committed(disk, root, candidates), not disk.exists(root.stage)

    def _give_up(self, finished: int, fresh: bool, *, check: bool) -> list[str]:
        """This rank has no set to give back: its initial files are; the names of torn first files, set aside."""
        if not self._active:
            return []
        with self._root.reporting(RestoreError, "cannot restore", "the listed files are untouched"):
            restore.give_up(self._disk, self._root, finished, fresh=fresh)
            torn = []
            if not self._fresh and check and self._disk.exists(self._root.baseline):
                torn = restore.check_baseline(self._disk, self._root, self._manifest)
            restore.clear_stage(self._disk, self._root)
            return torn

    def _renew_baseline(self) -> None:
        if self._active:
            with self._root.reporting(RestoreError, "cannot restore", "the listed files are untouched"):
                restore.renew_baseline(self._disk, self._root, self._manifest)

    def _after_finish(self, mark: dict[str, Any]) -> tuple[tuple[str, ...], list[str]]:
        """A new history may begin here. The files that are the result, and those of them that have changed since."""
        disk, root = self._disk, self._root
        if not self._active:
            return (), []
        self._drop_sets()
        with root.reporting(RestoreError, "cannot restore", "the listed files are untouched"):
            restore.note_baseline(disk, root, self._manifest)
            if self._ranks.rank != self._lead:  # the mark lists the files of the rank that wrote it
                return tuple(restore.files_in_place(disk, root, self._manifest)), []
        return tuple(row["path"] for row in mark["files"]), restore.changed_since(disk, root, mark)

    def _give_back(
        self, number: int, record: Record | None, reasons: list[str], fresh: bool, finished: int
    ) -> SavePoint:
        """Swap the staged set in, on every rank; then no newer one is left on any."""
        disk, root, peers, me = self._disk, self._root, self._peers, self._ranks.rank
        (holder,) = peers.least(me if record else LARGEST)
        step, taken, patterns = peers.share(record and (record.step, record.time, record.patterns), holder)

        def swap() -> list[str]:
            if record is None:
                strays = self._give_up(finished, fresh, check=True)
            else:
                strays = restore.swap(disk, root, self._manifest, record, fresh=fresh)
            if self._active:
                left = restore.drop_newer(disk, root, self._manifest, number, patterns)
                if left:
                    logger.warning("damaged, and only in a set that was passed over, kept as a failed one: %s", left)
                restore.clear_stage(disk, root, record if self._background else None)
            return strays

        self._past = True  # until all is in place: else a `hide` after an error could take a mixture
        peers.together(lambda: self._keep_prefixes(record))  # on all ranks, before W changes on any
        strays = peers.together(swap)
        for file in record.files if record else ():
            self._how.lost.pop(file.path, None)
        self._committed, self._number, self._agreed, self._past, self._hidden = record, number, number, False, 0
        self._how.left = 0
        if record:
            # A program that is killed again and again must not fill the disk.
            self._prune(record, number, fresh=False)
        files = record.files if record else ()
        what = _amount(files) if peers.size == 1 else f"all {peers.size} ranks"
        aside = [f"moved to {self._discarded}: {', '.join(strays)}"] if strays else []
        text = "; ".join([f"restored {label(number, step)}: {what}", *reasons, *aside])
        self._say(logging.WARNING if reasons else logging.INFO, text)
        self._ledger.begin()
        self._note("restored", set=number, step=step, taken=taken, passed_over=reasons, aside=strays)
        return SavePoint(number, step, taken, tuple(f.path for f in files if f.kind in ("file", "append", "link")))

    def _keep_prefixes(self, record: Record | None) -> None:
        """From now on the program may cut the append files of this set, or begin them anew."""
        limit = self._manifest.setting("copy_append_below")
        for reason in restore.keep_prefixes(self._disk, self._root, record, limit) if record else ():
            if reason not in self._warned:
                logger.warning("%s", reason)
                self._warned.add(reason)

    def adopt(self) -> SavePoint | None:
        """Go on from the sets that are here without giving one back: the files in place are newer, and whole.

        For a job script, in which each `hide` is a process of its own, and another one had called `restore` before.
        What is there as the newest complete set is returned, None if there is none. No set is changed. Serial only.
        """
        self._check("adopt")
        if self._ranks.size > 1:
            raise UsageError("adopt with several ranks: all of them call restore() instead")
        with self._root.reporting(RestoreError, "cannot look at the sets", "nothing was changed"):
            mark = restore.finish_mark(self._disk, self._root)
            found = restore.survey(self._disk, self._root, after=mark_key(mark))
            newest = max((c.number for c in found if c.record), default=0)
            begun = [c for c in found if c.number > newest]
            if begun or self._disk.exists(self._root.stage):
                what = "a restore was killed here"
                if begun:
                    what = f"set {begun[0].number} is not whole: {begun[0].reason}"
                raise UsageError(f"{what}; call restore first (safepoint restore), nothing was changed")
            self._how.lost.update(store.read_lost(self._disk, self._root))
        self._adopted = True
        self._number = max((candidate.number for candidate in found), default=mark["number"] if mark else 0)
        newest_life = max([life_of(mark_key(mark)), *(life_of(candidate.key) for candidate in found)])
        self._life = new_life(self._ranks, self._lead, newest_life)
        record = next((candidate.record for candidate in found if candidate.record), None)
        self._committed, self._past = record, False
        self._note("adopted", set=self._number, step=record and record.step)
        if not record:
            return None
        self._agreed = record.number
        return SavePoint(record.number, record.step, record.time, tuple(f.path for f in record.files if f.has_bytes))

    @_verb
    def hide(self, step: SupportsIndex | None = None, *, wait: bool = False) -> SavePoint | None:
        """Move the listed files into safekeeping as one set, labelled `step`.

        On return the files are out of the way and safe from the death of this process; with `wait`, and for the first
        set always, from power loss too. None: none of the files existed, so there was nothing to hide.
        On error the files of this call are where they were, or, if the disk refuses even that, the error says where;
        if it is the error of the set before (`SaveError`), nothing of this call was begun. Killed inside: `restore`
        gives this set or the previous one, whole.
        Collective if the ranks coordinate: all return, or all raise the same error, with the step that all must give.
        """
        begin, before, point = time.perf_counter(), self._number, None
        try:
            point = self._hide(step, wait)
            return point
        except BaseException:
            done = self._flight or (self._committed and self._committed.number > before)
            if self._active and not done and self._holds_files("set", before + 1):
                self._how.left = before + 1
            raise
        finally:
            end = time.perf_counter()
            if self._active and self._number > before:  # else there was nothing to hide, or it was refused at once
                self._blocked.append((self._number, round(end - begin, 7)))
            if point:
                self._since = end
                if self._when:
                    self._when.saved(begin, end, waited=self._flight is None)

    def _holds_files(self, state: str, number: int) -> bool:
        try:
            return bool(self._disk.listdir(os.path.join(self._root.state(state, number), "files")))
        except FileNotFoundError:
            return False
        except OSError:
            return True

    def _refuse_left(self) -> None:
        """Raise if files that a `hide` took, and that could not be put back, are still missing in W: what is there is
        no step of the program."""
        disk, root, number = self._disk, self._root, self._how.left
        for state in ("set", "failed") if number and self._active else ():
            top = os.path.join(root.state(state, number), "files")
            with root.reporting(SaveError, "cannot look at what could not be put back", "nothing was changed"):
                missing = save.missing(disk, top, root.work) if disk.exists(top) else None
            if missing:
                what = f"{os.path.relpath(missing, top)} of set {number} is in {root.shown(top)}"
                raise SaveError(
                    f"{what}, and could not be put back: move what is there to its place, or go back to the last set "
                    f"with restore(); nothing was changed"
                )
        self._how.left = 0

    def _hide(self, step: SupportsIndex | None, wait: bool) -> SavePoint | None:
        peers, number, find = self._peers, self._number + 1, save.Found()
        at: int | None = None
        asked = False
        taken: Taken | None = None
        failure: BaseException | None = None
        probing = self._inflight != "off"
        if probing:
            peers.arrive()
        if peers.size > 1:
            self._number = number  # the same for all next time too, whoever fails
        try:
            wait, at = bool(wait), self._as_step("hide", step)
            self._check("hide")
            self._collect()
            self._refuse_other(SaveError, f"{label(number, at)} not taken", "the files are where they were")
            self._refuse_left()
            asked, wait = wait, self._must_wait() or wait
            self._at = self._ledger.place()
            self._due = self._when.words() if self._when else {}
            if self._active:
                first = self._committed is None
                find = save.find(self._disk, self._root, self._manifest, first=first)
            if find.items or (self._active and peers.size > 1 and not find.missing):
                self._warn_of_open(find.opened)
                self._warn_of_many(find.many)
                self._how.check_kept(find.items)
                self._number = number
                wait = self._begun_anew(find.items) or wait  # no older set is whole: this one must be soon
                taken = self._take(find.items, number, at)
        except BaseException as error:
            failure, wait = error, False
        try:
            if probing and (message := peers.in_flight()):
                failure = failure or self._crossing(message)
        except BaseException as error:
            failure = failure or error
        go, wait = self._agree_to_hide(at, find, wait, taken, failure)
        if not go:
            self._number = number - 1
            return None
        self._past = False
        if wait:
            self._save_now(number, taken)
            if not asked and self._background:
                self._begin_saver()  # so that the next `hide` need not
        elif taken and self._thread:
            self._hidden = number
            self._flight = self._thread.submit(functools.partial(self._save, agreed=self._agreed), taken)
        when = taken.time if taken else time.time()
        return SavePoint(number, at, when, tuple(item.path for item in find.items))

    def _as_step(self, verb: str, step: SupportsIndex | None) -> int | None:
        number = None if step is None else whole(f"{verb}: step", step)
        if self._too_large(number):
            raise UsageError(f"step {number} is too large: with several ranks it must fit into 62 bits")
        return number

    def _too_large(self, step: int | None) -> bool:
        return step is not None and self._ranks.size > 1 and abs(step) > LARGEST // 2

    def _must_wait(self) -> bool:
        """Whether this rank cannot save in the background."""
        if not self._background or (self._active and self._committed is None):
            return True
        return self._active and not self._begin_saver()

    def _begin_saver(self) -> bool:
        """Whether there is a saver thread: known before a file has moved."""
        if self._thread is None:
            if any(entry.compress is not None for entry in self._manifest.entries):
                codec.load()
            try:
                self._thread = _Saver()
            except RuntimeError:  # none to be had
                return False
        return True

    def _take(self, items: Sequence[Item], number: int, step: int | None) -> Taken:
        previous, where = self._committed, (self._place, self._life)
        return save.take(self._disk, self._root, self._manifest, items, number, step, *where, previous)

    def _crossing(self, message: str) -> UsageError | None:
        text = f"{message}, is in flight across this save point: a restart from it would lose the message"
        if self._inflight == "error":
            return UsageError(f"{text}; receive it before hide; the files are where they were")
        logger.warning("%s", text)
        return None

    def _agree_to_hide(
        self, step: int | None, find: save.Found, wait: bool, taken: Taken | None, failure: BaseException | None
    ) -> tuple[bool, bool]:
        """Whether there is a set, on every rank, and whether to wait for it. If anything failed on any rank, what was
        taken goes back, and all raise."""
        peers = self._peers
        newest = span(self._committed.number if self._committed else 0, self._active)
        flags = -(failure is not None), -wait, -find.present, -bool(find.missing)
        failed, wait_, present, lacking, low, high, least, most = peers.least(
            *flags, *span(code(step), failure is None), *newest
        )
        if not failed and low != -high:
            failed, failure = -1, UsageError(f"hide was called with different steps: {groups(peers, step)}")
        elif present and lacking and not failed:
            failed = -1
            if find.missing:
                failure = MissingFilesError(f"missing: {find.missing}, though other ranks have theirs")
        if failed or not present:
            if taken:
                try:
                    why = failure or "another rank failed"
                    back = save.revoke(self._disk, self._root, taken.number, f"{taken.label} not taken ({why})")
                    if back:
                        logger.warning("%s not taken%s", taken.label, back)
                except BaseException as error:  # it is told to all
                    failure = error
            peers.fail_together(failure)
        if least == -most:  # else one lags behind: what it has not is no set of all
            self._agreed = max(self._agreed, least)
        self._in_vain = 0 if present else self._in_vain + 1
        if not present:
            self._say_nothing(self._in_vain)
        return bool(present), bool(wait_)

    def _say_nothing(self, times: int) -> None:
        """Once is a first start. More often it is a manifest that does not name what the program writes: that is said
        ever more loudly, though in few lines, and what did change is named. Each line comes once in a session."""
        if f"{times} times" in self._warned or (times > 2 and str(times).strip("0") != "1"):  # 1, 2, 10, 100, …
            return
        self._warned.add(f"{times} times")
        loud = (times > 1) + (times > 2) + (self._committed is not None or self._adopted)
        row = f", {times} times in a row" if times > 2 else ""
        text = f"nothing to hide{row}: none of these files exists: {self._listed}"
        if loud and self._active and (self._ranks.rank == self._lead or self._peers.size == 1):
            since = self._committed.label if self._committed else "the start"
            marks = [self._root.taken(self._committed.number) if self._committed else self._root.baseline]
            names = save.changed(
                self._disk, self._root, self._manifest, [*marks, *[self._root.owner] * (not self._adopted)]
            )
            if names:
                text += f"; changed since {since}: {names}: list in {NAME} what is to be saved"
        self._say((logging.INFO, logging.WARNING, logging.ERROR)[min(2, loud)], text)

    def _warn_of_open(self, opened: Sequence[tuple[Entry, str]]) -> None:
        for entry, path in opened:
            if entry.text not in self._warned:  # once for an entry, however many files it means
                self._warned.add(entry.text)
                logger.warning("%s is still open for writing: saved as a snapshot of what was flushed so far", path)

    def _warn_of_many(self, many: tuple[Entry, int] | None) -> None:
        if many and f"{many[0].text} means" not in self._warned:
            text, count = many[0].text, many[1]
            self._warned.add(f"{text} means")
            top = os.path.dirname(text)
            instead = f"list {top}/ instead" if top else "write them into a directory, and list that with a slash"
            logger.warning("%s means %d files: one rename moves them all, if you %s", text, count, instead)

    def _begun_anew(self, items: Sequence[Item]) -> bool:
        """Whether a file of the last set that should only grow is gone, was cut, or is another one."""
        now = {item.path: item for item in items if item.kind == "append"}
        anew = []
        for path, known in self._how.prefixes.items():
            item = now.get(path)
            if item is None or item.inode != known.inode or item.size < known.size:
                anew.append(path)
                continue
            looking = self._root.reporting(SaveError, "cannot look at the listed files", "nothing was moved")
            with looking, self._disk.open(os.path.join(self._root.work, path)) as file:
                if not codec.begins_with(file, known):
                    anew.append(path)
        for path in anew:
            logger.warning(
                "%s, listed as append, was cut, begun anew or taken away since the last set: the sets before need what "
                "it held; those that were not restored have no copy of that, and can no longer be given back", path,
            )  # fmt: skip
        return bool(anew)

    def _save_now(self, number: int, taken: Taken | None) -> None:
        """Save what was taken; on return every rank has committed. If one cannot, all put their files back."""
        peers = self._peers
        record: Record | None = None
        failure: BaseException | None = None
        try:
            record = self._secure(taken, give_back=True) if taken else None
        except BaseException as error:
            failure = error
        if peers.least(-(failure is not None)) != (0,):
            if record:
                try:
                    back = save.revoke(self._disk, self._root, number, f"{record.label} taken back")
                    if back:
                        logger.warning("%s taken back%s", record.label, back)
                except BaseException as error:  # it is told to all
                    failure, self._how.left = error, number
            peers.fail_together(failure)
        self._committed, self._agreed, self._hidden = record, number, number
        if record:
            self._prune(record, number)

    def _save(self, taken: Taken, agreed: int) -> Record:
        """The work of the saver thread. `agreed`: the newest set that all ranks had committed when `hide` returned."""
        record = self._secure(taken)
        self._prune(record, agreed if self._peers.size > 1 else record.number)
        return record

    def due(self) -> bool:
        """Whether it is time to save: call it once in every step, right before the files would be written and hidden.

        By the setting `every`: so many steps or so much time after the last set, or, with `auto`, the default, after
        the time that wastes least, by what saves cost here and how often the run fails (Daly 2006). True again and
        again until a set is hidden. It changes nothing. Collective if the ranks coordinate, though most calls only
        count; decided on one rank, so the answer is the same on all.
        """
        return not (self._when and self._when.due_waits()) and self._decide_due()

    @_verb
    def _decide_due(self) -> bool:
        self._check("due")
        if self._when is None:
            self._begin_when().due_waits()
        assert self._when
        return self._when.decide_due(saving=self.saving, first=self._committed is None)

    def should_stop(self) -> bool:
        """Whether this process had better save and end: call it once in every step.

        True when the time limit is near, so that a step and a save just fit before it; when one of the `signals` of
        `init` came, to any rank; or when somebody asked for it with `safepoint halt`. Then it is true for ever, and
        `stop` ends the process. Collective if the ranks coordinate: all are told in the same step.
        """
        return not (self._when and self._when.stop_waits()) and self._decide_should_stop()

    @_verb
    def _decide_should_stop(self) -> bool:
        self._check("should_stop")
        if self._when is None:
            self._begin_when().stop_waits()
        assert self._when
        stopping, new = self._when.decide_stop(saving=self.saving)
        if new:
            self._say(logging.WARNING, f"stopping: {self._when.stop.why}")
            self._note("stopping", why=self._when.stop.why)
        return stopping

    def _begin_when(self) -> When:
        bounds = self._limits
        if self._peers is not self._ranks:  # each rank asks for itself: not a scheduler, if there is something else
            bounds = [bound for bound in bounds if not bound.scheduler] or bounds
        self._when = When(
            self._peers, self._lead, self._disk, self._root, self._manifest, self._since, self._ready,
            noted=not self._began, bounds=bounds, caught=self._caught,
        )  # fmt: skip
        return self._when

    def stop(self) -> NoReturn:
        """End the process so that it can be started again from the last set.

        Waits until everything hidden is durable, closes the session, and raises `SystemExit`: with status 75 ("try
        again": the job script, or the scheduler, puts the job back into the queue), or 79 after `safepoint halt`. If
        the set in flight fails its `SaveError` is raised instead. Collective if the ranks coordinate.
        """
        self.wait()
        status = (self._when.stop.status if self._when else 0) or REQUEUE
        # Together, as some launchers end all ranks when the first one leaves with a status.
        self._peers.together(lambda: self._end(None, "stop() was called"))
        raise SystemExit(status)

    def watch(self, step: SupportsIndex, /, **values: Any) -> None:
        """Note digests of these values (numbers, arrays of numpy, what numpy makes arrays of) at `step`, in the ledger.

        With `ledger = modify` in the manifest, or SAFEPOINT_LEDGER=modify in the environment: type, shape and xxh3-128;
        with `full` also the smallest, largest and mean value and the root of the sum of squares. Otherwise nothing is
        done, in less than a microsecond. On return the line is written, and survives the death of this process; what
        hinders that is said in a warning. Not collective. Raises `UsageError` for what is no value.
        """
        if self._ledger.level >= ledger.MODIFY:
            self._check("watch")
            self._ledger.watch(whole("watch: step", step), values)

    @property
    def saving(self) -> bool:
        """Whether a set is in flight, so that the next `hide` would wait for it."""
        return self._flight is not None and not self._flight.done()

    @_verb
    def wait(self) -> None:
        """Return when everything hidden so far is durable. Raises the `SaveError` of the set in flight if it failed.

        Collective if the ranks coordinate: durable on all of them.
        """

        def work() -> None:
            self._check("wait")
            self._collect()
            self._refuse_other(SaveError, "nothing is durable", "the listed files are untouched")

        self._peers.together(work)

    @_verb
    def finish(self, step: SupportsIndex | None = None) -> None:
        """Declare the files now in place the result of the run, and end the session.

        If they were hidden and not written again, the last set is put back first, and without `step` its step is that
        of the result; files written after it are a later state, and without `step` the result has none. On return the
        files are durable, the sets are gone, and a later `restore` leaves the files alone. On error files and sets are
        as they were.
        Killed inside: `restore` gives the last set, or says that the run is finished.
        Collective: one rank marks the run as finished, when the files of all are durable.
        """
        disk, root, ranks, peers = self._disk, self._root, self._ranks, self._peers
        at, find = ranks.together(lambda: self._before_finish(step))
        written = any(item.kind == "move" for item in find.items) or bool(find.opened)
        low, high, anyone = peers.least(*span(code(at)), -written)
        if low != -high:
            ranks.fail_together(UsageError(f"finish was called with different steps: {groups(peers, at)}"))
        back = ranks.together(lambda: self._stage_last(find, bool(anyone or written)))
        rows = ranks.together(lambda: self._result(find, back))
        at = self._committed.step if at is None and back and self._committed else at
        at = ranks.share(at, self._lead)
        (number,) = ranks.least(-self._number)
        if ranks.rank == self._lead:
            life, before = self._life, self._committed
            ranks.together(lambda: save.finish(disk, root, rows, -number, at, life, __version__, before))
        else:
            ranks.together(lambda: None)
        self._drop_sets()
        step_of = "" if at is None else f" at step {at}"
        last = self._committed if at is None and not back else None
        newer = f", newer than {last.label}, so the result has no step" if last and last.step is not None else ""
        self._say(logging.INFO, f"finished{step_of}: {len(rows)} files in place{newer}")
        self._note("finished", set=-number, step=at)
        self._close("finish() was called")
        self._left = True

    def _before_finish(self, step: SupportsIndex | None) -> tuple[int | None, save.Found]:
        at = self._as_step("finish", step)
        self._check("finish")
        self._collect()
        self._refuse_other(SaveError, "not finished", "the listed files are untouched")
        self._refuse_left()
        find = save.find(self._disk, self._root, self._manifest) if self._active else save.Found()
        self._warn_of_open(find.opened)
        return at, find

    def _stage_last(self, find: save.Found, written: bool) -> bool:
        """Whether the files of the last set are to be put back, since no rank has written any after it."""
        disk, root, last = self._disk, self._root, self._committed
        moving = any(entry.kind == "move" for entry in self._manifest.entries)
        if written and find.missing:
            raise MissingFilesError(f"not finished: missing: {find.missing}, though other ranks have theirs")
        if written or not moving or last is None:
            return False
        if self._hidden > last.number:
            lost = f"not finished: the files of set {self._hidden} were hidden and could not be saved"
            raise SaveError(f"{lost}; {last.label} is intact: restore() gives it back")
        try:
            restore.stage(disk, root, last, self._how)
        except restore.Damaged as error:
            raise DamagedError(f"cannot finish: {last.label} is damaged: {error}; no file was touched") from error
        return True

    def _result(self, find: save.Found, back: bool) -> list[dict[str, Any]]:
        """Make the final files of this rank durable."""
        disk, root = self._disk, self._root
        if back and self._committed:
            restore.bring_in(disk, root, self._committed)
            find = save.find(disk, root, self._manifest)
        if not find.items and any(not entry.optional for entry in self._manifest.entries):
            raise MissingFilesError(
                f"nothing to finish: there is no set, and none of these files exists: {self._listed}"
            )
        return save.keep_result(disk, root, find.items, self._how, self._committed) if self._active else []

    def close(self) -> None:
        """End the session and leave everything for the next start. Waits for the set in flight and raises its error.

        Not collective: a rank that fails must not wait for the others.
        """
        self._end(None)

    def _end(self, error: BaseException | None, stopped: str = "") -> None:
        if self._closed or os.getpid() != self._pid:  # a forked child has neither the set in flight nor the lock
            return
        self._remember_failed()
        try:
            with undisturbed():  # also beside other ranks, since it is done for this one alone
                try:
                    self._collect()
                finally:
                    self._note_end(error, stopped)
                    self._close("it was closed")
        finally:
            self._caught.remove()

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._closed or os.getpid() != self._pid:
            return
        if kind is None:
            self.finish()
            return
        try:
            self._end(error)
        except SafepointError as failure:  # the exception that ends the block is the one to see
            logger.error("%s", failure)

    @property
    def _discarded(self) -> str:
        return self._root.shown(self._root.discarded)

    @property
    def _listed(self) -> str:
        me, size = self._ranks.rank, self._ranks.size
        return ", ".join(e.filled(me, size) if e.of_each else e.text for e in self._manifest.entries)

    def _say(self, level: int, text: str) -> None:
        """Log what all ranks know once, not by each."""
        logger.log(level if self._ranks.rank == self._lead or self._peers.size == 1 else logging.DEBUG, "%s", text)

    def _check(self, verb: str) -> None:
        if self._closed:
            raise UsageError(f"{verb} after the end of the session ({self._closed}): call init first")
        if os.getpid() != self._pid:
            raise UsageError(f"{verb} in a forked process: only process {self._pid}, which called init, may save")
        if self._past and verb in ("hide", "finish"):
            raise UsageError(
                f"{verb} before restore, in a directory that has save points: call restore() first, "
                f"or remove {self._root.side} to start afresh; nothing was changed"
            )

    def _collect(self) -> None:
        """Wait for the set in flight; its error is raised here, once."""
        if self._flight is None:
            return
        flight = self._flight
        error = _ended(flight)
        if self._flight is not flight:  # a handler that ran meanwhile has called a verb
            return
        self._flight = None
        if error:
            self._failed = flight
            raise error
        self._committed = flight.result()

    def _refuse_other(self, kind: type[SaveError] | type[RestoreError], what: str, holds: str) -> None:
        if self._active:
            self._root.refuse_other(self._disk, kind, what, holds)

    def _remember_failed(self) -> None:
        """The error of the set that was in flight is still to be told, if a handler raised in its place."""
        if self._failed:
            self._flight, self._failed = self._failed, None

    def _secure(self, taken: Taken, *, give_back: bool = False) -> Record:
        begin = time.perf_counter()
        disk, root = self._disk, self._root
        try:
            record = save.secure(disk, root, taken, self._committed, self._how, give_back=give_back)
        except SaveError as error:
            seconds = round(time.perf_counter() - begin, 6)
            if self._adopted:  # the next hide is another process
                store.keep_lost(self._disk, self._root, self._how)
            self._note("failed", set=taken.number, step=taken.step, error=str(error), seconds=seconds)
            raise
        seconds = time.perf_counter() - begin
        if self._when and not give_back:
            self._when.meter.stored(seconds)
        logger.info("saved %s: %s in %.3f s", record.label, _amount(record.files), seconds)
        what: dict[str, Any] = {**_sizes(record.files), "seconds": round(seconds, 6), **self._due}
        if give_back:
            what["waited"] = True
        if self._ledger.level > ledger.OFF:
            what |= {"at": self._ledger.shown(self._at), "sums": ledger.sums(record.files)}
        if self._sampled:  # which states of the program were caught is chance
            what["snapshot"] = True
        self._note("saved", set=record.number, step=record.step, **what)
        return record

    def _prune(self, record: Record, agreed: int, *, fresh: bool = True) -> None:
        try:
            save.prune(self._disk, self._root, record, self._keep, agreed, self._sets, fresh=fresh)
        except OSError as error:  # the set is safe; what was not removed is space, and is tried again next time
            logger.warning("%s: older sets not removed: %s", record.label, error)

    def _drop_sets(self) -> None:
        """After a finish mark: sets and baseline are history. What cannot be removed now goes at the next start."""
        try:
            for state in ("set", "failed"):
                numbers = self._root.numbers(self._disk, state)
                if self._keep >= EVERY:  # all stay, but what was only prepared, or never committed
                    numbers = [n for n in numbers if not self._disk.exists(f"{self._root.state(state, n)}/record.json")]
                save.drop(self._disk, self._root, numbers, state)
            for path in (self._root.baseline, self._root.lost):
                if self._disk.exists(path):
                    self._disk.remove(path)
        except OSError as error:
            logger.warning("finished, but sets not removed: %s", error)

    def _close(self, why: str) -> None:
        self._closed = why
        self._ledger.end()
        if self._when:
            self._when.stop.end(shared=self._peers is not self._ranks and self._ranks.size > 1)
            self._when = None
        if self._flight is not None:  # the saver is still at work, and the lock must hold until the process ends
            self._flight.add_done_callback(_log_failure)
            return
        if self._thread is not None:
            self._thread.stop()
        self._disk.dismiss_helpers()
        self._release()

    def _note(self, event: str, **what: Any) -> None:
        """One line for people and reports; nothing depends on it, so it must not fail a save."""
        if not self._active and (self._ledger.level < ledger.MODIFY or event not in ("restored", "start")):
            return  # else its watched values belong to this life
        if not self._root.is_ours(self._disk):
            return  # the log there is another run's
        if self._began:
            what["began"], self._began = self._began, 0.0
        blocked = []
        with contextlib.suppress(IndexError):  # two threads may be here, if a close was interrupted
            while self._blocked:
                blocked.append(self._blocked.popleft())
        if blocked:
            what["blocked"] = blocked
        if "sums" in what:  # last, where who compares them need not take the line apart
            what["sums"] = what.pop("sums")
        self._ledger.note(event, **what)

    def _note_end(self, error: BaseException | None, stopped: str = "") -> None:
        """The life ends without a result, but not by a kill: that leaves no such line. `stopped`: why, if by `stop`."""
        if isinstance(error, SystemExit) and error.code in (None, 0):
            error = None
        why = (self._when and self._when.stop.why) or stopped
        if why and (error is None or isinstance(error, SystemExit)):
            self._note("stopped", why=why)
        else:
            self._note("ended", **({"error": f"{type(error).__name__}: {error}"} if error else {}))


def _ended(flight: Future[Record]) -> BaseException | None:
    """Wait for this set; its error, if it failed. What a handler raises meanwhile ends the waiting, not the save."""
    while True:
        try:
            return flight.exception(PATIENCE)
        except NotYet:
            deliver()


def _log_failure(flight: Future[Record]) -> None:
    """Of a set whose error nobody will ask for."""
    if error := flight.exception():
        logger.error("%s", error)


class _Saver:
    """One thread for the life of the session; an executor costs `hide` twice as much. `_at_exit` waits for its work."""

    def __init__(self) -> None:
        self._jobs: SimpleQueue[tuple[Future[Record], Callable[[Taken], Record], Taken] | None] = SimpleQueue()
        threading.Thread(target=self._run, name="safepoint-saver", daemon=True).start()

    def submit(self, job: Callable[[Taken], Record], taken: Taken) -> Future[Record]:
        future: Future[Record] = Future()
        self._jobs.put((future, job, taken))
        return future

    def stop(self) -> None:
        self._jobs.put(None)

    def _run(self) -> None:
        while (work := self._jobs.get()) is not None:
            future, job, taken = work
            try:
                future.set_result(job(taken))
            except BaseException as error:
                future.set_exception(error)
            del work, future, job, taken  # a waiting thread must not keep the session alive


def _options(
    size: int, saver: int | None, coordinate: bool | None, keep: int | None, background: bool, inflight: str
) -> dict[str, Any]:
    """The options of `init` that all ranks must give alike, checked."""
    if inflight not in ("warn", "error", "off"):
        raise UsageError(f"inflight must be 'warn', 'error' or 'off', not {inflight!r}")
    saver = None if saver is None else whole("saver", saver)
    if saver is not None and not 0 <= saver < size:
        raise UsageError(f"saver must be one of the ranks 0 to {size - 1}, or None, not {saver}")
    keep = None if keep is None else whole("keep", keep)
    if keep is not None and keep < 1:
        raise UsageError(f"keep must be at least 1, not {keep}: without a set nothing could be restored")
    return {
        "saver": saver,
        "coordinate": None if coordinate is None else bool(coordinate),
        "keep": keep,
        "background": bool(background),
        "inflight": str(inflight),
    }


def whole(name: str, value: SupportsIndex) -> int:
    """The integer that a caller gave, of Python or of numpy. Raises `UsageError` for anything else, a float too."""
    try:
        number = operator.index(value)
        str(number)  # what is too long for that could be neither written down nor read again
    except TypeError:
        wrong = f"{reprlib.repr(value)} ({type(value).__name__})"
    except ValueError as error:
        wrong = f"a number so long ({error})"
    else:
        return number
    raise UsageError(f"{name} must be an integer, not {wrong}; nothing was changed")


def _sizes(files: Sequence[StoredFile]) -> dict[str, int]:
    data = [file for file in files if file.kind in ("file", "append")]
    return {"files": len(data), "bytes": sum(f.size for f in data), "stored": sum(f.stored_size for f in data)}


def _amount(files: Sequence[StoredFile]) -> str:
    sizes = _sizes(files)
    return f"{sizes['files']} files, {sizes['bytes'] / 1e6:.1f} MB"


def _at_exit(reference: weakref.ref[Session]) -> None:
    """Finish the set in flight. A failure that nobody asked for must not vanish with the process."""
    session = reference()
    if session is None or session._pid != os.getpid():
        return
    if session._flight is not None:
        with undisturbed():
            _ended(session._flight)
            if not session._closed:
                _log_failure(session._flight)
    if not session._closed and session._disk.exists(session._root.log):
        session._note_end(getattr(sys, "last_value", None))
