"""What the logs of a run tell: its lives, their sets and failures, and where the time went.

A *life* is one stretch of computing: from a start, or from a roll-back in the same process, to its last sign of life.
All times are seconds on the run's own clock, which begins with the first life and never goes back, whatever the clock
of the machine did. A log tells nothing of the time between its last line and a kill: that is estimated, and named so.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median
from typing import Any

from safepoint.cli.log import whole_line
from safepoint.disk import Disk
from safepoint.errors import NothingSavedError
from safepoint.manifest import SIDE
from safepoint.record import Root, label, roots
from safepoint.restore import Damaged, read_record, refuse_links

ENDINGS = {
    "finished": "finished", "running": "still running", "killed": "killed", "error": "ended by an error",
    "rolled back": "rolled back", "ended": "ended before the result", "stopped": "stopped in order",
    "not begun": "ended before it had begun",
}  # fmt: skip
FAILURES = ("killed", "error", "rolled back")
AT_ONCE = 0.5  # seconds: a program that ends so soon after its last set was durable has computed nothing more


@dataclass
class Save:
    """One set, stored or failed; `at` is when that was known. Sizes are of all ranks, `seconds` of the slowest."""

    number: int
    step: int | None
    at: float
    wall: float  # the same by the clock of the machine, seconds since the epoch
    seconds: float
    waited: bool  # the program stood still until then, and not only while its files moved away
    files: int = 0
    bytes: int = 0
    stored: int = 0
    error: str = ""
    blocked: float | None = None  # seconds that `hide` kept the program; None: the log does not say
    slowest: tuple[float, int] | None = None  # seconds and rank, of the rank that `hide` kept longest
    length: float = 0.0  # seconds, of storing on the time line's own rank

    @property
    def name(self) -> str:
        return f"set {self.number}" if self.step is None else f"set {self.number} (step {self.step})"

    @property
    def hide(self) -> tuple[float, float]:
        """When the program stood still."""
        end = self.at if self.waited else self.at - self.length
        return end - (self.blocked or 0.0), end


@dataclass
class Life:
    how: str  # start, restart, roll-back
    pid: int
    begin: float
    ready: float = -1.0  # when its files were in place
    end: float = 0.0  # last sign of life
    ending: str = ""
    error: str = ""
    step: int | None = None  # what it began from
    set: int | None = None
    again: bool = False  # it began after the run was finished
    passed_over: list[str] = field(default_factory=list)
    saves: list[Save] = field(default_factory=list)
    result: int | None = None  # the step that it finished at
    blocked: float = 0.0  # seconds in `hide`, those of sets that died with it included
    kept: float = math.inf  # what was computed later than this was computed again
    unseen: float = 0.0  # seconds, estimated: at work after the last line of the log, and lost
    repeated: int = 0  # steps that the life after this one had to compute again
    marked: bool = False  # its beginning is in the log
    many: bool = False  # of many processes, as a job script makes them
    taken: float | None = None  # when the set that it began from was taken
    asked: float = -1.0  # when it was asked to stop; before all if it was not
    waits: list[tuple[int, float]] = field(default_factory=list)

    @property
    def reached(self) -> int | None:
        steps = [self.step, self.result, *(save.step for save in self.saves)]
        return max((step for step in steps if step is not None), default=None)

    @property
    def alive(self) -> float:
        return self.end - self.begin

    @property
    def restoring(self) -> float:
        return self.ready - self.begin

    @property
    def lost(self) -> float:
        """Seconds of computing that were in vain, as far as the log shows."""
        if self.kept >= self.end:
            return 0.0
        blocked = sum(save.blocked or 0.0 for save in self.saves if save.hide[0] >= self.kept)
        return max(0.0, self.end - self.kept - blocked)

    @property
    def computing(self) -> float:
        return max(0.0, self.alive - self.restoring - self.blocked - self.lost)


@dataclass
class Happening:
    """One line of a log, in words."""

    at: float
    wall: float
    life: int
    rank: int
    event: str
    text: str
    subject: str  # the set
    bad: bool  # a failure


@dataclass
class Run:
    work: str
    rank: int  # whose log the time line is
    ranks: int
    lives: list[Life]
    events: list[Happening]
    torn: int  # lines that could not be read
    jumped: float  # seconds that the clock of the machine went back, in all

    @property
    def saves(self) -> list[Save]:
        return [save for life in self.lives for save in life.saves]

    @property
    def last(self) -> Life:
        """The last life that had begun; if none had, the last."""
        return next((life for life in reversed(self.lives) if life.ending != "not begun"), self.lives[-1])

    @property
    def wall(self) -> float:
        return max(life.end for life in self.lives)

    @property
    def alive(self) -> float:
        return sum(life.alive + life.unseen for life in self.lives)

    @property
    def failures(self) -> int:
        return sum(life.ending in FAILURES for life in self.lives)

    @property
    def state(self) -> str:
        return self.last.ending

    @property
    def interval(self) -> float | None:
        """Seconds of computing between two sets, the median; None: there were never two in one life."""
        spans = []
        for life in self.lives:
            hides = sorted(save.hide for save in life.saves)
            spans += [max(0.0, later[0] - earlier[1]) for earlier, later in pairwise(hides)]
        return median(spans) if spans else None

    @property
    def cost(self) -> float | None:
        """Seconds that a set kept the program waiting, the mean; None: the log does not say."""
        known = [save.blocked for save in self.saves if save.blocked is not None]
        return sum(known) / len(known) if known else None


def read(disk: Disk, work: str) -> Run:
    """The run in W as its logs tell it; nothing is changed. Raises `NothingSavedError` if there is no log."""
    found = roots(disk, work)[0] if disk.exists(Root(work).side) else []
    logs = {root.rank: _lines(disk.read(root.log)) for root in found if disk.exists(root.log)}
    logs = {rank: log for rank, log in logs.items() if log[0]}
    if not logs:
        raise NothingSavedError(
            f"nothing to report: no log of a run in {work}/{SIDE}; was safepoint ever started there?"
        )
    by_rank = {root.rank: root for root in found if root.rank in logs}
    rank = _saver(disk, by_rank)
    lives, events, jumped = _lives(logs[rank][0], rank)
    if not lives[-1].ending or (lives[-1].ending == "ended" and lives[-1].many):
        held = disk.held([by_rank[rank].lock])[0]
        lives[-1].ending = "running" if held else lives[-1].ending or "killed"
    for life in lives:
        if life.again and not life.saves and life.ending in ("killed", "ended", "stopped"):
            life.ending = "finished"  # it found the run finished, and had nothing to do
    run = Run(work, rank, len(logs), lives, events, sum(log[1] for log in logs.values()), jumped)
    _attribute_losses(run)
    first = logs[rank][0][0]
    begin = min(first["time"], first.get("began", math.inf))
    for other in sorted(set(logs) - {rank}):
        _add(run, *_lives(logs[other][0], other, begin)[:2])
    run.events.sort(key=lambda event: (event.at, event.life))
    return run


def _lines(data: bytes) -> tuple[list[dict[str, Any]], int]:
    """The lines of a log that are whole, and how many are not: a power cut tears the last one of a life."""
    whole, torn = [], 0
    for row in data.split(b"\n"):
        if not row.strip():
            continue
        line = whole_line(row)
        if line:
            whole.append({"pid": 0, **line})
        torn += not line
    return whole, torn


def _saver(disk: Disk, found: dict[int, Root]) -> int:
    """The rank whose log tells most: the one that the newest record calls the saver; else the lowest."""
    lowest = min(found)
    for number in reversed(found[lowest].numbers(disk, "set")):
        try:
            refuse_links(disk, found[lowest], number)
            saver = read_record(disk, found[lowest], number).saver
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
) -> tuple[list[Life], list[Happening], float]:
    """The lives in the log of one rank, the events in words, and how far its clock went back."""
    clock = _Clock(min(begin_of_run, lines[0]["time"], lines[0].get("began", math.inf)))
    lives: list[Life] = []
    events = []
    for line in lines:
        before = clock.last
        now = clock(line["time"])
        if line.get("by_hand"):  # `safepoint restore`: no start of the program
            if lives:
                events.append(
                    Happening(
                        now,
                        line["time"],
                        len(lives),
                        rank,
                        "restored",
                        "restored by hand",
                        label(line.get("set") or 0, line.get("step")),
                        False,
                    )
                )
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
        subject = label(line.get("set") or 0, line.get("step"))
        words, bad = _words(line, subject), line["event"] == "failed" or "error" in line
        events.append(Happening(now, line["time"], len(lives), rank, line["event"], words, subject, bad))
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
    return (
        since >= life.asked if life.ending == "stopped" else life.ending == "ended" and life.end - newest.at < AT_ONCE
    )


def _taken(lives: list[Life], after: Life) -> float:
    """When the set was taken that the next life began from; before all if it began from nothing."""
    if after.set is None:
        return -1.0
    for life in reversed(lives):
        for save in reversed(life.saves):
            if save.number == after.set:
                return save.hide[1]
    return -1.0 if after.taken is None else after.taken  # the process died first, and the restore completed it


def _add(run: Run, lives: list[Life], events: list[Happening]) -> None:
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
            whole.seconds = max(whole.seconds, part.seconds)
            whole.error = whole.error or part.error
            if part.blocked is not None and (whole.slowest is None or part.blocked > whole.slowest[0]):
                whole.slowest = (part.blocked, own_rank)
    run.events += [event for event in events if event.bad]
