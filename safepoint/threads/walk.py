"""Walk through the trace of a run, region visit by region visit, as far as it goes.

(1) Only whole region visits are handed out: when the first thread has recorded REGION_END, all others have left.
(2) A trace that was cut is known up to its last whole visit; of the next one some threads may say more than others.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from safepoint.errors import FormatError
from safepoint.threads import kinds
from safepoint.threads.canon import CHUNK, Blocks, Canon, canon, marks
from safepoint.threads.trace import RECORD, Run, Thread

_FRAMES = np.zeros(256, bool)
_FRAMES[[kinds.REGION, kinds.REGION_END, kinds.ENTER, kinds.LEAVE]] = True
_TORN = 16  # records by which the end of a thread that found no room may lie before the end of a segment


class Block(NamedTuple):
    """The records of a thread of a team from after ENTER to before LEAVE, or to the end of the trace."""

    visit: int
    file: int
    team: int
    first: int
    end: int


class Log:
    """A thread's file: its records by number, and its blocks that were found so far."""

    def __init__(self, run: Run, thread: Thread, file: int) -> None:
        self.run, self.thread, self.file = run, thread, file
        self.records: NDArray[Any] = np.zeros(0, RECORD)
        self.end = self.scanned = 0  # records known, and of these looked through
        self.open: list[tuple[int, int, int]] = []  # visit, team, first record
        self.blocks: list[Block] = []  # of outermost visits, not yet handed out
        self.oldest = self.newest = 0  # outermost visits that were entered
        self.left = 0  # outermost visit that was left last
        self.regions: list[tuple[int, int, int]] = []  # record, kind, visit: REGION and REGION_END outside of all
        self._counted = (0, 0)  # records, and the events in these

    def look(self) -> bool:
        """Look for more records; True if there are."""
        tail = self.thread.since(self.end)
        if len(tail):
            self.end += len(tail)
            mapped = np.memmap(self.thread.path, RECORD, "r", kinds.HEAD, (self.end,))
            self.records = mapped.view(np.ndarray)
        return len(tail) > 0

    def scan(self, nested: dict[int, list[Block]]) -> bool:
        """Look through the next chunk for what begins and ends regions; False at the end."""
        if self.scanned >= self.end:
            return False
        end = min(self.scanned + CHUNK, self.end)
        self._check(end)
        kind_of = self.records["kind"]
        for at in marks(kind_of, self.scanned, end, _FRAMES).tolist():
            _, extra, _, kind, visit = self.records[at].item()
            if kind == kinds.ENTER:
                self.open.append((visit, extra, at + 1))
                if visit < kinds.NESTED:
                    self.oldest, self.newest = self.oldest or visit, visit
            elif kind == kinds.LEAVE and self.open:
                self._leave(*self.open.pop(), at, nested)
            elif kind != kinds.LEAVE and not self.open and visit < kinds.NESTED:
                self.regions.append((at, kind, visit))
        self.scanned = end
        return True

    def _check(self, end: int) -> None:
        """Raise `FormatError` if the next chunk names a place that is in no table: what is loose is not known then."""
        most, known = int(self.records["site"][self.scanned : end].max()), max(self.run.sites.by_number, default=0)
        if most > known:
            raise FormatError(
                f"{self.run.directory / 'sites.jsonl'}: cut, or of another program: it has {known} places, and "
                f"{self.thread.path.name} has events of number {most}"
            )

    def _leave(self, visit: int, team: int, first: int, end: int, nested: dict[int, list[Block]]) -> None:
        block = Block(visit, self.file, team, first, end)
        if visit >= kinds.NESTED:
            nested[visit].append(block)
        else:
            self.left = visit
            self.blocks.append(block)

    def line(self, record: int) -> int:
        """The how manieth event of its thread a record is, from 1."""
        known, events = self._counted if self._counted[0] <= record else (0, 0)
        for at in range(known, record, CHUNK):
            events += int(np.count_nonzero(self.records["kind"][at : min(at + CHUNK, record)] != kinds.MORE))
        return events + 1

    def counted(self, record: int) -> None:
        """What lies before this record may be discarded: keep the number of its events."""
        self._counted = (record, self.line(record) - 1)


class Batch(NamedTuple):
    """Some region visits of a run, with what the first thread did between them."""

    visits: list[int]
    blocks: Blocks
    between: list[tuple[int, int]]

    def canon(self, side: Side) -> Canon:
        return canon([log.records for log in side.logs], self.blocks, self.between, len(self.visits))


class Side:
    """One of the two runs. `goes_on`: its program may still write."""

    def __init__(self, run: Run, name: str, goes_on: bool = False) -> None:
        self.run, self.name, self.goes_on = run, name, goes_on
        self.logs = [Log(run, thread, number) for number, thread in enumerate(run.threads)]
        self.nested: dict[int, list[Block]] = defaultdict(list)
        self.used: set[int] = set()  # nested visits that were compared
        self.ended = 0  # regions in the batches before this one
        self.taken = 0  # records of the first thread in all batches
        self.region_marks: list[tuple[int, int, int]] = []  # of the batch at hand
        self.ended_before = 0
        self.inside: set[int] = set()  # files that end in a region
        self.before = self._last = (0, 0)  # visit and site of the last region of the batch before, and of this one
        self.look()

    @property
    def main(self) -> Log | None:
        return self.logs[0] if self.logs else None

    @property
    def cut(self) -> str:
        """Why the trace may lack its end; empty if it does not."""
        about = self.run.about
        if about.get("stopped"):
            return f"the recording of {self.name} was stopped: {about['stopped']}"
        if about.get("ended") is None:
            return f"the trace of {self.name} has no end: its program was killed, or still runs"
        return ""

    @property
    def edges(self) -> int | None:
        """So many iterations from each end of a loop were recorded; None: all."""
        found = self.run.about.get("edges")
        return None if found is None else int(found)

    def look(self) -> bool:
        """Look for new threads and records. The first thread first: all that it waited for is there then."""
        more = [log.look() for log in self.logs[:1]]
        if self.goes_on:
            self.run.late()
        known = {log.thread.path for log in self.logs}
        self.logs += [
            Log(self.run, thread, len(self.logs) + number)
            for number, thread in enumerate(thread for thread in self.run.threads if thread.path not in known)
        ]
        return any([*more, *[log.look() for log in self.logs[1:]]])

    def whole(self) -> int:
        """The last region visit that is known as a whole, or one before it that ends a chunk; 0: there is none."""
        if self.main is None:
            return 0
        limit = self._limit()
        while True:
            ends = [visit for _, kind, visit in self.main.regions if kind == kinds.REGION_END and visit <= limit]
            if (ends and self.main.scanned - self.taken >= CHUNK) or not self.main.scan(self.nested):
                return ends[-1] if ends else 0

    def _limit(self) -> int:
        """Of a recording that was stopped: the last visit that no thread lacks for want of room. A thread that got no
        file came when the last one that has one had come, or later."""
        limit, per_segment = kinds.NESTED, kinds.SEGMENT // kinds.RECORD
        if not self.run.about.get("stopped"):
            return limit
        for log in self.logs[1:]:
            while log.scan(self.nested):
                pass
            if (log.end + kinds.HEAD // kinds.RECORD + _TORN) % per_segment <= _TORN:
                limit = min(limit, log.left)
        written = [log for log in self.logs if log.end]
        if len(written) < max(len(self.logs), int(self.run.about.get("threads") or 0)):
            last = max((log.oldest for log in written[1:]), default=1)
            limit = min(limit, max(last, 1) - 1)
        return limit

    def end_of(self, visit: int) -> int | None:
        """The record after the REGION_END of a visit; None if that is not there."""
        for at, kind, number in self.main.regions if self.main else []:
            if kind == kinds.REGION_END and number == visit:
                return at + 1
        return None

    def reach(self, visit: int) -> bool:
        """Look as far as the end of this region visit; False if the trace does not go so far."""
        while self.end_of(visit) is None:
            if self.main is None or not self.main.scan(self.nested):
                return False
        return visit <= self._limit()

    def next(self) -> int | None:
        """The first whole visit that was not handed out, of those that were found."""
        ends = [visit for _, kind, visit in self.main.regions if kind == kinds.REGION_END] if self.main else []
        return ends[0] if ends else None

    def done(self, log: Log) -> int:
        """The first record of a thread that may be needed again."""
        needed = [block.first for block in log.blocks] + [first for _, _, first in log.open]
        needed += [block.first for blocks in self.nested.values() for block in blocks if block.file == log.file]
        first = min(needed) - 1 if needed else log.scanned
        return min(first, self.taken) if log is self.main else first

    def forget(self) -> None:
        """The nested visits that were compared are not needed again."""
        for visit in self.used:
            self.nested.pop(visit, None)
        self.used.clear()

    def take(self, upto: int | None) -> Batch:
        """All from where the last batch ended up to the end of this region visit, or of what there is."""
        end = None if upto is None else self.end_of(upto)
        last = kinds.NESTED if end is None or upto is None else upto
        if not self.logs:
            return Batch([], _blocks([]), [(0, 0)])
        main = self.logs[0]
        for log in self.logs if end is None else self.logs[1:]:
            while log.newest <= last and log.scan(self.nested):
                pass
        end = main.end if end is None else end
        blocks = [block for log in self.logs for block in log.blocks if block.visit <= last]
        for log in self.logs:
            log.blocks = [block for block in log.blocks if block.visit > last]
            stopped = self.run.about.get("stopped") and log.scanned >= log.end  # in a visit that goes on without it
            if last == kinds.NESTED or (stopped and log.open and log.open[0][0] <= last):
                blocks += self._open(log)
        own = sorted(block for block in blocks if block.file == 0)
        edges = [self.taken, *(edge for block in own for edge in (block.first, block.end)), end]
        self.before = self._last  # kept, as its record may be discarded by now
        known_marks = main.regions
        self.region_marks = [mark for mark in known_marks if mark[0] < end]
        main.regions = [mark for mark in known_marks if mark[0] >= end]
        if self.region_marks:
            at, _, visit = self.region_marks[-1]
            self._last = visit, int(main.records["site"][at])
        self.ended_before = self.ended
        self.ended += sum(kind == kinds.REGION_END for _, kind, _ in self.region_marks)
        self.taken = end
        visits = [block.visit for block in own]
        known = {visit: number for number, visit in enumerate(visits)}
        numbered = [(known[block.visit], block) for block in blocks if block.visit in known]
        return Batch(visits, _blocks(numbered), list(zip(edges[::2], edges[1::2], strict=True)))

    def _open(self, log: Log) -> list[Block]:
        """What was entered and not left, at the end of a trace."""
        found = [Block(visit, log.file, team, first, log.end) for visit, team, first in log.open]
        for block in found:
            if block.visit >= kinds.NESTED:
                self.nested[block.visit].append(block)
        if found:
            self.inside.add(log.file)
        log.open = []
        return [block for block in found if block.visit < kinds.NESTED]

    def inner(self, visits: list[int]) -> Batch:
        """These nested visits, in this order."""
        self.used.update(visits)
        blocks = [(number, block) for number, visit in enumerate(visits) for block in self.nested.get(visit, [])]
        return Batch(visits, _blocks(blocks), [])

    def region(self, record: int) -> tuple[int, bool, int, int]:
        """Of a record of the first thread: the region visit in which it is, or the last before it; whether it is in it;
        how many had ended before it; the site of the region."""
        number = bisect_left(self.region_marks, (record,))
        if number == len(self.region_marks) or self.region_marks[number][0] != record:
            number -= 1
        ended = self.ended_before + sum(
            kind == kinds.REGION_END for _, kind, _ in self.region_marks[: max(number + 1, 0)]
        )
        if number < 0:
            return self.before[0], False, ended, self.before[1]
        at, kind, visit = self.region_marks[number]
        return visit, kind == kinds.REGION or at == record, ended, int(self.logs[0].records["site"][at])


def _blocks(blocks: list[tuple[int, Block]]) -> Blocks:
    """As columns. Threads of one visit with the same number in the team are numbered in the order of their files."""
    blocks = sorted(blocks, key=lambda each: (each[0], each[1].file))
    teams = [block.team for _, block in blocks]
    if len({(number, block.team) for number, block in blocks}) < len(blocks):
        seen: dict[int, int] = defaultdict(int)
        for at, (number, _) in enumerate(blocks):
            teams[at] = seen[number]
            seen[number] += 1
    columns = [[block.file for _, block in blocks], teams, [block.first for _, block in blocks],
               [block.end for _, block in blocks], [number for number, _ in blocks]]  # fmt: skip
    return Blocks(*(np.array(column, np.int64) for column in columns))
