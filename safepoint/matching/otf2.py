"""OTF2 in and out: the format that Score-P writes, and that Vampir, Cube and Scalasca read.

An archive becomes a trace in a temporary directory, which `reading` reads as any other, and which then goes. So there
is one reader: what an archive says is checked as what a tracer wrote is, and every command that takes a trace takes the
anchor file of an archive (`traces.otf2`). The copy costs one write of 64 bytes a call; the events cost more.

(1) An archive that `export` wrote gives back the trace: what OTF2 has no event for is in attributes and properties
    whose names begin with `safepoint.` (`spoken`). Times are as they were; of several hosts they are those of the day.
(2) One of others says less, and `strangers` says what: the remarks name each thing that cannot be known.
(3) An export that is killed leaves no archive under its name: it is written beside, and renamed when it is whole.
"""

from __future__ import annotations

import importlib
import json
import os
import shutil
import struct
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from safepoint.errors import UsageError
from safepoint.matching import reading, spoken, strangers
from safepoint.matching.matched import NONE
from safepoint.matching.objects import Calls, identified
from safepoint.matching.reading import Rank, Trace
from safepoint.matching.spoken import FIELDS, Note, Row, Spoken
from safepoint.matching.stored import NOTES, Stored, TraceError, put
from safepoint.matching.symbols import Site
from safepoint.trace import record, roles
from safepoint.trace.known import ranges

ANCHOR, HEAD = "traces.otf2", b"\x03BOTF2"  # with what each anchor file begins
PREFIX = "safepoint."
ABOUT, OBJECT, MORE, SITE, NUMBER = (PREFIX + name for name in ("rank", "object ", "more", "site", "note"))
RESOLUTION = 10**9  # ticks a second


def package(why: str) -> Any:
    """The package `otf2`. Raises `UsageError`."""
    try:
        return importlib.import_module("otf2")
    except ImportError as error:
        raise UsageError(f"{why} needs the otf2 package: pip install otf2") from error


def anchor(path: Path) -> Path | None:
    """The anchor file that is meant; None: this is no archive."""
    if path.suffix == ".otf2" and not path.is_dir():
        return path
    return path / ANCHOR if (path / ANCHOR).is_file() else None


# Out.


def export(trace: Path, out: Path, own: bool = True) -> Path:
    """Write an archive: `out` is made. Its anchor file. Raises `UsageError`, `TraceError`.

    Without `own` nothing is written but what OTF2 has events for, as another tool would have written.
    """
    otf2 = package("safepoint trace --export-otf2")
    if os.path.lexists(out):
        raise UsageError(f"{out} is there already: remove it, or name another")
    read, abouts = reading.read(trace), reading.ranks_of(trace)
    try:
        beside = Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.parent))
    except OSError as error:
        raise UsageError(f"{out}: {error.strerror}") from error
    try:
        with otf2.writer.open(str(beside / "archive"), ANCHOR[:-5], timer_resolution=RESOLUTION) as archive:
            archive.creator = "safepoint"
            Export(otf2, archive, read, abouts, own).all()
        os.rename(beside / "archive", out)
    except (OSError, OverflowError, UnicodeError, otf2.writer._otf2.Error) as error:
        raise UsageError(f"{out}: it could not be written: {error}") from error
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    return out / ANCHOR


class Export:
    """One archive that is being written."""

    def __init__(self, otf2: Any, archive: Any, trace: Trace, abouts: list[dict[str, Any]], own: bool) -> None:
        self.otf2, self.archive, self.trace, self.own = otf2, archive, trace, own
        self.abouts = {int(about["rank"]): about for about in abouts}
        self.define, self.calls = archive.definitions, Calls(trace)
        self.things = identified(self.calls)
        self.attributes = {
            name: self.define.attribute(PREFIX + name, type=getattr(otf2.Type, "UINT64" if unsigned else "INT64"))
            for name, unsigned in ((name, name in ("enter", "leave", "bytes")) for name in FIELDS)
        }
        self.site = self.define.attribute(SITE, type=otf2.Type.CALLING_CONTEXT)
        self.number = self.define.attribute(NUMBER, type=otf2.Type.INT64)
        self.more = self.define.parameter(MORE, otf2.ParameterType.INT64)
        self.regions: dict[str, Any] = {}
        self.contexts: dict[Site, Any] = {}

    def all(self) -> None:
        node = self.define.system_tree_node("machine", class_name="machine")
        self.groups = [
            self.define.location_group(f"MPI Rank {rank}", system_tree_parent=node) for rank in range(self.trace.size)
        ]
        self.main = [self.define.location("thread 0", group=group) for group in self.groups]
        self.refs = self._things()
        clocks = {rank.clock for rank in self.trace.ranks}
        for at, rank in enumerate(self.trace.ranks):
            shift = rank.began[1] - rank.began[0] if len(clocks) > 1 else 0
            self._rank(at, rank, shift)

    def _things(self) -> dict[int, Any]:
        """Definitions of communicators and windows, by their numbers across ranks."""
        otf2, define, found = self.otf2, self.define, dict[int, Any]()
        mpi, kinds = otf2.Paradigm.MPI, otf2.GroupType
        define.groups.create("ranks", kinds.COMM_LOCATIONS, mpi, members=tuple(self.main))
        own = define.groups.create("self", kinds.COMM_SELF, mpi, members=())
        parents = dict[int, int]()
        for number, (_, thing) in enumerate(self.calls.things()):
            across = int(self.things.across[number])
            plain = not thing.remote and not thing.outside and bool(thing.members)
            if across in found or across in parents or not plain:
                continue
            name = self.things.names[across]
            if thing.kind == "win" and self.things.made[number] != NONE:
                parents[across] = int(self.things.across[self.calls.thing[self.things.made[number]]])
            elif thing.kind == "comm":
                members = tuple(self.main[rank] for rank in _ranks(thing.members))
                group = own if across == 1 else define.groups.create(name, kinds.COMM_GROUP, mpi, members=members)
                found[across] = define.comms.create(name, group, _type=otf2.definitions.Comm)
        for across, parent in parents.items():
            if parent in found:
                found[across] = define.rma_wins.create(self.things.names[across], found[parent])
        return found

    def _rank(self, at: int, rank: Rank, shift: int) -> None:
        first = int(self.calls.first_thing[at])
        across = self.things.across[first : first + len(rank.things)].tolist()
        refs = {number: self.refs[one] for number, one in enumerate(across, 1) if one in self.refs}
        calls, notes = list(_calls(self.trace, rank, shift)), list(_notes(rank, shift))
        spoken.spoken(calls, notes, set(refs))
        if self.own:
            self._say(rank, refs, shift)
        threads = {thread: self._thread(rank.rank, thread) for thread in sorted({call.thread for call in calls} | {0})}
        ends: dict[int, int] = defaultdict(int)
        for number, call in enumerate(calls):
            own = {self.attributes[name]: value for name, value in call.own.items()} if self.own else {}
            if self.own and len(threads) > 1:
                own[self.number] = number
            self._call(threads[call.thread], call, own, refs)
            ends[call.thread] = call.leave or call.enter

    def _thread(self, rank: int, thread: int) -> Any:
        where = self.define.location(f"thread {thread}", group=self.groups[rank]) if thread else self.main[rank]
        return self.archive.event_writer_from_location(where)

    def _say(self, rank: Rank, refs: dict[int, Any], shift: int) -> None:
        """What is known of a rank, and of its communicators, windows and files."""
        about, group = {**self.abouts[rank.rank], "told": rank.told}, self.groups[rank.rank]
        about["begin"] = [time + shift * (number == 0) for number, time in enumerate(rank.began)]
        lines = {ABOUT: about}
        for number, thing in enumerate(rank.things, 1):
            line = thing._asdict() | {"members": ranges(_ranks(thing.members)), "remote": ranges(_ranks(thing.remote))}
            if number in refs:
                line["ref"] = refs[number]._ref
            lines[f"{OBJECT}{number}"] = line
        for name, line in lines.items():
            self.define.location_group_properties.create(group, name, self.otf2.Type.STRING, json.dumps(line))

    def _region(self, function: str) -> Any:
        if function not in self.regions:
            ours = spoken.kind_of(function) == "ours" or function == spoken.NOTHING
            paradigm = self.otf2.Paradigm.USER if ours else self.otf2.Paradigm.MPI
            name = (PREFIX if ours else "MPI_") + function
            self.regions[function] = self.define.region(name, paradigm=paradigm)
        return self.regions[function]

    def _context(self, site: Site) -> Any:
        if site not in self.contexts:
            region = self.define.region(site.function or "?", source_file=site.file or "?")
            where = self.define.source_code_location(site.file or "?", site.line)
            self.contexts[site] = self.define.calling_contexts.create(region, where, None)
        return self.contexts[site]

    def _call(self, thread: Any, call: Spoken, own: dict[Any, Any], refs: dict[int, Any]) -> None:
        events, region = self.otf2.events, self._region(call.function)
        if call.site.file:
            own[self.site] = self._context(call.site)
        thread.write(events.Enter(call.enter, region, own or None))
        time = call.enter if call.leave is None else call.leave
        for name, *values in call.events:
            begins = name in ("MpiSend", "MpiIsend", "MpiCollectiveBegin", "RmaCollectiveBegin")
            words = _otf2_words(self.otf2, name, values, refs)
            thread.write(getattr(events, name)(call.enter if begins else time, *words))
        for value in call.row if self.own else ():
            thread.write(events.ParameterInt(time, self.more, value))
        if call.leave is not None:
            thread.write(events.Leave(call.leave, region))


def _otf2_words(otf2: Any, name: str, values: list[Any], refs: dict[int, Any]) -> list[Any]:
    """The arguments of an event."""
    if name in ("MpiCollectiveEnd", "NonBlockingCollectiveComplete"):
        return [getattr(otf2.CollectiveOp, values[0]), refs[values[1]], *values[2:]]
    if name == "RmaCollectiveEnd":
        level = otf2.RmaSyncLevel.MEMORY
        return [getattr(otf2.CollectiveOp, values[0]), level, refs[values[1]], spoken.NO_ROOT, 0, 0]
    if name in ("MpiSend", "MpiIsend", "MpiRecv", "MpiIrecv"):
        return [values[0], refs[values[1]], *values[2:]]
    if name in ("RmaAcquireLock", "RmaReleaseLock"):
        return [refs[values[0]], values[1], 0, *([otf2.LockType.EXCLUSIVE] if name == "RmaAcquireLock" else [])]
    return [refs[values[0]], *values[1:]] if name.startswith("Rma") and values else values


def _calls(trace: Trace, rank: Rank, shift: int) -> Iterator[Spoken]:
    """Without their events. Times never go back in a thread, as OTF2 wants it."""
    last: dict[int, int] = defaultdict(int)
    notes = rank.notes
    columns = (rank.functions[notes["function"]], rank.sites[notes["site"]], notes["thread"], notes["enter"],
               notes["leave"], notes["state"])  # fmt: skip
    for function, site, thread, enter, leave, state in zip(*(column.tolist() for column in columns), strict=True):
        begin = max(last[thread], enter + shift if enter else 0)
        end = None if state == record.ENTERED else max(begin, leave + shift if leave else 0)
        last[thread] = begin if end is None else end
        name = trace.functions[function] if state != record.EMPTY else spoken.NOTHING
        yield Spoken(name, thread, begin, end, trace.sites[site])


def _notes(rank: Rank, shift: int) -> Iterator[tuple[Note, Row]]:
    columns = zip(*(rank.notes[name].tolist() for name in (*FIELDS, "more")), strict=True)
    words = rank.more
    for *values, more in columns:
        note = dict(zip(FIELDS, values, strict=True))
        for name in ("enter", "leave"):
            note[name] += shift if note[name] else 0
        row = tuple(words[more + 2 : more + 3 + int(words[more])].tolist()) if more else ()
        yield note, row


def _ranks(spans: reading.Spans) -> list[int]:
    return [rank for first, count in spans for rank in range(first, first + count)]


# In.


def read(path: Path) -> Trace:
    """The trace that an archive is. Raises `TraceError`, `UsageError`."""
    try:
        with path.open("rb") as file:
            if file.read(len(HEAD)) != HEAD:
                raise TraceError(f"{path} is no anchor file of an OTF2 archive")
    except OSError as error:
        raise TraceError(f"{path}: {error.strerror}", error.errno) from error
    otf2 = package("An OTF2 archive")
    with tempfile.TemporaryDirectory(prefix="safepoint-otf2-") as made:
        directory = Path(made)
        try:
            with otf2.reader.open(str(path)) as archive:
                remarks = _unpack(otf2, archive, directory, path)
        except (otf2.reader._otf2.Error, otf2.reader.TraceReaderError, AssertionError, AttributeError, LookupError,
                OSError, OverflowError, RecursionError, TypeError, ValueError, struct.error) as error:  # fmt: skip
            raise TraceError(f"{path} cannot be read as OTF2: {error or type(error).__name__}") from error
        try:
            trace = reading.read(directory)
        except TraceError as error:
            raise TraceError(str(error).replace(made, str(path))) from error
    return trace._replace(remarks=[*remarks, *trace.remarks])


def _unpack(otf2: Any, archive: Any, directory: Path, path: Path) -> list[str]:
    """Write the trace; what is to be said of it."""
    ranks = strangers.ranks(otf2, archive)
    calls, torn = strangers.calls(archive, ranks, PREFIX)
    if torn:
        raise ValueError(f"{torn:,} of its events are missing: it is torn, or of a newer version than the otf2 package")
    ours = {rank: _told(group) for rank, group in enumerate(ranks.groups)}
    others: dict[str, int] = {}
    told = {rank: one for rank, one in ours.items() if one}
    if told:
        remarks, files = [], ((rank, about, objects) for rank, (about, objects) in told.items())
    else:
        about = {"argv": [path.name], "host": path.name, "tracer": "otf2", "ended": "exit"}
        remarks = strangers.understood(archive, calls)
        files = ((rank, about, objects) for rank, objects in enumerate(strangers.things(archive, ranks)))
    for rank, about, objects in files:
        _named_by(calls[rank], objects)
        _put(directory, (rank, ranks.size), about, calls[rank], [line for line, _ in objects], others, not told)
    names = {number: name for name, number in others.items()}
    (directory / "functions-otf2.json").write_text(json.dumps(roles.functions(names)))
    return remarks


def _told(group: Any) -> tuple[dict[str, Any], list[tuple[dict[str, Any], Any]]] | None:
    """What an archive of ours says of a rank; with each communicator, window or file the number of its definition."""
    texts = {name: one.value for name, one in group._properties.items()} if group else {}
    if ABOUT not in texts:
        return None
    objects = list[tuple[dict[str, Any], Any]]()
    while text := texts.get(f"{OBJECT}{len(objects) + 1}"):
        line = dict(json.loads(text))
        objects.append((line, (line["kind"], line.pop("ref", None))))
    return dict(json.loads(texts[ABOUT])), objects


def _named_by(calls: Iterable[Spoken], objects: list[tuple[dict[str, Any], Any]]) -> None:
    """In the events numbers of this rank, instead of definitions."""
    numbers = {ref: number for number, (_, ref) in enumerate(objects, 1)}
    for call in calls:
        call.own = {name: numbers[word] if isinstance(word, tuple) else word for name, word in call.own.items()}
        call.events = [tuple(numbers[word] if isinstance(word, tuple) else word for word in event)
                       for event in call.events]  # fmt: skip


def _put(
    directory: Path, who: tuple[int, int], about: dict[str, Any], calls: list[Spoken], objects: list[dict[str, Any]],
    others: dict[str, int], wild: bool,
) -> None:  # fmt: skip
    """The files of a rank. `who`: which of how many."""
    notes, more, sites = list[tuple[int, ...]](), [0, 0, 0], dict[Site, int]()
    for number, (call, (note, row)) in enumerate(zip(calls, spoken.heard(calls), strict=True)):
        if wild:
            strangers.widen(call.function, note)
        note |= {"thread": call.thread, "site": 0, "function": 0, "more": len(more) if row else 0}
        if call.site.file:
            note["site"] = sites.setdefault(call.site, len(sites) + 1)
        if note["state"] != record.EMPTY:
            note["function"] = _number(call.function, others)
        if row:
            more += [len(row) - 1, number, *row]
        notes.append(tuple(note[name] for name in record.FIELDS))
    about = {"begin": [0, 0], "boot": "", **about, "format": record.FORMAT, "rank": who[0], "size": who[1]}
    lines = [f"py\t{site.file}\t{site.line}\t{site.function}\n" for site in sites]
    texts = "".join(lines), "".join(json.dumps(line) + "\n" for line in objects)
    of = Stored(np.array(notes, NOTES), np.array(more, "<i8"), about.pop("told", len(notes)))
    put(directory, about | {"functions": "functions-otf2.json"}, of, texts)


_KNOWN = {name: number for number, name in roles.OURS.items()} | roles.NUMBERS


def _number(function: str, others: dict[str, int]) -> int:
    return _KNOWN.get(function) or others.setdefault(function, roles.FIRST_OTHER + len(others))
