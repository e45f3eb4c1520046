"""The one reader of log.jsonl. What is there may be torn, or somebody else's: no line is believed unseen.

`whole_line` says what a line holds, every field of it checked. The rest is for logs of millions of lines: `heads`,
`event_of` and `whole_but_sums` take apart no more of a line than is asked for.
"""

from __future__ import annotations

import errno
import functools
import io
import re
from collections.abc import Iterator
from typing import Any, NamedTuple, cast

from safepoint.disk import Disk
from safepoint.disk.files import read, tail
from safepoint.sealed import RANGES, WHOLE, Unsealed, loaded, rows_of, types_of

LARGEST_LOG_BYTES, LONGEST_LINE_BYTES = 64 << 30, 64 << 20  # that are read
_SUMS = b', "sums": '
_HEAD = re.compile(rb'^\{"time": ([\d.]+), "event": "(\w+)", "pid": \d+(.*)\}$', re.M)
_NUMBER = {name: re.compile(rf'"{name}": ([\d.e+-]+)'.encode()) for name in ("began", "cost", "seconds")}


class Line(NamedTuple):
    """What a line may hold, of what is calculated with or drawn; else it is torn, or somebody else's."""

    time: float
    event: str
    pid: int = 0
    rank: int = 0
    set: int | None = None
    step: int | None = None
    at: str = ""
    seconds: float = 0.0
    began: float = 0.0
    taken: float | None = None
    cost: float = 0.0
    files: int = 0
    bytes: int = 0
    stored: int = 0
    error: str = ""
    why: str | None = None
    due: str | None = None
    aside: tuple[Any, ...] | None = None
    passed_over: tuple[Any, ...] = ()
    blocked: tuple[Any, ...] = ()
    superseded: tuple[Any, ...] = ()
    pruned: tuple[Any, ...] = ()
    there: tuple[Any, ...] = ()
    sums: tuple[Any, ...] = ()


class Wait(NamedTuple):
    """How long one set has kept the program."""

    set: int
    seconds: float


class Numbered(NamedTuple):
    """A set that was removed since the line before, or that is there."""

    set: int


class Superseded(NamedTuple):
    """Since the line before: how many sets gave way to newer ones, and how long they had kept the program. In this
    life: how many sets were hidden, and how many of these are stored."""

    sets: int
    seconds: float
    hidden: int
    stored: int


def whole_line(row: bytes) -> dict[str, Any] | None:
    """What a line of a log says; None if it is not what was written. For lines by the million: as `checked`, of the few
    fields that a line has."""
    try:
        line = loaded(row)
        if "blocked" in line:
            rows_of(Wait, Wait._fields, line["blocked"])
        for name in {"pruned", "there"} & line.keys():
            rows_of(Numbered, Numbered._fields, [[number] for number in line[name]])
        if "superseded" in line:
            rows_of(Superseded, Superseded._fields, [line["superseded"]])
    except (Unsealed, TypeError):
        return None
    good = "time" in line and "event" in line and all(_may_be(name, value) for name, value in line.items())
    return line if good else None


@functools.cache
def _types() -> dict[str, Any]:
    return types_of(Line)


def _may_be(name: str, value: Any) -> bool:
    known = _types()
    if name not in known:
        return True
    low, high = RANGES.get(name, WHOLE)
    return type(value) in known[name] and (type(value) not in (int, float) or low <= value <= high)


def whole_lines(data: bytes) -> tuple[list[dict[str, Any]], int]:
    """The lines of a log that are whole, and how many are not: a power cut tears the last one of a life."""
    rows = [row for row in data.split(b"\n") if row.strip()]
    whole = [line for row in rows if (line := whole_line(row))]
    return whole, len(rows) - len(whole)


def events(disk: Disk, path: str, last: int | None = None) -> list[dict[str, Any]]:
    """The whole lines of a log; `last`: of so many bytes at its end. Of a log that is not there: none."""
    try:
        return whole_lines(tail(disk, path, last) if last else read(disk, path))[0]
    except FileNotFoundError:
        return []


def heads(data: bytes) -> Iterator[tuple[float, str, bytes]]:
    """Time, event, and the rest unread, of each line that a session has written."""
    for match in _HEAD.finditer(data):
        yield float(match[1]), match[2].decode(), match[3]


def number(rest: bytes, name: str) -> float | None:
    """A number in what `heads` left unread; None if it is not there."""
    found = _NUMBER[name].search(rest) if name.encode() in rest else None  # most lines are long, and have none
    return float(found[1]) if found else None


def raw_lines(disk: Disk, log: str) -> Iterator[bytes]:
    """Each line, with its end. Raises `OSError` for what is no log, or is too large for one."""
    tail(disk, log, 0)  # it is a file
    if (size := disk.stat(log).st_size) > LARGEST_LOG_BYTES:
        raise OSError(errno.EFBIG, f"{size} bytes, and no more than {LARGEST_LOG_BYTES} are read", log)
    with disk.open(log) as file, io.BufferedReader(cast(io.RawIOBase, file)) as lines:
        while raw := lines.readline(LONGEST_LINE_BYTES):
            yield raw


def event_of(raw: bytes) -> bytes:
    """What a line tells of, without taking all of it apart; each begins with its time and its event."""
    parts = raw.split(b'"', 6)
    return parts[5] if len(parts) == 7 else b""


def whole_but_sums(raw: bytes) -> dict[str, Any] | None:
    """A line; None if it is torn. The sums, at its end, stay as they are: mostly it is enough that they are equal."""
    end = raw.find(_SUMS)
    cut = end > 0 and raw.endswith(b"]}\n")
    line = whole_line(raw[:end] + b"}" if cut else raw)
    if line and cut:
        line["sums"] = raw[end + len(_SUMS) : -2]
    return line
