"""Traces of OpenMP programs that were never run: written from a description, by any number of threads.

table = Table()
program = [Region([Loop("j", range(2, 9), lambda j: [Write("b(j)", 1.0 / j)])], digests=["b"])]
written(directory / "a", table, program)                       # by one thread: the serial program
written(directory / "b", table, program, threads=4, seed=7)    # by four, at a schedule that the seed draws
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from safepoint.threads import kinds
from safepoint.threads.trace import RECORD, Run

Record = tuple[int, int, int, int, int]  # site, extra, type, kind, value
BUILD = "0123abcd"


@dataclass(frozen=True)
class Write:
    name: str
    value: Any
    type: int = kinds.REAL8
    loose: str = ""
    kind: int = kinds.WRITE


@dataclass(frozen=True)
class Digest:
    name: str
    words: tuple[int, ...]  # elements, low, high and perhaps four statistics
    type: int = kinds.REAL8
    loose: str = ""


@dataclass(frozen=True)
class Loop:
    """`each`: what is done in an iteration; its number may be a tuple, and `items` then ranges."""

    name: str
    items: Any
    each: Callable[[Any], list[Statement]]


@dataclass(frozen=True)
class Within:
    """SINGLE, MASTER, CRITICAL, ORDERED, ATOMIC, CALL: `kind` begins it, the next number ends it."""

    kind: int
    body: list[Statement]
    name: str = ""


@dataclass(frozen=True)
class Sections:
    bodies: list[list[Statement]]


@dataclass(frozen=True)
class Event:
    kind: int
    name: str = ""


@dataclass(frozen=True)
class Region:
    """`team`: so many threads of an inner region; an outermost one has those of the run."""

    body: list[Statement]
    after: list[Statement] = field(default_factory=list)
    name: str = ""
    team: int = 2


Statement = Write | Digest | Loop | Within | Sections | Event | Region


class Table:
    """Sites, numbered as they first come: the same for all runs of one program."""

    def __init__(self) -> None:
        self.numbers: dict[tuple[str, str], int] = {}
        self.loose: dict[int, str] = {}

    def site(self, type: str, name: str, loose: str = "") -> int:
        number = self.numbers.setdefault((type, name), len(self.numbers) + 1)
        if loose:
            self.loose[number] = loose
        return number

    def lines(self, build: str, lines_from: int) -> str:
        rows: list[dict[str, Any]] = [{"format": 1, "build": build}]
        for (type, name), number in self.numbers.items():
            row = {"number": number, "type": type, "name": name, "file": "heat.f90", "line": lines_from + number}
            rows.append({**row, "line2": lines_from + number, "clauses": "", "loose": self.loose.get(number, "")})
        return "".join(f"{json.dumps(row)}\n" for row in rows)


class Writer:
    """Runs a description, and keeps the records of each thread."""

    def __init__(self, table: Table, threads: int, seed: int) -> None:
        self.table, self.team, self.seed = table, threads, seed
        self.files: list[list[Record]] = [[] for _ in range(threads)]
        self.visits = self.nested = 0

    def put(self, file: int, site: int, kind: int, *words: int, type: int = 0, extra: int = 0) -> None:
        mask = (1 << 64) - 1
        self.files[file].append((site, extra, type, kind, (words or (0,))[0] & mask))
        self.files[file] += [(site, 0, 0, kinds.MORE, word & mask) for word in words[1:]]

    def run(self, body: Sequence[Statement], file: int, me: int, team: int, path: str) -> None:
        """What one thread does of a body: thread `me` of a team."""
        for number, statement in enumerate(body):
            here = f"{path}/{number}"
            if isinstance(statement, Write):
                self.write(statement, file)
            elif isinstance(statement, Digest):
                site = self.table.site("array", statement.name, statement.loose)
                extra = int(len(statement.words) > 3)
                self.put(file, site, kinds.DIGEST, *statement.words, type=statement.type, extra=extra)
            elif isinstance(statement, Loop):
                self.loop(statement, file, me, team, here)
            elif isinstance(statement, Sections):
                self.sections(statement, file, me, team, here)
            elif isinstance(statement, Within):
                self.within(statement, file, me, team, here)
            elif isinstance(statement, Event):
                self.put(file, self.table.site("barrier", statement.name), statement.kind)
            else:
                self.region(statement, file, me, team, here)

    def write(self, of: Write, file: int) -> None:
        site = self.table.site("variable-write", of.name, of.loose)
        self.put(file, site, of.kind, *encoded(of.type, of.value), type=of.type)

    def loop(self, of: Loop, file: int, me: int, team: int, here: str) -> None:
        ranges = [of.items] if isinstance(of.items, range) else list(of.items)
        bounds = [word for each in ranges for word in (each.start, each.stop - each.step, each.step)]
        number = self.table.site("loop", of.name)
        self.put(file, number, kinds.LOOP, *bounds, extra=len(ranges))
        tuples: list[Any] = [()]
        for each in ranges:
            tuples = [(*item, value) for item in tuples for value in each]
        site = self.table.site("iteration", of.name)
        for count, (item, thread) in enumerate(zip(tuples, self.drawn(here, team, len(tuples)), strict=True)):
            if thread == me:
                self.put(file, site, kinds.ITER, *item, extra=len(ranges))
                self.run(of.each(item if len(ranges) > 1 else item[0]), file, me, team, f"{here}.{count}")
        self.put(file, number, kinds.LOOP_END)

    def sections(self, of: Sections, file: int, me: int, team: int, here: str) -> None:
        number = self.table.site("section", "")
        self.put(file, number, kinds.SECTIONS, len(of.bodies))
        for count, thread in enumerate(self.drawn(here, team, len(of.bodies))):
            if thread == me:
                self.put(file, number, kinds.ITER, count + 1, extra=1)
                self.run(of.bodies[count], file, me, team, f"{here}.{count}")
        self.put(file, number, kinds.SECTIONS_END)

    def within(self, of: Within, file: int, me: int, team: int, here: str) -> None:
        site = self.table.site(kinds.NAMES[of.kind], of.name)
        runs = {kinds.SINGLE: self.drawn(here, team, 1)[0] == me, kinds.MASTER: me == 0}.get(of.kind, True)
        if runs:
            self.put(file, site, of.kind)
            self.run(of.body, file, me, team, here)
            self.put(file, site, of.kind + 1)
        if of.kind == kinds.SINGLE:
            self.put(file, site, kinds.BARRIER)

    def region(self, of: Region, file: int, me: int, team: int, here: str) -> None:
        outer = file == 0 and here.count("/") == 1
        if outer:
            self.visits += 1
            visit, members = self.visits, list(range(self.team))
        else:
            self.nested += Random(f"{self.seed} {here}").randint(1, 3)
            visit, members = kinds.NESTED + self.nested, [file]
            for _ in range(of.team - 1 if self.team > 1 else 0):
                members.append(len(self.files))
                self.files.append([])
        site = self.table.site("region", of.name)
        self.put(file, site, kinds.REGION, visit)
        for number, member in enumerate(members):
            self.put(member, site, kinds.ENTER, visit, extra=number)
            self.run(of.body, member, number, len(members), f"{here}/{visit if outer else 'inner'}")
            self.put(member, site, kinds.LEAVE, visit)
        self.run(of.after, file, me, team, f"{here}/after/after")
        self.put(file, site, kinds.REGION_END, visit)

    def drawn(self, here: str, team: int, count: int) -> list[int]:
        """Which thread does each of so many pieces of work: in turns, in blocks, or by chance."""
        random = Random(f"{self.seed} {here}")
        how = random.randrange(3)
        if how == 0:
            return [number % team for number in range(count)]
        if how == 1:
            return [number * team // count for number in range(count)]
        return [random.randrange(team) for _ in range(count)]


def encoded(type: int, value: Any) -> list[int]:
    """The words of a value; a list of words is itself."""
    if isinstance(value, list):
        return value
    layout = {kinds.REAL4: "<fi", kinds.REAL8: "<d", kinds.INTEGER4: "<ii", kinds.INTEGER8: "<q"}.get(type)
    if layout:
        return list(struct.unpack("<Q", struct.pack(layout, value, *[0] * (len(layout) - 2))))
    if type == kinds.COMPLEX8:
        return list(struct.unpack("<2Q", struct.pack("<2d", value.real, value.imag)))
    if type == kinds.CHARACTER:
        raw = value.encode()
        return [len(raw), *struct.unpack(f"<{(len(raw) + 7) // 8}Q", raw.ljust((len(raw) + 7) // 8 * 8, b"\0"))]
    return [int(value)]


def records(table: Table, program: Sequence[Statement], threads: int = 1, seed: int = 0) -> list[list[Record]]:
    """The records of each thread that a program would leave."""
    writer = Writer(table, threads, seed)
    writer.run(program, 0, 0, 1, "")
    return writer.files


def put(directory: Path, table: Table, files: list[list[Record]], lines_from: int = 0, **about: Any) -> Run:
    """Write a directory of a run. `about`: what its run.json says otherwise."""
    directory.mkdir(parents=True, exist_ok=True)
    told = {"format": 1, "build": BUILD, "argv": ["./heat"], "pid": 4711, "level": {"variables": "full"},
            "regions": None, "edges": None, "statistics": False, "ended": "exit", "stopped": None, **about}  # fmt: skip
    (directory / "run.json").write_text(json.dumps(told))
    (directory / "sites.jsonl").write_text(table.lines(str(told["build"]), lines_from))
    for number, rows in enumerate(files):
        head = b"SPTHRDS1" + struct.pack("<IIQ", number, 4711, 0).ljust(56, b"\0")
        body = np.array(rows, RECORD).tobytes() if rows else b""
        (directory / f"{number:05}.ev").write_bytes(head + body + bytes(16 * 5))
    return Run(directory)


def written(
    directory: Path, table: Table, program: Sequence[Statement], threads: int = 1, seed: int = 0, **about: Any
) -> Run:
    """The trace of a program, as so many threads would leave it."""
    return put(directory, table, records(table, program, threads, seed), **about)
