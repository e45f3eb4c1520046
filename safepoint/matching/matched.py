"""A trace whose calls are matched: what `match` makes of it, and what `places` and `check` read.

*Actions* are the calls that send, receive, complete, probe with success, or are collective. They are numbered through:
those of rank p are begins[p], begins[p] + 1, … before begins[p + 1], in the order of its program. A *gap* of rank p is
the number of its own actions before it, from 0 to all of them. A *group* holds the actions of one message, or of one
collective call: a restart between some of them and the others would lose or double it.

All indices are checked when the trace is read; nothing here refers outside its table.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from safepoint.matching.symbols import Site

Ints = NDArray[np.int64]
NONE = -1  # no such action, group, message
MESSAGE, COLLECTIVE = 0, 1  # what a group is

# A message, or a send or a receive that has no partner. `sent`: the action that sends (of a non-blocking or persistent
# one: its call or start); `posted`: that of the receive that takes it (of a blocking one the call itself); `received`:
# the action that completes that receive. NONE: there is none in the trace. `source`, `dest`: world ranks, and -1 if not
# known; `comm`: number in `Matched.objects`. `wild_source`, `wild_tag`: the receive was for any source, or any tag.
MESSAGES = np.dtype(
    [("sent", "i8"), ("posted", "i8"), ("received", "i8"), ("group", "i8"), ("source", "i4"), ("dest", "i4"),
     ("comm", "i4"), ("tag", "i4"), ("bytes", "u8"), ("wild_source", "?"), ("wild_tag", "?")]
)  # fmt: skip

# `hide` and `mark` of the library. `gap`: so many actions of this rank were before; `step`: of a hide, as its program
# gave it; NO_STEP if it gave none. Times are nanoseconds of one clock for all ranks.
MARKS = np.dtype([("rank", "i8"), ("gap", "i8"), ("site", "i8"), ("enter", "i8"), ("leave", "i8"), ("step", "i8"),
                  ("hide", "?")])  # fmt: skip
NO_STEP = -(2**63)

# A communicator, window, file or persistent request of a rank: alive from the gap `first` to the gap `last`, both with
# it; `name` is an index in `Matched.names`.
ALIVE = np.dtype([("rank", "i8"), ("first", "i8"), ("last", "i8"), ("name", "i8")])


NO_ACTIONS, NO_GAPS = np.empty(0, "i8"), np.empty((0, 2), "i8")


class Matched(NamedTuple):
    """The calls of all ranks, matched."""

    begins: Ints  # ranks + 1
    enter: Ints  # of each action, in ns; and when it returned, NONE: it did not
    leave: Ints
    site: Ints  # of each action, in `sites`; 0 is "not known"
    function: Ints  # of each action, in `functions`
    record: Ints  # of each action, its number among the calls of its rank
    member: Ints  # one row for each membership: this action …
    group: Ints  # … is in this group
    kind: Ints  # of each group: MESSAGE, COLLECTIVE
    arcs: Ints  # (n, 2): whoever has the first action in a cut must have the second; at every level
    requests: Ints  # (n, 2): the post of a request, and the action that completes it, or NONE
    never: Ints  # actions that no legal cut contains
    messages: NDArray[np.void]  # MESSAGES
    marks: NDArray[np.void]  # MARKS, by rank, then in order
    unsure: Ints  # (n, 2): rank and gap of each call whose outcome may depend on time: Waitany, Waitsome, Test*, Iprobe
    alive: NDArray[np.void]  # ALIVE
    sites: list[Site]  # [0] is "not known"
    functions: list[str]  # as in the standard, without MPI_
    names: list[str]  # of communicators, windows, files and requests, as a person would say them
    objects: list[str]  # the name of each number in `messages["comm"]`
    remarks: list[str]  # what is wrong with this trace, or with the program, a sentence each
    loose: Ints = NO_ACTIONS  # collective calls that may be over before the others have come: without bytes, for one
    cancelled: Ints = NO_GAPS  # (n, 2): rank and gap of each `Cancel` of a receive that had not taken a message
    torn: tuple[int, ...] = ()  # ranks whose notes end before their program did
    absent: tuple[int, ...] = ()  # ranks without notes

    @property
    def ranks(self) -> int:
        return len(self.begins) - 1

    @property
    def actions(self) -> int:
        return int(self.begins[-1])
