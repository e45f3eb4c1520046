"""Which action comes after which, in each run that has the same messages: the order of causes.

(1) Causes are received messages, and collective calls in which each rank waits for all others. A `Bcast` is none: its
    root does not wait; nor is one without bytes. Too few causes give too many candidates of a wildcard, which is safe;
    too many would hide one.
(2) A call sends at its beginning and receives at its end: else the answer to a `Sendrecv` would come after it.
(3) There are no vector clocks of all actions: one for each rank would be ranks × actions numbers. For the wildcards of
    one rank one depth-first search finds the component that is asked for. Each run asserts what proves it right.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np
from scipy.sparse import coo_array, csr_array
from scipy.sparse.csgraph import depth_first_order

from safepoint.matching.matched import COLLECTIVE, NONE, Ints, Matched
from safepoint.places.segments import Bools, begun

MEETING = re.compile(r"I?(barrier|allreduce|allgather|alltoall|reduce_scatter_block)", re.IGNORECASE)


class Causes(NamedTuple):
    """Arcs from the end of one action to the end of another that comes after it. Nodes are the actions, then more."""

    source: Ints
    target: Ints
    graph: csr_array  # the same


def causes(matched: Matched, messages: Bools) -> Causes:
    """By the messages marked, and by meetings."""
    begins, rows = matched.begins, matched.messages
    last = np.zeros(matched.actions + 1, "?")
    last[begins[1:] - 1] = True  # of a rank; of the ranks without actions before the first, the node too many
    steps = np.flatnonzero(~last[:-1])
    rows = rows[messages & (rows["sent"] != NONE) & (rows["received"] != NONE)]
    rows = rows[rows["sent"] > begins[rank_of(matched, rows["sent"])]]
    first, leaves, group = _meetings(matched)
    node = matched.actions + np.arange(len(group))
    starts = begun(group)
    entry = node[starts][np.cumsum(starts) - 1]
    came = first > begins[rank_of(matched, first)]
    goes = ~called(matched, r"I.*|Start(all)?")[leaves]  # the others only post
    # All members come to the first node of their meeting and leave along a ladder of nodes: the search is slow at hubs.
    source = [steps, rows["sent"] - 1, first[came] - 1, node[goes], node[:-1][~starts[1:]]]
    target = [steps + 1, rows["received"], entry[came], leaves[goes], node[1:][~starts[1:]]]
    arcs = np.concatenate(source).astype("i4"), np.concatenate(target).astype("i4")
    nodes = matched.actions + len(group)
    return Causes(*arcs, coo_array((np.ones(len(arcs[0])), arcs), shape=(nodes, nodes)).tocsr())


def _meetings(matched: Matched) -> tuple[Ints, Ints, Ints]:
    """The first and the last action of each member of the collective calls of (1), and the call's group."""
    waits = np.zeros(len(matched.kind), "?")
    waits[matched.group[called(matched, MEETING)[matched.member]]] = True
    waits &= matched.kind == COLLECTIVE
    waits[matched.group[np.isin(matched.member, matched.loose)]] = False
    chosen = waits[matched.group]
    member, group = matched.member[chosen], matched.group[chosen]
    order = np.lexsort([member, group])
    member, group = member[order], group[order]
    begins = np.flatnonzero(begun(group * matched.ranks + rank_of(matched, member)))
    ends = np.append(begins[1:], len(member))[: len(begins)]
    return member[begins], member[ends - 1], group[begins]


def last_before(found: Causes, done: Ints) -> Ints:
    """For each node the greatest of `done` that reaches it, or NONE; these are nodes in a row, each reaching the next.

    The search begins at a chain of nodes more, the last one first: each leads to one of `done`, then to the next of the
    chain. So a node is met under the greatest that reaches it.
    """
    graph, nodes = found.graph, found.graph.shape[0]
    size, chain = nodes + len(done), np.arange(nodes, nodes + len(done))
    more = np.column_stack([done, chain - 1]).ravel()
    more = np.delete(more, 1)  # the first of the chain is its end
    indices = np.concatenate([graph.indices, more.astype("i4")])
    indptr = np.concatenate([graph.indptr, len(graph.indices) + 2 * np.arange(1, len(done) + 1) - 1]).astype("i4")
    chained = csr_array((np.broadcast_to(1.0, len(indices)), indices, indptr), shape=(size, size))
    met = depth_first_order(chained, size - 1, return_predecessors=False)
    last = np.full(size, NONE)
    last[met] = done[np.minimum.accumulate(np.where(met >= nodes, met - nodes, len(done) - 1))]
    assert np.all(last[found.target] >= last[found.source]) and np.all(last[done] >= done)  # (3)
    return last[:nodes]


def rank_of(matched: Matched, actions: Ints) -> Ints:
    return np.searchsorted(matched.begins, actions, "right") - 1


def called(matched: Matched, names: str | re.Pattern[str]) -> Bools:
    """Of each action: has its function such a name?"""
    return np.array([bool(re.fullmatch(names, name)) for name in matched.functions], "?")[matched.function]
