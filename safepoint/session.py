"""The verbs, for one program in one directory: what is done in which order, and what is agreed on.

    init --> open --restore--> ready --finish--> closed
               |                 |  ^
               +--hide, if the   +--+ hide, wait, restore (a roll-back)
                  directory has  |
                  no past        +--files could not go back--> broken --restore--> ready
                                 |
                                 +--close, or the end of the process--> closed

Between two calls at most one set is in flight, being stored and committed by the saver thread, and at most one waits
for it (`saving.background`). `wait`, `restore`, `finish` and `close` store both; `hide` waits for none, unless every
set is to be stored. The error of a set is raised by the next verb, once. A broken session refuses `hide` and `finish`:
what is in the working directory is no step of the program.
"""

from __future__ import annotations

import functools
import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, SupportsIndex

from safepoint.collective import collective
from safepoint.disk import Disk, codec
from safepoint.disk.files import exists
from safepoint.disk.signals import undisturbed
from safepoint.errors import (
    DamagedError,
    MissingFilesError,
    RestoreError,
    SafepointError,
    SaveError,
    UsageError,
)
from safepoint.extra import checked as checked_extra
from safepoint.extra import key as extra_key
from safepoint.listener import Listener, Outcome, SavePoint
from safepoint.opening import Opening, check_same, checked, level_of, new_life, whole
from safepoint.ranks import Ranks, Serial, low_high, ranks_by_step, step_key
from safepoint.record import Item, Record, Taken, label
from safepoint.remarks import Remarks, amount
from safepoint.restart import Restart, adopted, asked_for, drop_sets
from safepoint.restoring import grown, read, stage, survey, swap
from safepoint.restoring.stage import Progress
from safepoint.root import Root, State
from safepoint.saving import back, commit, find, memory, prune, take
from safepoint.saving.background import Background
from safepoint.saving.ready import Ready
from safepoint.settings import ALOOF, Setting

__version__ = "0.2.0"
logger = logging.getLogger("safepoint")
FINISHED = "finish() was called"  # the end of a session after which there are no others to agree with


class Verbs:
    """One program at work in one directory: `restore`, `hide`, `wait`, `finish`, `close`, and who agrees on them."""

    _opens: type[Opening] = Opening  # how it begins, and restarts: other places for its sets have others of these
    _restarts: Callable[..., Restart] = Restart

    def __init__(
        self, directory: str | os.PathLike[str], ranks: Serial | Ranks, disk: Disk, options: dict[str, Any],
        settings: Mapping[str, Setting], *, in_place: bool,
    ) -> None:  # fmt: skip
        """Begin in `directory`; on error nothing is held. Collective; within `ranks.undisturbed`."""
        choices = ranks.together(lambda: checked(ranks.size, **options))
        check_same(ranks, "init", **choices._asdict())
        self._pid, self._choices = os.getpid(), choices
        self._peers = Serial() if choices.coordinate is False else ranks  # who agree on every set
        self._home = self._opens(disk, ranks, directory, choices.saver, choices.keep, settings)
        if in_place or ALOOF in os.environ:
            self._home.manifest = self._home.manifest.in_place()
        setting = self._home.manifest.setting
        stored = memory.Options(__version__, setting("pack_threads"), setting("bundle_from"))
        self._memory, self._work = memory.Memory(stored), Background(alone=self._peers.size == 1)
        self._sets, self._remarks = prune.Sets(), Remarks(self._home, self._peers)
        self._listeners: Sequence[Listener] = ()
        self._committed: Record | None = None
        self._number = self._home.number
        self._agreed = 0  # the newest set that all peers are known to have committed
        self._hidden = 0  # the newest set whose files are not in W
        self._must_restore, self._life = self._home.past, self._home.life
        self._broken = ""  # why W is no step of the program, until a restore
        self._closed, self._adopted = "", False

    @property
    def _ranks(self) -> Serial | Ranks:
        return self._home.ranks

    @property
    def _root(self) -> Root:
        return self._home.root

    @collective
    def restore(
        self, *, step: SupportsIndex | None = None, set: SupportsIndex | None = None, progress: Progress | None = None
    ) -> SavePoint | None:
        """Put the last complete set back into place; or that of this `step`, or the set of this number.

        On return all listed files belong to one set, byte for byte, and that set is what is returned; or `finished`
        is true, and the files in place are the result; or None: there never was a set, this is a first start.
        On error no file of the working directory was changed, unless the message says so. Killed inside: call it again.
        Raises `DamagedError` if there are sets but none is whole, `UsageError` if they are of another number of ranks.
        With `step` or `set` newer sets are removed, and older ones not tried: `UsageError` if there is no such set,
        with those that there are; `DamagedError` if it is not whole. Of several with that step it is the newest.
        Collective: with ranks that coordinate it is the newest set that every rank has, and all get that one. No rank
        returns before all files of all ranks are in place.
        `progress` is called, from any thread but never twice at once, with the bytes read and the bytes of the set;
        from the beginning again if that set turns out damaged and an older one is tried.
        """
        home, ranks = self._home, self._ranks
        asked = ranks.together(lambda: asked_for(step, set))
        check_same(self._peers, "restore", asked=asked)
        mark = ranks.share(ranks.together(self._before_restore), home.lead)
        self._sets.forget(mark["number"] if mark else 0)
        options = {"background": self._choices.background}
        restart = self._restarts(home, self._peers, self._memory, self._sets, mark, asked, **options)
        run = functools.partial(restart.run, progress)
        try:
            outcome = run() if self._peers is ranks else ranks.together(run)
        finally:
            self._must_restore = self._must_restore or restart.changing
        ranks.together(functools.partial(self._begin_from, outcome, restart))
        self._life = new_life(ranks, home.lead, restart.newest_life)
        for listener in self._listeners:
            listener.restored(outcome)
        return outcome.point

    def _begin_from(self, outcome: Outcome, restart: Restart) -> None:
        """Go on from what a restart has given back. If it failed on another rank, this one too must restore again."""
        self._remarks.warn_once(restart.unkept)
        given, self._must_restore, self._broken = restart.number, False, ""
        self._home.first_start = self._home.first_start or given is None
        self._committed, self._number = outcome.record, self._number if given is None else given
        self._agreed, self._hidden, self._memory.away = given or 0, 0, memory.Away()
        if outcome.record:
            # A program that is killed again and again must not fill the disk.
            self._prune(outcome.record, outcome.record.number, just_committed=False)
        self._remarks.restored(outcome)

    def _before_restore(self) -> dict[str, Any] | None:
        root = self._root
        self._check("restore")
        self._work.drain()
        self._root.refuse_other(RestoreError, "cannot restore", "the listed files are untouched")
        if self._ranks.rank != self._home.lead:
            return None
        with root.reporting(RestoreError, "cannot restore", "the listed files are untouched"):
            mark = survey.finish_mark(root)
            if mark:
                # The life that wrote it may have died before this; then the sets go.
                root.disk.sync_dir(os.path.dirname(root.finished))
            return mark

    def adopt(self) -> SavePoint | None:
        """Go on from the sets that are here without giving one back: the files in place are newer, and whole.

        For a job script, in which each `hide` is a process of its own, and another one had called `restore` before.
        What is there as the newest complete set is returned, None if there is none. No set is changed. Serial only.
        """
        self._check("adopt")
        known = adopted(self._home, self._memory)
        self._adopted, self._must_restore = True, False
        self._number, self._life, self._committed = known.number, known.life, known.record
        self._sets.ended = known.ended
        for listener in self._listeners:
            listener.adopted(known.number, known.record)
        if not known.record:
            return None
        self._agreed = known.record.number
        files = tuple(file.path for file in known.record.files if file.has_bytes)
        number, step, when, extra = known.record.number, known.record.step, known.record.time, known.record.extra
        return SavePoint(number, step, when, files, extra=extra or {})

    @collective
    def hide(
        self, step: SupportsIndex | None = None, *, wait: bool | str = False, extra: Mapping[str, Any] | None = None
    ) -> SavePoint | None:
        """Move the listed files into safekeeping as one set, labelled `step`, with a few JSON values of `extra`.

        On return the files are out of the way and safe from the death of this process; with `wait`, and for the first
        set always, from power loss too. None: none of the files existed, so there was nothing to hide.
        On error the files of this call are where they were, or, if the disk refuses even that, the error says where;
        if it is the error of the set before (`SaveError`), nothing of this call was begun. Killed inside: `restore`
        gives this set or the previous one, whole.
        Collective if the ranks coordinate: all return, or all raise the same error; `step` and `extra` are the same on
        all. `UsageError` for a step that is no integer, or an extra of over 4096 bytes or of what JSON does not have.
        """
        begin, before, point, ready = time.perf_counter(), self._number, None, Ready()
        try:
            ready = self._get_ready(before + 1, step, wait, extra)
            go, ready.wait, ready.busy = self._agree_to_hide(before + 1, ready)
            if go:
                point = self._hand_over(before + 1, ready)
            else:
                self._number = before
            return point
        finally:
            end = time.perf_counter()
            if self._number > before:  # else there was nothing to hide, or it was refused at once
                took, waited, files = point is not None, ready.wait, ready.there.items
                for listener in self._listeners:
                    listener.hidden(self._number, begin, end, taken=took, waited=waited, files=files)

    def _get_ready(self, number: int, step: SupportsIndex | None, wait: bool | str, extra: Any) -> Ready:
        """Look for the files of this rank and take them. A failure is brought along to the agreement."""
        ready, home, probing = Ready(), self._home, self._choices.inflight != "off"
        common, mine = home.manifest.common  # until all are here another rank may be writing what the saver takes
        if probing:
            self._peers.arrive()
        if mine:
            self._all_here(ready)
        if self._peers.size > 1:
            self._number = number  # the same for all next time too, whoever fails
        try:
            ready.asked, ready.step = level_of("hide", wait, self._home.levels), self._as_step("hide", step)
            ready.extra = checked_extra(extra)
            self._check("hide")
            self._work.make_room()
            named = label(number, ready.step)
            self._root.refuse_other(SaveError, f"{named} not taken", "the files are where they were")
            ready.wait = max(self._must_wait(), ready.asked)
            for listener in self._listeners:
                listener.hiding(number)
            first = self._committed is None
            look = functools.partial(find.find, home.root, home.manifest, first=first)
            there = ready.there = look(away=self._away()) if home.active and not home.manifest.aloof else find.Found()
            if there.items or (home.active and self._peers.size > 1 and not there.missing):
                self._remarks.found(there)
                self._memory.check_kept(there.items)
                self._number = number
                anew = self._memory.begun_anew(self._root, there.items)
                for path, grows in anew.items():
                    self._remarks.begun_anew(path, grows)
                ready.wait = max(bool(anew), ready.wait)  # then no older set is whole
                how = home.page_cache, self._life, self._committed, self._sets, ready.extra
                carry = functools.partial(stage.carry, home.root, number, self._memory.away, lambda: self._committed)
                ready.taken = take.take(home.root, home.manifest, there.items, number, ready.step, *how, carry)
        except BaseException as error:
            ready.wait, ready.failure = 0, error
        ready.busy = self._work.busy
        if (probing or common) and not mine:
            self._all_here(ready)
        return ready

    def _all_here(self, ready: Ready) -> None:
        """On return all ranks are in `hide`. A message in flight is none that a restart would send again."""
        try:
            if self._choices.inflight == "off":
                self._peers.least(0)
            elif message := self._peers.in_flight():
                text = f"{message}, is in flight across this save point: a restart from it would lose the message"
                if self._choices.inflight == "error":
                    raise UsageError(f"{text}; receive it before hide; the files are where they were")
                logger.warning("%s", text)
        except BaseException as error:
            ready.failure = ready.failure or error

    def _away(self) -> Sequence[Item]:
        """The optional files of the newest set: not in W, unless the program has written them again."""
        if self._memory.away.number in self._sets.failures:
            stage.forget_failed(self._root, self._home.manifest, self._memory, self._committed)
        return self._memory.away.items

    def _hand_over(self, number: int, ready: Ready) -> SavePoint:
        """Store what all ranks have taken, now or in the background; what had waited there is needed no more."""
        self._must_restore, taken = False, ready.taken
        self._memory.hidden = [item for item in ready.there.items if item.kind == "append"]
        if ready.wait:
            self._save_now(number, taken)
            if not ready.asked and self._choices.background:
                self._begin_saver()  # so that the next `hide` need not
        elif taken:
            self._hidden = number
            job = functools.partial(self._save, taken, agreed=self._agreed)
            self._give_up(self._work.hand_over(job, taken, busy=ready.busy))
        self._memory.away = memory.Away(number, ready.there.optional)
        files = tuple(item.path for item in ready.there.items)
        extra = checked_extra(ready.extra)  # one of its own: the saver writes the other one down
        return SavePoint(number, ready.step, ready.time, files, extra=extra or {})

    def _as_step(self, verb: str, step: SupportsIndex | None) -> int | None:
        number = None if step is None else whole(f"{verb}: step", step)
        if self._ranks.too_large(number):
            raise UsageError(f"step {number} is too large: with several ranks it must fit into 62 bits")
        return number

    def _must_wait(self) -> bool:
        """Whether this rank cannot save in the background."""
        if not self._choices.background or (self._home.active and self._committed is None):
            return True
        return self._home.active and not self._begin_saver()

    def _begin_saver(self) -> bool:
        """Whether there is a saver thread: known before a file has moved."""
        if self._work.thread is None and any(entry.compress is not None for entry in self._home.manifest.entries):
            codec.load()
        return self._work.begin()

    def _give_up(self, older: Taken | None) -> None:
        """Of this set nobody needs anything: a newer one was taken on all ranks."""
        if older:
            for listener in self._listeners:
                listener.superseded(older)
            self._work.sweep(lambda: prune.give_up(self._root, older.number, self._sets))  # it keeps the lock

    def _agree_to_hide(self, number: int, ready: Ready) -> tuple[bool, int, bool]:
        """Whether there is a set, until when to wait for it, and whether any saver is busy. If anything failed on any
        rank, what was taken goes back, and all raise."""
        peers, failure, there = self._peers, ready.failure, ready.there
        newest = low_high(self._committed.number if self._committed else 0, self._home.active)
        flags = -(failure is not None), -ready.wait, -ready.busy, -there.present, -bool(there.missing)
        now = round((ready.taken.time if ready.taken else time.time()) * 1e6)
        brought = [value for listener in self._listeners for value in listener.brings()]
        failed, wait, busy, present, lacking, low, high, least, most, one, other, when, *told = peers.least(
            *flags, *low_high(step_key(ready.step), failure is None), *newest,
            *low_high(extra_key(ready.extra), failure is None), now, *brought,
        )  # fmt: skip
        ready.time = when / 1e6
        if ready.taken:  # the same on all ranks, as what stays of the sets may depend on it
            ready.taken = ready.taken._replace(time=ready.time)
        if not failed and low != -high:
            who = ranks_by_step(peers, ready.step)
            failed, failure = -1, UsageError(f"hide was called with different steps: {who}")
        elif not failed and one != -other:
            failed, failure = -1, UsageError("hide was called with different extra: all ranks must give the same")
        elif present and lacking and not failed:
            failed = -1
            if there.missing:
                failure = MissingFilesError(f"missing: {there.missing}, though other ranks have theirs{find.MAY_BE}")
        if failed or not present:
            if failed:
                self._sets.doubt()  # something of a set that was not taken may be left
            if ready.taken:
                failure = self._revoke(ready.taken, f"not taken ({failure or 'another rank failed'})", failure)
            peers.fail_together(self._broken_by(failure, number, "set"))
        # Only if all ranks name the same newest set. A rank that lags may lack any newer one.
        if least == -most:
            self._agreed = max(self._agreed, least)
        if present:
            self._remarks.something()
            for listener in self._listeners if told else ():
                listener.agreed(number, told, -wait, at_once=bool(wait) or not busy)
        else:
            self._remarks.nothing(self._committed, adopted=self._adopted)
        return bool(present), -wait, bool(busy)

    def _revoke(self, whose: Taken | Record, why: str, failure: BaseException | None) -> BaseException | None:
        """Give the files of this set back; the failure that all are to be told."""
        self._sets.doubt()
        try:
            aside = back.revoke(self._root, whose.number, f"{whose.label} {why}")
            if aside:
                logger.warning("%s %s%s", whose.label, why.partition(" (")[0], aside)
        except BaseException as error:
            return error
        return failure

    def _broken_by(self, failure: BaseException | None, number: int, *states: State) -> BaseException | None:
        """This failure as the program is told it; if files could not go back, the session is broken from now on. After
        an interrupt, or a fault of ours, that nobody could say: then the files of this set are looked for."""
        if isinstance(failure, back.NotPutBack):
            self._broken = str(failure)
            return SaveError(self._broken, failure.errno)
        if failure is not None and self._home.active and not isinstance(failure, SaveError):
            for kept in (os.path.join(self._root.state(state, number), "files") for state in states):
                if back.missing(self._root, kept):
                    why = back.cause_of(self._root, failure)
                    self._broken = f"set {number} not stored ({why}); what is missing is in {self._root.shown(kept)}"
        return failure

    def _save_now(self, number: int, taken: Taken | None) -> None:
        """Save what was taken; on return every rank has committed. If one cannot, all put their files back."""
        record: Record | None = None
        failure: BaseException | None = None
        held = self._work.hold()  # it is needed until this one is durable
        try:
            self._work.wait()
        except BaseException as error:  # of the set in flight, or Ctrl-C: nothing of this one is stored
            failure = self._revoke(taken, f"not taken ({error or 'interrupted'})", error) if taken else error
        try:
            record = self._secure(taken, give_back=True) if taken and failure is None else None
        except BaseException as error:
            failure = error
        if self._peers.least(-(failure is not None)) != (0,):
            self._work.go_on_with(held)
            if record:
                failure = self._revoke(record, "taken back", failure)
            self._peers.fail_together(self._broken_by(failure, number, "set", "failed"))
        self._committed, self._agreed, self._hidden = record, number, number
        self._give_up(held and held[1])
        if record:
            self._prune(record, number)

    def _save(self, taken: Taken, agreed: int) -> Record:
        """The work of the saver thread. `agreed`: the newest set that all ranks had committed when `hide` returned."""
        self._committed = record = self._secure(taken)
        self._prune(record, agreed if self._peers.size > 1 else record.number)
        return record

    def _secure(self, taken: Taken, *, give_back: bool = False) -> Record:
        begin = time.perf_counter()
        try:
            record = commit.secure(self._root, taken, self._committed, self._memory, give_back=give_back)
        except SaveError as error:
            self._sets.failed(taken.number, self._number if give_back else error)
            if self._adopted:  # the next hide is another process
                memory.keep_lost(self._root, self._memory)
            for listener in self._listeners:
                listener.failed(taken, error, time.perf_counter() - begin)
            raise
        seconds = time.perf_counter() - begin
        logger.info("saved %s: %s in %.3f s", record.label, amount(record.files), seconds)
        for listener in self._listeners:
            listener.stored(record, seconds, waited=give_back)
        return record

    def _prune(self, record: Record, agreed: int, *, just_committed: bool = True) -> None:
        try:
            prune.prune(self._root, record, self._home.keep, agreed, self._sets, just_committed=just_committed)
        except OSError as error:  # the set is safe; what was not removed is space, and is tried again next time
            logger.warning("%s: older sets not removed: %s", record.label, error)
        gone, self._sets.pruned = self._sets.pruned, []
        for listener in self._listeners:
            listener.pruned(gone)

    @property
    def finished(self) -> bool:
        """Whether `finish` has ended the session."""
        return self._closed == FINISHED

    def keep_prefixes(self) -> None:
        """From now on the program may cut the append files of the newest set, or begin them anew."""
        if self._committed:
            limit = self._home.manifest.setting("copy_append_below")
            self._remarks.warn_once(grown.keep_prefixes(self._root, self._committed, limit))

    @property
    def saving(self) -> bool:
        """Whether a set is in flight."""
        return self._work.saving

    @collective
    def wait(self) -> None:
        """Return when everything hidden so far is durable. Raises the `SaveError` of the set in flight if it failed.

        Collective if the ranks coordinate: durable on all of them.
        """

        def work() -> None:
            self._check("wait")
            self._work.drain()
            self._root.refuse_other(SaveError, "nothing is durable", "the listed files are untouched")

        self._peers.together(work)

    @collective
    def finish(self, step: SupportsIndex | None = None) -> None:
        """Declare the files now in place the result of the run, and end the session.

        If they were hidden and not written again (optional ones may be), the last set is put back first, and without
        `step` its step is that of the result; else they are a later state, without `step` with none. On return the
        files are durable, the sets are gone, and a later `restore` leaves the files alone. On error files and sets are
        as they were.
        Killed inside: `restore` gives the last set, or says that the run is finished.
        Collective: one rank marks the run as finished, when the files of all are durable.
        """
        ranks, peers = self._ranks, self._peers
        at, there = ranks.together(lambda: self._before_finish(step))
        written = any(item.kind == "move" for item in there.items) or bool(there.opened)
        low, high, anyone = peers.least(*low_high(step_key(at)), -written)
        if low != -high:
            ranks.fail_together(UsageError(f"finish was called with different steps: {ranks_by_step(peers, at)}"))
        again = ranks.together(lambda: self._stage_last(there, bool(anyone or written)))
        rows = ranks.together(lambda: self._result(there, again))
        whole = again is not None and again is self._committed
        at = again.step if at is None and again and whole else at
        at = ranks.share(at, self._home.lead)
        (number,) = ranks.least(-self._number)
        ranks.together(lambda: self._mark_finished(rows, -number, at))
        drop_sets(self._home, self._sets)
        last = self._committed if at is None and not whole else None
        self._remarks.finished(at, len(rows), last)
        for listener in self._listeners:
            listener.finished(-number, at)
        self._close(FINISHED)

    def _before_finish(self, step: SupportsIndex | None) -> tuple[int | None, find.Found]:
        at, home = self._as_step("finish", step), self._home
        self._check("finish")
        self._work.drain()
        self._root.refuse_other(SaveError, "not finished", "the listed files are untouched")
        there = find.find(home.root, home.manifest, ends=self._committed is not None) if home.active else find.Found()
        self._remarks.found(there._replace(many=None))
        return at, there

    def _stage_last(self, there: find.Found, written: bool) -> Record | None:
        """The last set, if its files are to be put back, since no rank has written any after it; or of it the optional
        ones that this rank has not written again."""
        last, root = self._committed, self._root
        moving = any(entry.kind == "move" for entry in self._home.manifest.entries)
        if written and there.missing:
            raise MissingFilesError(f"not finished: missing: {there.missing}, though other ranks have theirs")
        gone = [i for i in self._away() if written and not exists(root.disk, os.path.join(root.work, i.path))]
        if (written and not gone) or not moving or last is None:
            return None
        if self._hidden > last.number:
            lost = f"not finished: the files of set {self._hidden} were hidden and could not be saved"
            raise SaveError(f"{lost}; {last.label} is intact: restore() gives it back")
        if written:
            last = last._replace(files=tuple(file for item in gone for file in stage.of_entry(last, item)))
        try:
            stage.stage(root, last, memory.Memory() if written else self._memory)
        except read.Damaged as error:
            raise DamagedError(f"cannot finish: {last.label} is damaged: {error}; no file was touched") from error
        return last

    def _result(self, there: find.Found, again: Record | None) -> list[dict[str, Any]]:
        """Make the final files of this rank durable."""
        root, listed = self._root, self._home.manifest
        if again:
            swap.bring_in(root, again)
            there = find.find(root, listed)
        if not there.items and any(not entry.optional for entry in listed.entries):
            names = self._remarks.listed
            raise MissingFilesError(f"nothing to finish: there is no set, and none of these files exists: {names}")
        return commit.keep_result(root, there.items, self._memory, self._committed) if self._home.active else []

    def _mark_finished(self, rows: list[dict[str, Any]], number: int, step: int | None) -> None:
        if self._ranks.rank == self._home.lead:
            commit.finish(self._root, rows, number, step, self._life, __version__, self._committed)

    def close(self) -> None:
        """End the session and leave everything for the next start. Waits for the set in flight and raises its error.

        Not collective: a rank that fails must not wait for the others.
        """
        self._end(None)

    def _end(self, error: BaseException | None, stopped: str = "") -> None:
        if self._closed or os.getpid() != self._pid:  # a forked child has neither the set in flight nor the lock
            return
        self._work.remember()
        try:
            with undisturbed():  # also beside other ranks, since it is done for this one alone
                try:
                    self._work.drain()
                finally:
                    for listener in self._listeners:
                        listener.closing(error, stopped)
                    self._close("it was closed")
        finally:
            self._after()

    def _close(self, why: str) -> None:
        self._closed = why
        for listener in self._listeners:
            listener.closed()
        if not self._work.leave():  # else the saver is still at work, and the lock must hold until the process ends
            self._sets.end(self._root)
            self._root.disk.helpers.dismiss()
            self._home.release()

    def _after(self) -> None:
        for listener in self._listeners:
            listener.after(ended=bool(self._closed))

    def __enter__(self) -> Any:
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

    def _check(self, verb: str) -> None:
        if self._closed:
            raise UsageError(f"{verb} after the end of the session ({self._closed}): call init first")
        if os.getpid() != self._pid:
            raise UsageError(f"{verb} in a forked process: only process {self._pid}, which called init, may save")
        if self._must_restore and verb in ("hide", "finish"):
            raise UsageError(
                f"{verb} before restore, in a directory that has save points: call restore() first, "
                f"or remove {self._root.side} to start afresh; nothing was changed"
            )
        if self._broken and verb in ("hide", "finish"):
            raise SaveError(f"{verb} after {self._broken}: go back to the last set with restore(); nothing was changed")
