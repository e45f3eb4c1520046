"""Rows that wait for a call, found by the values that it must have: never by looking at one after the other.

A value has several tokens, and is equal if one is shared. A row lies under each combination of the tokens of its
values; a call takes, for each combination of its own, the row that has waited longest. Wildcards, to which nothing
has come, lie apart: they come in the final pass only.
"""

from __future__ import annotations

import heapq
import itertools
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import Generic, Protocol, TypeVar

from safepoint.check.call import Value
from safepoint.check.columns import Link, holds

Key = object


class Valued(Protocol):
    """What has values by column and argument: a row."""

    def value(self, column: int, arg: int | str) -> Value | None: ...


T = TypeVar("T", bound=Valued)
ALL: tuple[Key, ...] = ((),)  # the keys where nothing is compared


def combinations(values: Sequence[Value | None], same: Sequence[bool]) -> Iterable[Key] | None:
    """The keys under which these values are found; None: one is a wildcard. Without values there is one key."""
    if len(values) == 1:
        (value,) = values
        if value is None:
            return ()
        return None if value.any else value.here if same[0] else value.across
    if not values:
        return ALL
    tokens = []
    for value, here in zip(values, same, strict=True):
        if value is None:
            return ()
        if value.any:
            return None
        tokens.append(value.here if here else value.across)
    return tuple(itertools.product(*tokens))


class Shelf(Generic[T]):
    """Rows that wait to be joined through these links: left is the column of who comes, right that of the row."""

    def __init__(self, links: Sequence[Link]) -> None:
        self._links = links
        self._same = [link.same for link in links]
        self._one = one = links[0] if len(links) == 1 else None
        self._right, self._other, self._here = (one.right, one.other, one.same) if one is not None else (-1, 0, False)
        self._by_key: dict[Key, T | OrderedDict[T, None]] = {}  # most often it is one
        self.rows: dict[T, tuple[int, Iterable[Key]]] = {}  # all, in the order in which they have come: age, keys
        self._wild: OrderedDict[T, int] = OrderedDict()
        self._count = 0

    def __len__(self) -> int:
        return len(self.rows)

    def put(self, row: T) -> None:
        keys: Iterable[Key] | None
        if self._one is not None:
            value = row.value(self._right, self._other)
            keys = () if value is None else None if value.any else value.here if self._here else value.across
        elif self._links:
            keys = combinations([row.value(link.right, link.other) for link in self._links], self._same)
        else:
            keys = ALL
        self._count = count = self._count + 1
        if keys is None:
            self.rows[row] = count, ()
            self._wild[row] = count
            return
        self.rows[row] = count, keys
        rows = self._by_key
        for key in keys:
            there = rows.setdefault(key, row)
            if there is row:
                continue
            if isinstance(there, OrderedDict):
                there[row] = None
            else:
                rows[key] = OrderedDict(((there, None), (row, None)))

    def take_off(self, row: T) -> None:
        """It must lie here."""
        _, keys = self.rows.pop(row)
        rows = self._by_key
        for key in keys:
            there = rows[key]
            if there is row:
                del rows[key]
            elif isinstance(there, OrderedDict):
                del there[row]
                if not there:
                    del rows[key]
        if self._wild:
            self._wild.pop(row, None)

    def oldest(self, values: Sequence[Value | None], fits: Callable[[T], bool]) -> list[T]:
        """For each combination of tokens the row that has waited longest, of those that fit."""
        found = self._mostly(values, fits)
        return self._found(values, fits, 1) if found is None else found

    def all(self, values: Sequence[Value | None], fits: Callable[[T], bool]) -> list[T]:
        found = self._mostly(values, fits)
        return self._found(values, fits, len(self.rows)) if found is None else found

    def _mostly(self, values: Sequence[Value | None], fits: Callable[[T], bool]) -> list[T] | None:
        """One value is compared, and it has one row or none. None: it is not so."""
        value = values[0] if values else None
        if self._one is None or self._wild or (value is not None and value.any):
            return None
        if value is None:
            return []
        rows, found = self._by_key, None
        for key in value.here if self._here else value.across:
            if key in rows:
                if found is not None:
                    return None
                found = rows[key]
        if found is None:
            return []
        if isinstance(found, OrderedDict):
            return None
        return [found] if fits(found) else []

    def _found(self, values: Sequence[Value | None], fits: Callable[[T], bool], most: int) -> list[T]:
        keys = combinations(values, self._same)
        if keys is None:
            equal = (row for row in self.rows if self._equal(values, row) and fits(row))
            return list(itertools.islice(equal, most))
        found: dict[T, int] = {}
        for key in keys:
            there = self._by_key.get(key)
            line: Iterable[T]
            if there is None:
                if not self._wild:
                    continue
                line = ()
            elif isinstance(there, OrderedDict):
                line = itertools.islice((row for row in there if fits(row)), most)
            else:
                line = (there,) if fits(there) else ()
            if self._wild:
                wild = [row for row in self._wild if self._under(key, row) and fits(row)]
                line = itertools.islice(heapq.merge(line, wild, key=self._age), most)
            for row in line:
                found[row] = self._age(row)
        return sorted(found, key=found.__getitem__) if len(found) > 1 else list(found)

    def _age(self, row: T) -> int:
        return self.rows[row][0]

    def _under(self, key: Key, row: T) -> bool:
        """A wildcard lies under each key that its other values have."""
        tokens: Iterable[Key] = (key,) if len(self._links) == 1 else key  # type: ignore[assignment]
        for token, link in zip(tokens, self._links, strict=True):
            value = row.value(link.right, link.other)
            if value is None or not (value.any or token in (value.here if link.same else value.across)):
                return False
        return True

    def _equal(self, values: Sequence[Value | None], row: T) -> bool:
        return all(
            holds("=", value, row.value(link.right, link.other), link.same)
            for link, value in zip(self._links, values, strict=True)
        )
