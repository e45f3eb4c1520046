"""What a trace of check mode holds, read as its format is told: notes, and their rows."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any, NamedTuple

from safepoint.trace import record


class Noted(NamedTuple):
    function: str
    line: int  # 0: not known
    note: dict[str, int]
    given: list[int] | None  # None: there is no row of arguments
    reads: list[int]
    writes: list[int]


def read(trace: Path, rank: int) -> list[Noted]:
    """All calls of a rank, in order."""
    stem = f"{trace}/rank-{rank:05d}"
    functions = json.loads((trace / "functions-python.json").read_text())
    sites = [line.split("\t")[2] for line in Path(f"{stem}.sites").read_text().splitlines()]
    rows: dict[tuple[int, int], list[int]] = {}
    words: Any = memoryview(Path(f"{stem}.more").read_bytes()).cast("q")
    at = 3
    while at + 3 <= len(words) and words[at + 2]:
        length, note, kind = words[at : at + 3]
        assert (note, kind) not in rows, "a second row of this kind"
        rows[note, kind] = list(words[at + 3 : at + 3 + length])
        at += 3 + length
    found = []
    for index, values in enumerate(struct.iter_unpack(
        record.LAYOUT.format, Path(f"{stem}.calls").read_bytes()[record.HEADER :]
    )):  # fmt: skip
        note = dict(zip(record.FIELDS, values, strict=True))
        if note["state"] == record.EMPTY:
            break
        line = int(sites[note["site"] - 1]) if note["site"] else 0
        found.append(Noted(functions[str(note["function"])][0], line, note, rows.get((index, record.ARGUMENTS)),
                           rows.get((index, record.BEFORE), []), rows.get((index, record.AFTER), [])))  # fmt: skip
    return found


def constants(trace: Path, rank: int) -> dict[str, int]:
    found: dict[str, int] = json.loads((trace / f"rank-{rank:05d}.constants").read_text())
    return found


def watch(trace: Path, *functions: str, **ranks: list[int]) -> None:
    """Let a trace have a watch list; `ranks`: of functions that only these note."""
    trace.mkdir(exist_ok=True)
    names = dict.fromkeys(functions) | ranks
    (trace / record.WATCH).write_text(json.dumps({"functions": names}), "utf-8")
