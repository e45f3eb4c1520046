"""Reads the directory of a trace. What it returns refers nowhere outside its own tables, whoever wrote the files.

A rank has *closed* its notes if their number is in the header. Else it was killed, or is still running: its files may
end anywhere, and its notes are judged up to the first that refers to what is not there.

(1) Every number that leads to a place in a table is checked here, for all notes at once. A damaged trace would else end
    as an `IndexError` deep in a join, or be judged by the notes of another call.
(2) Nothing is made larger than a few times the files: sizes that a file states are compared with it before they are
    used, and the members of a communicator stay ranges. A line of 20 bytes could else ask for all memory.
(3) Rows of `.more` do not overlap, and each is of the note that names it. Many notes could else share one long row.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from safepoint.matching import symbols
from safepoint.matching.matched import Ints
from safepoint.matching.stored import NOTES as NOTES  # who takes a trace takes these from here
from safepoint.matching.stored import TraceError as TraceError
from safepoint.matching.stored import bytes_of, stored
from safepoint.matching.symbols import Site
from safepoint.trace import record, roles
from safepoint.trace.known import ranges

JSON_MAX, TIME_MAX, TRACERS_MAX = 16 << 20, 1 << 62, 8  # bytes; ns; tables of functions
AN_HOUR = 3600 * 10**9  # ns
FUNCTIONS = 1 << 16  # numbers that a function can have
RANKS_A_FILE = 1024  # so many ranks may a trace say that it has, for each whose notes are here
KINDS = frozenset((roles.OTHER, roles.LOCAL, "ours", *(role.kind for role in roles.ROLES.values())))
SPAN = re.compile(r"(-1|[0-9]{1,9})(?:-([0-9]{1,9}))?")
Spans = tuple[tuple[int, int], ...]  # members: a rank of the world, and how many from there on; (-1, 1): one outside
Masks = list[tuple[NDArray[np.bool_], str]]  # which notes are bad, and why


class Thing(NamedTuple):
    """A communicator, window or file, as one rank knows it."""

    kind: str  # "comm", "win", "file"; what is of another kind takes a number, and no note may name it
    name: str
    note: int  # that made it; -1: it was made where the tracer does not look
    members: Spans
    remote: Spans  # of an intercommunicator; empty of others
    outside: bool  # it has processes that are not in the world


class Rank(NamedTuple):
    """The notes of one rank."""

    rank: int
    notes: NDArray[np.void]  # NOTES
    more: Ints  # `.more` in words of 8 bytes, with its header
    sites: Ints  # of each number in the notes, that in `Trace.sites`
    functions: Ints  # the same, in `Trace.functions`
    things: list[Thing]  # number 1 is things[0]
    clock: str  # of which host and boot
    began: tuple[int, int]  # ns of that clock, and of the day, at one moment
    told: int  # how many notes it had when it ended; -1: it did not
    stopped: bool  # it noted nothing more from some call on

    @property
    def torn(self) -> bool:
        """There may be more than its notes say."""
        return self.stopped or self.told != len(self.notes)


class Trace(NamedTuple):
    size: int  # of the world
    ranks: list[Rank]  # that are here, in order
    functions: list[str]
    kinds: list[str]  # of each function
    sites: list[Site]  # [0] is "not known"
    remarks: list[str]


def read(directory: Path) -> Trace:
    """The trace in this directory, or that of this archive of OTF2. Raises `TraceError`."""
    from safepoint.matching import otf2  # it makes a directory, and comes back

    if (archive := otf2.anchor(directory)) is not None:
        return otf2.read(archive)
    abouts = ranks_of(directory)
    size, remarks = abouts[0]["size"], list[str]()
    if gone := sorted(set(range(size)) - {about["rank"] for about in abouts}):
        who, them = ("rank", "it") if len(gone) == 1 else ("ranks", "them")
        remarks.append(
            f"{who} {ranges(gone)} of {size} left no notes here: what others share with {them} is never whole"
        )
    if len({about["functions"] for about in abouts}) > TRACERS_MAX:
        raise TraceError(f"{directory}: its ranks name more than {TRACERS_MAX} tables of functions")
    tables = {name: _functions(directory / name) for name in sorted({about["functions"] for about in abouts})}
    words = sorted({word for table in tables.values() for word in table.values()})
    order = {word: number for number, word in enumerate(words)}
    numbers = {name: np.full(FUNCTIONS, -1, "i8") for name in tables}
    for name, table in tables.items():
        numbers[name][list(table)] = [order[word] for word in table.values()]
    parts = [_rank(directory, about, numbers[about["functions"]], remarks) for about in abouts]
    sites, of_line = _sites(directory, [line for _, lines in parts for line in lines])
    ranks = [rank._replace(sites=np.array([0, *(of_line[line] for line in lines)], "i8")) for rank, lines in parts]
    trace = Trace(size, ranks, [name for name, _ in words], [kind for _, kind in words], sites, remarks)
    for rank in ranks:
        _threads(trace, rank)
    return trace


# What is said of each rank, and of functions.


def ranks_of(directory: Path) -> list[dict[str, Any]]:
    """What is said of each, by rank."""
    try:
        files = sorted(path for path in directory.iterdir() if re.fullmatch(r"rank-[0-9]{5,9}\.json", path.name))
    except OSError as error:
        raise TraceError(f"{directory}: {error.strerror}", error.errno) from error
    if not files:
        raise TraceError(f"{directory} is not a trace: it has no rank-00000.json")
    abouts = sorted((_about(path) for path in files), key=lambda about: int(about["rank"]))
    first = abouts[0]
    if len({about["rank"] for about in abouts}) < len(abouts):
        raise TraceError(
            f"{directory}: two of the files {', '.join(path.name for path in files[:9])} are of the same rank"
        )
    _of_one_run(directory, abouts)
    for path, about in zip(files, abouts, strict=True):
        if (about["size"], about["argv"][0]) != (first["size"], first["argv"][0]):
            raise TraceError(
                f"{path}: it is of another run than {files[0].name}: {about['argv'][0]} on {about['size']} ranks, and "
                f"{first['argv'][0]} on {first['size']}"
            )
    if first["size"] > RANKS_A_FILE * len(abouts):
        raise TraceError(f"{files[0]}: it is one of {first['size']} ranks, and only {len(abouts)} are here")
    return abouts


def _of_one_run(directory: Path, abouts: list[dict[str, Any]]) -> None:
    """Raises `TraceError`: a rank began when another one had ended long ago. Clocks of hosts may differ."""
    ended = [about for about in abouts if isinstance(about.get("end"), list) and len(about["end"]) == 2]
    if not ended or not all(type(about["end"][1]) is int for about in ended):
        return
    last, first = (
        max(abouts, key=lambda about: int(about["begin"][1])),
        min(ended, key=lambda about: int(about["end"][1])),
    )
    if last["begin"][1] > first["end"][1] + AN_HOUR:
        raise TraceError(
            f"{directory}: rank {last['rank']} began when rank {first['rank']} had ended: these are parts of "
            "several runs"
        )


def _about(path: Path) -> dict[str, Any]:
    about = _json(path)
    form = about.get("format")
    if isinstance(form, int) and form > record.FORMAT:
        raise TraceError(f"{path}: format {form} is newer than this version of safepoint, which knows {record.FORMAT}")
    about = {"boot": "", "host": "", "stopped": "", "argv": ["?"], "ended": None, **about}
    begin, argv = about.get("begin"), about["argv"]
    right = (
        form == record.FORMAT and all(type(about.get(name)) is int for name in ("rank", "size"))
        and 0 <= about["rank"] < about["size"] and int(path.stem[5:]) == about["rank"]
        and all(isinstance(about[name], str) for name in ("boot", "host", "stopped"))
        and isinstance(argv, list) and bool(argv) and isinstance(argv[0], str)
        and isinstance(begin, list) and len(begin) == 2 and all(type(at) is int and 0 <= at < TIME_MAX for at in begin)
        and re.fullmatch(r"functions-[a-z0-9]{1,32}\.json", str(about.get("functions"))) is not None
    )  # fmt: skip
    if not right:
        raise TraceError(f"{path} is not what a trace says of a rank")
    return about


def _json(path: Path) -> dict[str, Any]:
    try:
        return dict(json.loads(bytes_of(path, JSON_MAX)))
    except (ValueError, TypeError, RecursionError) as error:
        raise TraceError(f"{path}: it is no object of JSON: {error}") from error


def _functions(path: Path) -> dict[int, tuple[str, str]]:
    """Name and kind of each number. A kind that this version does not know is another call."""
    table = {}
    for number, row in _json(path).items():
        right = re.fullmatch(r"[0-9]{1,5}", number) and int(number) < FUNCTIONS and isinstance(row, list)
        if not right or len(row) != 2 or not all(isinstance(word, str) for word in row):
            raise TraceError(f"{path}: the row of {number!r} is no function")
        table[int(number)] = row[0], row[1] if row[1] in KINDS else roles.OTHER
    return table


# The notes of a rank.


def _rank(directory: Path, about: dict[str, Any], functions: Ints, remarks: list[str]) -> tuple[Rank, list[str]]:
    """Without the numbers of its sites; and their lines."""
    names, rank = record.names(directory, about["rank"]), about["rank"]
    notes, more, count = stored(names)
    closed = count >= 0
    there = notes["state"] != record.EMPTY
    notes = notes[: len(notes) - int(np.argmax(there[::-1])) if there.any() else 0]
    if closed and len(notes) < count:
        remarks.append(f"rank {rank}: {len(notes)} of its {count} notes are here: it is judged up to there")
    # An empty one among notes that were closed is of a call that raised before it could be noted.
    notes = notes[: count if closed else int(np.argmin(np.append(there, False)))]
    if about["stopped"]:
        remarks.append(f"rank {rank} stopped noting after {len(notes)} calls: {about['stopped']}")
    elif not closed:
        remarks.append(f"rank {rank} was killed, or still runs: it is judged up to its {len(notes)} notes")
    lines, things = _lines(names.sites, int(notes["site"].max(initial=0))), _things(names.objects, about, closed)
    masks = _plain_masks(notes, len(lines), len(things), functions) + _row_masks(notes, more)
    first = min(((int(np.argmax(mask)), why) for mask, why in masks if mask.any()), default=None)
    if first is not None:
        if closed:
            raise TraceError(f"{names.calls}: note {first[0]}: {first[1]}")
        remarks.append(f"rank {rank}: its notes end before note {first[0]} of {len(notes)}: {first[1]}")
        notes = notes[: first[0]]
    for number, thing in enumerate(things, 1):
        if thing.note >= len(notes):
            if closed:
                raise TraceError(f"{names.objects}: line {number}: there is no note {thing.note}")
            things[number - 1] = thing._replace(kind="", note=-1)
    clock, (begin, of_day) = about["boot"] or about["host"], about["begin"]
    return Rank(rank, notes, more, np.zeros(0, "i8"), functions, things, clock, (begin, of_day), count,
                bool(about["stopped"])), lines  # fmt: skip


def _lines(path: Path, most: int) -> list[str]:
    """So many, at most; the last one only if it is whole."""
    return [line.decode("utf-8", "replace") for line in bytes_of(path).split(b"\n", most)[:-1]]


def _things(path: Path, about: dict[str, Any], closed: bool) -> list[Thing]:
    """Of notes that were not closed, up to the first line that is torn."""
    things, known = list[Thing](), dict[str, Spans]()
    world = {0: ((0, about["size"]),), 1: ((about["rank"], 1),)}
    for number, line in enumerate(_lines(path, -1)):
        try:
            thing = _thing(json.loads(line), about, known)
            if number in world and (thing.kind, thing.members, thing.note) != ("comm", world[number], -1):
                raise ValueError("this is not MPI_COMM_WORLD, or not MPI_COMM_SELF")
        except (ValueError, TypeError, RecursionError) as error:
            if closed:
                raise TraceError(f"{path}: line {number + 1}: {error}") from error
            break
        things.append(thing)
    return things


def _thing(line: Any, about: dict[str, Any], known: dict[str, Spans]) -> Thing:
    """Raises ValueError, TypeError."""
    line = {"name": "", "members": "", "remote": "", "outside": False, "kind": "", "note": -1, **dict(line)}
    right = all(isinstance(line[name], str) for name in ("name", "members", "remote", "kind"))
    if not right or type(line["note"]) is not int or line["note"] < -1:
        raise ValueError("its fields are of other types")
    spans = [known[text] if text in known else known.setdefault(text, _spans(text, about["size"]))
             for text in (line["members"], line["remote"])]  # fmt: skip
    own = any(first <= about["rank"] < first + count for first, count in spans[0])
    if line["kind"] in ("comm", "win", "file") and not own:
        raise ValueError(f"rank {about['rank']} is not one of its members")
    return Thing(line["kind"], line["name"], line["note"], spans[0], spans[1], bool(line["outside"]))


def _spans(text: str, size: int) -> Spans:
    """Raises ValueError."""
    spans = list[tuple[int, int]]()
    for word in text.split(",") if text else ():
        found = SPAN.fullmatch(word)
        first = int(found[1]) if found else 0
        last = int(found[2] or first) if found else -1
        if not first <= last < size or (found and found[2] and first < 0):
            raise ValueError(f"{word!r} are no ranks of {size}")
        spans.append((first, last - first + 1))
    return tuple(spans)


def _plain_masks(notes: NDArray[np.void], sites: int, things: int, functions: Ints) -> Masks:
    """(1)."""
    return [
        (notes["state"] > record.RAISED, "its last byte is none that is written"),
        ((functions[notes["function"]] < 0) & (notes["state"] != record.EMPTY), "its function is in no table"),
        (notes["site"] > sites, f"its site is not among {sites} lines"),
        (notes["comm"] > things, f"its communicator, window or file is not among {things} lines"),
        (np.maximum(notes["enter"], notes["leave"]) >= TIME_MAX, "its time is none"),
    ]


def _row_masks(notes: NDArray[np.void], more: Ints) -> Masks:
    """(1), (3)."""
    at = np.flatnonzero(notes["more"])
    begin = notes["more"][at].astype("i8")
    inside = (begin >= 3) & (begin + 3 <= len(more))
    head = np.where(inside, begin, 0)[:, None] + np.arange(3)
    length, of_note, kind = (more[head] if len(more) >= 3 else np.zeros((len(at), 3), "i8")).T
    inside &= (length >= 0) & (length <= len(more) - 3 - begin)
    inside &= (of_note == at) & (kind >= record.COMPLETED) & (kind <= record.ARGUMENTS)
    ends, order = np.where(inside, begin + 3 + length, 0), np.argsort(begin, kind="stable")
    reached = np.maximum.accumulate(np.append(0, ends[order]))[:-1]
    inside[order] &= reached <= begin[order]
    odd = (kind == record.COMPLETED) & (length % 3 != 0) | (kind == record.STARTED) & (length % 2 != 0)
    odd |= (kind == record.MESSAGE) & (length != 1)
    bad, uneven = np.zeros(len(notes), "?"), np.zeros(len(notes), "?")
    bad[at[~inside]], uneven[at[inside & odd]] = True, True
    return [(bad, "its row in .more is not there"), (uneven, "its row in .more has a wrong length")]


# Over all of them.


def _sites(directory: Path, lines: list[str]) -> tuple[list[Site], dict[str, int]]:
    """All of them, each once; and the number of each line."""
    lines = list(dict.fromkeys(lines))
    try:
        found = symbols.sites(lines)
    except ValueError as error:
        raise TraceError(f"{directory}: its sites are damaged: {error}") from error
    numbers = {Site("", 0, ""): 0}
    of_line = {line: numbers.setdefault(site, len(numbers)) for line, site in zip(lines, found, strict=True)}
    return list(numbers), of_line


def _threads(trace: Trace, rank: Rank) -> None:
    """Refuse what cannot be put in order: calls of two threads on one communicator, window or file."""
    notes = rank.notes[rank.notes["comm"] > 0]
    if not notes["thread"].any():
        return
    least, most = np.full(len(rank.things) + 1, 1 << 16), np.full(len(rank.things) + 1, -1)
    np.minimum.at(least, notes["comm"], notes["thread"])
    np.maximum.at(most, notes["comm"], notes["thread"])
    if len(shared := np.flatnonzero(least < most)):
        mine = notes[notes["comm"] == shared[0]]
        calls = [mine[mine["thread"] == thread][0] for thread in (least[shared[0]], most[shared[0]])]
        said = [
            f"{trace.functions[rank.functions[call['function']]]} at {trace.sites[rank.sites[call['site']]]} in thread "
            f"{call['thread']}"
            for call in calls
        ]
        raise TraceError(
            f"rank {rank.rank}: two threads call MPI on one communicator, window or file, so the order of their "
            f"messages is not known: {said[0]}, and {said[1]}"
        )
    trace.remarks.append(
        f"rank {rank.rank} calls MPI in {len(np.unique(rank.notes['thread']))} threads: its calls are in the order in "
        "which they began"
    )
