"""What must run: of each vertex whether it is known, and whether it may run now.

A vertex is *known* when a record of its identity exists, and *here* when its bytes can be read too. They differ for
`keep=False`, and for bytes that were found damaged.

(1) An identity is made only when all inputs are known. Else a vertex would be looked up by digests that its inputs no
    longer have.
(2) A result counts only if its identity is still that of its vertex: an input may have come out different meanwhile.
(3) When an input comes out different, all that was made of it is looked up again, however far below (T4).
(4) A vertex whose bytes are not here runs again only if a vertex that must run needs them.

Every change costs as much as the edges that it touches, so a whole run costs as much as the graph has edges.
"""

from __future__ import annotations

import contextlib
import gc
import heapq
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from safepoint.errors import GraphError
from safepoint.tasks import identity
from safepoint.tasks.jobs import Record, Reference

UNKNOWN, FOUND, MUST, FAILED, SKIPPED = range(5)  # MUST: it has an identity, and no record or no bytes
OVER = frozenset((FOUND, FAILED, SKIPPED))
LOST = frozenset((FAILED, SKIPPED))


@contextlib.contextmanager
def many_objects() -> Iterator[None]:
    """Inside, objects by the ten thousand are made, and none in circles: to look for such again and again as their
    number grows takes a third of a start."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


class Plan:
    """The vertices of a graph by number, in the order of adding, and what is known of each."""

    def __init__(
        self, graph: Any, find: Callable[[str], Record | None], present: Callable[[Record], bool],
        priority: Mapping[str, float] | None = None,
    ) -> None:  # fmt: skip
        """`find`: the record of an identity. `present`: whether the bytes of a record can be read. `priority`: of
        vertices by name, the least first; without it the order of adding counts."""
        self.vertices = list(graph.vertices.values())
        self.number = {vertex.name: n for n, vertex in enumerate(self.vertices)}
        self._find, self._present = find, present
        count = self.left = len(self.vertices)  # `left`: neither finished, failed nor skipped
        self.edges = [[(self.number[e.vertex.name], e.output) for e in vertex.edges] for vertex in self.vertices]
        self.parents = [list(dict.fromkeys(parent for parent, _ in edges)) for edges in self.edges]
        self.children: list[list[int]] = [[] for _ in range(count)]
        for n, parents in enumerate(self.parents):
            for parent in parents:
                self.children[parent].append(n)
        self.parts: list[dict[str, str]] = [identity.parts(vertex) for vertex in self.vertices]
        self.state = [UNKNOWN] * count
        self.key = [""] * count
        self.record: list[Record | None] = [None] * count
        self.here = [False] * count
        self.running = [False] * count
        self.needs = [""] * count  # of SKIPPED: the vertex that failed
        self.skipped: list[int] = []  # in the order in which they were, for who drives to take
        self.wrong: dict[int, str] = {}  # FAILED, as an input has no output of the name that they ask for
        self._unknown = [len(parents) for parents in self.parents]  # inputs without a record
        self._missing = [0] * count  # inputs whose bytes are not here; kept for MUST alone
        given = priority or {}
        self._rank = [(given.get(vertex.name, 0.0), n) for n, vertex in enumerate(self.vertices)]
        self._ready: list[tuple[float, int]] = []
        for n, parents in enumerate(self.parents):
            if not parents:
                self._settle([n])

    # What may run.

    def next(self) -> int | None:
        """A vertex that may run now; it counts as running from now on. None: there is none at the moment."""
        while self._ready:
            _, n = heapq.heappop(self._ready)
            if self._may_run(n):
                self.running[n] = True
                return n
        return None

    def ready(self) -> bool:
        while self._ready and not self._may_run(self._ready[0][1]):
            heapq.heappop(self._ready)
        return bool(self._ready)

    def _may_run(self, n: int) -> bool:
        return self.state[n] == MUST and not self._missing[n] and not self.running[n]

    def _offer(self, n: int) -> None:
        if self._may_run(n):
            heapq.heappush(self._ready, self._rank[n])

    def inputs(self, n: int) -> tuple[Reference, ...]:
        """Of a vertex that may run: where the values of its edges are, but for those that have none."""
        found = []
        for parent, output in self.edges[n]:
            record = self.record[parent]
            assert record is not None
            if output is not None:
                found.append(record.reference(output))
        return tuple(found)

    def digests(self, n: int) -> list[str] | None:
        """Of its inputs, in the order of its edges; None if one of them is not known."""
        if self._unknown[n]:
            return None
        return [self.record[parent].digest(output) for parent, output in self.edges[n]]  # type: ignore[union-attr]

    # What has happened.

    def finished(self, n: int, record: Record) -> bool:
        """Its bytes are here now, under this record. False: it does not count, its identity has changed meanwhile."""
        self.running[n] = False
        if record.key != self.key[n] or self.state[n] != MUST:
            self._offer(n)
            return False
        before, self.record[n] = self.record[n], record
        self._enter(n, FOUND)
        self._set_here(n, True)
        if before is None or _digests(before) != _digests(record):
            self._settle(self._known(n, before=before is not None))
        return True

    def again(self, n: int) -> None:
        """Its attempt came to nothing: it may run once more, unless an input of it cannot be made any more."""
        self.running[n] = False
        self._offer(n)
        self._skip_if_lost(n)

    def damaged(self, name: str) -> None:
        """The bytes of this vertex are not what was written: it runs again, with all above it that it needs."""
        n = self.number[name]
        if self.state[n] == FOUND and self.here[n]:
            self._set_here(n, False)
            self._must(n)

    def failed(self, n: int) -> None:
        """It will not run again in this run: those below that need it are skipped."""
        self.running[n] = False
        self._enter(n, FAILED)
        for child in self.children[n]:
            self._skip(child, self.vertices[n].name)

    # How one change makes others.

    def _enter(self, n: int, state: int) -> None:
        self.left += (self.state[n] in OVER) - (state in OVER)
        self.state[n] = state

    def _set_here(self, n: int, here: bool) -> None:
        if here == self.here[n]:
            return
        self.here[n] = here
        for child in self.children[n]:
            if self.state[child] == MUST:
                self._missing[child] += -1 if here else 1
                self._offer(child)

    def _settle(self, todo: list[int]) -> None:
        """All inputs of these vertices are known, or have changed: look them up, and so on below."""
        while todo:
            n = todo.pop()
            try:
                digests = self.digests(n)
            except GraphError as error:  # an output that an input does not have, as is known only now
                self._wrong(n, str(error))
                continue
            if self.state[n] in LOST or digests is None:
                continue
            key = identity.key(self.parts[n], self.vertices[n].name, digests)
            if self.state[n] != UNKNOWN and key == self.key[n]:
                continue  # as it was
            before = self.record[n]
            self.key[n], record = key, self._find(key)
            if record is None:
                if before is not None:
                    self._withdraw(n)
                self._must(n)
                continue
            self.record[n] = record
            self._enter(n, FOUND)
            self._set_here(n, self._present(record))
            wanted = self.vertices[n].keep or any(self.state[child] == MUST for child in self.children[n])
            if not self.here[n] and wanted:  # `keep` was False when it was made, and is not any more
                self._must(n)
            todo += self._known(n, before=before is not None)

    def _wrong(self, n: int, why: str) -> None:
        if self.state[n] not in LOST:
            self.wrong[n] = why
            if self.record[n] is not None:
                self._withdraw(n)
            self.failed(n)

    def _known(self, n: int, *, before: bool) -> list[int]:
        """It has a record, `before`: instead of another one. Which vertices below are to be looked up now."""
        if not before:
            for child in self.children[n]:
                self._unknown[child] -= 1
        return [child for child in reversed(self.children[n]) if not self._unknown[child]]

    def _must(self, first: int) -> None:
        """It must run, and so must those above it whose bytes are not here."""
        todo = [first]
        while todo:
            n = todo.pop()
            if self.state[n] == MUST or self.state[n] in LOST:
                continue
            self._enter(n, MUST)
            absent = [parent for parent in self.parents[n] if not self.here[parent]]
            self._missing[n] = len(absent)
            todo += absent
            self._offer(n)
            self._skip_if_lost(n)

    def _withdraw(self, first: int) -> None:
        """It has no record any more: those below have no identity until it has one again."""
        self.record[first], self.here[first] = None, False
        todo = [first]
        while todo:
            for child in self.children[todo.pop()]:
                self._unknown[child] += 1
                if self.state[child] in (FOUND, MUST):
                    self._enter(child, UNKNOWN)
                    self.key[child] = ""
                if self.record[child] is not None:
                    self.record[child], self.here[child] = None, False
                    todo.append(child)

    def _skip_if_lost(self, n: int) -> None:
        lost = next((p for p in self.parents[n] if self.state[p] in LOST and not self.here[p]), None)
        if lost is not None:
            self._skip(n, self.needs[lost] or self.vertices[lost].name)

    def _skip(self, first: int, needs: str) -> None:
        todo = [first]
        while todo:
            n = todo.pop()
            if self.state[n] in (UNKNOWN, MUST) and not self.running[n]:
                self._enter(n, SKIPPED)
                self.needs[n] = needs
                self.skipped.append(n)
                todo += reversed(self.children[n])


def _digests(record: Record) -> list[tuple[str, str]]:
    return [(output.name, output.said) for output in record.outputs]
