"""The notes of one rank, read while the rank writes them, or afterwards.

(1) A note is given once it is there whole, and no note after one that is not: calls come in the order of their numbers.
    One that was given while the call had not returned is given again when it has.
(2) The notes are read before their rows. What the tracer wrote before a note's last byte is there then: the arguments
    of a call that was entered, the results of one that returned.
(3) Nothing that a file says is believed: sizes are compared with it, and numbers with the tables that they lead to.
    Reads go by parts, so that no file makes more than a few MB of notes at once.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from safepoint import words
from safepoint.check.files import File, Held, TraceError, of_rank, read_json
from safepoint.check.named import Named
from safepoint.trace import record
from safepoint.trace.record import ARGUMENTS, BEFORE, EMPTY, ENTERED, HEADER, NOTE, RAISED

MOST, LEAST = 1 << 14, 64  # notes of a read
PART = 1 << 10  # notes of a rank that are read before those of others
BYTES = 1 << 20, 1 << 13  # of rows, at most and at first
AHEAD = 1 << 6  # rows of notes that were not given yet
OPEN = 1 << 12  # calls that have not returned; those before them are not looked at again
TIME_MAX = 1 << 62  # ns
RANKS_MAX = 1 << 24  # more than there are anywhere: a number above is none
FIRST_ROW = record.HEAD.size // 8
AT_ENTRY = ARGUMENTS, BEFORE
THREAD = 1 + record.FIELDS.index("thread")  # in a note with its number
Rows = dict[int, list[int]]


class Noted(NamedTuple):
    """A note: its fields as docs/format.md has them, and its rows of `.more` by their kind."""

    number: int
    enter: int
    leave: int
    site: int
    function: int
    flags: int
    peer: int
    tag: int
    got_peer: int
    got_tag: int
    bytes: int
    request: int
    comm: int
    more: int
    thread: int
    result: int
    state: int
    rows: Rows


assert Noted._fields[1:-1] == record.FIELDS


class Tail:
    """Of one rank. `about`: what is said of it, as of the last `look`."""

    def __init__(self, directory: Path, rank: int) -> None:
        """Raises `TraceError`: there is no such rank, or not yet."""
        names = record.names(directory, rank)
        self.rank, self._path, self._stat = rank, names.about, (0, 0)
        self.about: dict[str, Any] = {}
        self.look()
        self.closed = False  # the tracer has ended: it says how many notes there are
        self.told = -1  # that number
        self.given = 0  # notes, but those that are given again
        self.torn = False  # the files end before that number
        self._checking = (directory / record.WATCH).exists()
        self._size, self._part = LEAST, BYTES[1]
        self._open: dict[int, Rows] = {}
        self._rows: dict[int, list[tuple[int, int, int]]] = {}  # of each note: kind, place of the values, how many
        self._ready: dict[int, Rows] = {}
        self._late: set[int] = set()
        self._word, self._held = FIRST_ROW, -1
        self._many = False  # several threads have made calls
        self._words, self._from = memoryview(b"").cast("q"), 0
        self._files: list[File | Held | Named] = []
        try:
            self._open_all(directory, names)
        except TraceError:
            self.close()
            raise

    def _open_all(self, directory: Path, names: record.Names) -> None:
        """Raises `TraceError`: what is open then is among its files."""
        self.named = Named(directory, self.about)
        self._files.append(self.named)
        self._calls, self._more = of_rank(names)
        self._files += [self._calls, self._more]
        for file, size in ((self._calls, NOTE), (self._more, 8)):
            self._head(file, size)

    def look(self) -> bool:
        """Read again what is said of this rank; whether that has changed. Raises `TraceError`."""
        try:
            found = self._path.stat()
        except OSError as error:
            raise TraceError(f"{self._path}: {error.strerror}", error.errno) from error
        if (found.st_mtime_ns, found.st_ino) == self._stat:
            return False
        about = {"boot": "", "host": "", "stopped": "", "argv": ["?"], "ended": None, "pid": 0, "cwd": "", "mpi": "",
                 **read_json(self._path)}  # fmt: skip
        begin = about.get("begin")
        right = (
            about.get("format") == record.FORMAT and about.get("rank") == self.rank and type(about.get("size")) is int
            and self.rank < about["size"] <= RANKS_MAX and type(about["pid"]) is int
            and all(isinstance(about[name], str) for name in ("boot", "host", "stopped", "cwd", "mpi"))
            and isinstance(about["ended"], (str, type(None))) and isinstance(begin, list) and len(begin) == 2
            and all(type(at) is int and 0 <= at < TIME_MAX for at in begin)
        )  # fmt: skip
        if not right:
            raise TraceError(f"{self._path} is not what a trace says of rank {self.rank}")
        self.about, self._stat = about, (found.st_mtime_ns, found.st_ino)
        return True

    @property
    def name(self) -> str:
        """Of what is said of this rank."""
        return str(self._path)

    @property
    def stopped(self) -> str:
        """Why it has noted nothing more from some call on; "": it has not."""
        why = self.about["stopped"]
        return f"rank {self.rank} has noted nothing more after {words.count(self.given, 'call')}: {why}" if why else ""

    def read(self, most: int = MOST) -> list[Noted]:
        """The notes that have come, at most so many; none: there is nothing new for now. Raises `TraceError`."""
        if not self.closed:
            self._head(self._calls, NOTE)
        again = self._returned()
        found = self._new(most)
        begin, end = self.given, self.given + len(found)
        self._walk(begin, end, {note[0] for note in found if note[-1] == ENTERED}, [*again, *found])
        found = found[: self._wanting(found)]
        notes = [*again, *self._belated(), *found]
        self._check(notes)
        ready, known, make = self._ready, self._rows, tuple.__new__
        given: list[Noted] = [
            make(Noted, (*note, ready.get(note[0]) or {}))
            if note[-1] != ENTERED and note[0] not in self._open and note[0] not in known
            else make(Noted, (*note, self._rows_of(note[0], note[-1])))
            for note in notes
        ]
        self.given = found[-1][0] + 1 if found else self.given
        self._ready = {number: rows for number, rows in ready.items() if number >= self.given}
        while len(self._open) > OPEN:
            del self._open[next(iter(self._open))]
        return given

    def close(self) -> None:
        for file in self._files:
            file.close()

    # Notes.

    def _head(self, file: File | Held, size: int) -> None:
        data = file.at(0, record.HEAD.size)
        magic, of_one, count = record.HEAD.unpack(data.ljust(record.HEAD.size, b"\0"))
        if magic != record.MAGIC or of_one != size or count < -1:
            raise TraceError(f"{file.path}: it does not begin as notes do")
        if size == NOTE and count >= 0:
            self.closed, self.told = True, count

    def _returned(self) -> list[tuple[int, ...]]:
        """Those of the open calls that are open no more."""
        found = []
        for number in list(self._open):
            note = self._one(number)
            if note is not None and note[-1] > ENTERED:
                found.append(note)
        return found

    def _one(self, number: int) -> tuple[int, ...] | None:
        data = self._calls.at(HEADER + NOTE * number, NOTE)
        return (number, *record.LAYOUT.unpack(data)) if len(data) == NOTE else None

    def _new(self, most: int) -> list[tuple[int, ...]]:
        count = min(most, self._size, self.told - self.given if self.closed else most)
        if count <= 0:
            return []
        data = self._calls.at(HEADER + NOTE * self.given, NOTE * count)
        states = data[NOTE - 1 :: NOTE]
        there = len(states)
        if not self.closed:
            end = states.find(EMPTY)
            there = end if end >= 0 else there
        elif there < count or not any(states):  # a hole may have any size
            self.torn, self.told = True, self.given + there
        self._size = min(MOST, self._size * 4) if there == count else LEAST
        notes = enumerate(record.LAYOUT.iter_unpack(data[: there * NOTE]), self.given)
        if self.closed:  # an empty one is of a call that raised before it could be noted
            found = [(number, *note) for number, note in notes if note[-1] != EMPTY]
            if not found:
                self.given += there
            return found
        return [(number, *note) for number, note in notes]

    def _wanting(self, notes: list[tuple[int, ...]]) -> int:
        """How many of the notes to give. In check mode each call has a row; if that of one cannot be read yet, as
        another thread is still at the row before it, it is waited for. Once: there may be none."""
        if self._checking and not self.closed and self._held != -2:
            for at, note in enumerate(notes):
                if note[0] not in self._rows and note[0] not in self._ready:
                    fruitless = self._held == note[0]
                    self._held = -2 if fruitless else note[0]
                    return len(notes) if fruitless else at
        return len(notes)

    def _check(self, notes: list[tuple[int, ...]]) -> None:
        """(3)."""
        named = self.named
        if notes and not named.functions:  # the tracer writes them before its first note
            named.refresh()
        for turn in range(2):
            functions, sites, things = named.functions, named.sites, len(named.things)
            for note in notes:
                if (
                    note[-1] > RAISED or note[4] not in functions or note[3] > sites or note[12] > things
                    or note[1] >= TIME_MAX or note[2] >= TIME_MAX
                ):  # fmt: skip
                    break
            else:
                return
            if turn == 0:
                named.refresh()
        raise TraceError(f"{self._calls.path}: note {note[0]}: {self._why(note)}")

    def _why(self, note: tuple[int, ...]) -> str:
        if note[-1] > RAISED:
            return "its last byte is none that is written"
        if note[4] not in self.named.functions:
            return "its function is in no table"
        if note[3] > self.named.sites:
            return f"its site is not among {self.named.sites} lines"
        if note[12] > len(self.named.things):
            return f"its communicator, window or file is not among {len(self.named.things)} lines"
        return "its time is none"

    # Rows.

    def _walk(self, begin: int, end: int, entered: set[int], notes: list[tuple[int, ...]]) -> None:
        """Find the rows of these notes: (2). Those of calls that have returned can be read at once: most are so."""
        self._words = memoryview(b"").cast("q")
        ahead = 0
        while True:
            data = self._more.at(8 * self._word, self._part)
            words = memoryview(data[: len(data) // 8 * 8]).cast("q")
            self._words, self._from, at = words, self._word, 0
            first, known, ready = self._word, self._rows, self._ready
            full, end_of_file = len(data) == self._part, self._more.size() // 8 - self._from
            while at + 3 <= len(words):
                length, number, kind = words[at], words[at + 1], words[at + 2]
                if kind == 0 or (ahead > AHEAD and number >= end and self._is_behind(notes, number)):
                    full = False
                    break
                if not 0 <= length <= end_of_file - at - 3 or number < 0 or kind < 0:
                    raise TraceError(f"{self._more.path}: word {first + at}: this is no row of note {number}")
                if begin <= number < end and number not in entered and at + 3 + length <= len(words):
                    values = words[at + 3 : at + 3 + length].tolist()
                    if number not in ready:
                        ready[number] = {kind: values}
                    else:
                        ready[number][kind] = ready[number].get(kind, []) + values
                elif number in known:
                    known[number].append((kind, first + at + 3, length))
                else:
                    known[number] = [(kind, first + at + 3, length)]
                if number >= end:
                    ahead += 1
                elif number < begin and number not in self._open:
                    self._late.add(number)
                at += 3 + length
            self._word += at
            if not full or not at:
                self._part = BYTES[1]
                return
            self._part = min(BYTES[0], self._part * 4)

    def _is_behind(self, notes: list[tuple[int, ...]], number: int) -> bool:
        """Whether all rows of these notes are before one of this note. A thread writes its own in order, but what
        a call has written may come long after rows of others."""
        if not self._many:
            later = self._one(number)
            self._many = later is None or any(note[THREAD] != later[THREAD] for note in notes)
        return not self._many

    def _belated(self) -> list[tuple[int, ...]]:
        """Notes that were given without all of their rows."""
        found, self._late = sorted(self._late), set()
        return [note for note in map(self._one, found) if note is not None and note[-1] != EMPTY]

    def _rows_of(self, number: int, state: int) -> Rows:
        """What is there of a note that is given now: (2)."""
        rows, left = self._open.pop(number, None) or self._ready.get(number) or {}, list[tuple[int, int, int]]()
        for row in self._rows.pop(number, ()):
            kind, at, length = row
            if state == ENTERED and kind not in AT_ENTRY:
                left.append(row)
            elif kind in rows:
                rows[kind] += self._values(at, length)
            else:
                rows[kind] = self._values(at, length)
        if state == ENTERED:
            self._open[number] = rows
            if left:
                self._rows[number] = left
            return dict(rows)
        return rows

    def _values(self, at: int, length: int) -> list[int]:
        begin = at - self._from
        if begin >= 0 and begin + length <= len(self._words):
            return self._words[begin : begin + length].tolist()
        data = self._more.at(8 * at, 8 * length)
        return memoryview(data[: len(data) // 8 * 8]).cast("q").tolist()
