"""The ranks of one run, before and after it: their communicators, and what they agree on before the first vertex.

All ranks have built the same graph, so WORK names a vertex and carries neither its function nor its parameters. That it
is the same graph, that all see the directory, and whether threads may use MPI is agreed on: all ranks go on, or all
raise the same error, which names those that differ.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Mapping
from typing import Any

from xxhash import xxh3_64_intdigest

from safepoint import ranks
from safepoint.disk import kernel
from safepoint.errors import GraphError, UsageError
from safepoint.tasks import identity
from safepoint.tasks.mpi.messages import mpi

SEEN_S = 10.0  # until a file of rank 0 must be seen elsewhere: network file systems remember what was not there


class Team:
    """Duplicates of a communicator of two or more ranks: none of our messages meets one of the program. Collective."""

    def __init__(self, comm: Any, peers: ranks.Serial | ranks.Ranks) -> None:
        self.peers = peers
        self.rank, self.size = comm.Get_rank(), comm.Get_size()
        self.control, self.edges = comm.Dup(), comm.Dup()
        self.hosts: list[str] = self.control.allgather(kernel.host())
        level = int(mpi().Query_thread() >= mpi().THREAD_MULTIPLE)
        self.threads = self.peers.least(level) == (1,)

    def free(self) -> None:
        """Collective, after the last message."""
        self.control.Free()
        self.edges.Free()

    def agree(self, graph: Any, directory: Any) -> tuple[str, Mapping[str, Mapping[str, str]]]:
        """The directory of rank 0, which all see, and the parts of the identity of each vertex."""
        parts = self.peers.together(lambda: {name: identity.parts(each) for name, each in graph.vertices.items()})
        self._same(_rows(graph, parts))
        return self._seen(directory), parts

    def _same(self, rows: list[tuple[str, str]]) -> None:
        mine = xxh3_64_intdigest(repr(rows).encode()) >> 1
        least, most = self.peers.least(mine, -mine)
        if least == -most:
            return
        theirs = self.peers.share(rows, 0)
        self.peers.fail_together(None if rows == theirs else GraphError(_difference(rows, theirs)))

    def _seen(self, directory: Any) -> str:
        """Rank 0 leaves a file there; the others look for it. What these were given does not count."""
        top = self.peers.share(self.peers.together(lambda: _place(directory) if self.rank == 0 else ""), 0)
        token = self.peers.share(f"{top}/.safepoint.d/token-{uuid.uuid4().hex}", 0)
        try:
            self.peers.together(lambda: _leave(token) if self.rank == 0 else None)
            self.peers.together(lambda: _look(token, top))
        finally:
            if self.rank == 0 and os.path.exists(token):
                os.unlink(token)  # after all have looked; what a kill leaves here is an empty file
        return str(top)


def _rows(graph: Any, parts: Mapping[str, Mapping[str, str]]) -> list[tuple[str, str]]:
    """What must be the same on all ranks, a text for each vertex."""
    rows = [("", f"its name or its seed: {graph.name} {graph.seed}")]
    for name, vertex in graph.vertices.items():
        edges = [(edge.vertex.name, edge.output) for edge in vertex.edges]
        rows.append((name, f"{sorted(parts[name].items())} {edges} {vertex.keep} {vertex.head is None}"))
    return rows


def _difference(mine: list[tuple[str, str]], theirs: list[tuple[str, str]]) -> str:
    begin = "the graph is another one than on rank 0"
    for (name, row), (other, its) in zip(mine, theirs, strict=False):
        if name != other:
            return f"{begin}: it has vertex {name} where that has {other}; nothing was run"
        if row != its:
            what = f"vertex {name} differs in its function, parameters or edges" if name else f"{row}, not {its}"
            return f"{begin}: {what}; nothing was run"
    return f"{begin}: it has {len(mine) - 1} vertices, that has {len(theirs) - 1}; nothing was run"


def _place(directory: Any) -> str:
    """It must be there: one that was made here would be that of a slip of the pen, in which nothing has finished."""
    work: str = os.path.abspath(directory)
    if not os.path.isdir(work):
        raise UsageError(f"{work} is no directory, so no results can be kept below it")
    return work


def _leave(token: str) -> None:
    try:
        os.makedirs(os.path.dirname(token), exist_ok=True)
        with open(token, "x"):
            pass
    except OSError as error:
        raise UsageError(f"{token} cannot be made: {error.strerror}; nothing was run", error.errno) from error


def _look(token: str, directory: str) -> None:
    deadline = time.monotonic() + SEEN_S
    while not os.path.exists(token):
        if time.monotonic() > deadline:
            raise UsageError(
                f"{directory} is not the directory that rank 0 sees ({kernel.host()} has no {os.path.basename(token)} "
                "there): results are kept in a directory that all ranks share; nothing was run"
            )
        time.sleep(0.05)
