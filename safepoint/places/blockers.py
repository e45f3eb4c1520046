"""What spoils the visits of a line: the arcs that leave a cut, and the two lines of the program they come from.

(1) The epoch of an action is the number of visits before it on its rank. An arc x → y spoils the visits from
    epoch(x) + 1 to epoch(y): there x is in the cut and y is not. So all visits are legal if and only if no arc leads to
    a later epoch, and one pass over the arcs judges them all.
(2) Arcs are told by the lines of their two calls, not by ranks and messages: a line is what a user can change. The
    request of a message or a collective call is of the same lines, or what is received later would block twice.
(3) Without a blocker the visits are judged again: what another one spoils too must not be promised.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from safepoint.matching.matched import COLLECTIVE, NONE, Ints
from safepoint.places.graph import PARTS, Order, Small
from safepoint.places.segments import Bools, begun, highest, numbered

OF_MESSAGE, OF_COLLECTIVE, OF_REQUEST, OF_CALL, OF_NEVER, OF_CHANCE = range(6)
WHAT = "message", "collective call", "request", "call", "call that never ends", "call of chance"


class Spoils(NamedTuple):
    """The arcs that spoil visits of a line, and which: first to last, from 1 on."""

    arcs: Ints  # in `Order.source`
    first: Small
    last: Small
    visits: int  # that all ranks make

    def legal(self, but: Bools | None = None) -> Bools:
        """Of each visit; `but`: without the arcs marked."""
        first, last = (self.first, self.last) if but is None else (self.first[~but], self.last[~but])
        change = np.bincount(first, minlength=self.visits + 2) - np.bincount(last + 1, minlength=self.visits + 2)
        legal: Bools = np.cumsum(change)[1 : self.visits + 1] == 0
        return legal


class Blocker(NamedTuple):
    """What spoils visits, by the lines of its calls."""

    what: str  # of WHAT
    sent: int  # sites; of what is no message, that of its call
    received: int  # 0: nowhere
    messages: Ints  # rows of `Matched.messages`
    action: int  # the first that it is about
    spoiled: int  # so many visits, of all lines that were asked about
    later: int  # so many visits lie between its two calls, in most cases
    without: list[int]  # of each of these lines the legal visits, were it not there


def epochs(order: Order, rank: Ints, gap: Ints, visits: int) -> Small:
    """(1), of each node, for visits at these ranks and gaps, in order: so many of each rank count."""
    epoch = np.zeros(order.matched.actions + 2, "i4")
    counts = np.bincount(rank, minlength=order.matched.ranks)
    mine = np.split(gap, np.cumsum(counts)[:-1])
    for begin, end, gaps in zip(order.matched.begins[:-1], order.matched.begins[1:], mine, strict=True):
        numbers = np.minimum(np.arange(len(gaps) + 1, dtype="i4"), visits)
        epoch[begin:end] = np.repeat(numbers, np.diff(gaps, prepend=0, append=end - begin))
    epoch[order.never] = visits
    return epoch


def spoils(order: Order, epoch: Small) -> Spoils:
    """(1), from the epochs of all nodes."""
    first, last = epoch[order.source], epoch[order.target]
    arcs = np.flatnonzero(last > first)
    return Spoils(arcs, first[arcs] + 1, last[arcs], int(epoch[order.never]))


def blockers(order: Order, lines: list[Spoils], most: int = 10) -> tuple[list[Blocker], list[int]]:
    """What spoils the visits of these lines, most first; and how many blockers each line has."""
    arcs = np.concatenate([line.arcs for line in lines])
    if not len(arcs):
        return [], [0] * len(lines)
    of_line = np.repeat(np.arange(len(lines)), [len(line.arcs) for line in lines])
    told, row = _told(order, arcs)
    number = numbered(told)
    how_many = int(number.max()) + 1
    first, last = (np.concatenate([line[column] for line in lines]).astype("i8") for column in (1, 2))
    pair = of_line * how_many + number
    pairs = np.unique(pair)
    spoiled = np.zeros(how_many, "i8")
    np.add.at(spoiled, pairs % how_many, _visits(pair, first, last))
    found = []
    for one in np.argsort(-spoiled, kind="stable")[:most].tolist():
        mine = number == one
        without = [int(np.count_nonzero(line.legal(mine[of_line == at]))) for at, line in enumerate(lines)]
        rows, what = np.unique(row[mine]), told[np.argmax(mine)].tolist()
        later = int(np.median((last - first + 1)[mine]))
        action = int(min(order.source[arcs[mine]].min(), order.target[arcs[mine]].min()))
        found.append(
            Blocker(WHAT[what[0]], what[1], what[2], rows[rows != NONE], action, int(spoiled[one]), later, without)
        )
    return found, np.bincount(pairs // how_many, minlength=len(lines)).tolist()


def _visits(segment: Ints, first: Ints, last: Ints) -> Ints:
    """Of each segment, in ascending order, how many visits lie from a first to its last: each counts once."""
    order = np.lexsort([first, segment])
    segment, first, last = segment[order], first[order], last[order]
    begins = begun(segment)
    until = last[highest(last, segment, int(last.max()) + 1)]
    until = np.where(begins, 0, np.roll(until, 1))
    return np.add.reduceat(np.maximum(last - np.maximum(first - 1, until), 0), np.flatnonzero(begins))


def _told(order: Order, arcs: Ints) -> tuple[Ints, Ints]:
    """Of each arc a row: what it is of, and the sites of both calls. And its row of messages, or NONE."""
    matched, messages = order.matched, order.matched.messages
    source, target = order.source[arcs].astype("i8"), order.target[arcs].astype("i8")
    part = np.searchsorted(order.ends, arcs, "right")
    site, of_action = np.append(matched.site, [0, 0]), _messages_of_actions(order)
    row = np.select(
        [part == PARTS.index("arcs"), part == PARTS.index("forbidden")], [of_action[target], NONE], of_action[source]
    )
    posts = (part == PARTS.index("requests")) & (row == NONE)
    row[posts] = _of_posts(order, source[posts], target[posts])
    in_group, of_request = part == PARTS.index("groups"), part == PARTS.index("requests")
    group = np.full(len(arcs), NONE)
    group[in_group] = order.in_ring[arcs[in_group]]
    group[of_request] = _collectives_of_actions(order)[source[of_request]]
    of_group = np.full(len(matched.kind) + 1, NONE)
    of_group[messages["group"]] = np.arange(len(messages))
    row[in_group] = of_group[group[in_group]]
    ring = group != NONE
    if np.any(ring):  # all arcs of a ring, and the requests of its members, are one: of the site of its first member
        begins = np.flatnonzero(begun(order.in_ring))
        least = np.minimum.reduceat(order.source[: len(order.in_ring)], begins)
        source[ring] = target[ring] = least[np.searchsorted(order.in_ring[begins], group[ring])]
    what = np.array([OF_COLLECTIVE, OF_CALL, OF_REQUEST, OF_NEVER, OF_CHANCE])[part]
    what[of_request & ring] = OF_COLLECTIVE
    what[row != NONE] = OF_MESSAGE
    told = np.column_stack([what, site[source], site[target]])
    message = messages[row[row != NONE]]
    for column, ends in ((1, ("sent", "posted")), (2, ("received", "posted"))):
        action = np.where(message[ends[0]] == NONE, message[ends[1]], message[ends[0]])
        told[row != NONE, column] = np.where(action == NONE, 0, site[action])
    return told, row


def _collectives_of_actions(order: Order) -> Ints:
    """Of each node the group of the collective call that it is, or NONE."""
    matched, of_action = order.matched, np.full(order.matched.actions + 2, NONE)
    rows = matched.kind[matched.group] == COLLECTIVE
    of_action[matched.member[rows]] = matched.group[rows]
    return of_action


def _messages_of_actions(order: Order) -> Ints:
    """Of each node the row of the one message that it sends, or posts the receive of; or NONE: there are several."""
    messages, of_action = order.matched.messages, np.full(order.matched.actions + 2, NONE)
    many = np.zeros(order.matched.actions + 2, "i8")
    for end in ("posted", "sent"):
        known = np.flatnonzero(messages[end] != NONE)
        of_action[messages[end][known]] = known
        np.add.at(many, messages[end][known], 1)
    of_action[many > 1] = NONE
    return of_action


def _of_posts(order: Order, posted: Ints, completed: Ints) -> Ints:
    """Of each receive, by the action that posts it and the one that completes it, the row of its message; or NONE."""
    messages, nodes = order.matched.messages, order.matched.actions + 2
    known = np.flatnonzero((messages["posted"] != NONE) & (messages["received"] != NONE))
    keys = messages["posted"][known] * nodes + messages["received"][known]
    by_key = np.argsort(keys, kind="stable")
    keys, known = np.append(keys[by_key], -1), np.append(known[by_key], NONE)
    wanted = posted * nodes + completed
    at = np.searchsorted(keys[:-1], wanted)
    alone = np.searchsorted(keys[:-1], wanted, "right") - at == 1
    return np.where(alone & (keys[at] == wanted), known[at], NONE)
