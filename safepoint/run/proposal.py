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
from safepoint.patterns import above, escaped, matches, quoted

What = Literal["begun", "closed", "named", "written", "gone"]
ROUNDS = 3  # times that a file is written before it is taken for one that is written for each set
SHARE = 0.8  # of the rounds, in which a file is written that belongs to each set
SPREAD = 0.3  # of the time of the run: what was written within less was written once, however many files it is
LONGER, FEWER = 5, 0.4  # times that the wait for the next set is longer than that within one; the share of the latter
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
    lines: list[str]  # of a manifest, the mark last; and comments
    remarks: list[str]
    segments: bool = False  # to be protected with --until only
    rounds: int = 0  # complete sets that were seen
    wrote: tuple[str, ...] = ()  # what lies there now
    in_parts: tuple[str, ...] = ()  # files that are closed several times for each set: only --check tells when


class Kind(NamedTuple):
    """What was seen of one kind of files."""

    paths: tuple[str, ...]
    closes: tuple[float, ...]
    writes: tuple[float, ...]  # while it stayed open, and when it was made
    size: int  # the largest
    grows: bool  # always
    times: int  # that it is closed for each set
    scratch: bool  # nothing of it stays from round to round, or its name says so

    @property
    def held(self) -> bool:
        """It is written and not closed."""
        return len(self.closes) <= 1 and len(self.writes) >= ROUNDS

    @property
    def each_time(self) -> bool:
        return len(self.paths) > 1

    @property
    def pattern(self) -> str:
        return pattern_of(self.paths)


def pattern_of(paths: Sequence[str]) -> str:
    """As the manifest has names that differ in numbers only: a wildcard for each number that is not always the same."""
    columns = zip(*(re.split(r"(\d+)", path) for path in paths), strict=True)
    return "".join(escaped(column[0]) if len({*column}) == 1 else "[0-9]*" for column in columns)


def propose(
    events: Sequence[Event], there: Collection[str], begin: float, end: float, remarks: Sequence[str] = ()
) -> Proposal:
    """What to put into the manifest. `there`: the files that are there when the command has ended. It ran from `begin`
    to `end`."""
    temporary = {event.source for event in events if event.what == "named"}
    kinds = _kinds([event for event in events if event.path not in temporary], there)
    kept, remarks = [kind for kind in kinds if not kind.scratch], [*remarks]
    wrote = tuple(sorted({event.path for event in events if event.what != "gone" and event.path in there}))
    if not kept:
        return Proposal([], [*remarks, "it wrote no file that is left here"], wrote=wrote)
    again = [k for k in kept if len(k.closes) >= ROUNDS and k.closes[-1] - k.closes[0] >= SPREAD * (end - begin)]
    held = [kind for kind in kept if kind.held]
    # Names that are each written once, right after one another, are parts of one round.
    marks = [kind for kind in again if not kind.each_time or _pause(kind, again, end) >= SHORT_S]
    if not marks or any(not kind.grows for kind in held):
        return _in_segments(kept, held, remarks)._replace(wrote=wrote)
    first = max(marks, key=lambda kind: (sum(k.size for k in _members(kind, again)), _pause(kind, again, end)))
    mark, members = _last(first, _members(first, again), again, end)
    rounds = len(first.paths if first.each_time else first.closes)
    others = [kind for kind in kept if kind not in members and not kind.held]
    remarks += _remarks(kinds, members, held, others, mark, rounds, _pause(mark, members, end))
    passing = [*temporary, *(path for kind in kinds if kind.scratch for path in kind.paths)]
    lines = _lines(members, held, mark, sorted(passing))
    lines += [f"# {_line(kind, 'optional', 'if a restart reads it')}" for kind in others]
    lines += [f"# {kind.pattern}: whole after {kind.times} closes, so run with --check" for kind in _in_parts(members)]
    parts = tuple(kind.pattern for kind in _in_parts(members))
    return Proposal(lines, remarks, rounds=rounds, wrote=wrote, in_parts=parts)


def _remarks(
    kinds: Sequence[Kind], members: Sequence[Kind], held: Sequence[Kind], others: Sequence[Kind], mark: Kind,
    rounds: int, pause: float,
) -> list[str]:  # fmt: skip
    """What the manifest alone does not say."""
    remarks = [
        f"{kind.pattern} gets its rows after {mark.pattern} was closed: the last one would be missing after a restart"
        for kind in held
        if _late(kind, mark, members)
    ]
    remarks += [
        f"{kind.pattern} is closed {kind.times} times for each set, so a look may come too early: give --check a "
        f"command that tells whether it is whole, or use segments (--until)"
        for kind in _in_parts(members)
    ]
    remarks += [
        f"{path} is there while it runs, and stays after a kill: if it then refuses to start, let a shell remove that "
        f"first: safepoint run -- sh -c 'rm -f {path}; exec ...'"
        for path in _locks(kinds, _trees(members))
    ]
    for kind in others:
        times = "once" if len(kind.closes) == 1 else f"{len(kind.closes)} times in {rounds} rounds"
        remarks.append(f"{kind.pattern} was written {times}, and is not listed: does a restart read it?")
    if pause < SHORT_S:
        remarks.append(f"the next set is begun {words.precise(pause)} after {mark.pattern}: many will be missed")
    return remarks


def _kinds(events: Sequence[Event], there: Collection[str]) -> list[Kind]:
    """Rule (1), in the order in which each was first written."""
    alike: dict[str, dict[str, list[Event]]] = defaultdict(dict)
    for event in events:
        alike[re.sub(r"\d+", "#", event.path)].setdefault(event.path, []).append(event)
    kinds = []
    for group in alike.values():
        written = {path: told for path, told in group.items() if any(e.what in ("closed", "written") for e in told)}
        if _in_turn([[event.time for event in told if event.what != "gone"] for told in written.values()]):
            kinds.append(_kind(tuple(written), [event for told in written.values() for event in told], there))
        else:
            kinds += [_kind((path,), told, there) for path, told in written.items()]
    return kinds


def _in_turn(times: Sequence[Sequence[float]]) -> bool:
    """Whether these files were written one after the other, and not again and again."""
    after = [one[-1] <= other[0] for one, other in pairwise(times)]
    return len(times) >= ROUNDS and sum(after) >= SHARE * len(after)


def _kind(paths: tuple[str, ...], events: Sequence[Event], there: Collection[str]) -> Kind:
    closes = tuple(sorted(event.time for event in events if event.what == "closed"))
    writes = tuple(sorted(event.time for event in events if event.what in ("written", "begun")))
    gone = [event.time for event in events if event.what == "gone"]
    grew = [event.grew for event in events if event.grew is not None]
    if len(paths) > 1:  # another each time: each was gone before the next one was closed
        passes = bool(closes) and sum(time <= closes[-1] for time in gone) >= len(closes) - 1
    else:
        passes = bool(gone) and len(gone) >= SHARE * len(closes)
    passes = passes and not any(path in there for path in paths)
    whole = closes if len(paths) > 1 else _last_of_each(closes)
    return Kind(
        paths, whole, writes, max((event.size for event in events), default=0), bool(grew) and all(grew),
        round(len(closes) / max(1, len(whole))), passes or paths[0].endswith(SCRATCH),
    )  # fmt: skip


def _last_of_each(closes: tuple[float, ...]) -> tuple[float, ...]:
    """Of a file that is closed several times for each set the last of these closes; of any other all."""
    waits = [after - before for before, after in pairwise(closes)]
    if len(waits) < ROUNDS:
        return closes
    long = statistics.median(sorted(waits)[-len(waits) // 3 :]) / LONGER
    whole = tuple(time for time, wait in zip(closes, waits, strict=False) if wait > long) + closes[-1:]
    return whole if ROUNDS <= len(whole) <= (1 - FEWER) * len(closes) else closes


def _members(mark: Kind, again: Sequence[Kind]) -> list[Kind]:
    """What is closed between most of the closes of this one."""

    def rounds(kind: Kind) -> int:
        return len({bisect_right(mark.closes[:-1], time) for time in kind.closes})

    return [kind for kind in again if kind is mark or rounds(kind) >= SHARE * len(mark.closes)]


def _last(mark: Kind, members: list[Kind], again: Sequence[Kind], end: float) -> tuple[Kind, list[Kind]]:
    """The file that is written last in a round, and all of a set: what is closed right after a mark belongs to it, even
    if it is closed more often than that."""
    for _ in again:
        others = sorted((time, kind) for kind in again if kind is not mark for time in kind.closes)
        following: Counter[Kind] = Counter()
        waits, pauses = [], []
        for time in mark.closes:
            at = bisect_right(others, time, key=lambda other: other[0])
            if at < len(others):
                following[others[at][1]] += 1
                waits.append(others[at][0] - time)
                pauses.append((others[at + 1][0] if at + 1 < len(others) else end) - others[at][0])
        if not following:
            break
        (then, times), *_ = following.most_common(1)
        if times < SHARE * len(mark.closes) or 3 * statistics.median(waits) > statistics.median(pauses):
            break
        mark, members = then, [*members, *[then] * (then not in members)]
    return mark, members


def _pause(mark: Kind, again: Sequence[Kind], end: float) -> float:
    """Seconds after which anything of a set is written again, as a median."""
    times = sorted({end, *(time for kind in _members(mark, again) for time in (*kind.closes, *kind.writes))})
    return statistics.median(times[min(bisect_right(times, time), len(times) - 1)] - time for time in mark.closes)


def _in_parts(members: Sequence[Kind]) -> list[Kind]:
    """What is whole only after several closes."""
    return [kind for kind in members if kind.times > 1]


def _locks(kinds: Sequence[Kind], trees: Collection[str]) -> list[str]:
    """Files that come at the beginning and go at the end, in no listed directory."""
    alone = [kind for kind in kinds if kind.scratch and not kind.each_time and len(kind.closes) <= 1]
    return [kind.paths[0] for kind in alone if not any(kind.pattern.startswith(f"{tree}/") for tree in trees)]


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
        remarks.append(f"no {ROUNDS} rounds were seen: let it run longer, if it would write its files again")
    return Proposal([_line(kind, *_attribute(kind)) for kind in kept], remarks, segments=True)


def _lines(members: Sequence[Kind], held: Sequence[Kind], mark: Kind, passing: Sequence[str]) -> list[str]:
    """`passing`: files that come and go, and must not get into a set."""
    trees = _trees(members)
    lines = [f"{quoted(tree) + '/':<28} {'copy':<12} # {why}" for tree, why in trees.items()]
    globs = [kind.pattern for kind in members if kind.each_time]
    lines += [f"{'!' + quoted(pattern):<41} # comes and goes" for pattern in _exclusions([*trees, *globs], passing)]
    for kind in (*members, *held):
        if kind is not mark and not any(kind.pattern.startswith(f"{tree}/") for tree in trees):
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


def _exclusions(listed: Sequence[str], passing: Sequence[str]) -> list[str]:
    """What of these files one of the listed patterns means, or a directory that it means."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in passing:
        for pattern in listed:
            parts, components = path.split("/"), pattern.split("/")
            if matches(parts[: len(components)], components):
                name = path
                suffix = next((end for end in SCRATCH if path.endswith(end)), "")
                if suffix and len(parts) > len(components) and parts[0] == components[0]:
                    name = f"{os.path.dirname(path)}/*{suffix}"
                elif parts[: len(components)] != components and "[" in pattern:
                    name = "/".join(parts[: len(components)])
                found[re.sub(r"\d+", "#", name)].append(name)
    patterns = {pattern_of(names) if "*" not in names[0] else names[0] for names in found.values()}
    return sorted(pattern for pattern in patterns if patterns.isdisjoint(above(pattern)))


def _attribute(kind: Kind) -> tuple[str, str]:
    if kind.grows:
        return "append copy", "rows are added (append alone, if a restart only adds more)"
    if kind.each_time:
        return "", "a new one each time"
    return "", "once" if len(kind.closes) <= 1 else f"written {len(kind.closes)} times"


def _line(kind: Kind, attribute: str, why: str) -> str:
    return f"{quoted(kind.pattern):<28} {attribute:<12} # {why}"
