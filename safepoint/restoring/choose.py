"""Which set all ranks can give back: the newest that every one of them has whole, never the newest that any has.

`choose` is collective among `peers`. A process speaks for the ranks whose parties it brings: a program for its own,
`safepoint restore`, alone, for all. Nothing here touches W: no set is swapped in on any rank before all of its parts
have withstood the trial.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import NamedTuple

from safepoint.ranks import LARGEST, Ranks, Serial, bounds, by_step, step_key
from safepoint.record import Record, label, number_of
from safepoint.restoring import read, stage
from safepoint.restoring.stage import Progress
from safepoint.restoring.survey import Candidate, measured
from safepoint.root import Root
from safepoint.saving.memory import Memory

Parts = Sequence[tuple[Root, Candidate]]  # of one set, all that are at hand
Trial = Callable[[Parts], dict[int, str]]  # by rank what is wrong with a part; it may end with the first such part


class Choice(NamedTuple):
    """The set of this number; None: none is whole, and `lost` says whether one ever was."""

    number: int | None
    records: dict[int, Record]  # by rank its parts, of those at hand
    passed: dict[int, tuple[str, str]]  # by key the label of each newer set, and why it is not given back
    lost: bool


class Party(NamedTuple):
    """What one rank brings to the choice."""

    root: Root | None  # None: it has none, and so no say
    candidates: Sequence[Candidate] = ()
    once: bool = False  # it knows that there was a set of all
    undo: Callable[[], object] | None = None  # called on error, and if no set is chosen


class _Rank(NamedTuple):
    """One that has a root: what it says of each set, by key."""

    root: Root
    parts: dict[int, Candidate]
    found: dict[int, Record]
    why: dict[int, str]  # it cannot give its part back
    offers: set[int]  # it can, or none of it is needed


def choose(parties: Sequence[Party], peers: Serial | Ranks, trial: Trial) -> Choice:
    """The newest set of which all parts are there, belong together, and withstand the trial.

    A set is known by its life and its number, together its key, and by the history of that life: of the same key, two
    parts of a run, each without the other, may have saved one.
    """
    ranks = [_seen(party.root, party.candidates) for party in parties if party.root]
    _offer_needless(peers, ranks)
    every = peers.union({c.key for party in parties for c in party.candidates})
    offers = set(every).intersection(*(rank.offers for rank in ranks)) if ranks else None
    once = any(party.once for party in parties)
    with contextlib.ExitStack() as on_error:
        for undo in filter(None, (party.undo for party in parties)):
            on_error.callback(undo)
        while (key := peers.newest_common(offers)) is not None:
            damage, failure = dict[int, str](), None
            try:
                damage = trial([(r.root, r.parts[key]) for r in ranks if key in r.parts])
            except BaseException as error:
                failure = error
            peers.fail_together(failure)
            once = once or bool(damage)
            if (wrong := _apart(peers, ranks, key, damage)) is None:
                on_error.pop_all()
                break
            for rank in ranks:
                if rank.root.rank in wrong:
                    rank.why[key] = wrong[rank.root.rank]
                    rank.offers.discard(key)
            offers = offers and offers - {key}
    several = peers.size > 1 or len(parties) > 1
    passed = {n: _explain(peers, ranks, n, several) for n in every if key is None or n > key}
    lost = key is None and peers.least(-once) != (0,)
    return Choice(key and number_of(key), {r.root.rank: r.found[key] for r in ranks if key in r.found}, passed, lost)


def _seen(root: Root, candidates: Sequence[Candidate]) -> _Rank:
    parts = {c.key: c for c in candidates if c.record}
    found = {c.key: c.record for c in candidates if c.record}
    return _Rank(root, parts, found, {c.key: c.reason for c in candidates if not c.record}, set(found))


def _offer_needless(peers: Serial | Ranks, ranks: Sequence[_Rank]) -> None:
    """Sets that a rank has no part in are as if it had them: of files of the saver alone, and that is another rank."""
    for key in peers.union({n for r in ranks for n, record in r.found.items() if not record.per_rank}):
        savers = [n for r in ranks if key in r.found and (n := r.found[key].saver) is not None]
        (saver,) = peers.least(min(savers, default=LARGEST))
        for rank in ranks:
            if key not in rank.found and rank.root.rank != saver:
                rank.offers.add(key)


def _apart(peers: Serial | Ranks, ranks: Sequence[_Rank], key: int, damage: dict[int, str]) -> dict[int, str] | None:
    """What is wrong with the parts at hand of a set that is not to be given back: their own damage, or that they do not
    belong together. None: all parts of all ranks are whole, and do."""
    steps, histories = _said(ranks, key)
    bad, low, high, one, other = peers.least(-bool(damage), *bounds(steps), *bounds(histories.values()))
    if bad:
        return damage
    if one != -other:  # each was saved by ranks that had others with them than now
        (first,) = peers.least(min((n for n in histories if histories[n] == one), default=LARGEST))
        text = f"it is of another history than that of rank {first}"
        return {n: text for n in histories if histories[n] != one}
    if low != -high:  # killed when they had found that, and before they had put their files back
        which = {r.root.rank: r.found[key].step if key in r.found else None for r in ranks}
        return dict.fromkeys(which, f"the ranks have different steps, {by_step(peers, which)}")
    return None


def _said(ranks: Sequence[_Rank], key: int) -> tuple[list[int], dict[int, int]]:
    """The steps of a set, and by rank its histories. An empty record, of a rank that is not the saver, has no say."""
    pairs = [(r.root.rank, r.found[key]) for r in ranks if key in r.found]
    says = {n: record for n, record in pairs if record.per_rank or record.saver == n}
    return [step_key(r.step) for r in says.values()], {n: int(r.history or "0", 16) for n, r in says.items()}


def staged(memory: Memory, progress: Progress | None, parts: Parts) -> dict[int, str]:
    """A trial: these parts are staged now. Local."""
    for root, part in parts:
        part = measured(root, part)  # first, as it takes no reading
        try:
            if part.record is None:
                raise read.Damaged(part.reason)
            stage.stage(root, part.record, memory, progress)
        except read.Damaged as error:
            return {root.rank: str(error)}
    return {}


def _explain(peers: Serial | Ranks, ranks: Sequence[_Rank], key: int, several: bool) -> tuple[str, str]:
    """How a set is called that is not given back, and why it is not, as all ranks know it then."""
    labels = {r.root.rank: r.found[key].label for r in ranks if key in r.found}
    lacking = {r.root.rank: r for r in ranks if key not in r.offers}
    first, holder = peers.least(min(lacking, default=LARGEST), min(labels, default=LARGEST))
    name = label(number_of(key), None) if holder == LARGEST else peers.share(labels.get(holder), holder)
    reason = _reason(lacking[first], key, several) if first in lacking else ""
    return name, peers.share(reason, first)


def _reason(rank: _Rank, key: int, several: bool) -> str:
    """Why it cannot give this set back, or what it has instead."""
    number, me = number_of(key), f"rank {rank.root.rank}"
    if key in rank.why:
        return f"{me}: {rank.why[key]}" if several else rank.why[key]
    if any(number_of(other) == number for other in (*rank.found, *rank.why) if other != key):
        return f"{me} has another set {number}, of another history"
    newest = max((n for n in rank.found if n not in rank.why), default=None)
    if newest is None:
        return f"{me} has none"
    return f"{me} has only {number_of(newest)}" if newest < key else f"{me} does not have it"
