"""Legal cuts: the cuts of a matched trace at which no message, no collective call and no request is under way.

An arc x → y says "who has x in the cut must have y". The legal cuts are the sets of actions that are closed under all
arcs. Those that meet in a strongly connected component are in a legal cut together or not at all, so one pass over
the actions and arcs answers everything here. This is the slicing of a computation (Mittal and Garg, Distributed
Computing 17, 2005) for the strong consistency of cuts (Hélary, Netzer and Raynal, IEEE TSE 25, 1999).

(1) Two nodes more than actions: ALWAYS is in each legal cut, NEVER in none. Each action leads, through those before it,
    to ALWAYS, and NEVER leads to each action. So what may never be in a cut is in the component of NEVER, with no
    special case: a search of its own for it could disagree with the components.
(2) A group is a ring of arcs, one for each member. A node for each group would cost half as many nodes again.
(3) The labels of the components are a topological order: an arc never leads to a greater label. scipy does not promise
    it, so each run asserts it; else a "legal place" could hold a message and not its send.
(4) A gap may be forbidden: that is one arc from the action before it to the action after it. Level *strict* is that.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array
from scipy.sparse.csgraph import breadth_first_order, connected_components

from safepoint.matching.matched import NONE, Ints, Matched
from safepoint.places.chance import unsettled
from safepoint.places.segments import Bools

Small = NDArray[np.int32]  # nodes: at 10⁷ actions half of the memory
LEVELS = "message", "files", "strict"
PARTS = "groups", "arcs", "requests", "never", "forbidden"  # what the arcs stand for, in this order


class Broken(NamedTuple):
    """Why a cut is not legal; all empty if it is."""

    groups: Ints  # they lie in the cut in part
    messages: Ints  # the rows of `Matched.messages` that are these groups
    arcs: Ints  # rows of `Matched.arcs`
    requests: Ints  # rows of `Matched.requests`: posted in the cut, and not completed in it
    never: Ints  # actions of the cut that no legal cut contains
    forbidden: Ints  # (n, 2): rank and gap

    @property
    def legal(self) -> bool:
        return not any(len(what) for what in self)


class Order:
    """The legal cuts of a trace at one level.

    `first`: for each action the number of the first place of a longest chain of legal places that contains it; it is
    `places` if none does. Place 0 is the least legal cut, and that is the empty one if it is legal; place
    `places` − 1 is the greatest, the whole of all ranks if that is legal. Both count. `places` is 0 if no cut is legal.

    `source`, `target`: the arcs, but for those of the order of each program. Nodes are the actions, then ALWAYS, NEVER.
    """

    def __init__(self, matched: Matched, level: str, forbid: Ints) -> None:
        self.matched, self.level = matched, level
        self.always, self.never = matched.actions, matched.actions + 1
        if level == "strict":
            forbid = np.concatenate([forbid, unsettled(matched)])
        self.forbidden = forbid
        self.in_ring = matched.group  # the group of each arc of the part "groups"
        self.source, self.target, self.ends = self._arcs()
        self._graph = _rows(*self._all_arcs(), matched.actions + 2)
        count, labels = connected_components(self._graph, connection="strong")
        assert np.all(labels[self.source] >= labels[self.target])  # (3)
        self.first: Small = labels[: matched.actions]
        self.places = int(count) - 1
        for rank in range(matched.ranks):
            assert np.all(np.diff(self._own(rank)) >= 0)
        assert labels[self.always] == 0 and labels[self.never] == self.places

    def _own(self, rank: int) -> Small:
        """`first` of the actions of this rank."""
        return self.first[self.matched.begins[rank] : self.matched.begins[rank + 1]]

    def _before(self, rank: Ints, gap: Ints) -> Ints:
        """The nodes before these gaps."""
        return np.where(gap > 0, self.matched.begins[rank] + gap - 1, self.always)

    def _after(self, rank: Ints, gap: Ints) -> Ints:
        begins = self.matched.begins
        return np.where(gap < begins[rank + 1] - begins[rank], begins[rank] + gap, self.never)

    def _arcs(self) -> tuple[Small, Small, list[int]]:
        """The arcs of each of the PARTS, one after the other, and where each part ends."""
        matched, member, group = self.matched, self.matched.member, self.matched.group
        if np.any(group[1:] < group[:-1]):
            by_group = np.argsort(group, kind="stable")
            member, group = member[by_group], group[by_group]
            self.in_ring = group
        ring = np.roll(member, -1)
        last = np.append(group[1:] != group[:-1], True)[: len(group)]
        ring[last] = member[np.roll(last, 1)]  # the last member of a group leads to its first: (2)
        requests = matched.requests if self.level != "message" else matched.requests[:0]
        rank, gap = self.forbidden.T
        source = [member, matched.arcs[:, 0], requests[:, 0], matched.never, self._before(rank, gap)]
        completed = np.where(requests[:, 1] == NONE, self.never, requests[:, 1])
        to_never = np.full(len(matched.never), self.never)
        target = [ring, matched.arcs[:, 1], completed, to_never, self._after(rank, gap)]
        ends = np.cumsum([len(part) for part in source]).tolist()
        return (
            np.concatenate(source, dtype="i4", casting="same_kind"),
            np.concatenate(target, dtype="i4", casting="same_kind"),
            ends,
        )

    def _all_arcs(self) -> tuple[Small, Small]:
        """With the order of the programs: NEVER → the last action → … → the first → ALWAYS, on each rank."""
        begins = self.matched.begins
        order = np.arange(-1, self.matched.actions - 1, dtype="i4")
        busy = np.flatnonzero(begins[1:] > begins[:-1])
        order[begins[busy]] = self.always
        last = (begins[busy + 1] - 1).astype("i4")
        source = [np.arange(self.matched.actions, dtype="i4"), np.full(len(busy) + 1, self.never, "i4"), self.source]
        return np.concatenate(source), np.concatenate([order, last, np.array([self.always], "i4"), self.target])

    # Gaps.

    def possible(self, rank: int) -> Bools:
        """For each gap of this rank, from 0 to its number of actions: whether some legal cut goes through it."""
        return np.diff(self._own(rank), prepend=0, append=self.places) > 0

    def least(self, rank: int, gap: int) -> Ints | None:
        """The least legal cut through this gap, one gap for each rank; None if no legal cut goes through it."""
        return self.extended([rank], [gap])

    def greatest(self, rank: int, gap: int) -> Ints | None:
        """The greatest legal cut through it."""
        limits = np.diff(self.matched.begins)
        limits[rank] = gap
        cut = self.below(limits)
        return cut if cut is not None and cut[rank] == gap else None

    def extended(self, ranks: Sequence[int], gaps: Sequence[int]) -> Ints | None:
        """The least legal cut through these gaps of these ranks; None if there is none."""
        wanted = np.zeros(self.matched.ranks, "i8")
        wanted[list(ranks)] = gaps
        cut = self.above(wanted)
        return cut if cut is not None and np.array_equal(cut[list(ranks)], gaps) else None

    # Cuts: one gap for each rank.

    def place(self, number: int) -> Ints:
        """A place of the chain, from 0 to `places` − 1."""
        return np.array([np.searchsorted(self._own(rank), number, "right") for rank in range(self.matched.ranks)], "i8")

    def above(self, gaps: Ints) -> Ints | None:
        """The least legal cut that contains this cut, or None."""
        needed = _reached(self._graph, self._before(np.arange(len(gaps)), gaps))
        return None if needed[self.never] else self._counts(needed)

    def below(self, gaps: Ints) -> Ints | None:
        """The greatest legal cut that lies in this cut, or None."""
        lost = _reached(self._reverse, self._after(np.arange(len(gaps)), gaps))
        return None if lost[self.always] else self._counts(~lost)

    def legal_cut(self, gaps: Ints) -> Broken:
        """What this cut breaks."""
        broken = np.flatnonzero(self.inside(gaps, self.source) & ~self.inside(gaps, self.target))
        parts = np.split(broken, np.searchsorted(broken, self.ends[:-1]))
        in_ring, arcs, requests, never, forbidden = (
            part - begin for part, begin in zip(parts, [0, *self.ends[:-1]], strict=True)
        )
        groups = np.unique(self.in_ring[in_ring])
        messages = np.flatnonzero(np.isin(self.matched.messages["group"], groups))
        gone = self.matched.never[never]
        return Broken(groups, messages, arcs, requests, gone, np.unique(self.forbidden[forbidden], axis=0))

    def inside(self, gaps: Ints, nodes: Small) -> Bools:
        """Which of these nodes lie in the cut."""
        held = np.zeros(self.matched.actions + 2, "?")
        for begin, gap in zip(self.matched.begins, gaps.tolist(), strict=False):
            held[begin : begin + gap] = True
        held[self.always] = True
        return held[nodes]

    def _counts(self, held: Bools) -> Ints:
        begins = self.matched.begins
        return np.array([np.count_nonzero(held[a:b]) for a, b in pairwise(begins.tolist())], "i8")

    @cached_property
    def _reverse(self) -> csr_array:
        source, target = self._all_arcs()
        return _rows(target, source, self.matched.actions + 2)


class Chain:
    """The places of the longest chain as an array of places × ranks has them, each column made when it is asked for."""

    def __init__(self, order: Order) -> None:
        self._order = order

    def __len__(self) -> int:
        return self._order.places

    def __getitem__(self, at: tuple[slice, int]) -> Ints:
        rows, rank = at
        numbers = np.arange(*rows.indices(len(self)))
        found: Ints = np.searchsorted(self._order._own(int(rank)), numbers, "right")
        return found


def order(matched: Matched, level: str = "files", forbid: Ints | None = None) -> Order:
    """The legal cuts at one of the LEVELS. `forbid`, (n, 2): ranks and gaps through which no cut may go.

    *message*: a posted request may span a cut. *files*: none does, since no request survives a restart. *strict*: also,
    no action on either side of a gap, and no call in it, has an outcome that may depend on time.
    """
    return Order(matched, level, np.empty((0, 2), "i8") if forbid is None else forbid)


def _rows(source: Small, target: Small, nodes: int) -> csr_array:
    """The graph with these arcs. Its weights are one number seen many times: they are not looked at."""
    graph = coo_array((np.ones(len(source), "?"), (source, target)), shape=(nodes, nodes)).tocsr()
    return _weighted(graph.indices, graph.indptr)


def _weighted(indices: Small, indptr: Small) -> csr_array:
    nodes = len(indptr) - 1
    return csr_array((np.broadcast_to(1.0, len(indices)), indices, indptr), shape=(nodes, nodes))


def _reached(graph: csr_array, starts: Ints) -> Bools:
    """Which nodes can be reached from these: by a search from one node more, with an arc to each of them."""
    nodes = graph.shape[0]
    indices = np.concatenate([graph.indices, np.unique(starts).astype("i4")])
    indptr = np.append(graph.indptr, np.int32(len(indices)))
    found = np.zeros(nodes + 1, "?")
    found[breadth_first_order(_weighted(indices, indptr), nodes, return_predecessors=False)] = True
    return found[:nodes]
