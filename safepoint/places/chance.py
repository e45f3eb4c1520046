"""Does a cut come about in each run, or only in the run that was traced?

A *wildcard* is a receive from any source. A message is a *candidate* of it if the wildcard could have taken it: sent
to its rank on its communicator, with a tag that fits, not after the wildcard in the order of causes, not taken by a
receive posted before it, and of its sender the first such. **Lemma.** If no wildcard posted in a cut has a candidate in
the cut beside its own message, every run whose ranks meet at this cut, as in `hide`, comes to it with the same
messages. *Proof*: take the first wildcard that takes another message in another run. All before it went as in the
trace, and no rank is past the cut, so that message is a candidate in it. Where ranks do not meet, one may run ahead.

(1) That the calls beside the cut are certain (the rule of 2006) is not enough: a wildcard long before it may have taken
    a message that a later, certain receive waits for.
(2) "Every run, if the program makes the same calls whichever comes first" needs more: no other receive competes with a
    class of wildcards (receiver, communicator, tag) for a message, since the class may leave it none, or it the class.
    And there, what a wildcard brought is no cause, since it may bring another message.
(3) A key is a number for each action that never falls along a rank: the visits before it, or the place of the chain it
    is first in. "In the cut" is "has at most this key", and one pass judges all cuts of a row.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np

from safepoint.matching.matched import NONE, Ints, Matched
from safepoint.places.causes import called, causes, last_before, rank_of
from safepoint.places.segments import Bools, begun, highest, numbered

EVERY, SAME, THIS = (
    "every run",
    "every run if the program makes the same calls whichever comes first",
    "this run only",
)
TIMED = re.compile(r"Wait(any|some)|Test(all|any|some)?|I?m?probe", re.IGNORECASE)
LATE = 2**31  # a key that no cut has


class Limits(NamedTuple):
    """The least keys at which the first, and the second verdict no longer holds; LATE: none."""

    every: int
    same: int

    def verdict(self, key: int) -> str:
        """Of the cut that holds all actions with at most this key."""
        return EVERY if key < self.every else SAME if key < self.same else THIS


class Doubt(NamedTuple):
    """A wildcard in a cut that could have taken another message: rows of `Matched.messages`."""

    receive: int
    candidates: Ints  # with its own, if that is in the cut


class Verdict(NamedTuple):
    word: str  # EVERY, SAME or THIS
    doubts: list[Doubt]
    unsure: Ints  # rows of `Matched.unsure` in the cut


class Races(NamedTuple):
    """A row for each message and class of wildcards that can take it: a candidate of wildcards first … end − 1."""

    message: Ints
    kind: Ints  # the class
    first: Ints  # in `Chance.wild`
    end: Ints
    heard: Ints  # the last wildcard of its receiver, by the action that completes it, before the message was sent


class Chance:
    """The wildcards of a trace. `wild`: the rows of their messages, by class, then in the order they were posted."""

    def __init__(self, matched: Matched) -> None:
        self.matched = matched
        self._late, self._span = matched.actions + 1, matched.actions + 3  # an action that never comes; past all
        self._timed = timed(matched)
        self._classes()
        sent = np.flatnonzero(matched.messages["sent"] != NONE)
        row, kind = self._fitting(sent)
        sender = rank_of(matched, matched.messages["sent"][row])
        order = np.lexsort([row, matched.messages["sent"][row], sender, kind])
        self._pairs = row[order], kind[order], kind[order] * matched.ranks + sender[order]
        heard = self._heard(np.ones(len(matched.messages), "?"))
        self.races = self._races(heard)
        if len(self.races.message):  # else each wildcard is certain, and a cause: (2)
            heard = self._heard(~matched.messages["wild_source"])
        self._heard_fixed, self._fixed = heard, self._races(heard)

    def _classes(self) -> None:
        """Each wildcard gets its class: does it take any tag, receiver, communicator, tag."""
        messages = self.matched.messages
        rows = np.flatnonzero(messages["wild_source"] & (messages["posted"] != NONE))
        posted, received = messages["posted"], messages["received"]
        self._receiver = np.where(posted == NONE, messages["dest"], rank_of(self.matched, posted))
        tags = np.where(messages["wild_tag"], 0, messages["tag"])
        kinds = np.column_stack([messages["wild_tag"], self._receiver, messages["comm"], tags]).astype("i8")[rows]
        of = numbered(kinds)
        by_class = np.lexsort([rows, posted[rows], of])
        self.wild, self._of = rows[by_class], of[by_class]
        self._kinds = kinds[by_class]
        self._class = np.full(len(messages), NONE)
        self._class[self.wild] = self._of
        self._posted = posted[self.wild]
        self._received = np.where(received[self.wild] == NONE, self._late, received[self.wild])
        self._latest = self._received[highest(self._received, self._of, self._span)]
        self._turn = self._of * self._span + self._posted  # by class, then posted: for searches

    def _fitting(self, rows: Ints) -> tuple[Ints, Ints]:
        """Of these rows of messages, each with each class that takes its receiver, communicator and tag."""
        messages = self.matched.messages
        rows = rows[np.isin(self._receiver[rows], self._kinds[:, 1])]
        row, loose = np.tile(rows, 2), np.repeat([0, 1], len(rows))
        tags = np.where(loose, 0, messages["tag"][row])
        wanted = np.column_stack([loose, self._receiver[row], messages["comm"][row], tags]).astype("i8")
        number = numbered(np.concatenate([self._kinds, wanted]))
        known = np.full(number.max(initial=0) + 1, NONE)
        known[number[: len(self.wild)]] = self._of
        kind = known[number[len(self.wild) :]]
        return row[kind != NONE], kind[kind != NONE]

    def _heard(self, trusted: Bools) -> Ints:
        """For each message the action of the last wildcard of its receiver that its send comes after, or NONE, if these
        messages are the causes."""
        matched = self.matched
        sent, heard = matched.messages["sent"], np.full(len(matched.messages), NONE)
        if not len(self.wild):
            return heard
        found = causes(matched, trusted)
        later = (sent != NONE) & (
            sent > matched.begins[rank_of(matched, sent)]
        )  # else nothing is before it on its rank
        for rank in np.unique(self._kinds[:, 1]).tolist():
            done = np.unique(self._received[(self._kinds[:, 1] == rank) & (self._received != self._late)])
            mine = later & (self._receiver == rank)
            if len(done) and np.any(mine):
                heard[mine] = last_before(found, done)[sent[mine] - 1]
        return heard

    def _races(self, heard: Ints) -> Races:
        """A message can go to wildcards posted after the receive that took the one before it in its list, and until its
        own was posted. By `first`."""
        row, kind, sender = self._pairs
        posted, base, heard = self.matched.messages["posted"][row], kind * self._span, heard[row]
        taken = np.where(posted == NONE, self._late, posted)
        before = highest(taken, sender, self._span)
        before = np.where(begun(sender), NONE, np.roll(before, 1))  # of those before it
        earlier = np.where(before == NONE, NONE, taken[before])
        first = np.searchsorted(self._turn, base + earlier, "left")
        after = np.searchsorted(self._turn, base + earlier, "right")
        # Several receives of one Startall: their order is not known, so none of them is left out.
        alone = (before != NONE) & (self._class[row[before]] == kind) & (after - first == 1)
        first = np.where(alone, after, first)
        end = np.searchsorted(self._turn, base + taken, "right")
        first = np.maximum(first, np.searchsorted(self._of * self._span + self._latest, base + heard, "right"))
        at = np.minimum(first, len(self.wild) - 1)
        first = first + ((first < end) & (self.wild[at] == row))  # its own is no race
        race = np.flatnonzero(first < end)
        race = race[np.argsort(first[race], kind="stable")]
        return Races(row[race], kind[race], first[race], end[race], heard[race])

    def candidates(self, wild: int, inside: Bools) -> Ints:
        """Rows of the messages that this wildcard, a number in `wild`, could have taken; `inside`: the actions of the
        cut."""
        races, sent = self.races, self.matched.messages["sent"]
        could = (races.kind == self._of[wild]) & (races.first <= wild) & (wild < races.end)
        rows = np.append(races.message[could & (races.heard < self._received[wild])], self.wild[wild])
        rows = np.unique(rows[sent[rows] != NONE])
        held: Ints = rows[inside[sent[rows]]]
        return held

    def limits(self, key: Ints) -> Limits:
        """(3), with one key for each action."""
        key = np.append(key.astype("i8"), LATE)  # key[NONE]
        races = int(self._begins(self.races, key).min(initial=LATE))
        unsure = int(self._unsure(key).min(initial=LATE))
        cancelled = int(self._in_gaps(self.matched.cancelled, key).min(initial=LATE))
        every = min(races, unsure, cancelled)
        if not len(self._fixed.message):
            return Limits(every, cancelled)
        return Limits(every, min(self._foreign(key), self._loose(key), self._spanning(key), cancelled))

    def _unsure(self, key: Ints) -> Ints:
        """Keys of the calls that may have another outcome. One that is no action lies in a gap: it counts as soon as
        the cut comes to this gap."""
        return np.where(self._timed == NONE, self._in_gaps(self.matched.unsure, key), key[self._timed])

    def _in_gaps(self, gaps: Ints, key: Ints) -> Ints:
        """The keys from which on a cut comes to these gaps of these ranks."""
        rank, gap = gaps.T
        return np.where(gap > 0, key[self.matched.begins[rank] + gap - 1], 0)

    def _begins(self, races: Races, key: Ints) -> Ints:
        """The key from which on a race is in the cut: its first wildcard is posted, and its message sent."""
        sent: Ints = self.matched.messages["sent"][races.message]
        begins: Ints = np.maximum(key[self._posted[races.first]], key[sent])
        return begins

    def _foreign(self, key: Ints) -> int:
        """(2): the least key at which a class that has races meets another receive that waits for what fits the class.
        It does no harm if its message comes after all wildcards before it, unless it spans the cut."""
        messages, races = self.matched.messages, self._fixed
        row, kind = self._fitting(np.flatnonzero(messages["posted"] != NONE))
        posted = messages["posted"][row]
        end = np.searchsorted(self._turn, kind * self._span + posted, "right")  # wildcards of the class until then
        latest = self._latest[np.maximum(end - 1, 0)]
        spans = key[posted] < key[messages["received"][row]]
        harm = (self._class[row] != kind) & (spans | (latest > self._heard_fixed[row]))
        posted, kind, race = posted[harm], kind[harm], np.searchsorted(races.first, end[harm], "left") - 1
        has = (race >= 0) & (races.kind[race] == kind)
        lowest = self._lowest(races.kind, key)[race[has]]
        return int(np.maximum(lowest, key[posted[has]]).min(initial=LATE))

    def _loose(self, key: Ints) -> int:
        """(2): the same for a receive of any tag beside a class of one tag. It takes what the class leaves."""
        messages, races = self.matched.messages, self._fixed
        place = numbered(np.column_stack([self._receiver, messages["comm"]]))
        tagged = np.flatnonzero(self._kinds[races.first, 0] == 0)
        turn = place[races.message[tagged]] * self._span + self._posted[races.first[tagged]]
        tagged, turn = tagged[np.argsort(turn)], np.sort(turn)
        row = np.flatnonzero(messages["wild_tag"] & (messages["posted"] != NONE))
        race = np.searchsorted(turn, place[row] * self._span + messages["posted"][row], "right") - 1
        row, race = row[race >= 0], race[race >= 0]
        same = turn[race] // self._span == place[row]
        lowest = self._lowest(turn // self._span, key, tagged)[race[same]]
        return int(np.maximum(lowest, key[messages["posted"][row[same]]]).min(initial=LATE))

    def _lowest(self, segment: Ints, key: Ints, chosen: Ints | slice = slice(None)) -> Ints:
        """The least key of a race up to each of these, in its segment."""
        begins = self._begins(Races(*(column[chosen] for column in self._fixed)), key)
        return begins[highest(LATE - begins, segment, LATE + 1)]

    def _spanning(self, key: Ints) -> int:
        """(2): the least key at which a wildcard of a class with races is posted in the cut and not completed in it."""
        received = self.matched.messages["received"][self.wild]
        spans = key[self._posted] < key[received]
        races = np.full(len(self.wild) + 1, LATE)
        np.minimum.at(races, self._fixed.kind, self._begins(self._fixed, key))
        return int(np.maximum(races[self._of], key[self._posted])[spans].min(initial=LATE))

    def verdict(self, gaps: Ints, most: int = 10) -> Verdict:
        """Of one legal cut, with a gap for each rank; names at most so many wildcards."""
        own = np.arange(self.matched.actions) - np.repeat(self.matched.begins[:-1], np.diff(self.matched.begins))
        key = (own >= np.repeat(gaps, np.diff(self.matched.begins))).astype("i8")
        limits, padded = self.limits(key), np.append(key, LATE)
        active = self._begins(self.races, padded) == 0
        covered = np.bincount(self.races.first[active], minlength=len(self.wild) + 1)
        covered = np.cumsum(covered - np.bincount(self.races.end[active], minlength=len(self.wild) + 1))[:-1]
        doubts = []
        for wild in np.flatnonzero(covered > 0).tolist():
            candidates, own_row = self.candidates(wild, key == 0), int(self.wild[wild])
            if np.any(candidates != own_row):
                doubts.append(Doubt(own_row, candidates))
            if len(doubts) == most:
                break
        return Verdict(limits.verdict(0), doubts, np.flatnonzero(self._unsure(padded) == 0))


# The rule of 2006.


def unsettled(matched: Matched) -> Ints:
    """(n, 2), ranks and gaps: in or beside them is a call that may have another outcome: a receive from any source, or
    what `Matched.unsure` names."""
    messages, action = matched.messages, timed(matched)
    wild = messages[messages["wild_source"]]
    actions = np.concatenate([wild["posted"], wild["received"], action])
    actions = np.unique(actions[actions != NONE])
    rank = rank_of(matched, actions)
    gap = actions - matched.begins[rank]
    beside = np.concatenate([np.column_stack([rank, gap]), np.column_stack([rank, gap + 1])])
    return np.unique(np.concatenate([beside, matched.unsure[action == NONE]]), axis=0)


def timed(matched: Matched) -> Ints:
    """For each row of `unsure` the action that this call is, or NONE if it is none: it found nothing."""
    rank, gap = matched.unsure.T
    action = matched.begins[rank] + gap
    is_one = action < matched.begins[rank + 1]
    is_one[is_one] = called(matched, TIMED)[action[is_one]]
    return np.where(is_one, action, NONE)


# Two runs.


class Difference(NamedTuple):
    """The first action of a rank that two runs do not have alike."""

    rank: int
    gap: int  # so many actions before it are alike
    here: str  # what it is in the one run; empty: there is none
    there: str


def against(matched: Matched, other: Matched) -> list[Difference]:
    """Where the actions of each rank first differ: function, site, messages sent and received. At most one a rank."""
    words: dict[object, int] = {}
    one, two = _told(matched, words), _told(other, words)
    differences = []
    for rank in range(max(matched.ranks, other.ranks)):
        mine, its = (rows[rows[:, 0] == rank] for rows in (one, two))
        both = min(len(mine), len(its))
        unlike = np.any(mine[:both] != its[:both], axis=1)
        at = int(np.argmax(np.append(unlike, True)))
        if len(mine) != len(its) or at < both:
            gap = int(min(rows[at, 1] for rows in (mine, its) if at < len(rows)))
            differences.append(Difference(rank, gap, _said(matched, mine, gap), _said(other, its, gap)))
    return differences


def _told(matched: Matched, words: dict[object, int]) -> Ints:
    """Rows: rank, its action, then what: 0, function, site; or 1 sent, 2 received, peer, tag, communicator, bytes."""
    number = [
        np.array([words.setdefault(word, len(words)) for word in names], "i8")
        for names in (matched.functions, matched.sites, matched.objects)
    ]
    zero = np.zeros(matched.actions, "i8")
    parts = [(np.arange(matched.actions), zero, number[0][matched.function], number[1][matched.site], zero, zero)]
    for what, end, peer in ((1, "sent", "dest"), (2, "received", "source")):
        rows = matched.messages[matched.messages[end] != NONE]
        parts.append(
            (rows[end], np.full(len(rows), what), rows[peer], rows["tag"], number[2][rows["comm"]], rows["bytes"])
        )
    columns = [np.concatenate(column).astype("i8") for column in zip(*parts, strict=True)]
    rank = rank_of(matched, columns[0])
    columns[:1] = [rank, columns[0] - matched.begins[rank]]
    return np.column_stack(columns)[np.lexsort(columns[::-1])]


def _said(matched: Matched, rows: Ints, gap: int) -> str:
    mine = rows[rows[:, 1] == gap]
    if not len(mine):
        return ""
    action = int(matched.begins[mine[0, 0]]) + gap
    said = [f"{matched.functions[matched.function[action]]} at {matched.sites[matched.site[action]]}"]
    for what, peer, tag, _comm, size in mine[1:, 2:].tolist():
        said.append(f"{'to' if what == 1 else 'from'} {peer}, tag {tag}, {size} bytes")
    return "; ".join(said)
