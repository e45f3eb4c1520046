"""Which set all ranks can give back: the newest that every one of them has whole, never the newest that any has.

Every function here is collective among `peers`, the ranks that agree on every set; one that is alone agrees with
itself. Nothing here touches W: the chosen set is staged on every rank before it is swapped in on any.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import NamedTuple

from safepoint.errors import DamagedError
from safepoint.ranks import LARGEST, Ranks, Serial, low_high, ranks_by_step, step_key
from safepoint.record import Record, label, number_of
from safepoint.restoring import read, stage
from safepoint.restoring.stage import Progress
from safepoint.restoring.survey import Candidate, measured
from safepoint.root import Root
from safepoint.saving.memory import Memory


class Choice(NamedTuple):
    """`record` is this rank's part of set `number`; None if it has no part in it. No number: there never was a set."""

    number: int | None
    record: Record | None
    passed: list[str]  # why not each newer one


class Party(NamedTuple):
    """What one rank brings to the choice."""

    root: Root | None  # None: it has none, and so no say
    candidates: Sequence[Candidate] = ()
    once: bool = False  # it knows that there was a set of all
    resumed: bool = False  # a restore was killed before this one


def choose(work: str, party: Party, peers: Serial | Ranks, memory: Memory, progress: Progress | None = None) -> Choice:
    """Stage the newest set that is whole on every rank. Raises `DamagedError` if none of the sets is whole.

    A set is known by its life and its number, together its key, and by the history of that life: of the same key, two
    parts of a run, each without the other, may have saved one.
    """
    root, candidates, once, resumed = party
    parts = {c.key: c for c in candidates if c.record}
    found = {c.key: c.record for c in candidates if c.record}
    why = {c.key: c.reason for c in candidates if not c.record}
    offers = {*found, *_needless(peers, root, found)}
    every = peers.union([c.key for c in candidates])
    lacks = {n for n in every if root and n not in offers}
    with contextlib.ExitStack() as on_error:
        if root and not resumed:  # else `stage/` says that a restore was killed, which this one repeats
            on_error.callback(stage.clear_stage, root)
        while (key := peers.newest_common(offers if root else None)) is not None:
            record, part = found.get(key), parts.get(key)
            damage = peers.together(lambda part=part: _stage(root, part, memory, progress))  # type: ignore[misc]
            step = record and record.step
            # An empty record, of a rank that is not the saver, has no say.
            says = record is not None and root is not None and (record.per_rank or record.saver == root.rank)
            history = int(record.history or "0", 16) if record else 0
            steps, histories = low_high(step_key(step), says), low_high(history, says)
            bad, low, high, one, other = peers.least(-bool(damage), *steps, *histories)
            if not bad and low == -high and one == -other:
                on_error.pop_all()
                break
            once = once or bool(damage)
            if not bad and one != -other:  # each was saved by ranks that had others with them than now
                (first,) = peers.least(peers.rank if says and history == one else LARGEST)
                damage = f"it is of another history than that of rank {first}" if says and history != one else ""
            elif not bad:  # killed when they had found that, and before they had put their files back
                damage = f"the ranks have different steps, {ranks_by_step(peers, step)}"
            if damage:
                why[key] = damage
                lacks.add(key)
            offers.discard(key)
    passed = [n for n in every if key is None or n > key]
    reasons = [_explain(peers, n, found, why, n in lacks) for n in passed]
    if key is None and peers.least(-once) != (0,):
        listed = "\n  ".join(reasons)
        raise DamagedError(f"none of the sets in {work} is whole; no file was touched:\n  {listed}\n{stage.BY_HAND}")
    return Choice(number_of(key) if key else None, found.get(key) if key else None, reasons)


def _needless(peers: Serial | Ranks, root: Root | None, found: dict[int, Record]) -> list[int]:
    """Sets that this rank has no part in: they hold files of the saver alone, and that is another rank."""
    without = []
    for number in peers.union([n for n, record in found.items() if not record.per_rank]):
        record = found.get(number)
        (saver,) = peers.least(LARGEST if record is None or record.saver is None else record.saver)
        if record is None and root and saver != root.rank:
            without.append(number)
    return without


def _stage(root: Root | None, part: Candidate | None, memory: Memory, progress: Progress | None) -> str:
    """What is wrong with this rank's part of a set; nothing, if it is staged now, or there is no part."""
    if root and part and (part := measured(root, part)).reason:  # first, as it takes no reading
        return part.reason
    if root and part and part.record:
        try:
            stage.stage(root, part.record, memory, progress)
        except read.Damaged as error:
            return str(error)
    return ""


def _explain(peers: Serial | Ranks, key: int, found: dict[int, Record], why: dict[int, str], lacks: bool) -> str:
    """Why a set is not given back, as all ranks know it then."""
    me, record = peers.rank, found.get(key)
    first, holder = peers.least(me if lacks else LARGEST, me if record else LARGEST)
    name = peers.share(record.label if record else "", holder) if holder != LARGEST else label(number_of(key), None)
    reason = why.get(key)
    if peers.size > 1:
        reason = f"rank {me} {_instead(key, found, why)}" if reason is None else f"rank {me}: {reason}"
    return f"{name}: {peers.share(reason, first)}"


def _instead(key: int, found: dict[int, Record], why: dict[int, str]) -> str:
    """What a rank has that lacks this set."""
    number = number_of(key)
    if any(number_of(other) == number for other in (*found, *why) if other != key):
        return f"has another set {number}, of another history"
    newest = max((n for n in found if n not in why), default=None)
    if newest is None:
        return "has none"
    return f"has only {number_of(newest)}" if newest < key else "does not have it"
