"""Write a trace as text, in the form of Litvinovich (2009): `ID_trace_main.log`, and `ID_trace_N.log` for each thread.

Line n of `ID_trace_N.log` is event n of thread N, the number in `A(n)` of a message. It is `E event C site|keys`:

    E 1  region        PID visit IF -1 NTR -1        E 14 loop            I lower L upper S step CS -1
    E 2  enter         PID visit TN thread of team   E 15 iteration       IN number ...
    E 3  leave         PID visit                     E 16 loop end
    E 4  region end    PID visit                     E 11 write           VR site VL value
    E 5  call          E 6 return                    E 12 read            VR site VL value
    E 20 private unset                               E 13 digest          VR site N elements SUM checksum ...

and the other constructs have the number of their kind (`kinds.py`) and 100. A loop has `I2 L2 S2` of the next variable.
The main file has level and edges, a line per thread, and the sites: number, length, `*type=...*name1=...*...**`.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np

from safepoint.errors import FormatError, UsageError
from safepoint.threads import kinds
from safepoint.threads.sites import Site
from safepoint.threads.trace import Run, Thread, decoded

EVENTS = {
    kinds.REGION: 1, kinds.ENTER: 2, kinds.LEAVE: 3, kinds.REGION_END: 4, kinds.CALL: 5, kinds.RETURN: 6,
    kinds.WRITE: 11, kinds.READ: 12, kinds.DIGEST: 13, kinds.LOOP: 14, kinds.ITER: 15, kinds.LOOP_END: 16,
    kinds.PRIVATE_UNSET: 20,
}  # fmt: skip
CHUNK = 1 << 16


def write(
    run: Run, directory: Path, name: str = "", *, force: bool = False, done: Callable[[int], None] = lambda more: None
) -> list[Path]:  # fmt: skip
    """Write the files; `name` is the ID, that of the run's directory if none is given. Returns their paths. `done` is
    told how many bytes more of the trace are written. Raises `UsageError` if a file cannot be written, or is there and
    not of this run; `force` replaces it. None comes elsewhere than into `directory`. Raises `FormatError` at an event
    that is not whole."""
    run.kept()
    if os.path.basename(name) != name or "\0" in name:
        raise UsageError(f"{name!r} is no first part of the name of a file: -o names the directory")
    if os.path.lexists(directory) and not directory.is_dir():
        raise UsageError(
            f"{directory} is there, and no directory for the text of {run.directory}: name another with -o"
        )
    name = name or run.directory.resolve().name.replace(".threads", "")
    made = {f"{name}_trace_main.log": (partial(main, run), partial(main, run))}
    for thread in run.threads:
        made[f"{name}_trace_{thread.number}.log"] = partial(events, thread), partial(events, thread, done)
    try:
        for each, (lines, _) in made.items() if not force else ():
            if os.path.lexists(directory / each) and not _begins(directory / each, lines()):
                raise UsageError(
                    f"{directory / each} is there, and not of this run: --name gives other names, --force replaces it"
                )
        directory.mkdir(parents=True, exist_ok=True)
        for each, (_, lines) in made.items():
            with open(directory / each, "w", encoding="utf-8", errors="surrogateescape") as file:
                file.writelines(f"{line}\n" for line in lines())
    except OSError as error:
        raise UsageError(f"cannot write the text of {run.directory}: {error}", error.errno) from error
    return [directory / each for each in made]


def _begins(path: Path, lines: Iterator[str]) -> bool:
    """Whether a file has nothing but what these lines begin with: it is an earlier text of the same run, or a part."""
    if not path.is_file():
        return False
    with open(path, "rb") as file:
        for line in lines:
            data = f"{line}\n".encode(errors="surrogateescape")
            if (found := file.read(len(data))) != data:
                return data.startswith(found)
        return not file.read(1)


def main(run: Run) -> Iterator[str]:
    """The lines of the main file."""
    about = run.about
    yield " ".join(f"{name}={about['level'][name]}" for name in ("regions", "variables", "procedures"))
    yield f"edges={-1 if about.get('edges') is None else about['edges']} regions={about.get('regions') or 'all'}"
    for thread in run.threads:
        yield f"thread {thread.number} process {thread.pid} events {count(thread)}"
    for number, site in sorted(run.sites.by_number.items()):
        string = described(site)
        yield f"{number} {len(string)}{string}"


def described(site: Site) -> str:
    """The string of a place."""
    pairs = {"type": site.type, "name1": site.name, "file": site.file, "line1": site.line, "line2": site.line2}
    return "".join(f"*{key}={value}" for key, value in pairs.items()) + "**"


def count(thread: Thread) -> int:
    """How many events a thread recorded."""
    return int(np.count_nonzero(thread.records["kind"] != kinds.MORE))


def size(run: Run) -> int:
    """Of the events of all threads, in bytes."""
    return sum(thread.records.nbytes for thread in run.threads)


def events(thread: Thread, done: Callable[[int], None] = lambda more: None) -> Iterator[str]:
    """A line for each event; `done` as in `write`. Raises `FormatError` at one that has not all of its records."""
    words: list[int] = []
    head: tuple[int, int, int, int] | None = None
    number = 0
    for first in range(0, len(thread.records), CHUNK):
        for site, extra, type, kind, value in thread.records[first : first + CHUNK].tolist():
            if kind == kinds.MORE:
                words.append(value)
                continue
            if head:
                yield _line(thread, number, *head, words)
            head, words, number = (site, extra, type, kind), [value], number + 1
        done(min(CHUNK, len(thread.records) - first) * kinds.RECORD)
    if head:
        yield _line(thread, number, *head, words)


def _line(thread: Thread, number: int, site: int, extra: int, type: int, kind: int, words: list[int]) -> str:
    if len(words) != 1 + kinds.more(kind, type, extra, words[0]):
        raise FormatError(f"{thread.path}: the trace is damaged: event {number} is not whole")
    keys = _keys(site, extra, type, kind, words)
    return f"E {EVENTS.get(kind, 100 + kind)} C {site}" + (f"|{keys}" if keys else "")


def _keys(site: int, extra: int, type: int, kind: int, words: list[int]) -> str:
    if kind == kinds.REGION:
        return f"PID {_visit(words[0])} IF -1 NTR -1"
    if kind in (kinds.ENTER, kinds.LEAVE, kinds.REGION_END):
        return f"PID {_visit(words[0])}" + (f" TN {extra}" if kind == kinds.ENTER else "")
    if kind == kinds.LOOP:
        bounds = [_signed(word) for word in words]
        parts = [bounds[at : at + 3] for at in range(0, len(bounds), 3)]
        named = zip(["", *map(str, range(2, len(parts) + 1))], parts, strict=True)
        return " ".join(f"I{n} {part[0]} L{n} {part[1]} S{n} {part[2]}" for n, part in named) + " CS -1"
    if kind == kinds.ITER:
        return "IN " + " ".join(str(_signed(word)) for word in words)
    if kind in (kinds.WRITE, kinds.READ):
        return f"VR {site} VL {_shown(decoded(type, words))}"
    if kind == kinds.DIGEST:
        text = f"VR {site} N {words[0]} SUM {words[2]:016x}{words[1]:016x}"
        least, most, mean, root = struct.unpack("<4d", struct.pack("<4Q", *words[3:7])) if extra else (0.0,) * 4
        return text + (f" MIN {least!r} MAX {most!r} MEAN {mean!r} RMS {root!r}" if extra else "")
    return f"N {words[0]}" if kind == kinds.SECTIONS else ""


def _shown(value: object) -> str:
    return repr(value) if isinstance(value, str) else str(value)  # a text may have the end of a line in it


def _visit(word: int) -> str:
    """Of a region within a region: n and its own number."""
    return f"n{word - kinds.NESTED}" if word >= kinds.NESTED else str(word)


def _signed(word: int) -> int:
    return word - (1 << 64) if word >> 63 else word
