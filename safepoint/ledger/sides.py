"""One run to be compared, row by row, in one pass: what its ledgers say of each step that counts.

What a ledger says of a history that was given up does not count: a restart went back behind it. The first pass finds
where that was; the second gives the rows.
"""

from __future__ import annotations

import heapq
import json
import math
import os
from collections.abc import Iterator
from typing import Any, NamedTuple

from safepoint.disk import Disk
from safepoint.errors import NothingSavedError
from safepoint.ledger.lines import event_of, raw_lines, whole_but_sums
from safepoint.patterns import SIDE
from safepoint.root import logs
from safepoint.sealed import Unsealed, rows_of

REMEMBERED_SETS = 256  # the newest ones: a restart goes back to one of them
EVENTS = (b"saved", b"watch", b"restored", b"start")
DISK = Disk()


class Since(NamedTuple):
    """The restart that a line of a ledger comes after: how many there were, and what it gave back."""

    restarts: int = 0
    set: int | None = None
    step: int | None = None


class Sum(NamedTuple):
    """One file of a set, in a ledger."""

    path: str
    size: int
    checksum: str


class Told(NamedTuple):
    """The beginning of what a ledger has of a watched value."""

    name: str
    kind: str
    shape: tuple[int, ...]
    checksum: str


class Row(NamedTuple):
    """What a ledger says of the files, or values, of one rank at one step."""

    step: int
    rank: int
    what: str  # files, values
    content: Any
    at: str  # file:line in the program
    number: int  # of the set; 0: values
    moment: float  # when it was taken
    since: Since

    @property
    def sums(self) -> dict[str, list[Any]]:
        """Size and checksum of each file."""
        try:
            rows = json.loads(self.content) if isinstance(self.content, bytes) else self.content
            return {row.path: [row.size, row.checksum] for row in rows_of(Sum, Sum._fields, rows)}
        except (ValueError, RecursionError, Unsealed):  # nobody's line
            return {}


class Side:
    """The ledgers of one run: a directory with a side directory, such a directory itself, or one log."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.work: str | None = None  # where the sets are, if they are there
        self.logs = self._find(path)
        if not self.logs:
            raise NothingSavedError(f"no ledger in {path}: it has no log of a run")
        self.sampled = False
        self.restarts = 0
        self.unsaid: set[tuple[int, int]] = set()  # step and rank of sets that a restart completed, and has no row of

    def _find(self, path: str) -> dict[int, str]:
        if os.path.isfile(path):
            return {0: os.path.realpath(path)}
        for side in (os.path.join(path, SIDE), path):
            if os.path.isdir(side) and (found := logs(DISK, side)):
                self.work = os.path.realpath(os.path.dirname(os.path.abspath(side)))
                return found
        log = os.path.join(path, "log.jsonl")
        return {0: os.path.realpath(log)} if os.path.isfile(log) else {}

    def rows(self) -> Iterator[Row]:
        """All ranks', nearly ascending by step."""
        several = [self._of(rank, log) for rank, log in self.logs.items()]
        return several[0] if len(several) == 1 else heapq.merge(*several, key=lambda row: row.step)

    def _of(self, rank: int, log: str) -> Iterator[Row]:
        cuts, number = _cuts(log), 0
        steps, since, restarts = _Steps(), Since(), 0
        for position, line in _lines(log):
            while number < len(cuts) and cuts[number].position <= position:
                number += 1
            event = line["event"]
            if event in ("restored", "start"):
                if event == "restored" and not line.get("finished"):
                    restarts += 1
                    since = Since(restarts, line.get("set"), line.get("step"))
                    if steps.restored(line.get("set")):
                        self.unsaid.add((steps.at(line.get("step")), rank))
                    self.restarts = max(self.restarts, restarts)
                continue
            self.sampled = self.sampled or bool(line.get("snapshot"))
            cut = cuts[number] if number < len(cuts) else _Cut()
            row = _row(line, rank, steps, since)
            if row and (row.number <= cut.set if row.number else row.step <= cut.step):
                yield row


def _row(line: dict[str, Any], rank: int, steps: _Steps, since: Since) -> Row | None:
    try:
        if line["event"] == "saved":
            if "sums" not in line:
                return None
            number, content = int(line["set"]), line["sums"]
            step = steps.of(number, line.get("step"), content)
            return Row(step, rank, "files", content, line["at"], number, line["time"] - line["seconds"], since)
        rows_of(Told, Told._fields, [[name, *told[:3]] for name, told in line["values"].items()])
        if not {type(n) for told in line["values"].values() for n in told[3:]} <= {int, float, type(None)}:
            return None
        return Row(int(line["step"]), rank, "values", line["values"], line["at"], 0, line["time"], since)
    except (AttributeError, KeyError, TypeError, ValueError, Unsealed):
        return None


class _Steps:
    """A number for sets whose step the program did not tell: their order, but a set that is made of just what a restart
    gave back is that set again."""

    def __init__(self) -> None:
        self._last: dict[int, tuple[int, Any]] = {}  # of the newest sets
        self._at, self._again, self._newest = 0, None, 0

    def restored(self, number: int | None) -> bool:
        """Whether the set was completed by the restart, which notes no "saved"."""
        unsaid = (number or 0) > self._newest
        self._at, self._again = self._last.get(number or 0, (self._at + unsaid, None))
        self._newest = number or 0
        return unsaid

    def at(self, step: int | None) -> int:
        return self._at if step is None else int(step)

    def of(self, number: int, step: int | None, content: Any) -> int:
        self._newest = number
        if step is not None:
            return int(step)
        self._at += content != self._again
        self._again = None
        self._last[number] = (self._at, content)
        if len(self._last) > REMEMBERED_SETS:
            del self._last[next(iter(self._last))]
        return self._at


class _Cut(NamedTuple):
    """Up to this place of a log only what is not above these belongs to the history that was not given up."""

    position: float = math.inf
    set: float = math.inf
    step: float = math.inf


def _cuts(log: str) -> list[_Cut]:
    """Where the history went back, and to what; of several the earliest one counts for all before it."""
    found: list[_Cut] = []
    began = None  # a new history may begin here, if anything comes of it
    position = 0
    for raw in raw_lines(DISK, log):
        event = event_of(raw)
        if event in (b"saved", b"watch"):
            if began is not None:
                found.append(_Cut(began, -math.inf, -math.inf))
                began = None
        elif event in (b"start", b"restored") and (line := whole_but_sums(raw)):
            if event == b"start" or line.get("finished"):
                began = position
            else:
                began = None
                step, number = line.get("step"), line.get("set")
                step = math.inf if step is None else step
                found.append(_Cut(position, math.inf if number is None else number, step))
        position += len(raw)
    least_set = least_step = math.inf
    for n in range(len(found) - 1, -1, -1):
        least_set, least_step = min(least_set, found[n].set), min(least_step, found[n].step)
        found[n] = _Cut(found[n].position, least_set, least_step)
    return found


def _lines(log: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Position and content of each whole line that matters."""
    position = 0
    for raw in raw_lines(DISK, log):
        if event_of(raw) in EVENTS and (line := whole_but_sums(raw)):
            yield position, line
        position += len(raw)


def find(side: Side, checksums: set[str]) -> dict[str, list[tuple[int, str, int]]]:
    """Where else in a run there are files or values with these checksums: step, name, rank."""
    wanted = [checksum.encode() for checksum in checksums if checksum]
    found: dict[str, list[tuple[int, str, int]]] = {}
    for rank, log in side.logs.items():
        for raw in raw_lines(DISK, log):
            if any(checksum in raw for checksum in wanted):
                _note_match(raw, rank, checksums, found)
    return found


def _note_match(raw: bytes, rank: int, checksums: set[str], found: dict[str, list[tuple[int, str, int]]]) -> None:
    try:
        line = json.loads(raw)
        step = line["step"] if line["step"] is not None else line["set"]
        values = [(name, told[2]) for name, told in line.get("values", {}).items()]
        for name, checksum in [*((row[0], row[2]) for row in line.get("sums", ())), *values]:
            if checksum in checksums:
                found.setdefault(checksum, []).append((int(step), name, rank))
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError, RecursionError):
        return
