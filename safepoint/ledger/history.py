"""What the logs of a run tell: its lives, their sets and failures, and where the time went.

The clock of the machine may have gone back: such jumps are taken out, and named. A log tells nothing of the time
between its last line and a kill: that is estimated, and named so.
"""

from __future__ import annotations

import math
from itertools import pairwise
from statistics import median
from typing import Any

from safepoint.disk import Disk, files, kernel
from safepoint.disk.files import exists
from safepoint.errors import NothingSavedError
from safepoint.ledger.lines import Superseded, whole_lines
from safepoint.ledger.lives import Event, Life, Part, Run, Save
from safepoint.patterns import SIDE
from safepoint.record import label
from safepoint.restoring.read import Damaged
from safepoint.restoring.survey import read_record, refuse_links
from safepoint.root import Root, roots

NOTHING_MORE_S = 0.5  # a program that ends so soon after its last set was durable has computed nothing more


def read(disk: Disk, work: str) -> Run:
    """The run in W as its logs tell it; nothing is changed. Raises `NothingSavedError` if there is no log."""
    found = roots(disk, work)[0] if exists(disk, Root(work).side) else []
    logs = {root.rank: whole_lines(files.read(disk, root.log)) for root in found if exists(disk, root.log)}
    logs = {rank: log for rank, log in logs.items() if log[0]}
    if not logs:
        raise NothingSavedError(
            f"nothing to report: no log of a run in {work}/{SIDE}; was safepoint ever started there?"
        )
    by_rank = {root.rank: root for root in found if root.rank in logs}
    rank = _saver(by_rank)
    lives, events, jumped = _lives(logs[rank][0], rank)
    if not lives[-1].ending or (lives[-1].ending == "ended" and lives[-1].many):
        held = kernel.held([by_rank[rank].lock])[0]
        lives[-1].ending = "running" if held else lives[-1].ending or "killed"
    for life in lives:
        if life.again and not life.saves and life.ending in ("killed", "ended", "stopped"):
            life.ending = "finished"  # it found the run finished, and had nothing to do
    run = Run(work, rank, len(logs), lives, events, sum(log[1] for log in logs.values()), jumped)
    _attribute_losses(run)
    run.parts.append(_part(rank, lives))
    first = logs[rank][0][0]
    begin = min(first["time"], first.get("began", math.inf))
    for other in sorted(set(logs) - {rank}):
        its_lives, its_events, _ = _lives(logs[other][0], other, begin)
        run.parts.append(_part(other, its_lives))  # now: the lives of the time line take up what is added to them
        _add(run, its_lives, its_events)
    run.parts = sorted((part for part in run.parts if part.sets), key=lambda part: part.rank)
    run.events.sort(key=lambda event: (event.at, event.life))
    return run


def _part(rank: int, lives: list[Life]) -> Part:
    """What this rank had to do."""
    saves = [save for life in lives for save in life.saves if not save.error]
    storing, blocked = [save.seconds for save in saves], [s.blocked for s in saves if s.blocked is not None]
    return Part(
        rank, len(saves), sum(save.bytes for save in saves), (median(storing or [0.0]), max(storing, default=0.0)),
        (median(blocked), max(blocked)) if blocked else None,
    )  # fmt: skip


def _saver(found: dict[int, Root]) -> int:
    """The rank whose log tells most: the one that the newest record calls the saver; else the lowest."""
    lowest = min(found)
    for number in reversed(found[lowest].numbers("set")):
        try:
            refuse_links(found[lowest], number)
            saver = read_record(found[lowest], number).saver
            return saver if saver in found else lowest
        except (OSError, Damaged):
            continue
    return lowest


class _Clock:
    """The machine's clock without its jumps back."""

    def __init__(self, begin: float) -> None:
        self.offset, self.last, self.jumped = -begin, 0.0, 0.0

    def __call__(self, wall: float) -> float:
        back = self.last - (wall + self.offset)
        if back > 0:
            self.offset += back
            self.jumped += back
        self.last = wall + self.offset
        return self.last


def _lives(
    lines: list[dict[str, Any]], rank: int, begin_of_run: float = math.inf
) -> tuple[list[Life], list[Event], float]:
    """The lives in the log of one rank, the events in words, and how far its clock went back."""
    clock = _Clock(min(begin_of_run, lines[0]["time"], lines[0].get("began", math.inf)))
    lives: list[Life] = []
    events = []
    room = _Room()
    for line in lines:
        before = clock.last
        now = clock(line["time"])
        if line.get("by_hand"):  # `safepoint restore`: no start of the program
            if lives:
                subject, words = label(line.get("set") or 0, line.get("step")), "restored by hand"
                events.append(Event(now, line["time"], len(lives), rank, "restored", words, subject, False))
            continue
        how = _begins(line, lives[-1] if lives else None)
        if how:
            if lives:
                _ended(lives[-1], "rolled back" if how == "roll-back" else "killed", rank)
            opening = math.inf if how == "roll-back" else max(0.0, line["time"] - line.get("began", line["time"]))
            begin = max(before, now - opening)
            lives.append(Life(how, line["pid"], begin, marked="began" in line))
        life = lives[-1]
        life.end = now
        _take_up(life, line, now)
        room.take_up(line, life)
        subject = label(line.get("set") or 0, line.get("step"))
        words, bad = _words(line, subject), line["event"] == "failed" or "error" in line
        events.append(Event(now, line["time"], len(lives), rank, line["event"], words, subject, bad))
    if not lives:
        raise NothingSavedError("nothing to report: the log tells of no start of a program")
    _ended(lives[-1], "", rank)
    return lives, events, clock.jumped


def _begins(line: dict[str, Any], life: Life | None) -> str:
    """How a new life begins with this line; empty if it goes on."""
    event = line["event"]
    if event == "adopted" and life is not None and life.ending != "finished":
        return ""  # the next process of the same job script
    other = life is None or "began" in line or line["pid"] != life.pid or (event == "start" and not life.marked)
    if other:
        return "restart" if event == "restored" else "start"
    return "roll-back" if event == "restored" and life is not None and life.ready >= 0 else ""


def _ended(life: Life, ending: str, rank: int) -> None:
    """Close the books of a life: what it spent in `hide`, set by set."""
    if life.many and life.ending == "ended" and ending == "killed":
        life.ending = ""  # each of its processes ended in order; the job did not
    life.ending = life.ending or ending
    if life.ready < 0 and not life.many and life.ending in ("error", "ended", "stopped"):
        life.ending, life.ready = "not begun", life.end  # as when `restore` refused; it took nothing up
    if life.ready < 0:
        life.ready = life.begin
    by_number = {save.number: save for save in life.saves}
    for number, seconds in life.waits:
        life.blocked += seconds
        save = by_number.get(number)
        if save:
            save.blocked = (save.blocked or 0.0) + seconds
    for save in life.saves:
        if save.waited and save.blocked is None:  # it died in this very `hide`, or the log is an old one
            save.blocked = save.seconds
            life.blocked += save.blocked
        if save.blocked is not None:
            save.slowest = (save.blocked, rank)


def _take_up(life: Life, line: dict[str, Any], now: float) -> None:
    """Enter a line into its life."""
    event, number, step = line["event"], line.get("set"), line.get("step")
    if "superseded" in line:
        given_up = Superseded(*line["superseded"])
        life.superseded, life.blocked = life.superseded + given_up.sets, life.blocked + given_up.seconds
    life.waits += [(int(number), float(seconds)) for number, seconds in line.get("blocked", ())]
    if event in ("saved", "failed"):
        seconds, waited = float(line.get("seconds", 0.0)), bool(line.get("waited", False))
        save = Save(int(number or 0), step, now, line["time"], seconds, waited, length=seconds)
        save.files, save.bytes, save.stored = (int(line.get(key, 0)) for key in ("files", "bytes", "stored"))
        save.error = str(line.get("error", "failed")) if event == "failed" else ""
        life.saves.append(save)
        life.ready = life.ready if life.ready >= 0 else life.begin
    elif event == "restored":
        life.ready, life.step, life.set = now, step, number
        if line.get("taken") is not None:
            life.taken = now - max(0.0, line["time"] - float(line["taken"]))
        life.again = bool(line.get("finished", False))
        life.passed_over = [str(reason) for reason in line.get("passed_over", ())]
    elif event == "start":
        life.ready = now
    elif event == "watch":
        life.ready = life.ready if life.ready >= 0 else life.begin
    elif event == "stopping":
        life.asked = now
    elif event == "adopted":
        life.many, life.pid, life.ending = True, line["pid"], ""
    elif event == "finished":
        life.ending, life.result = "finished", step
    elif event == "ended":
        life.ending, life.error = "error" if "error" in line else "ended", str(line.get("error", ""))
    elif event == "stopped":
        life.ending = "stopped"


class _Room:
    """What the sets of a rank take on the disk, line by line. `told`: the log is of a version that says which go."""

    def __init__(self) -> None:
        self._there: dict[int, int] = {}
        self._total = 0
        self._told = False

    def take_up(self, line: dict[str, Any], life: Life) -> None:
        """A set that was saved is told of all that are there."""
        number = int(line.get("set") or 0)
        if "there" in line:
            alike, left = next(reversed(self._there.values()), 0), {int(each) for each in line["there"]}
            self._told = True
            for gone in self._there.keys() - left:  # removed just before a kill
                self._drop(gone)
            for other in left - self._there.keys():  # completed by this restart: no line tells its size
                self._add(other, alike)
        for gone in line.get("pruned", ()):
            self._drop(gone)
        if line["event"] == "saved":
            self._add(number, life.saves[-1].stored)
            life.saves[-1].use = self._total if self._told else None
        elif line["event"] == "finished":
            self._there, self._total = {}, 0

    def _add(self, number: int, size: int) -> None:
        self._drop(number)
        self._there[number] = size
        self._total += size

    def _drop(self, number: int) -> None:
        self._total -= self._there.pop(number, 0)


def _words(line: dict[str, Any], subject: str) -> str:
    """What a line says."""
    event, step = line["event"], line.get("step")
    names = [str(name) for name in line.get("aside") or ()]
    aside = [f"half-written files moved aside: {', '.join(names)}"] if names else []
    if event == "saved":
        return f"saved {subject}"
    if event == "failed":
        return str(line.get("error", f"{subject} not saved"))
    if event == "restored" and line.get("finished"):
        return "started again after the run was finished; the files were left alone"
    if event == "restored":
        return "; ".join([f"restored {subject}", *map(str, line.get("passed_over", ())), *aside])
    if event == "finished":
        return "finished" if step is None else f"finished at step {step}"
    if event in ("stopping", "stopped"):
        return f"{event}: {line['why']}" if line.get("why") else event
    if event == "ended":
        return f"ended by an error: {line['error']}" if "error" in line else "ended before the result"
    return "; ".join(
        [{"start": "started, with nothing to restore", "adopted": f"went on from {subject}"}.get(event, event), *aside]
    )


def _attribute_losses(run: Run) -> None:
    """What each restart gave up: the time since the set that it began from, and the steps."""
    lives, interval = [life for life in run.lives if life.ending != "not begun"], run.interval or 0.0
    for position, (life, after) in enumerate(pairwise(lives)):
        if life.ending == "finished" or after.again or (life.again and not life.saves):
            continue
        since = _taken(lives[: position + 1], after)
        if _all_saved(life, since):
            continue
        if since > life.end:  # completed by the restore: a sign of life after the last line
            life.end = min(since, after.begin)
        for earlier in reversed(lives[: position + 1]):
            if earlier.end <= since or earlier.ending == "finished":
                break
            earlier.kept = min(earlier.kept, max(since, earlier.ready))
        if life.ending == "killed":
            following = run.lives[run.lives.index(life) + 1]
            life.unseen = min(following.begin - life.end, interval / 2)
        if life.reached is not None and after.step is not None:
            life.repeated = max(0, life.reached - after.step)


def _all_saved(life: Life, since: float) -> bool:
    """Whether a life that ended in order had put all that it computed into the set that was taken at `since`."""
    newest = next((save for save in reversed(life.saves) if not save.error), None)
    if newest is None or since < newest.hide[1]:
        return False
    if life.ending == "stopped":
        return since >= life.asked
    return life.ending == "ended" and life.end - newest.at < NOTHING_MORE_S


def _taken(lives: list[Life], after: Life) -> float:
    """When the set was taken that the next life began from; before all if it began from nothing."""
    if after.set is None:
        return -1.0
    for life in reversed(lives):
        for save in reversed(life.saves):
            if save.number == after.set:
                return save.hide[1]
    return -1.0 if after.taken is None else after.taken  # the process died first, and the restore completed it


def _add(run: Run, lives: list[Life], events: list[Event]) -> None:
    """Add the sets of another rank to those of the time line: the same number, at about the same time."""
    by_number: dict[int, list[Save]] = {}
    for save in run.saves:
        by_number.setdefault(save.number, []).append(save)
    own_rank = events[0].rank
    for event in events:  # its lives may be fewer than those of the time line
        event.life = max(1, sum(life.begin <= event.at for life in run.lives))
    for life in lives:
        for part in life.saves:
            whole = min(by_number.get(part.number, ()), key=lambda save: abs(save.wall - part.wall), default=None)
            if whole is None:
                continue
            whole.files, whole.bytes, whole.stored = (
                whole.files + part.files, whole.bytes + part.bytes, whole.stored + part.stored,
            )  # fmt: skip
            whole.use = None if None in (whole.use, part.use) else (whole.use or 0) + (part.use or 0)
            whole.seconds = max(whole.seconds, part.seconds)
            whole.error = whole.error or part.error
            if part.blocked is not None and (whole.slowest is None or part.blocked > whole.slowest[0]):
                whole.slowest = (part.blocked, own_rank)
    run.events += [event for event in events if event.bad]
