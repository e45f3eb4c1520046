"""Two runs compared by their ledgers, step by step, in one pass and constant memory: what differs first, and where.

What a ledger says of a history that was given up (a restart went back behind it) does not count. Steps are matched by
their number, not by the order in which they come. Lines of one step that lie further apart than `WINDOW` steps, which
no loop does, count as different steps.
"""

from __future__ import annotations

import errno
import fnmatch
import heapq
import io
import json
import math
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

from safepoint.cli.contents import Difference
from safepoint.cli.log import whole_line
from safepoint.disk import Disk
from safepoint.errors import NothingSavedError
from safepoint.manifest import SIDE
from safepoint.record import Unsealed, logs, rows_of

WINDOW = 256  # steps that wait for their counterpart
ENOUGH = 20  # steps at which a file differs by value: then its bytes alone are looked at
SHOWN = 8  # differences of the first differing step
LARGEST, LONGEST = 64 << 30, 64 << 20  # bytes of a log, and of a line, that are read
SUMS = b', "sums": '
KNOWN = ("saved", "watch", "restored", "start")
EVENTS = {name.encode() for name in KNOWN}
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


@dataclass(frozen=True)
class Rules:
    """What counts as the same. `tolerances`: name (a glob), relative and absolute; the last that fits decides."""

    exclude: tuple[str, ...] = ()
    tolerances: tuple[tuple[str, float, float], ...] = ()

    def excluded(self, name: str) -> bool:
        return any(fnmatch.fnmatchcase(name, pattern) for pattern in self.exclude)

    def tolerance(self, name: str) -> tuple[float, float]:
        fitting = [(r, a) for pattern, r, a in self.tolerances if fnmatch.fnmatchcase(name, pattern)]
        return fitting[-1] if fitting else (0.0, 0.0)


@dataclass
class Item:
    """One file or value that differs at one step. `a`, `b`: the rows; `text`: by how much, if that is known."""

    step: int
    name: str
    what: str
    rank: int
    a: Row | None
    b: Row | None
    checksums: tuple[str, str] = ("", "")
    text: str = ""
    difference: Difference | None = None

    @property
    def since(self) -> Since:
        row = self.b or self.a
        return row.since if row else Since()


@dataclass
class Trouble:
    """A name that differs: at how many steps, and from which to which."""

    steps: int
    first: int
    last: int


@dataclass
class Comparison:
    """`first`: what differs at the lowest differing step, in the order in which it came about."""

    steps: int = 0  # that both have
    equal: int = 0  # of these
    before: int = 0  # of these again, before the first difference
    tolerated: int = 0  # files and values whose bytes differ, but not the values, or only within the tolerance
    resumed: int = 0  # steps that B has from after a restart
    late: int = 0  # lines of steps that were over: their numbers went back without a restart
    only: list[int] = field(default_factory=lambda: [0, 0])  # steps that one side alone has
    first: list[Item] = field(default_factory=list)
    names: dict[str, Trouble] = field(default_factory=dict)
    compared: set[str] = field(default_factory=set)  # names
    sampled: bool = False  # sets of a watched program: their numbers are no steps of it
    restarts: tuple[int, int] = (0, 0)
    ranks: tuple[int, int] = (0, 0)

    @property
    def differs(self) -> bool:
        return bool(self.first)

    def same(self) -> None:
        """One more step that is equal."""
        self.equal += 1
        self.before += not self.first

    def add(self, items: list[Item]) -> None:
        """What differs at one step."""
        step = items[0].step
        if not self.first or step < self.first[0].step:
            self.first = items
        for item in items:
            known = self.names.setdefault(item.name, Trouble(0, step, step))
            known.steps += 1
            known.first, known.last = min(known.first, step), max(known.last, step)


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
                    steps.restored(line.get("set"))
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
        self._at, self._again = 0, None

    def restored(self, number: int | None) -> None:
        unsaid = (number or 0) > max(self._last, default=0)  # it was completed by the restart, which notes no "saved"
        self._at, self._again = self._last.get(number or 0, (self._at + unsaid, None))

    def of(self, number: int, step: int | None, content: Any) -> int:
        if step is not None:
            return int(step)
        self._at += content != self._again
        self._again = None
        self._last[number] = (self._at, content)
        if len(self._last) > WINDOW:
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
    for raw in _raw(log):
        event = _event(raw)
        if event in (b"saved", b"watch"):
            if began is not None:
                found.append(_Cut(began, -math.inf, -math.inf))
                began = None
        elif event in (b"start", b"restored") and (line := _whole(raw)):
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


def _event(raw: bytes) -> bytes:
    """What a line tells of, without taking all of it apart; each begins with its time and its event."""
    parts = raw.split(b'"', 6)
    return parts[5] if len(parts) == 7 else b""


def _whole(raw: bytes) -> dict[str, Any] | None:
    """A line; None if it is torn. The sums, at its end, stay as they are: mostly it is enough that they are equal."""
    end = raw.find(SUMS)
    cut = end > 0 and raw.endswith(b"]}\n")
    line = whole_line(raw[:end] + b"}" if cut else raw)
    if line and cut:
        line["sums"] = raw[end + len(SUMS) : -2]
    return line if line and line["event"] in KNOWN else None


def _raw(log: str) -> Iterator[bytes]:
    """Each line, with its end. Raises `OSError` for what is no log, or is too large for one."""
    DISK.tail(log, 0)  # it is a file
    if (size := DISK.stat(log).st_size) > LARGEST:
        raise OSError(errno.EFBIG, f"{size} bytes, and no more than {LARGEST} are read", log)
    with DISK.open(log) as file, io.BufferedReader(cast(io.RawIOBase, file)) as lines:
        while raw := lines.readline(LONGEST):
            yield raw


def _lines(log: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Position and content of each whole line that matters."""
    position = 0
    for raw in _raw(log):
        if _event(raw) in EVENTS and (line := _whole(raw)):
            yield position, line
        position += len(raw)


Group = dict[tuple[str, int], list[Row]]
Contents = Callable[[int, str, Row, Row, float, float], "Difference | None"]


def compare(a: Side, b: Side, rules: Rules | None = None, contents: Contents | None = None) -> Comparison:
    """What differs between two runs. `contents` compares a file of both by value, where the sets still have it."""
    found, rules = Comparison(ranks=(len(a.logs), len(b.logs))), rules or Rules()
    pending: dict[int, tuple[Group, Group]] = {}
    sources = (a.rows(), b.rows())
    newest = [-math.inf, -math.inf]
    judged = -math.inf
    while min(newest) < math.inf:
        which = 0 if newest[0] <= newest[1] else 1
        row = next(sources[which], None)
        if row is None:
            newest[which] = math.inf
            continue
        newest[which] = max(newest[which], row.step)
        if row.step <= judged:
            found.late += 1
            continue
        pending.setdefault(row.step, ({}, {}))[which].setdefault((row.what, row.rank), []).append(row)
        if len(pending) > 2 * WINDOW:
            done = [step for step in sorted(pending)[:WINDOW] if step < min(newest)]
            for step in done:
                _judge(step, *pending.pop(step), found, rules, contents)
                judged = step
    for step in sorted(pending):
        _judge(step, *pending[step], found, rules, contents)
    found.sampled, found.restarts = a.sampled or b.sampled, (a.restarts, b.restarts)
    return found


def _judge(step: int, a: Group, b: Group, found: Comparison, rules: Rules, contents: Contents | None) -> None:
    """Take up what two runs say of one step."""
    resumed = any(row.since.restarts for rows in b.values() for row in rows)
    if a.keys() == b.keys() and all(_same(rows, b[key]) for key, rows in a.items()):
        found.steps += 1
        found.resumed += resumed
        found.same()
        if found.steps == 1:  # names seldom change: those of the first step, and of each that differs
            found.compared |= {name for what in ("files", "values") for group in (a, b) for name in _named(what, group)}
        return
    both = [what for what in ("files", "values") if any(k[0] == what for k in a) and any(k[0] == what for k in b)]
    if not both:
        found.only[not a] += 1
        return
    items: list[Item] = []
    common = False
    for what in both:
        of_a, of_b = _named(what, a), _named(what, b)
        common = common or bool(of_a.keys() & of_b.keys())
        for name in sorted(of_a.keys() | of_b.keys()):
            if not rules.excluded(name.partition(" (")[0] if what == "values" else name):
                items += _pair(step, name, of_a.get(name, []), of_b.get(name, []), found, rules, contents)
        found.compared |= of_a.keys() | of_b.keys()
    if not common and not items:
        found.only[0], found.only[1] = found.only[0] + 1, found.only[1] + 1
        return
    found.steps += 1
    found.resumed += resumed
    if items:
        found.add(sorted(items, key=lambda item: (item.b or item.a).moment))  # type: ignore[union-attr]
    else:
        found.same()


def _same(a: list[Row], b: list[Row]) -> bool:
    return len(a) == len(b) == 1 and a[0].content == b[0].content


def _named(what: str, group: Group) -> dict[str, list[tuple[list[Any], Row]]]:
    """All that is said of each file, or value, of a step. Values of ranks, and repeated ones, have own names."""
    found: dict[str, list[tuple[list[Any], Row]]] = {}
    for (kind, rank), rows in group.items():
        if kind != what:
            continue
        times: dict[tuple[str, int], int] = {}
        for row in rows:
            pairs = row.content.items() if what == "values" else row.sums.items()
            for name, told in pairs:
                if what == "values":
                    again = times[name, row.since.restarts] = times.get((name, row.since.restarts), 0) + 1
                    name += (f" (rank {rank})" if rank else "") + (f" ({again}.)" if again > 1 else "")
                found.setdefault(name, []).append((told, row))
    return found


def _pair(
    step: int, name: str, a: list[tuple[list[Any], Row]], b: list[tuple[list[Any], Row]], found: Comparison,
    rules: Rules, contents: Contents | None,
) -> list[Item]:  # fmt: skip
    """What differs of one name at one step: of the first run the last word counts, of the second each."""
    if not a or not b:
        _, row = (a or b)[-1]
        if row.what == "values" or found.ranks[0] != found.ranks[1]:
            return []  # watched in one of them alone; or a file of a rank that the other does not have
        item = Item(step, name, row.what, row.rank, *((row, None) if a else (None, row)))
        item.text = f"only in {'A' if a else 'B'}"
        return [item]
    (told_a, row_a), items = a[-1], []
    for told_b, row_b in b:
        if told_a[:2] == told_b[:2] and told_a[2:3] == told_b[2:3]:
            continue
        rtol, atol = rules.tolerance(name.partition(" (")[0] if row_b.what == "values" else name)
        item = Item(step, name, row_b.what, row_b.rank, row_a, row_b, _checksums(row_a.what, told_a, told_b))
        if row_b.what == "values":
            item.text, within = _values(told_a, told_b, rtol, atol)
        else:
            known = found.names.get(name)
            if contents and (known is None or known.steps < ENOUGH):  # other bytes may be the same values
                item.difference = contents(step, name, row_a, row_b, rtol, atol)
            within = item.difference is not None and item.difference.equal
        if within:
            found.tolerated += 1
        else:
            items.append(item)
    return items[:1]


def _checksums(what: str, a: list[Any], b: list[Any]) -> tuple[str, str]:
    at = 2 if what == "values" else 1
    return str(a[at]), str(b[at])


STATISTICS = ("min", "max", "mean", "L2")


def _values(a: list[Any], b: list[Any], rtol: float, atol: float) -> tuple[str, bool]:
    """How two watched values differ, and whether that is within the tolerance, as far as their statistics tell."""
    if a[:2] != b[:2]:
        return f"{_shape(a)} and {_shape(b)}", False
    if len(a) < 7 or len(b) < 7:
        return "the bytes differ" + (
            "; of no tolerance, as only level full notes how large it is" if rtol else ""
        ), False
    tolerant = bool(rtol or atol) and None not in (*a[3:7], *b[3:7])
    if not a[1]:
        # Of a complex number the ledger has only the magnitude, of a large integer what a float holds of it.
        alike = tolerant and not a[0].startswith("complex") and _close(a[3], b[3], rtol, atol)
        return f"{_number(a[3])} and {_number(b[3])}", alike
    apart = [(name, x, y) for name, x, y in zip(STATISTICS, a[3:7], b[3:7], strict=True) if x != y]
    text = ", ".join(f"{name} {_number(x)} and {_number(y)}" for name, x, y in apart)
    # Equal statistics of other bytes are values in another order, which is no rounding.
    within = tolerant and bool(apart) and all(_close(x, y, rtol, atol) for _, x, y in apart)
    return text or "the bytes differ; smallest, largest, mean value and L2 are the same", within


def _close(x: float, y: float, rtol: float, atol: float) -> bool:
    return abs(x - y) <= atol + rtol * max(abs(x), abs(y))


def _number(value: float | None) -> str:
    return "not finite" if value is None else f"{value:.12g}"


def _shape(told: list[Any]) -> str:
    return f"{told[0]}{told[1] or ''}"


def find(side: Side, checksums: set[str]) -> dict[str, list[tuple[int, str, int]]]:
    """Where else in a run there are files or values with these checksums: step, name, rank."""
    wanted = [checksum.encode() for checksum in checksums if checksum]
    found: dict[str, list[tuple[int, str, int]]] = {}
    for rank, log in side.logs.items():
        for raw in _raw(log):
            if any(checksum in raw for checksum in wanted):
                _place(raw, rank, checksums, found)
    return found


def _place(raw: bytes, rank: int, checksums: set[str], found: dict[str, list[tuple[int, str, int]]]) -> None:
    try:
        line = json.loads(raw)
        step = line["step"] if line["step"] is not None else line["set"]
        values = [(name, told[2]) for name, told in line.get("values", {}).items()]
        for name, checksum in [*((row[0], row[2]) for row in line.get("sums", ())), *values]:
            if checksum in checksums:
                found.setdefault(checksum, []).append((int(step), name, rank))
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError, RecursionError):
        return
