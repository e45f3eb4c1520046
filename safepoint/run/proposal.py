"""From what a command did to its files: which of them make a set, and when is one complete?

(1) Files that belong together in this are one *kind*: one name, or names that differ in a number, each written once.
(2) The mark is the kind after which nothing of a set is written for the longest time. To a set belongs what is closed
    between most of its closes. Of several such sets the one with most bytes is taken.
(3) Nothing is guessed of a file that is rewritten and never closed: such a command must run in segments.
"""

from __future__ import annotations

import os
import re
import statistics
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from itertools import pairwise
from typing import Literal, NamedTuple

from safepoint import words
from safepoint.patterns import above, escaped, quoted

What = Literal["closed", "named", "written", "gone"]
ROUNDS = 3  # times that a file is written before it is taken for one that is written for each set
SHARE = 0.8  # of the rounds, in which a file is written that belongs to each set
MANY = 4  # kinds of files in one directory, from which the directory is listed
SHORT_S = 0.002  # between two sets: a look at them would often come too late
SCRATCH = (".tmp", ".temp", ".lock", ".lck", ".swp", ".part", "~")


class Event(NamedTuple):
    """One thing that happened to a file."""

    time: float
    what: What  # named: by a rename, from `source`; written: and still open
    path: str
    grew: bool | None = None  # it got longer, and begins as before; None: that is not known
    size: int = 0
    source: str = ""


class Proposal(NamedTuple):
    lines: list[str]  # of a manifest, the mark last
    remarks: list[str]
    segments: bool = False  # to be protected with --until only
    rounds: int = 0  # complete sets that were seen


class Kind(NamedTuple):
    """What was seen of one kind of files."""

    paths: tuple[str, ...]
    closes: tuple[float, ...]
    writes: tuple[float, ...]  # while it stayed open
    size: int  # the last one
    grows: bool  # always
    scratch: bool  # nothing of it is left, or its name says so

    @property
    def held(self) -> bool:
        """It is written and not closed."""
        return len(self.closes) <= 1 and len(self.writes) >= ROUNDS

    @property
    def each_time(self) -> bool:
        return len(self.paths) > 1

    @property
    def pattern(self) -> str:
        """As the manifest has it, with a wildcard for each number that differs."""
        pieces = [re.split(r"(\d+)", path) for path in self.paths]
        columns = zip(*pieces, strict=True)
        return "".join(escaped(column[0]) if len(set(column)) == 1 else "[0-9]*" for column in columns)


def propose(events: Sequence[Event], there: Collection[str], end: float, *, lost: bool = False) -> Proposal:
    """What to put into the manifest. `there`: the files that are there when the command has ended, at `end`."""
    kinds = _kinds(events, there)
    remarks = ["the kernel has dropped events, so much was written: take this with care"] * lost
    kept = [kind for kind in kinds if not kind.scratch]
    again = [kind for kind in kept if len(kind.closes) >= ROUNDS]
    held = [kind for kind in kept if kind.held]
    if not kept:
        return Proposal([], [*remarks, "it wrote no file that is left here"])
    if not again or any(not kind.grows for kind in held):
        return _in_segments(kept, held, remarks)
    mark = max(again, key=lambda kind: (sum(k.size for k in _members(kind, again)), _pause(kind, again, end)))
    members = _members(mark, again)
    rounds, pause = len(mark.closes), _pause(mark, members, end)
    remarks += [
        f"{kind.pattern} gets its rows after {mark.pattern} was closed: the last one would be missing after a restart"
        for kind in held
        if _late(kind, mark, members)
    ]
    for kind in kept:
        if kind not in members and not kind.held:
            times = "once" if len(kind.closes) == 1 else f"{len(kind.closes)} times in {rounds} rounds"
            remarks.append(f"{kind.pattern} was written {times}: if a restart reads it, list it as optional")
    if pause < SHORT_S:
        remarks.append(f"the next set is begun {words.precise(pause)} after {mark.pattern}: many will be missed")
    return Proposal(_lines(members, held, mark, kinds), remarks, rounds=rounds)


def _kinds(events: Sequence[Event], there: Collection[str]) -> list[Kind]:
    """Rule (1), in the order in which each was first written."""
    temporary = {event.source for event in events if event.what == "named"}
    alike: dict[str, dict[str, list[Event]]] = defaultdict(dict)
    for event in events:
        if event.what in ("closed", "written") and event.path not in temporary:
            alike[re.sub(r"\d+", "#", event.path)].setdefault(event.path, []).append(event)
    kinds = []
    for group in alike.values():
        if _in_turn([[event.time for event in told] for told in group.values()]):
            kinds.append(_kind(tuple(group), [event for told in group.values() for event in told], there))
        else:
            kinds += [_kind((path,), told, there) for path, told in group.items()]
    return kinds


def _in_turn(times: Sequence[Sequence[float]]) -> bool:
    """Whether these files were written one after the other, and not again and again."""
    after = [one[-1] <= other[0] for one, other in pairwise(times)]
    return len(times) >= ROUNDS and sum(after) >= SHARE * len(after)


def _kind(paths: tuple[str, ...], events: Sequence[Event], there: Collection[str]) -> Kind:
    closes, writes = (tuple(sorted(e.time for e in events if e.what == what)) for what in ("closed", "written"))
    grew = [event.grew for event in events if event.grew is not None]
    gone = not any(path in there for path in paths)
    return Kind(
        paths, closes, writes, max(event.size for event in events[-2:]),
        bool(grew) and all(grew), gone or paths[0].endswith(SCRATCH),
    )  # fmt: skip


def _members(mark: Kind, again: Sequence[Kind]) -> list[Kind]:
    """What is closed between most of the closes of this one."""

    def rounds(kind: Kind) -> int:
        return len({bisect_right(mark.closes[:-1], time) for time in kind.closes})

    return [kind for kind in again if kind is mark or rounds(kind) >= SHARE * len(mark.closes)]


def _pause(mark: Kind, again: Sequence[Kind], end: float) -> float:
    """Seconds after which the next of these is closed, as a median."""
    times = sorted({end, *(time for kind in _members(mark, again) for time in kind.closes)})
    return statistics.median(times[min(bisect_right(times, time), len(times) - 1)] - time for time in mark.closes)


def _late(kind: Kind, mark: Kind, members: Sequence[Kind]) -> bool:
    """Whether a file that stays open is written sooner after the mark than before what is closed next."""
    closes = sorted(time for member in members for time in member.closes)
    late = early = 0
    for begin in mark.closes:
        at = bisect_right(kind.writes, begin)
        after = bisect_right(closes, begin)
        if at < len(kind.writes) and after < len(closes) and kind.writes[at] < closes[after]:
            sooner = kind.writes[at] - begin < closes[after] - kind.writes[at]
            late, early = late + sooner, early + (not sooner)
    return late > early


def _in_segments(kept: Sequence[Kind], held: Sequence[Kind], remarks: list[str]) -> Proposal:
    """Rule (3)."""
    for kind in held:
        if not kind.grows:
            remarks.append(
                f"{kind.pattern} is rewritten while it stays open, so nobody outside can tell when it is whole"
            )
    if not held:
        remarks.append(f"no file was written {ROUNDS} times: let it run longer, if it would rewrite its files")
    lines = [_line(kind, *_attribute(kind)) for kind in kept if not kind.each_time or not kind.held]
    return Proposal(lines, remarks, segments=True)


def _lines(members: Sequence[Kind], held: Sequence[Kind], mark: Kind, kinds: Sequence[Kind]) -> list[str]:
    trees = _trees(members)
    lines = [f"{quoted(tree) + '/':<28} {'copy':<12} # {why}" for tree, why in trees.items()]
    scratch = {_scratch(kind, tree) for kind in kinds if kind.scratch for tree in trees if _in(kind, tree)}
    lines += [f"{'!' + quoted(pattern):<41} # comes and goes" for pattern in sorted(scratch)]
    for kind in (*members, *held):
        if kind is not mark and not any(_in(kind, tree) for tree in trees):
            lines.append(_line(kind, *_attribute(kind)))
    what = "a new one each time" if mark.each_time else f"written {len(mark.closes)} times"
    alone = len(members) == 1 and not held and not mark.each_time
    return [*lines, _line(mark, "" if alone else "mark", what if alone else f"{what}, last of each set")]


def _trees(members: Sequence[Kind]) -> dict[str, str]:
    """The directories that are to be listed as a whole, each with the reason."""
    trees: dict[str, str] = {}
    tops = Counter(top for kind in members if (top := next(reversed([*above(kind.pattern)]), "")))
    for kind in members:
        top = next(reversed([*above(kind.pattern)]), "")
        if top and "[0-9]*" in top:
            trees[top] = "a new directory each time"
        elif top and (kind.each_time or tops[top] >= MANY):
            trees[top] = "many files are written in it"
    return trees


def _in(kind: Kind, tree: str) -> bool:
    return kind.pattern.startswith(f"{tree}/")


def _scratch(kind: Kind, tree: str) -> str:
    directory, name = os.path.split(kind.pattern)
    suffix = next((end for end in SCRATCH if name.endswith(end)), "")
    return f"{directory}/*{suffix}" if suffix else kind.pattern


def _attribute(kind: Kind) -> tuple[str, str]:
    if kind.grows:
        return "append copy", "rows are added (append alone, if a restart only adds more)"
    if kind.each_time:
        return "", "a new one each time"
    return "", "once" if len(kind.closes) <= 1 else f"written {len(kind.closes)} times"


def _line(kind: Kind, attribute: str, why: str) -> str:
    return f"{quoted(kind.pattern):<28} {attribute:<12} # {why}"
