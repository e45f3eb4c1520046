"""What the names of one Python function may refer to, wherever in the function one looks.

Each place in the text that makes an object is a *site*. A value is a set of sites: the objects that it may be.
An empty one is a number, a string or another object that nothing can change. OUTSIDE stands for all that the function
did not make: its parameters may all be one object. A site that others may hold *escaped*; what comes from outside may
be it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

Value = frozenset[str]
OUTSIDE = "outside"
NOTHING: Value = frozenset()
FOREIGN: Value = frozenset({OUTSIDE})
ARRAY, CONTAINER, ITERATOR, NUMERIC, UNKNOWN = "array", "container", "iterator", "numeric", "unknown"
# ARRAY: numpy made it. CONTAINER: a list, dict, set or tuple. NUMERIC: made by an operator, no list.
RANKS = {ARRAY: 0, CONTAINER: 0, ITERATOR: 0, NUMERIC: 1, UNKNOWN: 2}


FLAT = "#"  # ends the site of an array of numbers: it never holds other objects

ROW = "/row"  # ends the site of what an iterator makes of what it goes through


class Heap:
    """Grows until it no longer changes; only then is it true."""

    def __init__(self) -> None:
        self.bound: dict[str, set[str]] = {}
        self.held: dict[str, set[str]] = {OUTSIDE: {OUTSIDE}}
        self.tags: dict[str, str] = {OUTSIDE: UNKNOWN}
        self.changed = False
        self._escaped: Value = FOREIGN

    def _grow(self, into: set[str], value: Iterable[str]) -> None:
        before = len(into)
        into.update(value)
        if len(into) != before:
            self.changed = True
            self._escaped = self.closure(FOREIGN)

    def bind(self, name: str, value: Value) -> None:
        self._grow(self.bound.setdefault(name, set()), value)

    def store(self, value: Value, into: Value) -> None:
        """What `into` is holds `value` from now on."""
        for site in into:
            if not site.endswith(FLAT):
                self._grow(self.held[site], value)

    def make(self, node: ast.AST, tag: str, held: Value = NOTHING, part: str = "") -> Value:
        """An object that this place of the text makes."""
        site = f"{type(node).__name__}@{getattr(node, 'lineno', 0)}:{getattr(node, 'col_offset', 0)}{part}"
        if site not in self.held:
            self.held[site], self.tags[site], self.changed = set(), tag, True
        if RANKS[tag] > RANKS[self.tags[site]] or (tag != self.tags[site] and RANKS[tag] == 0):
            worse = tag if RANKS[tag] > RANKS[self.tags[site]] else UNKNOWN
            if worse != self.tags[site] and self.tags[site] != UNKNOWN:
                self.tags[site], self.changed = worse, True
        self._grow(self.held[site], held)
        return frozenset({site})

    def escaped(self) -> Value:
        """All that others may hold."""
        return self._escaped

    def contents(self, value: Value) -> Value:
        """What these objects may hold: of one that escaped, anything that did."""
        found = {site for each in value for site in self.held[each]}
        if value & self._escaped:
            found |= self._escaped
        return frozenset(found)

    def reach(self, value: Value) -> Value:
        return self.closure(value | self._escaped) if value & self._escaped else self.closure(value)

    def closure(self, value: Value) -> Value:
        """These objects, and what was put into them under these names."""
        found, new = set(value), list(value)
        while new:
            more = self.held[new.pop()] - found
            found |= more
            new += more
        return frozenset(found)

    def only(self, value: Value, *tags: str) -> bool:
        """Each object that this may be is of such a kind."""
        return all(self.tags[site] in tags for site in value)
