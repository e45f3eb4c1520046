"""Calls that must not have been made, where that is asked later: of each set of values the numbers of the calls.

The numbers are enough: a row that is found under a key has its values. Calls that take from anybody are kept whole.
"""

from __future__ import annotations

import bisect
from array import array
from collections.abc import Iterable, Sequence

from safepoint.check.call import Call, Value
from safepoint.check.columns import Link, holds
from safepoint.check.shelf import Key, combinations


class Seen:
    """Of one column and rank. `links`: left is the argument of the call, right that of the row. `first`: of those with
    the same values the first alone is asked for."""

    def __init__(self, links: Sequence[Link], first: bool) -> None:
        self._links, self._first = links, first
        self._same = [link.same for link in links]
        self._numbers: dict[Key, array[int]] = {}
        self._wild: list[tuple[int, Call]] = []

    def add(self, call: Call, values: Sequence[Value | None]) -> None:
        keys, number = combinations(values, self._same), call.number
        if keys is None:
            if not self._first or not self._wild or number < self._wild[0][0]:
                bisect.insort(self._wild, (number, call), key=lambda one: one[0])
            return
        for key in keys:
            line = self._numbers.get(key)
            if line is None:
                line = self._numbers[key] = array("q")
            if not self._first or not line or number < line[0]:
                bisect.insort(line, number)

    def between(self, low: int, high: int, values: Sequence[Value | None]) -> bool:
        """Whether there is one that has these values, with a number between these."""
        keys = combinations(values, self._same)
        lines: Iterable[array[int] | None]
        if keys is None:
            lines = [line for key, line in self._numbers.items() if self._under(key, values)]
        else:
            lines = map(self._numbers.get, keys)
        for line in lines:
            if line is not None:
                at = bisect.bisect_right(line, low)
                if at < len(line) and line[at] < high:
                    return True
        return any(low < number < high and self._equal(call, values) for number, call in self._wild)

    def _under(self, key: Key, values: Sequence[Value | None]) -> bool:
        tokens: Iterable[Key] = (key,) if len(self._links) == 1 else key  # type: ignore[assignment]
        return all(
            value is not None and (value.any or token in (value.here if same else value.across))
            for token, value, same in zip(tokens, values, self._same, strict=True)
        )

    def _equal(self, call: Call, values: Sequence[Value | None]) -> bool:
        return all(
            holds("=", call.value(link.arg), value, link.same) for link, value in zip(self._links, values, strict=True)
        )
