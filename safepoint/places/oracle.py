"""The definitions, taken word by word: slow, and with no graph. Tests and the benchmark compare with them.

The definitions and the two algorithms are those of Mashechkin and Smirnov (Moscow State University, 2006). A group has
*started* in a cut that holds one of its members, and is *complete* in one that holds all. A cut is legal if each group
that has started in it is complete in it, and the rule of the level holds.

(1) Nothing is shared with `graph` but the trace, and with `chance` but the names of calls: else both could be wrong.
(2) Algorithm 1 tries all cuts: the number of gaps, to the power of ranks. Algorithm 2 asks for all pairs of gaps if a
    legal cut goes through both, then extends one gap at a time by such as go with all before. That needs no way back:
    gaps of which each two go together lie in one legal cut.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from safepoint.matching.matched import COLLECTIVE, NONE, Matched
from safepoint.places.causes import MEETING
from safepoint.places.chance import TIMED

Cut = tuple[int, ...]  # one gap for each rank
Gap = tuple[int, int]  # rank and gap


class Definition:
    """A trace in plain sets and tuples."""

    def __init__(self, matched: Matched) -> None:
        self.matched = matched
        self.begins: list[int] = matched.begins.tolist()
        self.ranks = range(matched.ranks)
        self.counts = [end - begin for begin, end in zip(self.begins, self.begins[1:], strict=False)]
        self.rank_of = [rank for rank in self.ranks for _ in range(self.counts[rank])]
        groups: dict[int, set[int]] = {}
        for member, group in zip(matched.member.tolist(), matched.group.tolist(), strict=True):
            groups.setdefault(group, set()).add(member)
        self.groups = groups
        self.messages = [
            dict(zip(matched.messages.dtype.names or (), row, strict=True)) for row in matched.messages.tolist()
        ]
        self.arcs: list[list[int]] = matched.arcs.tolist()
        self.requests: list[list[int]] = matched.requests.tolist()
        self.never: list[int] = matched.never.tolist()
        self.functions = [matched.functions[number] for number in matched.function.tolist()]
        self.uncertain = {row[end] for row in self.messages if row["wild_source"] for end in ("posted", "received")}
        self.gaps_of_chance: set[Gap] = set()
        for rank, gap in matched.unsure.tolist():
            action = self.begins[rank] + gap
            if gap < self.counts[rank] and TIMED.fullmatch(self.functions[action]):
                self.uncertain.add(action)
            else:
                self.gaps_of_chance.add((rank, gap))

    # Legal cuts.

    def inside(self, cut: Cut) -> set[int]:
        return {self.begins[rank] + own for rank in self.ranks for own in range(cut[rank])}

    def legal(self, cut: Cut, level: str) -> bool:
        inside = self.inside(cut)
        return (
            all(not self.started(group, inside) or self.complete(group, inside) for group in self.groups.values())
            and all(needed in inside for action, needed in self.arcs if action in inside)
            and inside.isdisjoint(self.never)
            and (level == "message" or all((post in inside) == (done in inside) for post, done in self.requests))
            and (level != "strict" or all(self.certain(rank, cut[rank]) for rank in self.ranks))
        )

    def started(self, group: set[int], inside: set[int]) -> bool:
        return not group.isdisjoint(inside)

    def complete(self, group: set[int], inside: set[int]) -> bool:
        return group <= inside

    def certain(self, rank: int, gap: int) -> bool:
        """The rule of 2006: the actions on both sides of a gap, and the calls in it, are certain."""
        beside = {self.begins[rank] + own for own in (gap - 1, gap) if 0 <= own < self.counts[rank]}
        return (rank, gap) not in self.gaps_of_chance and beside.isdisjoint(self.uncertain)

    def algorithm_1(self, level: str) -> Iterator[Cut]:
        """All legal cuts."""
        for cut in product(*(range(count + 1) for count in self.counts)):
            if self.legal(cut, level):
                yield cut

    def least(self, demands: list[Gap], level: str) -> Cut:
        """The least cut with these actions and all that they need. It may break off at what can never be."""
        cut = [0] * len(self.ranks)
        for rank, gap in demands:
            cut[rank] = max(cut[rank], gap)
        needs = list(self.arcs)
        needs += [[one, other] for group in self.groups.values() for one in group for other in group]
        if level != "message":
            needs += [pair for pair in self.requests if pair[1] != NONE]
        grown = True
        while grown:
            grown = False
            for action, needed in needs:
                if self.holds(cut, action) and not self.holds(cut, needed):
                    cut[self.rank_of[needed]] = needed - self.begins[self.rank_of[needed]] + 1
                    grown = True
            for rank in self.ranks if level == "strict" else ():
                if cut[rank] < self.counts[rank] and not self.certain(rank, cut[rank]):
                    cut[rank] += 1
                    grown = True
        return tuple(cut)

    def holds(self, cut: list[int], action: int) -> bool:
        return action - self.begins[self.rank_of[action]] < cut[self.rank_of[action]]

    def algorithm_2(self, level: str) -> dict[Gap, Cut]:
        """A legal cut through each gap that has one."""
        gaps = [(rank, gap) for rank in self.ranks for gap in range(self.counts[rank] + 1)]
        pairs = {(one, other) for one in gaps for other in gaps if self.go_together([one, other], level)}
        found: dict[Gap, Cut] = {}
        for first in gaps:
            chosen = [first]
            for rank in self.ranks:
                fitting = (gap for gap in gaps if gap[0] == rank and all((gap, one) in pairs for one in [*chosen, gap]))
                chosen += [gap for gap in [next(fitting, None)] if gap is not None and rank != first[0]]
            if (first, first) in pairs and len(chosen) == len(self.ranks):
                found[first] = tuple(gap for _, gap in sorted(chosen))
        return found

    def go_together(self, demands: list[Gap], level: str) -> bool:
        """Does a legal cut go through all these gaps?"""
        cut = self.least(demands, level)
        return all(cut[rank] == gap for rank, gap in demands) and self.legal(cut, level)

    # Causes, and candidates.

    def clocks(self, trusted: list[bool]) -> list[list[int]]:
        """The vector clock of the end of each action: of each rank the number of actions that come before it, with its
        own. `trusted`: of each message, is it a cause?"""
        clocks = [[0] * len(self.ranks) for _ in self.rank_of]
        for action, rank in enumerate(self.rank_of):
            clocks[action][rank] = action - self.begins[rank] + 1
        befores: list[tuple[int, int]] = [(a - 1, a) for a in range(len(clocks)) if a not in self.begins]
        befores += [
            (row["sent"] - 1, row["received"])
            for row, is_cause in zip(self.messages, trusted, strict=True)
            if is_cause and NONE not in (row["sent"], row["received"]) and row["sent"] not in self.begins
        ]
        befores += self.meetings()
        grown = True
        while grown:
            grown = False
            for one, other in befores:
                joined = [max(pair) for pair in zip(clocks[one], clocks[other], strict=True)]
                grown |= joined != clocks[other]
                clocks[other] = joined
        return clocks

    def meetings(self) -> Iterator[tuple[int, int]]:
        """Who comes to a collective call that waits for all, and who has left it."""
        for number, group in self.groups.items():
            names = [self.functions[action] for action in group]
            if self.matched.kind[number] == COLLECTIVE and any(MEETING.fullmatch(name) for name in names):
                own = [sorted(a for a in group if self.rank_of[a] == rank) for rank in self.ranks]
                for one, other in product(own, own):
                    if one and other and one[0] not in self.begins and self.functions[other[-1]][0] not in "IS":
                        yield one[0] - 1, other[-1]

    def candidates(self, receive: int, cut: Cut) -> set[int]:
        """Rows of the messages that a wildcard could have taken."""
        inside, clocks, by = self.inside(cut), self.clocks([True] * len(self.messages)), self.messages[receive]
        rank, found = self.rank_of[by["posted"]], dict[int, int]()
        for row, message in sorted(enumerate(self.messages), key=lambda pair: (pair[1]["sent"], pair[0])):
            sent, posted = message["sent"], message["posted"]
            if (
                sent == NONE
                or message["comm"] != by["comm"]
                or not (by["wild_tag"] or message["tag"] == by["tag"])
                or (self.rank_of[posted] if posted != NONE else message["dest"]) != rank
                or (posted != NONE and posted < by["posted"])
            ):
                continue
            after = (
                by["received"] != NONE
                and sent not in self.begins
                and (clocks[sent - 1][rank] > by["received"] - self.begins[rank])
            )
            if self.rank_of[sent] not in found and not after:
                found[self.rank_of[sent]] = row
        return {row for row in [*found.values(), receive] if self.messages[row]["sent"] in inside}
