"""What the directory of the start keeps of a run whose sets are on disks of nodes: `.safepoint.d/nodes.json`.

A disk of a node may be gone at the next start, with all that was on it. This file then says that there were sets, and
where, so that nobody takes their loss for a first start.
"""

from __future__ import annotations

import os
from typing import Any, NamedTuple

from safepoint.disk.files import exists, read
from safepoint.errors import DamagedError
from safepoint.root import Root
from safepoint.sealed import NOTE, Unsealed, checked, rows_of, seal, unseal, write_durably


class Node(NamedTuple):
    """One disk, and the ranks that have their files there."""

    host: str
    directory: str
    domain: str
    ranks: tuple[int, ...]


class Marker(NamedTuple):
    """`run`: random, part of the name of the directories on the nodes. `life`: the newest that was begun. `saved`: the
    newest of which a set was committed. `nodes`: those of the newest. `back`: lives, and the key of the set to which
    the program went back when they began; sets of a life before that have a greater key are given up. `start`: on a
    node, the directory of the start, which has all of this."""

    run: str
    life: int = 0
    saved: int = 0
    nodes: tuple[Node, ...] = ()
    back: tuple[tuple[int, int], ...] = ()
    start: str = ""

    def given_up(self, life: int, key: int) -> bool:
        """Whether the program went back behind this set, by `restore(step=…)`. A node that was away may have it."""
        return any(life < begun and key > kept for begun, kept in self.back)


class _Content(NamedTuple):
    run: str
    life: int
    saved: int
    nodes: tuple[Any, ...]
    back: tuple[Any, ...]
    start: str


def read_marker(start: Root) -> Marker | None:
    """None if there is none. Raises `DamagedError`: what it says must not be guessed."""
    if not exists(start.disk, start.nodes):
        return None
    try:
        content: _Content = checked(_Content, unseal(read(start.disk, start.nodes, NOTE)))
        nodes = rows_of(Node, list(Node._fields), list(content.nodes))
        nodes = [node._replace(ranks=tuple(node.ranks)) for node in nodes]
        pairs = [tuple(pair) for pair in content.back if type(pair) is list]
        numbers = [n for pair in pairs for n in pair] + [rank for node in nodes for rank in node.ranks]
        if {*map(type, numbers)} - {int} or len(pairs) != len(content.back) or {*map(len, pairs)} - {2}:
            raise Unsealed("its numbers are none")
        return Marker(content.run, content.life, content.saved, tuple(nodes), tuple(pairs), content.start)
    except Unsealed as error:
        raise DamagedError(
            f"{start.shown(start.nodes)} is damaged ({error}), so it is not known which nodes have the sets of this "
            f"run: bring it back; or, to start afresh, remove {start.side} as a whole; nothing was changed"
        ) from error


def new_marker() -> Marker:
    return Marker(os.urandom(8).hex())


def write_marker(start: Root, marker: Marker) -> None:
    """Durably: before there is a set on a node's disk alone."""
    write_durably(start.disk, start.nodes, seal(marker._asdict()))
