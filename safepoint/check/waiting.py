"""Who waits for whom, and whether anybody can ever go on.

What a rank waits for is a condition on ranks: all of some, or any of some, and so on below. A rank is *released* if its
condition holds when all released ranks act. Those that compute are released from the beginning, those that have ended
never are. The ranks that are not released in the end can only be by each other: that is a deadlock, and nothing else is
called so.

(1) In doubt a condition is the weaker one: a message that may have come releases, a send that may have been taken too.
    What is called a deadlock must be one.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from safepoint.check.standing import ANY, OUTSIDE, Envelope, Post, Standing
from safepoint.check.tail import Noted
from safepoint.trace.record import ANY_TAG
from safepoint.trace.roles import VERBS


class All(NamedTuple):
    of: tuple[Condition, ...]


class Any(NamedTuple):
    of: tuple[Condition, ...]


Condition = int | All | Any  # an int: this rank acts
TRUE = All(())


def holds(condition: Condition, released: Collection[int]) -> bool:
    if isinstance(condition, int):
        return condition in released
    return (all if isinstance(condition, All) else any)(holds(one, released) for one in condition.of)


def stuck(wants: Mapping[int, Condition], ended: Collection[int], ranks: Collection[int]) -> frozenset[int]:
    """Those of `wants` that can never be released."""
    released = set(ranks) - set(wants) - set(ended)
    left = {rank: condition for rank, condition in wants.items() if rank not in ended}
    while found := [rank for rank, condition in left.items() if holds(condition, released)]:
        released.update(found)
        for rank in found:
            del left[rank]
    return frozenset(left)


def targets(condition: Condition) -> list[int]:
    """The ranks that it names, in order."""
    if isinstance(condition, int):
        return [condition]
    return list(dict.fromkeys(rank for one in condition.of for rank in targets(one)))


def unmet(condition: Condition, stuck_ones: Collection[int]) -> list[int]:
    """Those because of which it does not hold as long as these are stuck."""
    if isinstance(condition, int):
        return [condition] if condition in stuck_ones else []
    return [rank for one in condition.of for rank in unmet(one, stuck_ones)]


class Graph:
    """Of all ranks at one moment."""

    def __init__(self, standings: Mapping[int, Standing], ended: Mapping[int, str], size: int) -> None:
        self.standings, self.ended, self.size = standings, ended, size
        self._surplus: dict[tuple[object, int], dict[Envelope, int]] = {}

    def condition(self, rank: int, calls: Sequence[Noted]) -> Condition:
        """Under which the rank goes on, that is in these calls: each is of another thread."""
        found = tuple(self._of_call(rank, call) for call in calls)
        return found[0] if len(found) == 1 else Any(found)

    def reasons(self, rank: int, call: Noted) -> list[Post]:
        """What the call waits for, and has not come. What it sends may have gone, if there is more."""
        posts = [post for post in self.standings[rank].wants(call).posts if self._of_post(rank, post) != TRUE]
        return [post for post in posts if post.what != "send"] or posts

    def _of_call(self, rank: int, call: Noted) -> Condition:
        standing = self.standings[rank]
        if (name := standing.name(call)) in VERBS:
            missing = self.behind(rank, name, standing.came[name], range(self.size))
            return Any(tuple(missing)) if missing else TRUE
        if standing.kind(call) == "finalize":
            others = tuple(one for one in range(self.size) if one != rank and not self.is_final(one))
            return Any(others) if others else TRUE
        wants = self.standings[rank].wants(call)
        if not wants.known or (not wants.posts and not wants.every):
            return TRUE
        if not wants.every:
            return Any(tuple(self._of_post(rank, post) for post in wants.posts))
        receives = [self._of_post(rank, post) for post in wants.posts if post.what != "send"]
        sends = [found for post in wants.posts if post.what == "send" and (found := self._of_post(rank, post)) != TRUE]
        receives = [found for found in receives if found != TRUE]
        if not receives and len(sends) > 1:  # one of them is not complete: which, nobody knows. (1)
            return Any(tuple(sends))
        left = receives or sends
        return left[0] if len(left) == 1 else All(tuple(left))

    def is_final(self, rank: int) -> bool:
        """It makes no more calls that others could wait for."""
        return rank in self.ended or (rank in self.standings and self.standings[rank].final)

    def behind(self, rank: int, key: object, order: int, members: Collection[int]) -> list[int]:
        """The members that have not come to this collective call."""
        return [
            one for one in sorted(members)
            if one != rank and (one not in self.standings or self.standings[one].came[key] < order)
        ]  # fmt: skip

    def elsewhere(self, post: Post) -> list[int]:
        """The members that are at the same collective call of this communicator, in another function."""
        found = []
        for one in sorted(post.members):
            standing = self.standings.get(one)
            if standing is not None and standing.came[post.key] == post.order:
                calls = [stack[-1] for stack in standing.inside.values() if stack]
                for call in calls:
                    other = next(iter(standing.wants(call).posts), None)
                    if other and (other.what, other.key, other.order) == ("coll", post.key, post.order):
                        found += [one] * (other.name != post.name)
        return found

    def _of_post(self, rank: int, post: Post) -> Condition:
        if post.what == "recv":
            return self._of_receive(rank, post)
        if post.what == "send":
            return TRUE if post.peer == OUTSIDE or self.is_taken(rank, post) else post.peer
        if post.what == "coll":
            missing = [*self.behind(rank, post.key, post.order, post.members), *self.elsewhere(post)]
            return (All if post.all_needed else Any)(tuple(missing)) if missing else TRUE
        return Any(tuple(sorted(post.members))) if post.what == "members" and post.members else TRUE

    def is_taken(self, rank: int, post: Post) -> bool:
        """The message of a send was received, or a receive is posted that may take it: (1)."""
        other = self.standings.get(post.peer)
        if other is None:
            return False
        posted = sum(
            one.key == post.key and one.peer in (rank, ANY) and one.tag in (post.tag, ANY_TAG)
            for one in other.receives()
        )  # fmt: skip
        return post.order <= other.got[post.key, rank, post.peer, post.tag] + posted

    def _of_receive(self, rank: int, post: Post) -> Condition:
        sources = sorted(post.members | {rank}) if post.peer == ANY else [post.peer]
        here = sum(self.waiting(post, source, rank) for source in sources)
        if post.peer == OUTSIDE or here > self._before(rank, post):
            return TRUE
        if post.peer == ANY:
            return Any(tuple(sorted(post.members)))
        return post.peer

    def waiting(self, post: Post, source: int, dest: int) -> int:
        """How many messages of this source that would match have been sent and not received."""
        return sum(count for (_, _, _, tag), count in self.under_way(post.key, source, dest).items()
                   if post.tag in (tag, ANY_TAG))  # fmt: skip

    def under_way(self, key: object, source: int, dest: int) -> dict[Envelope, int]:
        """The messages that were sent and not received, by envelope."""
        sender, receiver = self.standings.get(source), self.standings.get(dest)
        if sender is None or receiver is None:
            return {}
        if (found := self._surplus.get((sender, dest))) is None:
            found = {}
            for envelope, count in sender.sent.items():
                if envelope[2] == dest and count > receiver.got[envelope]:
                    found[envelope] = count - receiver.got[envelope]
            self._surplus[sender, dest] = found
        return {envelope: count for envelope, count in found.items() if envelope[0] == key}

    def _before(self, rank: int, post: Post) -> int:
        """How many open receives of the same were posted before this one."""
        same = (post.key, post.peer, post.tag)
        found = 0
        for one in self.standings[rank].receives():
            if one.note.number == post.note.number and one.order == post.order:
                break
            found += (one.key, one.peer, one.tag) == same
        return found
