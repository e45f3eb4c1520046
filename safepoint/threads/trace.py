"""Read the trace of a run: its directory, and the events of each thread.

(1) A record counts if its kind is not 0: the runtime stores it last. The first kind of 0 ends the trace of a thread.
(2) An event whose records of kind `MORE` are not all there was cut by a kill, and is left out.
(3) Of a run that has ended, and whose recording was not stopped, no file is missing or cut: else the trace is damaged.
"""

from __future__ import annotations

import json
import struct
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from safepoint.errors import FormatError, UsageError
from safepoint.threads import kinds, sites

FORMAT = 1
MAGIC = b"SPTHRDS1"
RECORD = np.dtype([("site", "<u4"), ("extra", "<u2"), ("type", "u1"), ("kind", "u1"), ("value", "<u8")])
_PER_SEGMENT = kinds.SEGMENT // kinds.RECORD


class Thread:
    """The events of one thread. `records` is what was there when it was first asked for; `again` looks anew. `done`: so
    many segments were given back by who has compared them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            with open(path, "rb") as file:
                head = file.read(kinds.HEAD)
        except OSError as error:
            raise FormatError(f"cannot read the trace {path}: {error.strerror}", error.errno) from error
        started = head[:8].strip(b"\0") != b""  # else its program was killed before the head was written
        if started and (head[:8] != MAGIC or len(head) < kinds.HEAD):
            raise FormatError(f"{path}: not a trace of the layout {MAGIC.decode()}: it begins with {head[:8]!r}")
        self.number, self.pid, self.clock, self.done = struct.unpack_from("<IIQQ", head.ljust(kinds.HEAD, b"\0"), 8)

    @cached_property
    def records(self) -> NDArray[Any]:
        """All records up to the end, mapped: fields site, extra, type, kind, value."""
        return self.since(0)

    def cut(self) -> bool:
        """Whether the file of a program that has ended was cut: it lacks what follows the last record."""
        size = self.path.stat().st_size
        if size % kinds.SEGMENT == 0 < size:
            return False
        if size < kinds.HEAD + kinds.RECORD or (size - kinds.HEAD) % kinds.RECORD:
            return True
        with open(self.path, "rb") as file:
            file.seek(size - kinds.RECORD)
            return file.read()[7] != kinds.END

    def again(self) -> NDArray[Any]:
        """The records that are there now: more, if the program still runs."""
        self.__dict__.pop("records", None)
        return self.records

    def since(self, first: int) -> NDArray[Any]:
        """The records from number `first` on, which begins an event; those before it may have been discarded."""
        try:
            count = (self.path.stat().st_size - kinds.HEAD) // kinds.RECORD - first
            if count <= 0:
                return np.zeros(0, RECORD)
            offset = kinds.HEAD + first * kinds.RECORD
            found = np.memmap(self.path, RECORD, "r", offset, (count,)).view(np.ndarray)
        except (OSError, ValueError) as error:
            raise FormatError(f"cannot map the trace {self.path}: {error}", getattr(error, "errno", None)) from error
        return found[: _whole(found, _end(found["kind"]))]


class Run:
    """A directory `NAME.threads`: `about` is its `run.json`. Raises `UsageError` if there is no trace, `FormatError` if
    it has another layout."""

    def __init__(self, directory: Path | str) -> None:
        self.directory = Path(directory)
        self.about = _about(self.directory)
        self.sites = sites.read(self.directory / "sites.jsonl")
        if self.sites.build != self.about.get("build", ""):
            raise FormatError(
                f"{self.directory}: run.json is of build {self.about.get('build')!r}, and sites.jsonl of build "
                f"{self.sites.build!r}"
            )
        self.threads = [Thread(path) for path in sorted(self.directory.glob("*.ev"), key=lambda path: int(path.stem))]
        if damage := self._damage():
            raise FormatError(f"{self.directory}: the trace is damaged: {damage}")

    def _damage(self) -> str:
        """Which file is missing or cut; empty if none is, as far as can be known."""
        numbers = [int(thread.path.stem) for thread in self.threads]
        ended, stopped = self.about.get("ended") is not None, bool(self.about.get("stopped"))
        said = self.about.get("threads")
        count = said if ended and not stopped and isinstance(said, int) else max(numbers, default=-1) + ended
        missing = sorted(set(range(count if ended else min(1, len(numbers)))) - set(numbers))
        if missing:
            return f"{missing[0]:05}.ev is missing"
        cut = [thread.path.name for thread in self.threads if thread.cut()] if ended and not stopped else []
        if not cut and ended and not stopped and (lacks := int(self.about.get("bytes") or 0) - self._size()) > 0:
            return f"its files lack {lacks} bytes"
        return f"{cut[0]} was cut" if cut else ""

    def _size(self) -> int:
        return sum(thread.path.stat().st_size for thread in self.threads)

    def kept(self) -> None:
        """Raise `UsageError` if the events are not there any more."""
        if any(thread.done for thread in self.threads):
            raise UsageError(f"{self.directory}: its events were given back as they were compared (follow --discard)")

    def late(self) -> list[Thread]:
        """The threads that came since; they are in `threads` then. For a run that goes on."""
        known = {thread.path.name for thread in self.threads}
        paths = [path for path in self.directory.glob("*.ev") if path.name not in known]
        found = [Thread(path) for path in sorted(paths, key=lambda path: int(path.stem))]
        self.threads += found
        return found


def decoded(type: int, words: list[int]) -> int | float | complex | bool | str:
    """The value of a WRITE or READ: its type, its own 64 bits and those of its records `MORE`. A text longer than
    `kinds.TEXT` bytes ends with its length and checksum."""
    raw = struct.pack(f"<{len(words)}Q", *words)
    if type == kinds.CHARACTER:
        text = raw[8 : 8 + min(words[0], kinds.TEXT)].decode(errors="replace")
        return text if words[0] <= kinds.TEXT else f"{text}... ({words[0]} bytes, {words[-1]:016x})"
    if type in _PLAIN:
        return struct.unpack_from(_PLAIN[type], raw)[0]  # type: ignore[no-any-return]
    if type in (kinds.COMPLEX4, kinds.COMPLEX8):
        return complex(*struct.unpack_from("<2f" if type == kinds.COMPLEX4 else "<2d", raw))
    if type == kinds.REAL16:
        return _quad(raw)
    if type == kinds.COMPLEX16:
        return complex(_quad(raw), _quad(raw[16:]))
    if kinds.LOGICAL1 <= type <= kinds.LOGICAL8:
        return words[0] != 0
    return words[0]


_PLAIN = {kinds.INTEGER1: "<b", kinds.INTEGER2: "<h", kinds.INTEGER4: "<i", kinds.INTEGER8: "<q", kinds.REAL4: "<f",
          kinds.REAL8: "<d"}  # fmt: skip


def _quad(raw: bytes) -> float:
    """The nearest double of a number of 16 bytes: IEEE quadruple, or x87, whose last 6 bytes are 0."""
    low, high = struct.unpack_from("<QQ", raw)
    if high >> 16 == 0 and (low >> 63 or not high & 0x7FFF):  # x87: its leading one is written
        sign, exponent, fraction, bits = high >> 15 & 1, high & 0x7FFF, low, 63
        special = (low << 1 & (1 << 64) - 1) != 0
    else:
        sign, exponent, bits = high >> 63, high >> 48 & 0x7FFF, 112
        fraction = (high & (1 << 48) - 1) << 64 | low
        special = fraction != 0
        fraction |= (1 << 112) if exponent else 0
    if exponent == 0x7FFF:
        return float("nan") if special else (-1.0) ** sign * float("inf")
    power = max(exponent, 1) - 16383 - bits
    try:
        size = float(fraction << power) if power > 0 else fraction / (1 << -power)
    except OverflowError:
        size = float("inf")
    return -size if sign else size


def _about(directory: Path) -> dict[str, Any]:
    path = directory / "run.json"
    try:
        found = json.loads(sites.whole(path).decode(errors="surrogateescape"))
    except FileNotFoundError as error:
        raise UsageError(f"{directory}: no trace there: {path.name} is missing") from error
    except OSError as error:
        raise FormatError(f"cannot read {path}: {error.strerror}", error.errno) from error
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{path}: not JSON: {error}") from error
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise FormatError(f"{path}: not of format {FORMAT}, which this version reads")
    return found


def _end(kind: NDArray[Any]) -> int:
    """The number of the first kind that is 0. All before it were written, so it may be sought by halves."""
    low, high = 0, (len(kind) + _PER_SEGMENT - 1) // _PER_SEGMENT  # segments before `low` are full
    while low < high:
        middle = (low + high) // 2
        if kind[min((middle + 1) * _PER_SEGMENT, len(kind)) - 1] != kinds.END:
            low = middle + 1
        else:
            high = middle
    for first in range(low * _PER_SEGMENT, len(kind), _PER_SEGMENT):  # the next one, if this was filled meanwhile
        zeros = np.flatnonzero(kind[first : first + _PER_SEGMENT] == kinds.END)
        if len(zeros):
            return first + int(zeros[0])
    return len(kind)


def _whole(found: NDArray[Any], end: int) -> int:
    """`end`, or less: without an event at the end that lacks some of its records."""
    last = end - 1
    while last >= 0 and found["kind"][last] == kinds.MORE:
        last -= 1
    if last < 0:
        return 0
    kind, type, extra, value = (int(found[name][last]) for name in ("kind", "type", "extra", "value"))
    return end if end - 1 - last >= kinds.more(kind, type, extra, value) else last
