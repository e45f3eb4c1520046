"""Two runs compared by their ledgers, step by step, in one pass and constant memory: what differs first, and where.

Steps are matched by their number, not by the order in which they come. Lines of one step that lie further apart than
`WINDOW_STEPS`, which no loop does, count as different steps.
"""

from __future__ import annotations

import fnmatch
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from safepoint.ledger.contents import Difference
from safepoint.ledger.sides import Row, Side, Since

WINDOW_STEPS = 256  # that wait for their counterpart
STEPS_BY_VALUE = 20  # at which a file differs by value: then its bytes alone are looked at


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
        if len(pending) > 2 * WINDOW_STEPS:
            done = [step for step in sorted(pending)[:WINDOW_STEPS] if step < min(newest)]
            for step in done:
                _judge(step, *_told(step, *pending.pop(step), a, b), found, rules, contents)
                judged = step
    for step in sorted(pending):
        _judge(step, *_told(step, *pending[step], a, b), found, rules, contents)
    found.sampled, found.restarts = a.sampled or b.sampled, (a.restarts, b.restarts)
    return found


def _told(step: int, a: Group, b: Group, of_a: Side, of_b: Side) -> tuple[Group, Group]:
    """Without the files of a rank of which the other run has no word, since it was killed before it could say it."""
    return (
        {key: rows for key, rows in a.items() if key in b or (step, key[1]) not in of_b.unsaid},
        {key: rows for key, rows in b.items() if key in a or (step, key[1]) not in of_a.unsaid},
    )


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
            if contents and (known is None or known.steps < STEPS_BY_VALUE):  # other bytes may be the same values
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
