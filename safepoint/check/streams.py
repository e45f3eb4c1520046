"""Between the notes of ranks and the matchers of templates: each matcher has the calls of a rank in their order, and
only those that can be judged.

A call that is pending, or takes from anybody and has received nothing, holds back those of its rank behind it, in this
template alone. So what live and later judgement see is the same, however late a rank is heard.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sized

from safepoint.check.call import Call
from safepoint.check.rows import Matcher
from safepoint.check.situations import Situation
from safepoint.check.template import Argument, Condition, Template

MOST = 200_000  # calls that wait in one stream; then the first is judged with what is known of it
RECEIVED = {"source", "tag", "recvtag", "got_source", "got_tag", 4, 5}
RETURNED = {"new", "result", "got_source", "got_tag", "flag", "index", "outcount", "array_of_indices"}


def _sides(template: Template) -> Iterator[tuple[Condition, Argument]]:
    for condition in template.conditions:
        for side in (condition.left, condition.right):
            if isinstance(side, Argument):
                yield condition, side


class Stream:
    """The calls of all ranks on their way to one matcher."""

    def __init__(self, template: Template, matcher: Matcher) -> None:
        self.template, self.matcher = template, matcher
        self.functions = frozenset(
            name for one in template.functions.values() for row in one for item in row for name in item.functions
        )
        self._by_source = any(side.name in RECEIVED for _, side in _sides(template))
        self._by_result = any(side.name in RETURNED for _, side in _sides(template))
        self._waiting: dict[int, deque[Call]] = {}
        self.free = True  # nothing waits in it
        self.early: dict[int, int] = {}  # ranks whose first call was given while they are inside of it
        self.forced = 0

    def offer(self, call: Call) -> list[Situation]:
        """A call of one of its functions."""
        waiting = self._waiting.get(call.rank)
        if not waiting:
            if not (call.pending or (call.wild and self._by_source)):
                return [] if call.dropped else self.matcher.feed(call)
            waiting = self._waiting.setdefault(call.rank, deque())
        waiting.append(call)
        self.free = False
        if len(waiting) > MOST:
            self.forced += 1
            return self._drain(call.rank, 1)
        return []

    def waits_on(self, call: Call) -> tuple[Sized, ...] | None:
        """Of all calls of its shape: they come to nothing while all of these are empty. None: they may open a row."""
        rows = self.matcher.joined(call)
        return None if rows is None else (*rows, self._waiting.setdefault(call.rank, deque()))

    def _held(self, call: Call) -> bool:
        return call.pending or (call.wild and self._by_source)

    def settled(self, rank: int) -> list[Situation]:
        """Something of this rank may no longer be pending."""
        return self._drain(rank, 0) if self._waiting.get(rank) else []

    def _drain(self, rank: int, forced: int) -> list[Situation]:
        waiting, found = self._waiting[rank], list[Situation]()
        while waiting and (forced > 0 or not self._held(waiting[0])):
            forced -= 1
            call = waiting.popleft()
            if not call.dropped:
                found += self.matcher.feed(call)
        self.free = not any(self._waiting.values())
        return found

    def stuck(self, rank: int, since: int) -> list[Situation]:
        """A rank is inside of a call since long: it is judged with what is known, if nothing more is needed of it."""
        waiting = self._waiting.get(rank)
        if self._by_result or not waiting or waiting[0].enter > since or waiting[0].leave:
            return []
        if waiting[0].function.startswith("message_") or (waiting[0].wild and self._by_source):
            return []
        return [] if self._is_known_later(waiting[0]) else self._drain(rank, 1)

    def _is_known_later(self, call: Call) -> bool:
        """What it is asked for is known when it has returned: which requests it completes, and what it makes. Judged
        before that, it would have completed none: they were told as never completed, though it was only slow."""
        later = getattr(call.arguments, "is_known_later", None)
        return later is not None and any(map(later, self.matcher.asks(call.function)))

    def ended(self, rank: int) -> list[Situation]:
        """There will be no more of this rank: all that waits is judged."""
        waiting, found = self._waiting.get(rank), list[Situation]()
        while waiting:
            call = waiting.popleft()
            found += [] if call.dropped else self.matcher.feed(call)
        self.free = not any(self._waiting.values())
        return found + self.matcher.ended(rank)

    def finish(self) -> list[Situation]:
        return self.matcher.finish()


def by_function(streams: Iterable[Stream]) -> dict[str, list[Stream]]:
    """Who wants the calls of a function."""
    found: dict[str, list[Stream]] = {}
    for stream in streams:
        for name in stream.functions:
            found.setdefault(name, []).append(stream)
    return found
