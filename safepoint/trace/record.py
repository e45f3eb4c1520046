"""The notes of one rank: what lies in `NAME.trace/`, and how it is written while the program runs.

A note is 64 bytes in a file that is mapped: written whole when the call is entered, and completed when it returns. So
the notes of a process that is killed are all there, up to the call it was in; a power cut may lose them.

(1) The last byte of a note says whether there is one: it is written last, and a reader ends at the first that is 0.
(2) Each segment of a file has its space before it is mapped: a full disk is an error of the tracer then, which stops
    noting. In a hole of a mapped file it would be a SIGBUS, which ends the program.
(3) Nothing here raises into the program, sends a message or waits for another rank.
(4) Several threads write, and none has a lock. A place for a row is taken by one line that calls nothing: there Python
    does not go from one thread to another. What grows is the same whoever has let it.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import mmap
import os
import struct
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

FORMAT = 1
MAGIC = b"SPTRACE1"
HEADER, NOTE, SEGMENT = 4096, 64, 2 << 20
HEAD = struct.Struct("<8sqq")  # magic, size of a note, how many there are: -1 while that is not known
LAYOUT = struct.Struct("<QQIHHiiiiQIIIHBB")
FIELDS = (
    "enter", "leave", "site", "function", "flags", "peer", "tag", "got_peer", "got_tag", "bytes", "request", "comm",
    "more", "thread", "result", "state",
)  # fmt: skip
LEAVE, GOT, REQUEST, MORE, RESULT = 8, 32, 48, 56, 62  # offsets of what is written when the call returns
assert LAYOUT.size == NOTE

PICKLED, WILD_SOURCE, WILD_TAG, FOUND, PERSISTENT, ROOTED, PARTIAL = (1 << bit for bit in range(7))  # flags
ANY_SOURCE, PROC_NULL, ROOT, NONE, CANCELLED = -1, -2, -3, -4, -5  # instead of ranks
ANY_TAG = -1
EMPTY, ENTERED, RETURNED, RAISED = range(4)  # states
UNKNOWN, NO_RESULT = 2**64 - 1, 255  # bytes; result
WORLD, SELF = 1, 2  # numbers of objects; those of others begin after them

# Kinds of rows in `.more`, each `length, note, kind, values …` in 64-bit integers. COMPLETED: of each request that the
# call completed its number, source and tag (NONE: it is no receive). STARTED: of each persistent request its number and
# that of what was started. MESSAGE: the number of the message that is received. In check mode each call has more:
# ARGUMENTS: those of the C binding, ABSENT where one is not known; BEFORE: position (from 1), count and the handles of
# each argument that points to some that the call reads; AFTER: the same of what it has written.
COMPLETED, STARTED, MESSAGE, ARGUMENTS, BEFORE, AFTER = range(1, 7)
ABSENT = -(2**63)

WATCH = "watch.json"  # in the directory of a trace: only these functions are noted
STACK_SIGNAL = 11  # after SIGRTMIN: a rank says where it is


class Names(NamedTuple):
    """The files of one rank."""

    about: Path  # JSON: which rank, which program, which MPI, and how it ended
    calls: Path
    more: Path
    sites: Path  # a line for each number from 1: kind, file, line, function, with tabs between
    objects: Path  # a line of JSON for each number from 1


def names(directory: Path, rank: int) -> Names:
    return Names(*(directory / f"rank-{rank:05d}.{end}" for end in ("json", "calls", "more", "sites", "objects")))


def say(text: str) -> None:
    """To the user of the program; that it has no stderr is no failure."""
    with contextlib.suppress(Exception):
        if sys.stderr is not None:
            print(f"safepoint trace: {text}", file=sys.stderr, flush=True)


def count(path: Path) -> int:
    """How many notes there are in a file of them, which may be of a process that was killed. Raises OSError."""
    with path.open("rb") as file:
        head = file.read(HEADER)
        known = HEAD.unpack_from(head)[2] if len(head) == HEADER else 0
        found = 0
        while known < 0 and (states := file.read(SEGMENT)[NOTE - 1 :: NOTE]):
            end = states.find(EMPTY)
            found += len(states) if end < 0 else end
            if end >= 0:
                break
    return max(known, found)


class Full(Exception):
    """There is no space for more notes; or this is the limit that the user gave."""


class Opened:
    """A new file. Its descriptor is ours only while its file is: a program may close those that are not its own, and
    get the same number for a file that is."""

    def __init__(self, path: Path, flags: int) -> None:
        self._descriptor = os.open(path, flags | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        self._file = self._which()

    def _which(self) -> tuple[int, int]:
        found = os.fstat(self._descriptor)
        return found.st_dev, found.st_ino

    def is_ours(self) -> bool:
        try:
            return self._which() == self._file
        except OSError:
            return False

    def ours(self) -> int:
        """The descriptor. Raises `Full`."""
        if not self.is_ours():
            raise Full("the program has closed its files")
        return self._descriptor


class Mapped(Opened):
    """A file that grows by segments, and is mapped as far as it goes."""

    def __init__(self, path: Path, begin: bytes) -> None:
        super().__init__(path, os.O_RDWR)
        self.end = 0
        self.map: Any
        self.grow()
        self.map[: len(begin)] = begin

    def grow(self) -> None:
        """Two threads, or the handler of a signal, may do this at once: then it has grown once. Raises OSError if there
        is no space, and `Full`."""
        allocate, descriptor, end = getattr(os, "posix_fallocate", None), self.ours(), self.end
        if allocate is None:
            if os.fstat(descriptor).st_size <= end:
                os.pwrite(descriptor, bytes(SEGMENT), end)
        else:
            allocate(descriptor, end, SEGMENT)
        larger = mmap.mmap(descriptor, end + SEGMENT)
        if self.end == end:
            self.map, self.end = larger, end + SEGMENT  # the old one lives as long as somebody has it

    def close(self, size: int) -> None:
        """Cut it to what was written. Nobody may write any more."""
        if not self.is_ours():
            KEPT.append(self.map)  # it has a descriptor of its own, which it would close
            return
        self.map = None
        with contextlib.suppress(OSError):
            os.truncate(self._descriptor, size)
        os.close(self._descriptor)


KEPT: list[Any] = []


class Lines(Opened):
    """A text file that grows by a line, which has the next number."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, os.O_WRONLY | os.O_APPEND)
        self.count = 0

    def add(self, line: str) -> int:
        """Its number. Raises OSError, and `Full`."""
        left = os.fsencode(line) + b"\n"
        while left:
            left = left[os.write(self.ours(), left) :]
        self.count += 1
        return self.count

    def close(self) -> None:
        if self.is_ours():
            os.close(self._descriptor)


class Notes:
    """The notes of this process. `advance` gives the place of the next one; whoever writes there has made sure that it
    is below `end`."""

    __slots__ = (
        "_about", "_last", "_more", "_more_at", "_names", "advance", "calls", "end", "limit", "map", "objects", "sites",
    )  # fmt: skip

    def __init__(self, directory: Path, about: dict[str, Any], limit: int) -> None:
        """Raises OSError; FileExistsError if another process notes as this rank."""
        self._names, self.limit = names(directory, about["rank"]), limit
        head = HEAD.pack(MAGIC, NOTE, -1)
        self.calls, self._more = Mapped(self._names.calls, head), Mapped(self._names.more, HEAD.pack(MAGIC, 8, -1))
        self.sites, self.objects = Lines(self._names.sites), Lines(self._names.objects)
        self.map, self.end = self.calls.map, self.calls.end
        self.advance = itertools.count(HEADER, NOTE).__next__
        self._more_at, self._last = HEAD.size, HEADER
        self._about = {"format": FORMAT, **about, "begin": clocks(), "end": None, "ended": None}
        self.say()

    def say(self, **more: Any) -> None:
        """Write down what is known of this rank. Raises OSError."""
        self._about.update(more)
        beside = self._names.about.with_suffix(".new")
        beside.write_text(json.dumps(self._about), "utf-8")
        os.replace(beside, self._names.about)

    def grow(self, at: int) -> None:
        """Let there be space for a note at this place. Raises `Full`."""
        self._reach(self.calls, at + NOTE)
        if self.end:  # else nobody notes any more
            self.map, self.end = self.calls.map, self.calls.end

    def room(self, end: int) -> None:
        """Let `.more` reach as far as this. Raises `Full`."""
        self._reach(self._more, end)

    def _reach(self, file: Mapped, end: int) -> None:
        while end > file.end:
            if self.calls.end + self._more.end + SEGMENT > self.limit:
                raise Full(f"the limit of {self.limit} bytes")
            try:
                file.grow()
            except OSError as error:
                raise Full(os.strerror(error.errno or 0)) from error

    def more(self, at: int, kind: int, values: Sequence[int]) -> int:
        """A row for the note at this place; the index that the note is to have. Raises `Full`."""
        row = (len(values), (at - HEADER) // NOTE, kind, *values)
        size = 8 * len(row)
        end = self._more_at = (begin := self._more_at) + size  # (4)
        self.room(end)
        struct.pack_into(f"<{len(row)}q", self._more.map, begin, *row)
        return begin // 8

    def row(self, index: int) -> list[int]:
        """The values of a row."""
        count = struct.unpack_from("<q", self._more.map, 8 * index)[0]
        return list(struct.unpack_from(f"<{count}q", self._more.map, 8 * (index + 3)))

    def stop(self) -> None:
        """There are no more notes after this one."""
        if self.end:
            self._last, self.end = self.advance(), 0

    def close(self, ended: str) -> None:
        """`ended`: how this process came to its end. Raises OSError."""
        self.stop()
        end, self.map, self._more_at = self._last, None, min(self._more_at, self._more.end)
        HEAD.pack_into(self.calls.map, 0, MAGIC, NOTE, (min(end, self.calls.end) - HEADER) // NOTE)
        HEAD.pack_into(self._more.map, 0, MAGIC, 8, (self._more_at - HEAD.size) // 8)
        self.calls.close(min(end, self.calls.end))
        self._more.close(self._more_at)
        self.sites.close()
        self.objects.close()
        self.say(end=clocks(), ended=ended)


def clocks() -> list[int]:
    """The clock of the notes, and that of the day, in ns: how the clocks of other hosts are known."""
    return [time.monotonic_ns(), time.time_ns()]
