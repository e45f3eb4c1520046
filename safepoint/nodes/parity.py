"""Parity of a set over a group of nodes, made and kept: `partner = xor 8`. How it is laid out: `stripes`.

It lies in `held/parity-IDENTITY-LIFE/`, of the set and of the life that made it: after a restart the nodes are others,
and the parity of before stays until the new one is there on all.

killed after                there is                                        the next try; the next start
some bytes                  `held/parity.new`, which nobody reads           begins anew; the same
all bytes, durable          the same                                        the same
the rename                  the parity, of which nobody was told            finds it, flushes its name; may use it
the flush of its name       the same, and it survives a power cut           the same
a flush that fails          nothing: it is removed                          begins anew; the same
half of an older one        one without a layout, which nobody reads        removes it; the same
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import xxhash

from safepoint.disk.files import exists, listdir, read, remove_tree, room, sync, write
from safepoint.disk.kernel import write_all
from safepoint.disk.rights import OURS
from safepoint.errors import FormatError
from safepoint.nodes.asking import ask_segments, ask_stripe
from safepoint.nodes.copying import LATE, SOON, Wanted, committed
from safepoint.nodes.line import Grains, Line, Lines, Segment, told
from safepoint.nodes.stripes import NAMED, Brief, Layout, laid_out, layout_of, refuse_impossible, xored
from safepoint.nodes.transfer import Peer, digest
from safepoint.record import key
from safepoint.restoring.read import Damaged
from safepoint.root import HELD, PRIVATE, Root
from safepoint.sealed import Unsealed, rows_of, seal, unseal
from safepoint.tiers.part import BLOCK, LARGEST_RECORD, PIECE, Changed, Stream
from safepoint.tiers.place import Unreachable

logger = logging.getLogger("safepoint")
LONGEST_WAIT = 30.0  # seconds for another process of this node, which may wait for a node that is gone


# On a disk.


def _top(one: Root) -> str:
    return f"{one.side}/{HELD}"


def parity_path(one: Root, name: str) -> str:
    """The bytes of a parity. Raises `FileNotFoundError` for a name that is none."""
    if not NAMED.fullmatch(name):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name[:200])
    return f"{_top(one)}/{name}/parity"


def layout_path(one: Root, name: str) -> str:
    """What it is made of. Raises the same."""
    return f"{os.path.dirname(parity_path(one, name))}/layout.json"


def _kept(one: Root) -> Iterator[tuple[str, int, int]]:
    """Of each parity, whole or not, its name, the key of its set, and the life that made it."""
    for name in listdir(one.disk, _top(one)) if exists(one.disk, _top(one)) else ():
        if match := NAMED.fullmatch(name):
            yield name, key(int(match[2]), int(match[3])), int(match[4])


def layouts(one: Root) -> list[Layout]:
    """Of all parity that this node has, as far as it can be read: what is damaged is named in the log, and counts as
    none, since a set has other sources too."""
    found = []
    for name, _, _ in _kept(one):
        try:
            found.append(_layout(one, name))
        except FileNotFoundError:
            pass  # half removed
        except (Damaged, OSError) as error:
            why = error if isinstance(error, Damaged) else f"{one.shown(error.filename)}: {error.strerror}"
            logger.warning("a parity on this node counts as none: %s", why)
    return found


def _layout(one: Root, name: str) -> Layout:
    """Raises `Damaged` if that is not as it was made, `FileNotFoundError`."""
    path = layout_path(one, name)
    try:
        layout = layout_of(unseal(read(one.disk, path, LARGEST_RECORD)))
    except (Unsealed, FormatError) as error:
        raise Damaged(f"{one.shown(path)}: {error}") from error
    if layout.name != name:
        raise Damaged(f"{one.shown(path)} is of {layout.name}")
    return layout


def stored(one: Root, name: str) -> tuple[tuple[str, int, str], Callable[[], Line]]:
    """A parity as a line, to be proven before it is used, and by what it is known: another one under the same name is
    another file. Raises `FileNotFoundError`."""
    info, path = one.disk.stat(parity_path(one, name)), parity_path(one, name)
    known = f"{info.st_size} {info.st_mtime_ns}"
    return (path, info.st_ino, known), lambda: Line([Stored(one, name)], one.shown(path))


class Stored:
    """A parity as it lies on this disk. Raises `Damaged`, `FileNotFoundError`, `OSError`."""

    def __init__(self, one: Root, name: str) -> None:
        self._one, self._path, self._layout = one, parity_path(one, name), _layout(one, name)
        self.segment = Segment(0, 0, 0, self._layout.size, self._layout.sum)

    def between(self, begin: int, end: int) -> Iterator[bytes]:
        with self._one.disk.open(self._path) as file:
            file.seek(begin)
            while begin < end and (block := file.read(min(end - begin, BLOCK))):
                begin += len(block)
                yield block

    def proven(self) -> Iterator[bytes]:
        sum_ = xxhash.xxh3_128()
        for block in self.between(0, self._layout.size + 1):
            sum_.update(block)
            yield block
        if sum_.hexdigest() != self._layout.sum:
            raise Damaged(f"{self._one.shown(self._path)} is not as it was made")


def prove(one: Root, name: str) -> None:
    """Raises `Damaged` if that is not as it was made, `FileNotFoundError`."""
    for _ in Stored(one, name).proven():
        pass


def briefs(one: Root) -> list[Brief]:
    return [
        Brief(it.identity, it.life, it.at, tuple(tuple(segment.rank for segment in line) for line in it.lines))
        for it in layouts(one)
    ]


def newest(one: Root) -> int:
    """The key of the newest set of which this node has parity, or 0."""
    return max((layout.key for layout in layouts(one)), default=0)


def lies(one: Root, layout: Layout) -> bool:
    """Whether that is there, whole."""
    for other in layouts(one):
        if other._replace(sum="") == layout._replace(sum=""):
            with contextlib.suppress(FileNotFoundError, Damaged):
                prove(one, other.name)
                return True
    return False


@contextlib.contextmanager
def alone(one: Root, *, waits: bool = True) -> Iterator[None]:
    """The process of the life before may be at it still. Raises `Unreachable`."""
    _make_top(one)
    disk, until = one.disk, time.monotonic() + LONGEST_WAIT
    while (release := disk.lock(f"{_top(one)}/parity.lock")) is None:
        if not waits or time.monotonic() > until:
            raise Unreachable("another process of this node makes parity, or removes some")
        time.sleep(0.05)
    try:
        yield
    finally:
        release()


def put(one: Root, layout: Layout, blocks: Iterable[memoryview], floor: Callable[[], int]) -> None:
    """On return this parity is there, durably, and what is between it and the key `floor` is gone; killed inside, as
    the table says; on error nothing of it is left. Within `alone`."""
    disk, top, new = one.disk, _top(one), f"{_top(one)}/parity.new"
    _remove_new(one)
    try:
        disk.mkdir(new, PRIVATE)
        sum_ = _write(one, f"{new}/parity", blocks)
        content = {**layout._asdict(), "lines": [[list(each) for each in line] for line in layout.lines]}
        write(disk, f"{new}/layout.json", seal({**content, "sum": sum_}))
        # All bytes before the name: else a power cut could leave a parity of nothing, of which all were told.
        sync(disk, [f"{new}/parity", f"{new}/layout.json"], [new])
        if exists(disk, f"{top}/{layout.name}"):  # it was damaged
            _remove(one, layout.name)
        disk.rename(new, f"{top}/{layout.name}")
    except BaseException:
        with contextlib.suppress(OSError):
            _remove_new(one)
        raise
    try:
        disk.sync_dir(top)  # before it is told
    except BaseException:  # to ask the kernel again would be no use: it says once that it could not
        with contextlib.suppress(OSError):
            _remove(one, layout.name)
        raise
    with contextlib.suppress(OSError):  # it is space
        for name, at, _ in _kept(one):
            if floor() < at < layout.key:
                _remove(one, name)


def _remove_new(one: Root) -> None:
    if exists(one.disk, new := f"{_top(one)}/parity.new"):
        remove_tree(one.disk, new)


def _make_top(one: Root) -> None:
    with contextlib.suppress(FileExistsError):
        one.disk.mkdir(_top(one), PRIVATE)
    # Or a power cut would take the parity with the way to it; also if who has made that died before this.
    one.disk.sync_dir(one.side)


def _write(one: Root, path: str, blocks: Iterable[memoryview]) -> str:
    sum_, done, flushed = xxhash.xxh3_128(), 0, 0
    with one.disk.create(path, OURS) as sink:
        for block in blocks:  # which raise at their end if one of the others sent what it has not proven
            sum_.update(block)
            write_all(sink, block)
            done += len(block)
            if done >= flushed + PIECE:  # the disk works while the rest comes
                flushed = done
                one.disk.start_writeback(sink, flushed)
    return sum_.hexdigest()


def _remove(one: Root, name: str) -> None:
    """What has no layout counts no more: this first, so that a kill leaves nothing that seems whole."""
    if exists(one.disk, layout := layout_path(one, name)):
        one.disk.remove(layout)
    remove_tree(one.disk, f"{_top(one)}/{name}")


def flush(one: Root) -> None:
    """The names of what is there, and the way to them."""
    for directory in (_top(one), one.side):
        one.disk.sync_dir(directory)


def drop_older(one: Root, floor: int, life: int) -> bool:
    """Remove parity of sets with a key below this, and of that set what an earlier life has made, and what was in the
    making when its process was killed: nobody needs it. Whether all of that is gone: what stays is space."""
    if not exists(one.disk, _top(one)):
        return True
    try:
        old = [name for name, at, made in _kept(one) if (at, made) < (floor, life)]
        if old or exists(one.disk, f"{_top(one)}/parity.new"):
            with alone(one, waits=False):
                _remove_new(one)
                for name in old:
                    _remove(one, name)
    except (OSError, Unreachable):
        return False
    return True


# With the other nodes.


class Group(NamedTuple):
    """Nodes that keep parity for each other, in order, and which of them this one is. `life`: of the run when they
    met, the same on all, also if the run has restored again since."""

    at: int
    life: int
    peers: tuple[Peer, ...]


def make(
    one: Root, near: Lines, group: Group, wanted: Wanted, floor: Callable[[], int], moves: Callable[[int], None]
) -> None:
    """On return this node has its parity of that set, durably, and what it has itself is as it was committed. All nodes
    of the group do this; killed inside, as the table says.

    Raises `Superseded`, `Unreachable`, `Damaged`, `OSError`, and `Changed` if the set is gone here."""

    def tick(count: int) -> None:
        wanted.check()
        moves(count)

    for _ in committed(near.roots, wanted):
        tick(0)
    if (mine := near.of(wanted.identity)) is None:
        raise Changed("the set is gone")
    mine.prove(tick)
    lines = [
        mine.segments if node == group.at else _segments(peer, wanted, tick) for node, peer in enumerate(group.peers)
    ]
    layout = laid_out(wanted.identity, group.life, group.at, lines)
    refuse_impossible(layout)
    with alone(one):  # before a peer begins to send
        if lies(one, layout):
            return flush(one)  # who has made it may have died before
        _refuse_full(one, layout)
        wanted.waits(" and ".join(f"node {p.text}" for node, p in enumerate(group.peers) if node != group.at))
        with contextlib.ExitStack() as stack:
            sources = []
            for node, peer in enumerate(group.peers):
                if node != group.at:
                    begin, end = layout.stripe(node, group.at)
                    coming = ask_stripe(peer, wanted.identity, digest(told(lines[node])), begin, end)
                    blocks_, proven = stack.enter_context(coming)
                    sources.append((Stream(_as_proven(peer, blocks_, proven)), end - begin))

            def blocks() -> Iterator[memoryview]:
                for block in xored(sources, layout.size):
                    tick(len(block))
                    yield block

            put(one, layout, blocks(), floor)


def _segments(peer: Peer, wanted: Wanted, moves: Callable[[int], None]) -> tuple[Segment, ...]:
    """As soon as the ranks there have committed the set."""
    pause = SOON
    wanted.waits(f"node {peer.text}, to commit the set")
    while (found := ask_segments(peer, wanted.identity)) is None:
        moves(0)
        wanted.rest(pause)
        pause = min(2 * pause, LATE)
    try:
        return tuple(rows_of(Segment, list(Segment._fields), found))
    except Unsealed as error:
        raise Unreachable(f"node {peer.text} says of its line what cannot be: {error}") from error


def _as_proven(peer: Peer, blocks: Iterable[bytes], proven: object) -> Iterator[bytes]:
    """Parity of other bytes would make nothing again, and nobody would know before it is needed."""
    grains = Grains()
    for block in blocks:
        grains.add(block)
        yield block
    if grains.vouched() != proven:
        raise Unreachable(f"node {peer.text}: its bytes are not those that it has proven")


def _refuse_full(one: Root, layout: Layout) -> None:
    needs, free = layout.size + layout.length(layout.at), room(one.side)
    if needs > free:  # as much is left for the next set of this node
        raise Unreachable(f"a parity of {layout.size} bytes has no room: {free:.0f} are free, and {needs} are needed")
