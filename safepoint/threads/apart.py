"""Separate compilation, as make does it: `-c` lines are run as they are and noted, and the line that links builds all.

Sites are numbered through over a whole program, so nothing is instrumented before it is known what belongs to it. The
order in which the objects were finished is one in which modules are found.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from safepoint.errors import UsageError
from safepoint.threads import owned
from safepoint.threads.compilers import called, said
from safepoint.threads.line import Line, parse

NOTE = ".threads.json"  # after the name of an object: the line that made it, and the checksum of that object
AS_IT_IS = "linked as it is, into both programs: nothing in it is recorded, and it is not serial"


class Unit(NamedTuple):
    """A source to compile. `key`: the word of the line that links in whose place its object comes."""

    key: str
    source: str
    line: Line


def compile_plain(line: Line, words: Sequence[str]) -> list[Path]:
    """Run a `-c` line of the user as it is, and note it beside each object. Raises `UsageError` with what it says."""
    targets = [line.output or f"{Path(source).stem}.o" for source in line.sources]
    places = [owned.note(target, line.sources, NOTE) for target in targets]
    done = called(list(words))
    if done.returncode:
        raise UsageError(f"{', '.join(line.sources)}: not compiled\n{said(done)}")
    made = []
    for source, target, place in zip(line.sources, targets, places, strict=True):
        note = {"line": list(words), "source": source, "directory": os.getcwd(), "time": time.time(),
                "object": owned.checksum(Path(target))}  # fmt: skip
        fresh = place.with_name(f"{place.name}.{os.getpid()}")
        fresh.write_text(json.dumps(note) + "\n", "utf-8")
        os.replace(fresh, place)
        made.append(Path(target))
    return made


def units(line: Line) -> tuple[list[Unit], list[str]]:
    """What a line that links is built of, in an order in which modules are found, and what to say of the rest."""
    noted: list[tuple[float, Unit]] = []
    told: list[str] = []
    for word in line.words:
        if word.kind != "input":
            continue
        name = word.parts[0]
        note = Path(f"{name}{NOTE}")
        if not note.exists():
            told.append(f"{name}: {AS_IT_IS}")
            continue
        try:
            found = json.loads(note.read_text("utf-8"))
            if found["object"] != owned.checksum(line.directory / name):
                told.append(f"{name}: not the object that its note {note.name} is of, and {AS_IT_IS}; compile it again")
                continue
            unit = Unit(name, found["source"], parse(found["line"], Path(found["directory"])))
            noted.append((float(found["time"]), unit))
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise UsageError(f"{note}: cannot be read ({error}): compile {name} again") from error
    noted.sort(key=lambda each: each[0])
    return [unit for _, unit in noted] + [Unit(source, source, line) for source in line.sources], told
