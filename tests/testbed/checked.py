"""What the tracer of C notes in check mode, read as its format is told."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from safepoint.matching import symbols
from safepoint.trace import record
from safepoint.trace.signatures import signatures
from testbed.foreign import Mpi, ran, tracer

MORE = {"OMPI_MCA_osc": "pt2pt"}  # Open MPI 4.1 makes no window on one node by itself
ALL = (*signatures(), "hide", "mark")


class Noted(NamedTuple):
    function: str
    note: dict[str, int]
    site: str
    given: list[int] | None  # None: there is no row of arguments
    reads: list[int]
    writes: list[int]
    rows: dict[int, list[int]]  # by kind

    @property
    def place(self) -> str:
        """`check_calls.c:41`."""
        site = symbols.sites([self.site])[0]
        return f"{os.path.basename(site.file)}:{site.line}"


def read(trace: Path, rank: int) -> list[Noted]:
    """All calls of a rank, in order."""
    names = record.names(trace, rank)
    functions = json.loads((trace / "functions-c.json").read_text())
    sites, found = names.sites.read_text().splitlines(), list[Noted]()
    rows = rows_of(names.more)
    for number, values in enumerate(record.LAYOUT.iter_unpack(whole(names.calls.read_bytes()[record.HEADER :]))):
        note = dict(zip(record.FIELDS, values, strict=True))
        if note["state"] == record.EMPTY:
            break
        mine = rows.get(number, {})
        found.append(Noted(
            functions[str(note["function"])][0], note, sites[note["site"] - 1] if note["site"] else "",
            mine.get(record.ARGUMENTS), mine.get(record.BEFORE, []), mine.get(record.AFTER, []), mine,
        ))  # fmt: skip
    return found


def whole(data: bytes) -> bytes:
    return data[: len(data) // record.NOTE * record.NOTE]


def rows_of(path: Path) -> dict[int, dict[int, list[int]]]:
    """By note and kind; there is one of each."""
    data, found = path.read_bytes(), dict[int, dict[int, list[int]]]()
    words: Any = memoryview(data[: len(data) // 8 * 8]).cast("q")
    at = 3
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
    """A trace that has this watch list."""
    trace = work / "run.trace"
    trace.mkdir()
    (trace / record.WATCH).write_text(json.dumps({"functions": dict(functions) if isinstance(functions, Mapping)
                                                  else dict.fromkeys(functions)}))  # fmt: skip
    return trace


def environment(mpi: Mpi, trace: Path) -> dict[str, str]:
    return {"SAFEPOINT_TRACE": str(trace), "LD_PRELOAD": tracer(mpi.cc, arguments=True), **MORE}


def checked(
    work: Path, mpi: Mpi, ranks: int, functions: Sequence[str] | Mapping[str, list[int] | None], *command: object
) -> tuple[int, str, str, Path]:
    """Status, what it printed on both channels, and the trace."""
    trace = prepared(work, functions)
    return *ran(work, *mpi.started(ranks, *command), more=environment(mpi, trace)), trace
