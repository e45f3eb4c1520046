"""Follows all ranks of a trace, while they run or afterwards, and gives their calls to the templates.

What is found does not depend on when a rank is heard: each template has the calls of a rank in their order (`streams`).
"""

from __future__ import annotations

import gc
import heapq
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from safepoint import words
from safepoint.check.call import Call, Token, Value
from safepoint.check.files import TraceError, ranks, read_json
from safepoint.check.named import Thing
from safepoint.check.nested import Nested
from safepoint.check.noted import Noted
from safepoint.check.rows import Matcher
from safepoint.check.situations import Situation
from safepoint.check.streams import Stream, by_function
from safepoint.check.tail import PART, Tail
from safepoint.check.tail import Noted as Note
from safepoint.check.template import Template
from safepoint.check.translated import Translator
from safepoint.matching.symbols import Site
from safepoint.trace import record
from safepoint.trace.known import ranges

# Of a trace that has no constants: numbers that its notes have instead.
PLAIN = {
    "MPI_ANY_SOURCE": record.ANY_SOURCE, "MPI_PROC_NULL": record.PROC_NULL, "MPI_ROOT": record.ROOT,
    "MPI_ANY_TAG": record.ANY_TAG, "MPI_COMM_WORLD": record.WORLD, "MPI_COMM_SELF": record.SELF,
}  # fmt: skip
ENDED = "ended.json"  # in the directory of the trace: how the program ended, and which ranks died
HUNG = "hang"  # in the directory of the trace: what was said of a program that stood still
OBJECTS = 100_000  # new ones, before the cyclic garbage is collected
DIED, HANGS = "died", "hangs"
STUCK = 500_000_000  # ns inside of a call, after which it is judged with what is known


class Follower:
    """All ranks of a run."""

    def __init__(self, templates: Sequence[Template]) -> None:
        self._templates, self._of = templates, {one.id: one for one in templates}
        self.cut_short = 0  # situations that are none, as far as anybody knows
        self.ranks: dict[int, OfRank] = {}
        self.size = 0  # of MPI_COMM_WORLD; 0: nobody has begun
        self.streams: list[Stream] = []
        self._wanted: dict[str, list[Stream]] = {}
        self._members: dict[Token, frozenset[int]] = {}
        self.calls = 0

    def feed(self, tail: Tail, notes: Iterable[Note]) -> list[Situation]:
        """Notes of a rank, as its tail has given them; the situations that they make."""
        of_rank = self.ranks.get(tail.rank)
        if of_rank is None:
            of_rank = self.ranks[tail.rank] = OfRank(tail, self._members)
            self._begin(tail)
        found = []
        for call in of_rank.calls(notes):
            self.calls += 1
            found += self._offer(call)
        for stream in self.streams:
            found += stream.settled(tail.rank)
        return found

    def _begin(self, tail: Tail) -> None:
        size = int(tail.about["size"])
        if self.size and size != self.size:
            raise TraceError(f"{tail.name}: the trace is of {self.size} ranks, and this one says {size}")
        if not self.size:
            self.size = size
            self.streams = [Stream(one, Matcher(one, size, self._of_comm)) for one in self._templates]
            self._wanted = by_function(self.streams)

    def _of_comm(self, value: Value) -> frozenset[int] | None:
        """The members of a communicator."""
        return next((self._members[token] for token in value.across if token in self._members), None)

    def _offer(self, call: Call) -> list[Situation]:
        streams, shape = self._wanted.get(call.function, ()), call.shape
        if shape is not None and not call.wild:
            if shape.concerned is None:
                shape.concerned = [(one, one.waits_on(call), one.matcher, one.matcher.take_of(call))
                                   for one in streams if one.matcher.concerns(call)]  # fmt: skip
            found: list[Situation] = []
            ready = not (call.pending or call.dropped)
            for stream, rows, matcher, take in shape.concerned:
                if rows is not None and not any(rows):
                    continue
                if ready and take is not None and stream.free and matcher.plain:  # most are so
                    if some := take(call):
                        found += matcher.told(some)
                else:
                    found += stream.offer(call)
            return found
        return [one for stream in streams for one in stream.offer(call)]

    def stuck(self, now: int) -> list[Situation]:
        """Calls in which ranks are since long are judged with what is known. `now`: ns of the clock of the notes."""
        found = []
        for of_rank in self.ranks.values():
            for call in of_rank.over(now - STUCK):
                found += self._offer(call)
            for stream in self.streams:
                found += stream.settled(of_rank.rank)
                found += stream.stuck(of_rank.rank, now - STUCK) if of_rank.inside else ()
        return found

    def ended(self, rank: int, died: bool, alone: bool = False) -> list[Situation]:
        """This process makes no more calls: all of it is judged. `died`: inside of the calls that it was in. `alone`:
        not with those of others."""
        of_rank = self.ranks.get(rank)
        if of_rank is None or of_rank.ended:
            return []
        found = []
        for call in of_rank.end(died):
            found += self._offer(call)
        streams = [one for one in self.streams if one.template.local or not alone]
        return [*found, *(one for stream in streams for one in stream.ended(rank))]

    def finish(self, hung: bool, lost: frozenset[int] = frozenset()) -> list[Situation]:
        """The final pass, over all that was fed. `hung`: ranks wait where they are inside; else they died there.
        `lost`: of these ranks not all was fed. What they have not done is not known: each other rank is judged by
        itself alone."""
        found = []
        for rank in range(self.size):
            if rank not in lost:
                found += self.ended(rank, died=not hung, alone=bool(lost))
        found += [] if lost else [one for stream in self.streams for one in stream.finish()]
        kept = [one for one in found if not self._cut_short(one)]
        self.cut_short += len(found) - len(kept)
        return kept

    def _cut_short(self, one: Situation) -> bool:
        """What is not called in it would have had to be called by ranks that have died before their ends. What these
        would still have done nobody knows: the program was ended, or something else is wrong with it."""
        fates, template = self.fates(), self._of[one.template]
        return any(
            cell.call is None and cell.ranks and all(fates.get(rank) == DIED for rank in cell.ranks)
            and template.open_end(cell.function, cell.process)
            for cell in one.cells
        )  # fmt: skip

    def unheard(self) -> list[int]:
        """Ranks of the world of which nothing was fed."""
        return [rank for rank in range(self.size) if rank not in self.ranks]

    def remarks(self) -> list[str]:
        """What was not looked at."""
        found = []
        if self.cut_short:
            died = sorted(rank for rank, fate in self.fates().items() if fate == DIED)
            what = words.count(self.cut_short, "situation")
            found.append(
                f"{what} not told, of what rank{'s' * (len(died) > 1)} {ranges(died)} had not called before death: "
                "nobody knows what would still have come"
            )
        for stream in self.streams:
            found += [f"{stream.template.id}: {text}" for text in stream.matcher.remarks]
            if stream.forced:
                what = words.count(stream.forced, "call")
                found.append(f"{stream.template.id}: {what} judged before it was known what came")
        return found

    def fates(self) -> dict[int, str]:
        """Of ranks that have not come to their ends."""
        return {rank: one.fate for rank, one in self.ranks.items() if one.fate}

    def site(self, call: Call) -> Site:
        return self.ranks[call.rank].tail.named.site(call.site)

    @property
    def plain(self) -> bool:
        """It is a trace of `safepoint trace`, which knows no arguments."""
        return any(not of_rank.tail.named.constants for of_rank in self.ranks.values())

    @property
    def cwd(self) -> str:
        return next((str(of_rank.tail.about["cwd"]) for of_rank in self.ranks.values()), "")


def never_heard(some: Sequence[int]) -> str:
    """Why there may be nothing of these ranks."""
    who = f"rank{'s' * (len(some) > 1)} {ranges(list(some))}"
    return (
        f"nothing has come of {who}: no call of theirs was noted, or their node has no space for a trace, or could not "
        "reach this one"
    )


def afterwards(directory: Path, templates: Sequence[Template]) -> tuple[Follower, list[Situation], list[str]]:
    """All of a trace that is there; and what is missing of it. Raises `TraceError`."""
    follower, found = Follower(templates), list[Situation]()
    with seldom_collected():
        tails = [Tail(directory, rank) for rank in ranks(directory)]
        for tail, notes in _in_turns(tails):
            found += follower.feed(tail, notes)
        lost = {tail.rank: why for tail in tails if (why := str(tail.about.get("incomplete") or tail.stopped))}
        unheard = follower.unheard()
        missing = [*dict.fromkeys(lost.values()), *([never_heard(unheard)] if unheard else ())]
        hung = (directory / HUNG).exists()
        return follower, [*found, *follower.finish(hung, frozenset(lost) | frozenset(unheard))], missing


def how_it_ended(directory: Path) -> tuple[int, list[str], bool]:
    """Of a run that was checked: the program's code, what was said of ranks that died, and whether it was ended because
    it stood still. Of another trace 0, none, no. Raises `TraceError`."""
    path = directory / ENDED
    if not path.exists():
        return 0, [], False
    found = read_json(path)
    code, deaths = found.get("code"), found.get("deaths")
    if type(code) is not int or not isinstance(deaths, list) or not all(isinstance(one, str) for one in deaths):
        raise TraceError(f"{path} is not what is said of a program that has ended")
    return code, deaths, found.get("by_us") is True


@contextmanager
def seldom_collected() -> Iterator[None]:
    """Rows and calls are freed as they are let go, as nothing that is closed refers to itself: to look for what does
    after each 700 new objects would take a tenth of the time."""
    before = gc.get_threshold()
    gc.set_threshold(OBJECTS, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


def _in_turns(tails: Sequence[Tail]) -> Iterator[tuple[Tail, list[Note]]]:
    """All notes of all ranks, a part of that which is least far in its time after the other. What waits for its
    counterpart in another rank waits for a short time so, and needs memory for as long."""
    line = [(0, tail.rank, tail) for tail in tails]
    heapq.heapify(line)
    began: dict[int, int] = {}
    while line:
        _, rank, tail = line[0]
        notes = tail.read(PART)
        if notes:
            yield tail, notes
            heapq.heapreplace(line, (notes[-1].enter - began.setdefault(rank, notes[0].enter), rank, tail))
        else:
            heapq.heappop(line)


class OfRank:
    """One of them."""

    def __init__(self, tail: Tail, members: dict[Token, frozenset[int]]) -> None:
        self.tail, self.rank, self._members = tail, tail.rank, members
        self._translator: Translator | None = None
        self._things: dict[int, tuple[int, Thing]] = {}
        self._known = 0
        self._nested = Nested()
        self.inside: dict[int, Noted] = {}  # calls that have not returned
        self.ended, self.fate = False, ""  # fate: DIED, HANGS; it has come to its end
        self._last = ""  # function

    def calls(self, notes: Iterable[Note]) -> Iterator[Call]:
        """Those that these notes are."""
        named = self.tail.named
        for number, thing in enumerate(named.things[self._known :], self._known + 1):
            if thing.note >= 0:
                self._things[thing.note] = number, thing
        self._known = len(named.things)
        if self._translator is None:
            constants = named.constants or PLAIN
            self._translator = Translator(self.rank, self.tail.about["size"], constants, self._members)
        functions, inside, make, things = named.functions, self.inside, tuple.__new__, self._things
        for note in notes:
            number, enter, leave, site, function = note[:5]
            noted = make(Noted, (number, functions[function][0], enter, leave, site, *note[5:13], *note[14:]))
            if noted.state == record.ENTERED:
                inside[number] = noted
            elif inside:
                inside.pop(number, None)
            self._last = noted.function
            for one in self._nested.ordered(noted):
                yield from self._translator.calls(one, things)

    def _translated(self, notes: Iterable[Noted]) -> Iterator[Call]:
        for noted in notes:
            if self._translator is not None:
                yield from self._translator.calls(noted, self._things)

    def over(self, now: int) -> Iterator[Call]:
        """Those that were waiting for calls inside of them, and had returned by then."""
        return self._translated(self._nested.over(now))

    def end(self, died: bool) -> list[Call]:
        """There will be no more."""
        self.ended = True
        self.tail.look()
        ends = bool(self.tail.about["ended"])  # at the exit of Python nobody may see Finalize return
        if any(one.function != "Finalize" or not ends for one in self.inside.values()):
            self.fate = DIED if died else HANGS
        elif self._last == "Abort" or (not self.tail.about["ended"] and self._last != "Finalize"):
            self.fate = DIED
        if str(self.tail.about["ended"] or "").startswith("exception"):
            self.fate = DIED  # of an exception; MPI_Finalize may have come after it
        broken = str(self.tail.about["ended"] or "").startswith("exception")
        held = list(self._translated(self._nested.rest()))
        return [*held, *(self._translator.end(died, broken) if self._translator is not None else ())]
