"""Messages: which receive takes which send.

A message goes from one rank to another, on a communicator, with a tag: let these be its *lane*. In a lane the k-th send
goes to the k-th receive in the order of posting, since no message overtakes another one, and each goes to the oldest
receive that it fits. The source and tag of a receive are in its status, if it was for any. So one sorted join does it.

(1) A receive from any source or of any tag that never ended may have taken a message of one lane or of another, and
    left the next one of it to a receive posted later. No cut is legal that has one of those it may have taken: a guess
    could put a legal place between a message and its receive. So it is with what `Cancel` was asked for.
(2) A receive that was cancelled took nothing, and a send that was cancelled sent nothing.
(3) A message that was probed is taken after that. Else the trace is damaged, and nothing takes it.
(4) A receive that is freed while it waits has its message at some time that nobody learns of: it never ends.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np

from safepoint.matching.matched import NONE, Ints
from safepoint.matching.objects import Bools, Calls, Things, numbered
from safepoint.matching.opened import Opened, found_in, key_of, rows
from safepoint.trace import record

SIDES: tuple[Literal["left", "right"], ...] = "left", "right"
LOOP = 1_000  # so many receives that never ended are looked at one by one


class Ends(NamedTuple):
    """Sends, receives, or probes that found something, in the order of their calls."""

    call: Ints  # that sends, posts or probes
    what: Ints  # that says what it is
    done: Ints  # of a receive: the call that completes it, or NONE
    source: Ints  # ranks of the world; NONE: not known, or outside of it
    dest: Ints
    comm: Ints  # across ranks
    tag: Ints  # ANY_TAG: not known
    wild_source: Bools
    wild_tag: Bools
    asked: Bools  # Cancel was called, and no call says what came of it
    place: Ints  # a number for each rank and communicator where messages come in

    def rows(self, which: Ints | Bools) -> Ends:
        return Ends._make(column[which] for column in self)


class Joined(NamedTuple):
    sends: Ends
    receives: Ends
    taken: Ints  # of each send the row of the receive that takes it, or NONE
    probes: Ends
    implied: Ints  # of each probe the row of the send that it has found, or NONE
    doubted: Bools  # of each send: (1)


class Lanes(NamedTuple):
    """Those that have sends, in the order of their places; and the receives that are known to be theirs."""

    place: Ints
    source: Ints
    tag: Ints
    sends: Ints  # their rows, by lane
    first: Ints  # of each lane, in `sends`
    sizes: Ints  # so many sends has each
    posted: Ints  # of receives: lane · span + the call that posts it, ascending
    begins: Ints  # of each lane, in `posted`
    span: int
    last: Ints  # of each lane: so many receives are up to the last one that ended
    given: Ints  # of each lane: so many that never ended are added to it

    def free(self, lane: Ints, call: Ints | int) -> tuple[Ints, Bools]:
        """For a receive that is posted by this call: so many of each lane are before it; may it have taken the next
        send? Each that ended after it needs one too."""
        before: Ints = np.searchsorted(self.posted, lane * self.span + call) - self.begins[lane] + self.given[lane]
        return before, np.maximum(before, self.last[lane]) < self.sizes[lane]


def messages(calls: Calls, things: Things, opened: Opened) -> Joined:
    """All of them, joined."""
    sends, receives, probes = _sends(calls, things, opened), _receives(calls, things, opened), _probes(calls, things)
    known, doubted = _known(receives), sends.asked
    if not known.all():
        doubted, one_lane = _doubted(sends, receives, known)
        known = _known(receives) if one_lane else known
    taken, implied = _join(sends, receives, known, probes)
    return Joined(sends, receives, taken, probes, implied, doubted)


def _known(receives: Ends) -> Bools:
    found: Bools = (receives.source != NONE) & (receives.tag != record.ANY_TAG) & ~receives.asked
    return found


def _ends(
    calls: Calls, things: Things, call: Ints, what: Ints, done: Ints, asked: Bools, given: tuple[Ints, Ints],
    got: tuple[Ints, Ints] | None,
) -> Ends:  # fmt: skip
    """`given`, `got`: peers and tags. Nothing goes to, or comes from, MPI_PROC_NULL. `got`: None of sends."""
    peer, tag = given
    flags = calls.flags[what] if got is not None else np.zeros(len(what), "i8")
    wild_source = ((flags & record.WILD_SOURCE) > 0) | ((peer == record.ANY_SOURCE) & (got is not None))
    wild_tag = ((flags & record.WILD_TAG) > 0) | ((tag == record.ANY_TAG) & (got is not None))
    if got is not None:
        came = (wild_source | wild_tag) & (got[0] >= 0) & (got[1] >= 0)
        peer, tag = np.where(came, got[0], peer), np.where(came, got[1], tag)
    thing, rank = calls.thing[what], calls.rank[call].astype("i8")
    world = things.in_world(thing, peer)
    source, dest = (rank, world) if got is None else (world, rank)
    comm = things.across[thing]
    place = dest * (len(things.size) + 1) + comm
    found = Ends(call, what, done, source, dest, comm, tag.astype("i8"), wild_source, wild_tag, asked, place)
    return found.rows((peer != record.PROC_NULL) & (peer != record.CANCELLED))


def _sends(calls: Calls, things: Things, opened: Opened) -> Ends:
    plain = calls.of("send", "sendrecv")
    later = calls.are(opened.what, "isend", "isendrecv", "send_init")
    later &= (opened.got_peer != record.CANCELLED) | ~calls.are(opened.what, "isend", "send_init")  # (2)
    call, what = (np.concatenate([plain, column[later]]) for column in (opened.call, opened.what))
    order, asked = np.argsort(call, kind="stable"), np.append(plain < 0, opened.asked[later])
    call, what, asked = call[order], what[order], asked[order]
    given = calls.peer[what], calls.tag[what]
    return _ends(calls, things, call, what, np.full(len(call), NONE), asked, given, None)


def _receives(calls: Calls, things: Things, opened: Opened) -> Ends:
    plain = calls.of("recv", "sendrecv")
    ended = calls.returned(plain)
    later = calls.are(opened.what, "irecv", "isendrecv", "recv_init") & (opened.got_peer != record.CANCELLED)  # (2)
    probed, took = _probed(calls, opened)
    call = np.concatenate([plain, opened.call[later], probed])
    what = np.concatenate([plain, opened.what[later], probed])
    close = opened.close[later]
    if len(freed := calls.of("request_free")):
        close = np.where(np.isin(close, freed), NONE, close)  # (4)
    done = np.concatenate([np.where(ended, plain, NONE), close, took])
    got = [
        np.concatenate([np.where(ended, column[plain], record.NONE), late[later], column[probed]])
        for column, late in ((calls.got_peer, opened.got_peer), (calls.got_tag, opened.got_tag))
    ]
    both = calls.are(what, "sendrecv", "isendrecv")
    given = [np.where(both, second[what], first[what])
             for first, second in ((calls.peer, calls.got_peer), (calls.tag, calls.got_tag))]  # fmt: skip
    order = np.argsort(call, kind="stable")
    asked = np.concatenate([plain < 0, opened.asked[later], probed < 0])
    call, what, done, asked, *rest = (column[order] for column in (call, what, done, asked, *given, *got))
    return _ends(calls, things, call, what, done, asked, (rest[0], rest[1]), (rest[2], rest[3]))


def _probed(calls: Calls, opened: Opened) -> tuple[Ints, Ints]:
    """The calls that took a message out for one receive, and that which completes this, or NONE."""
    probed = calls.of("mprobe", "improbe")
    probed = probed[calls.request[probed] > 0]
    key, took = key_of(calls, probed, calls.request[probed]), np.full(len(probed), NONE)
    receiving = calls.of("mrecv")
    receiving = receiving[calls.returned(receiving)]
    later, (number,) = rows(calls, calls.of("imrecv"), record.MESSAGE, 1)
    close = np.append(opened.close, NONE)[opened.rows(later)]
    done, number = np.concatenate([receiving, close]), np.concatenate([calls.request[receiving], number])
    of = found_in(key, key_of(calls, np.concatenate([receiving, later]), number))
    took[of[of != NONE]] = done[of != NONE]
    return probed, np.where(took > probed, took, NONE)  # (3)


def _probes(calls: Calls, things: Things) -> Ends:
    probes = calls.of("probe", "iprobe", "mprobe", "improbe")
    probes = probes[calls.returned(probes) & (calls.got_peer[probes] >= 0)]
    got = calls.got_peer[probes], calls.got_tag[probes]
    return _ends(calls, things, probes, probes, np.full(len(probes), NONE), probes < 0, got, got)


def _join(sends: Ends, receives: Ends, known: Bools, probes: Ends) -> tuple[Ints, Ints]:
    """Of each send the row of its receive; of each probe that of its send. NONE: there is none."""
    rows = np.flatnonzero(known)
    three = sends, receives.rows(rows), probes
    lane = numbered(*(np.concatenate([getattr(ends, name) for ends in three])
                      for name in ("source", "dest", "comm", "tag")))  # fmt: skip
    of_sends, of_receives, of_probes = np.split(lane, np.cumsum([len(ends.call) for ends in three])[:2])
    by_lane, taking = np.argsort(of_sends, kind="stable"), np.argsort(of_receives, kind="stable")
    of_sends, of_receives = of_sends[by_lane], of_receives[taking]
    at = np.searchsorted(of_sends, of_receives)
    turn = np.arange(len(taking))
    at += turn - np.maximum.accumulate(np.where(_begins(of_receives), turn, 0))
    there = at < len(by_lane)
    there[there] = of_sends[at[there]] == of_receives[there]
    taken = np.full(len(by_lane), NONE)
    taken[by_lane[at[there]]] = rows[taking[there]]
    # A probe finds the first of its lane that no receive took that was posted before.
    span = int(max((ends.call.max(initial=0) for ends in three), default=0)) + 2
    posted = np.where(taken == NONE, span - 1, receives.call[taken] if len(receives.call) else 0)[by_lane]
    number = np.cumsum(_begins(of_sends)) - 1
    reached = np.maximum.accumulate(number * span + posted)
    first = np.minimum(np.searchsorted(of_sends, of_probes), max(len(by_lane) - 1, 0))
    found = np.searchsorted(reached, number[first] * span + probes.call) if len(by_lane) else first
    there = found < len(by_lane)
    there[there] = of_sends[found[there]] == of_probes[there]
    return taken, np.where(there, by_lane[np.where(there, found, 0)], NONE) if len(by_lane) else first - 1


def _begins(lane: Ints) -> Bools:
    return np.append(True, lane[1:] != lane[:-1])[: len(lane)]


def _doubted(sends: Ends, receives: Ends, known: Bools) -> tuple[Bools, bool]:
    """(1): the first send of each lane that may have gone to a receive of which this is not known; whether there is a
    receive for which this is one lane: it is given to that."""
    doubted, loose, one_lane = sends.asked.copy(), np.flatnonzero(~known), False
    lanes = _lanes(sends, receives.rows(known))
    begin, end = (np.searchsorted(lanes.place, receives.place[loose], side) for side in SIDES)
    for row, first, last in zip(loose[:LOOP].tolist(), begin.tolist(), end.tolist(), strict=False):
        lane = np.arange(first, last)
        before, may = lanes.free(lane, receives.call[row])
        if receives.source[row] != NONE or not receives.wild_source[row]:
            may &= lanes.source[lane] == receives.source[row]
        if receives.tag[row] != record.ANY_TAG:
            may &= lanes.tag[lane] == receives.tag[row]
        lane, before = lane[may], before[may]
        doubted[lanes.sends[lanes.first[lane] + before]] = True
        if receives.asked[row]:
            receives.done[row] = receives.done[row] if len(lane) else NONE
        elif len(lane) == 1 and receives.done[row] == NONE:
            receives.source[row], receives.tag[row], one_lane = lanes.source[lane[0]], lanes.tag[lane[0]], True
            lanes.given[lane] += 1
            lanes.last[lane] += lanes.last[lane] > before
    place, first = np.unique(receives.place[loose[LOOP:]], return_index=True)
    if len(place):  # as if each were for any source and tag
        at = np.minimum(np.searchsorted(place, lanes.place), len(place) - 1)
        lane = np.flatnonzero(place[at] == lanes.place)
        before, may = lanes.free(lane, receives.call[loose[LOOP:][first[at[lane]]]])
        doubted[lanes.sends[(lanes.first[lane] + before)[may]]] = True
    return doubted, one_lane


def _lanes(sends: Ends, named: Ends) -> Lanes:
    columns = (np.concatenate([getattr(sends, name), getattr(named, name)]) for name in ("place", "source", "tag"))
    of_sends, of_named = np.split(numbered(*columns).astype("i8"), [len(sends.call)])
    order = np.argsort(of_sends, kind="stable")
    lane, first, count = np.unique(of_sends[order], return_index=True, return_counts=True)
    of = np.searchsorted(lane, of_named)
    there = np.append(lane, NONE)[of] == of_named
    span = int(max(sends.call.max(initial=0), named.call.max(initial=0))) + 2
    posted = of[there] * span + named.call[there]
    by_lane = np.argsort(posted, kind="stable")
    posted, of, done = posted[by_lane], of[there][by_lane], (named.done[there] != NONE)[by_lane]
    begins, last = np.searchsorted(posted, np.arange(len(lane)) * span), np.zeros(len(lane), "i8")
    np.maximum.at(last, of[done], (np.arange(len(of)) - begins[of] + 1)[done])
    one = order[first]
    return Lanes(sends.place[one], sends.source[one], sends.tag[one], order, first, count, posted, begins, span, last,
                 np.zeros(len(lane), "i8"))  # fmt: skip
