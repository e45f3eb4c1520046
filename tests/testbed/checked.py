"""What the tracers note, read as their format is told; and programs under that of C in check mode."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from safepoint.matching import symbols
from safepoint.trace import record, roles
from safepoint.trace.signatures import signatures
from testbed.foreign import Mpi, ran, tracer

MORE = {"OMPI_MCA_osc": "pt2pt"}  # Open MPI 4.1 makes no window on one node by itself
ALL = (*signatures(), "hide", "mark")
OWN = record.COMPLETED, record.STARTED, record.MESSAGE


class Noted(NamedTuple):
    """A note, whose fields are attributes too, and its rows."""

    function: str
    note: dict[str, int]
    site: str
    given: list[int] | None  # None: there is no row of arguments
    reads: list[int]
    writes: list[int]
    rows: dict[int, list[int]]  # by kind

    def __getattr__(self, name: str) -> int:
        if name in record.FIELDS:
            return self.note[name]
        raise AttributeError(name)

    @property
    def place(self) -> str:
        """`check_calls.c:41`."""
        site = symbols.sites([self.site])[0]
        return f"{os.path.basename(site.file)}:{site.line}"

    @property
    def line(self) -> int:
        """Of a program in Python; 0: not known."""
        return int(self.site.split("\t")[2]) if self.site else 0

    @property
    def row(self) -> tuple[int, ...]:
        """What it completed, started or received."""
        return tuple(next((self.rows[kind] for kind in OWN if kind in self.rows), ()))

    @property
    def acts(self) -> bool:
        """It is no call that has only looked."""
        asks = roles.kind(self.function) in ("test", "testall", "testany", "testsome", "iprobe", "improbe")
        return not asks or bool(self.flags & record.FOUND)

    def __str__(self) -> str:
        """What does not depend on time."""
        usual = dict.fromkeys(("peer", "tag", "got_peer", "got_tag"), record.NONE)
        usual = {"comm": 0, **usual, "bytes": 0, "request": 0}
        shown = {name: value for name in usual if (value := self.note[name]) != usual[name]}
        words = [f"{name}={'?' if value == record.UNKNOWN else value}" for name, value in shown.items()]
        words += [f"flags={self.flags}"] * bool(self.flags) + ["row=" + ",".join(map(str, self.row))] * bool(self.row)
        return " ".join([self.function, *words])


def read(trace: Path, rank: int) -> list[Noted]:
    """All calls of a rank, in order."""
    names = record.names(trace, rank)
    functions = json.loads((trace / json.loads(names.about.read_text())["functions"]).read_text())
    sites, found = names.sites.read_text().splitlines(), list[Noted]()
    rows, words = rows_of(names.more), words_of(names.more)
    for number, values in enumerate(record.LAYOUT.iter_unpack(whole(names.calls.read_bytes()[record.HEADER :]))):
        note = dict(zip(record.FIELDS, values, strict=True))
        if note["state"] == record.EMPTY:
            break
        mine, at = rows.get(number, {}), note["more"]
        assert not at or words[at + 1] == number, (number, at)
        found.append(Noted(
            functions[str(note["function"])][0], note, sites[note["site"] - 1] if note["site"] else "",
            mine.get(record.ARGUMENTS), mine.get(record.BEFORE, []), mine.get(record.AFTER, []), mine,
        ))  # fmt: skip
    return found


def whole(data: bytes) -> bytes:
    return data[: len(data) // record.NOTE * record.NOTE]


def words_of(path: Path) -> Any:
    data = path.read_bytes()
    return memoryview(data[: len(data) // 8 * 8]).cast("q")


def rows_of(path: Path) -> dict[int, dict[int, list[int]]]:
    """By note and kind; there is one of each."""
    words, found, at = words_of(path), dict[int, dict[int, list[int]]](), 3
    while at + 3 <= len(words) and words[at + 2]:
        length, note, kind = words[at : at + 3]
        mine = found.setdefault(note, {})
        assert kind not in mine, f"a second row of kind {kind} for note {note}"
        mine[kind] = list(words[at + 3 : at + 3 + length])
        at += 3 + length
    return found


def constants(trace: Path, rank: int) -> dict[str, int]:
    found: dict[str, int] = json.loads((trace / f"rank-{rank:05d}.constants").read_text())
    return found


def prepared(work: Path, functions: Sequence[str] | Mapping[str, list[int] | None]) -> Path:
    """A trace that has this watch list; of a function some ranks may be named, which alone note it."""
    trace = work / "run.trace"
    trace.mkdir()
    names = dict(functions) if isinstance(functions, Mapping) else dict.fromkeys(functions)
    (trace / record.WATCH).write_text(json.dumps({"functions": names}))
    return trace


def environment(mpi: Mpi, trace: Path) -> dict[str, str]:
    return {"SAFEPOINT_TRACE": str(trace), "LD_PRELOAD": tracer(mpi.cc, arguments=True), **MORE}


def checked(
    work: Path, mpi: Mpi, ranks: int, functions: Sequence[str] | Mapping[str, list[int] | None], *command: object
) -> tuple[int, str, str, Path]:
    """Status, what it printed on both channels, and the trace."""
    trace = prepared(work, functions)
    return *ran(work, *mpi.started(ranks, *command), more=environment(mpi, trace)), trace
