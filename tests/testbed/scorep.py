"""An OTF2 archive as Score-P writes it: regions of the program around those of MPI, and the events of MPI in them.

    with Archive(directory, 2) as archive:
        rank = archive[0]
        with rank.region("solve"):
            rank.call("MPI_Send", ("MpiSend", 1, archive.world, 5, 8))

A call takes 10 ticks, on all ranks in the order of writing. Events are classes of `otf2.events` and their arguments.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import otf2
from otf2.enums import CollectiveOp, GroupType, Paradigm

NO_ROOT = 2**32 - 1
BEGIN = ("MpiCollectiveBegin",)


class Rank:
    def __init__(self, archive: Archive, thread: Any) -> None:
        self._archive, self._thread = archive, thread

    def event(self, name: str, *values: Any) -> None:
        self._thread.write(getattr(otf2.events, name)(self._archive.tick(), *values))

    @contextlib.contextmanager
    def region(self, name: str, file: str = "solver.c", line: int = 10, leave: bool = True) -> Iterator[None]:
        known = self._archive.define.region(name, source_file=file, begin_line_number=line)
        self.event("Enter", known)
        yield
        if leave:
            self.event("Leave", known)

    def call(self, name: str, *events: tuple[Any, ...], leave: bool = True) -> None:
        with self.region(name, "MPI", 0, leave):
            for event in events:
                self.event(*event)

    def collective(self, name: str, comm: Any, op: Any = CollectiveOp.BARRIER, root: int = NO_ROOT) -> None:
        self.call(name, BEGIN, ("MpiCollectiveEnd", op, comm, root, 0, 0))


class Archive:
    """`resolution`: ticks a second. Its anchor file is `path`."""

    def __init__(self, directory: Path, size: int, resolution: int = 10**9) -> None:
        self.path = directory / "traces.otf2"
        self._writer = otf2.writer.Writer(str(directory), "traces", timer_resolution=resolution)
        self.define, self._now = self._writer.definitions, 10**6
        node = self.define.system_tree_node("node")
        self._places = [
            self.define.location("Master thread", group=self.define.location_group(f"MPI Rank {rank}",
                                                                                   system_tree_parent=node))
            for rank in range(size)
        ]  # fmt: skip
        self.define.groups.create("", GroupType.COMM_LOCATIONS, Paradigm.MPI, members=tuple(self._places))
        self.world = self.comm("MPI_COMM_WORLD", range(size))
        self._ranks = [Rank(self, self._writer.event_writer_from_location(place)) for place in self._places]

    def comm(self, name: str, members: Sequence[int]) -> Any:
        group = self.define.groups.create(name, GroupType.COMM_GROUP, Paradigm.MPI, members=tuple(members))
        return self.define.comms.create(name, group, _type=otf2.definitions.Comm)

    def tick(self) -> int:
        self._now += 10
        return self._now

    def __getitem__(self, rank: int) -> Rank:
        return self._ranks[rank]

    def __enter__(self) -> Archive:
        return self

    def __exit__(self, *error: object) -> None:
        self._writer.close()
