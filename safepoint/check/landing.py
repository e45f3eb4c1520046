"""Where the traces of other nodes are written down, as a tracer of this host would have done it.

(1) Nothing that a node says is believed: each number is compared with what is there already, each name with those that
    there are. A file that is written here is looked at by `Tail` as any other.
(2) A rank belongs to the node that has told of it first, and to no other; not to one of a trace that is here already.
(3) Who reads these files does it in the same thread: no note is seen before its rows.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from safepoint.check.files import JSON_MAX, LINES_MAX
from safepoint.nodes.transfer import Refused, whole
from safepoint.trace import record
from safepoint.trace.record import HEADER, NOTE

BYTES_MAX = 64 << 30  # of the notes or rows of one rank
RANKS_MAX = 10**9
JSON = {"about": ".json", "constants": ".constants"}
TABLES = "functions-python.json", "functions-c.json"
HOLE = 1 << 12  # notes at the end that may be empty: of calls that raised before they could be noted


class Landed:
    """The files of one rank."""

    def __init__(self, directory: Path, rank: int) -> None:
        """Raises OSError; FileExistsError if this rank notes here by itself."""
        self._names, self.rank = record.names(directory, rank), rank
        names, flags = self._names, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        for name in ("calls", "more", "sites", "objects"):
            os.close(os.open(getattr(names, name), flags, 0o666))
        self._write("calls", record.HEAD.pack(record.MAGIC, NOTE, -1).ljust(HEADER, b"\0"), 0)
        self._write("more", record.HEAD.pack(record.MAGIC, 8, -1), 0)
        self._sizes = {"sites": 0, "objects": 0}
        self._word, self._notes = record.HEAD.size // 8, 0
        self._about: dict[str, Any] = {}
        self._closed = False

    @property
    def complete(self) -> bool:
        """Its tracer has ended, and has said how."""
        return self._closed and self._about.get("ended") is not None

    def put_json(self, name: str, data: bytes) -> None:
        """Raises OSError, `Refused`."""
        try:
            found = dict(json.loads(data)) if len(data) <= JSON_MAX else {}
        except (ValueError, TypeError, RecursionError):
            found = {}
        if name not in JSON or not found:
            raise Refused(f"what it says of rank {self.rank} is no {name!r:.40}")
        if name == "about":
            if found.get("rank") != self.rank:
                raise Refused(f"it says of rank {self.rank} that it is another one")
            self._about = found
        _replace(self._names.about.with_suffix(JSON[name]), data)

    def append(self, name: str, at: int, data: bytes) -> None:
        """Lines, which follow those that are there. Raises OSError, `Refused`."""
        if self._sizes.get(name) != at or at + len(data) > LINES_MAX:
            raise Refused(f"it has left out lines of rank {self.rank}, or has too many")
        self._write(name, data, at)
        self._sizes[name] += len(data)

    def put_notes(self, at: int, rows: int, runs: Sequence[Sequence[int]], data: bytes) -> None:
        """Rows from this word on, and then notes: of each run its first number, and how many. Raises OSError,
        `Refused`."""
        size = 8 * rows + NOTE * sum(count for _, count in runs)
        if at != self._word or size != len(data) or 8 * (at + rows) > BYTES_MAX:
            raise Refused(f"it has left out rows of rank {self.rank}, or has too many")
        self._write("more", data[: 8 * rows], 8 * at)
        self._word += rows
        begin = 8 * rows
        for first, count in runs:
            if HEADER + NOTE * (first + count) > BYTES_MAX:
                raise Refused(f"it has too many notes of rank {self.rank}")
            self._write("calls", data[begin : begin + NOTE * count], HEADER + NOTE * first)
            self._notes = max(self._notes, first + count)
            begin += NOTE * count

    def close(self, count: int, rows: int) -> None:
        """Its tracer has ended, with so many notes. Raises OSError, `Refused`."""
        if rows != self._word or HEADER + NOTE * count > BYTES_MAX:
            raise Refused(f"it has left out what rank {self.rank} has noted at its end")
        self._closed = True
        os.truncate(self._names.calls, HEADER + NOTE * max(self._notes, min(count, self._notes + HOLE)))
        self._write("more", record.HEAD.pack(record.MAGIC, 8, rows - record.HEAD.size // 8), 0)
        self._write("calls", record.HEAD.pack(record.MAGIC, NOTE, count), 0)

    def mark(self, why: str) -> None:
        """No more of it will come, though there may be more. Raises OSError."""
        if self._about:
            _replace(self._names.about, json.dumps({**self._about, "incomplete": why}).encode())

    def _write(self, name: str, data: bytes | memoryview, at: int) -> None:
        """Into one of its files; none is kept open, as ranks may be many and descriptors few. Raises OSError."""
        left = memoryview(data)
        descriptor = os.open(getattr(self._names, name), os.O_WRONLY | os.O_CLOEXEC)
        try:
            while left:
                done = os.pwrite(descriptor, left, at)
                left, at = left[done:], at + done
        finally:
            os.close(descriptor)


class Landing:
    """All of them. `landed`: those of each node."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._all = set[int]()

    def apply(self, landed: dict[int, Landed], words: dict[str, Any], blob: bytes) -> int:
        """Write down what a node with these ranks says; the rank of which it is. Raises OSError, `Refused`."""
        do, rank = words.get("do"), whole(words, "rank", 0, RANKS_MAX)
        if do == "file" and words.get("name") == "functions":
            self._begin(rank, landed, str(words.get("table")), blob)
            return rank
        one = landed.get(rank)
        if one is None:
            raise Refused(f"it has not begun with rank {rank}")
        if do == "file":
            one.put_json(str(words.get("name")), blob)
        elif do == "text":
            one.append(str(words.get("name")), whole(words, "at", 0, LINES_MAX), blob)
        elif do == "notes":
            one.put_notes(whole(words, "at", 0, BYTES_MAX), whole(words, "rows", 0, len(blob)), _runs(words), blob)
        elif do == "closed":
            one.close(whole(words, "count", 0, BYTES_MAX), whole(words, "rows", 0, BYTES_MAX))
        else:
            raise Refused(f"it says {do!r:.40}, which is nothing that is known here")
        return rank

    def _begin(self, rank: int, landed: dict[int, Landed], table: str, blob: bytes) -> None:
        """The table of functions, with which a rank begins. All ranks of a tracer have the same."""
        try:
            found = dict(json.loads(blob)) if len(blob) <= JSON_MAX else {}
        except (ValueError, TypeError, RecursionError):
            found = {}
        if table not in TABLES or not found:
            raise Refused("it has no table of functions")
        if rank in self._all:
            raise Refused(f"another node has rank {rank}, or it is of a second program in this command: one is checked")
        path = self._directory / table
        if not path.exists():
            _replace(path, blob)
        elif json.loads(path.read_bytes()) != found:
            raise Refused(f"its {table} is not that of the ranks that are here: another MPI, or another safepoint")
        landed[rank] = Landed(self._directory, rank)
        self._all.add(rank)


def _runs(words: dict[str, Any]) -> list[list[int]]:
    """Raises `Refused`."""
    runs = words.get("runs")
    if not isinstance(runs, list) or not all(
        isinstance(run, list) and len(run) == 2 and all(type(each) is int and 0 <= each <= BYTES_MAX for each in run)
        for run in runs
    ):
        raise Refused("it has notes without numbers")
    return runs


def _replace(path: Path, data: bytes) -> None:
    beside = path.with_name(f"{path.name}.new")
    beside.write_bytes(data)
    os.replace(beside, path)
