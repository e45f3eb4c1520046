"""Where a rank finds the values of its edges, and where it keeps those that it makes.

In this order: what this rank has in memory; the store, if the producer is on this host: its page cache has them; the
producer, by GET; the store. What was given is checked by its digest, wherever it came from.

A body that changes an input changes no other's: it gets a copy of its own, or a large array that is read-only.
"""

from __future__ import annotations

import contextlib
import io
import pickle
from collections.abc import Sequence
from typing import Any

from safepoint.errors import SafepointError
from safepoint.tasks.jobs import FILE, NPY, Output, Record, Reference
from safepoint.tasks.mpi.messages import space
from safepoint.tasks.mpi.serving import Asked, Asker, Kept
from safepoint.tasks.values import MAPPED

LONGER_S = 30.0  # a network file system may show late what another host has written
HEADER = 1 << 17  # bytes, above the longest header of .npy


class Remembering:
    """A writer that keeps in memory what it puts into the store."""

    def __init__(self, writer: Any, kept: Kept) -> None:
        self._writer, self._kept = writer, kept

    def put(self, record: Record, encoded: Sequence[Any]) -> Record:
        made: Record = self._writer.put(record, encoded)
        for each in encoded:
            if each.kind != FILE:
                self._kept.put(record.key, each.name, each.pieces)
        return made

    def __getattr__(self, name: str) -> Any:
        return getattr(self._writer, name)


class Inputs:
    """The values of the edges of one job at a time. `hosts`: of all ranks. `asker` None: nobody can be asked."""

    def __init__(
        self, store: Any, kept: Kept, asker: Asker | None, hosts: Sequence[str], rank: int, *, far: bool
    ) -> None:  # fmt: skip
        """`far`: ask other ranks even if they are on this host."""
        self._store, self._kept, self._asker, self._rank = store, kept, asker, rank
        self._near = [not far and host == hosts[rank] for host in hosts]
        self._asked: dict[tuple[str, str], Asked] = {}
        self.moved = 0  # bytes that came from other ranks, since `begin`

    def begin(self, references: Sequence[Reference], owners: Sequence[int]) -> None:
        """Ask for all that must travel, while the body's `head` runs. `owners`: the rank that has each; 0: none has."""
        self.moved = 0
        self.end()
        for reference, owner in zip(references, owners, strict=True):
            if self._asker is None or owner in (0, self._rank) or self._near[owner]:
                continue
            for output in _wanted(reference):
                name = reference.key, output.name
                if output.kind != FILE and name not in self._asked and self._kept.get(*name) is None:
                    with contextlib.suppress(MemoryError):  # then the store is read, and the body's attempt may fail
                        self._asked[name] = self._asker.ask(owner, reference.key, output)

    def end(self) -> None:
        """What was not needed after all is received nevertheless."""
        for asked in self._asked.values():
            assert self._asker is not None
            self._asker.forget(asked)
        self._asked.clear()

    def value(self, reference: Reference) -> Any:
        """For the body. Raises what the store raises if no other place has it."""
        outputs = _wanted(reference)
        found: dict[str, Any] = {}
        for output in outputs:
            try:
                found[output.name] = self._one(reference.key, output)
            except LookupError:
                return self._stored(reference)
        return found if reference.named and not reference.output else found[outputs[0].name]

    def _one(self, key: str, output: Output) -> Any:
        """From memory, of this rank or of another. Raises `LookupError`."""
        if output.kind == FILE:
            raise LookupError
        pieces = self._kept.checked(key, output)
        if pieces is not None:
            return copied(output, pieces)
        asked = self._asked.get((key, output.name))
        room = self._asker.wait(asked) if asked and self._asker else None
        if room is None:
            raise LookupError
        self._arrived(key, output)
        return lying(output, room)

    def _arrived(self, key: str, output: Output) -> None:
        """Its room goes to the body, which may change it: for another edge the value comes from elsewhere."""
        del self._asked[key, output.name]
        self.moved += output.nbytes

    def _stored(self, reference: Reference) -> Any:
        """Where another host has just written, the store may not show it yet. Then the answer may still come."""
        try:
            return self._store.value(reference)
        except (OSError, SafepointError):
            outputs = _wanted(reference)
            if self._asker is None or len(outputs) > 1 or (reference.key, outputs[0].name) not in self._asked:
                raise
            room = self._asker.wait(self._asked[reference.key, outputs[0].name], LONGER_S)
            if room is None:
                with contextlib.suppress(OSError, SafepointError):
                    return self._store.value(reference)
                raise
            self._arrived(reference.key, outputs[0])
            return lying(outputs[0], room)


def _wanted(reference: Reference) -> list[Output]:
    if reference.named and not reference.output:
        return list(reference.outputs)
    return [output for output in reference.outputs if output.name == reference.output]


def lying(output: Output, room: Any) -> Any:
    """The value whose bytes are these; an array lies in them. A large one is read-only here as in the store: else it
    would depend on the rank whether a body that writes to it fails."""
    if output.kind != NPY:
        return pickle.loads(room)
    import numpy as np

    header = io.BytesIO(bytes(room[:HEADER]))
    np.lib.format.read_magic(header)
    shape, fortran, dtype = np.lib.format.read_array_header_1_0(header, max_header_size=HEADER)
    data = room.toreadonly() if output.nbytes > MAPPED else room
    return np.ndarray(shape, dtype, data, header.tell(), order="F" if fortran else "C")


def copied(output: Output, pieces: Sequence[Any]) -> Any:
    """The same, of what stays in memory here: a copy, or read-only."""
    if output.kind == NPY and output.nbytes > MAPPED and len(pieces) == 2:
        import numpy as np

        head = io.BytesIO(bytes(pieces[0]))
        np.lib.format.read_magic(head)
        shape, fortran, dtype = np.lib.format.read_array_header_1_0(head, max_header_size=HEADER)
        return np.ndarray(shape, dtype, pieces[1].toreadonly(), order="F" if fortran else "C")
    if len(pieces) == 1 and output.kind != NPY:
        return pickle.loads(pieces[0])
    room, at = space(output.nbytes), 0
    for piece in pieces:
        room[at : at + len(piece)] = piece
        at += len(piece)
    return lying(output, room)
