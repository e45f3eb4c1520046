"""The trace of one rank on its way to the server: what its `Tail` gives is written as words with bytes.

(1) A rank's lines, then its rows, then the notes that need them: whoever writes them down in this order never has a
    note whose rows or lines are missing.
(2) Times are put to the clock of the server: whoever reads them there needs to know of one clock alone.
(3) Rows are put together anew, each of a kind for a note once: a note that has returned has only its new ones.
"""

from __future__ import annotations

import json
import os
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from safepoint.check.files import JSON_MAX, LINES_MAX, File, TraceError, opened
from safepoint.check.tail import OPEN, Noted, Tail
from safepoint.check.wire import RUNS
from safepoint.trace import record
from safepoint.trace.record import ENTERED, LAYOUT

Said = tuple[str, dict[str, Any], bytes]  # what to do, its words, its bytes
MOST, PART = 1 << 11, 1 << 20  # notes of a read; bytes of lines at once
ROWS_MAX = 1 << 18  # words of rows in a batch, after which the next one begins
INDEXED = record.COMPLETED, record.STARTED, record.MESSAGE  # rows to which a note points


class Shipment:
    """Of one rank. `shift`: ns that its clock is behind that of the server."""

    def __init__(self, directory: Path, tail: Tail, shift: int) -> None:
        self._tail, self._shift, self._names = tail, shift, record.names(directory, tail.rank)
        self._functions = directory / str(tail.about["functions"])
        self._constants = self._names.about.with_suffix(".constants")
        self._texts = {"sites": 0, "objects": 0}  # bytes that were said
        self._word = record.HEAD.size // 8
        self._sent: dict[int, tuple[set[int], int]] = {}  # of notes that have not returned: kinds, and their index
        self._open: dict[str, int] = {}
        self._closed = self._told_constants = self.begun = False

    def _begin(self) -> Iterator[Said]:
        """Before all else; the tracer writes the table of functions before its first note. Raises `TraceError`."""
        if self._functions.exists():
            self._tail.named.refresh()  # it is looked at
            words = {"rank": self._tail.rank, "name": "functions", "table": self._functions.name}
            yield "file", words, _contents(self._functions)
            yield self._about()
            self.begun = True

    def _about(self) -> Said:
        about = dict(self._tail.about)
        for name in ("begin", "end"):
            if isinstance(about.get(name), list):
                about[name] = [max(0, about[name][0] + self._shift), *about[name][1:]]
        return "file", {"rank": self._tail.rank, "name": "about"}, json.dumps(about).encode()

    def more(self) -> Iterator[Said]:
        """What has come since the last time; nothing if there is nothing. Raises `TraceError`."""
        if not self.begun:
            yield from self._begin()
            return
        notes = self._tail.read(MOST)
        if notes and not self._told_constants and self._constants.exists():
            self._told_constants = True
            yield "file", {"rank": self._tail.rank, "name": "constants"}, _contents(self._constants)
        if notes:
            yield from self._lines()
        yield from self._batches(notes)
        if not notes and self._tail.closed and not self._closed:
            self._closed = True
            yield from self._lines()
            yield "closed", {"rank": self._tail.rank, "count": self._tail.told, "rows": self._word}, b""
        if self._tail.look():
            yield self._about()

    @property
    def complete(self) -> bool:
        """Its tracer has ended, and all of it was said: how, too."""
        return self._closed and self._tail.about["ended"] is not None

    def _lines(self) -> Iterator[Said]:
        for name in self._texts:
            path: Path = getattr(self._names, name)
            if name not in self._open:
                self._open[name] = opened(path)
            while part := os.pread(self._open[name], PART, self._texts[name]):
                yield "text", {"rank": self._tail.rank, "name": name, "at": self._texts[name]}, part
                self._texts[name] += len(part)
                if self._texts[name] > LINES_MAX:
                    raise TraceError(f"{path}: more than {LINES_MAX:,} bytes are too many")

    def _batches(self, notes: list[Noted]) -> Iterator[Said]:
        rows, packed, runs = array("q"), bytearray(), list[list[int]]()
        for note in notes:
            if runs and note.number == sum(runs[-1]):
                runs[-1][1] += 1
            else:
                runs.append([note.number, 1])
            packed += self._packed(note, rows)
            if len(rows) > ROWS_MAX or len(runs) >= RUNS:
                yield self._batch(rows, packed, runs)
                rows, packed, runs = array("q"), bytearray(), []
        if runs:
            yield self._batch(rows, packed, runs)

    def _batch(self, rows: array[int], packed: bytearray, runs: list[list[int]]) -> Said:
        words = {"rank": self._tail.rank, "at": self._word, "rows": len(rows), "runs": runs}
        self._word += len(rows)
        return "notes", words, rows.tobytes() + packed

    def _packed(self, note: Noted, rows: array[int]) -> bytes:
        """The note as it lies in `.calls`, its new rows put behind these."""
        kinds, index = self._sent.pop(note.number, (set[int](), 0))
        for kind, values in note.rows.items():
            if kind not in kinds:
                kinds.add(kind)
                if kind in INDEXED:
                    index = self._word + len(rows)
                rows.extend((len(values), note.number, kind))
                rows.extend(values)
        if note.state == ENTERED:
            self._sent[note.number] = kinds, index
            while len(self._sent) > OPEN:  # `Tail` does not look at those again
                del self._sent[next(iter(self._sent))]
        enter, leave = (max(0, at + self._shift) if at else 0 for at in note[1:3])
        return LAYOUT.pack(enter, leave, *note[3:13], index if note.more else 0, *note[14:17])

    def close(self) -> None:
        for descriptor in self._open.values():
            os.close(descriptor)
        self._open.clear()


def _contents(path: Path) -> bytes:
    """Raises `TraceError`."""
    file = File(path)
    try:
        return file.at(0, JSON_MAX)
    finally:
        file.close()
