"""What one node asks another one for: each a connection of its own, by `transfer`, which `giving` answers."""

from __future__ import annotations

import contextlib
import json
import socket
import time
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from safepoint.nodes.transfer import GREETS, Channel, Ended, Peer, Refused, digest, whole
from safepoint.tiers.part import LARGEST_RECORD, Part
from safepoint.tiers.place import Unreachable, Vanished

ASKS = 60.0  # seconds for an answer that needs no flush
LONG = {
    "hold",
    "part",
    "record",
    "segments",
    "stripe",
    "range",
    "layout",
}  # what may take its time before it is answered
TRIES, PAUSE = 5, 0.2  # of a connection that is refused, or closed in the greeting: many may come at once; seconds


@contextlib.contextmanager
def _asking(peer: Peer, **request: Any) -> Iterator[Channel]:
    """A connection, over which this was asked. Raises `Unreachable`."""
    try:
        channel = _greeted(peer)
        with channel:
            channel.patient(peer.patience if request["do"] in LONG else min(peer.patience, ASKS))
            channel.whom = f"node {peer.text}"
            channel.say(**request)
            yield channel
    except Ended as error:
        raise _ended(peer, error) from error
    except (OSError, Refused) as error:
        if getattr(error, "filename", None):  # of this disk
            raise
        raise Unreachable(f"node {peer.text}: {getattr(error, 'strerror', None) or error}") from error


def _ended(peer: Peer, error: Ended) -> Vanished | Unreachable:
    return (Vanished if error.gone else Unreachable)(f"node {peer.text}: {error}")


def _greeted(peer: Peer) -> Channel:
    for turn in range(TRIES):
        connection = None
        try:
            connection = socket.create_connection((peer.host, peer.port), GREETS)
            channel = Channel(connection)
            channel.greet(peer)
            return channel
        except BaseException as error:
            if connection:
                connection.close()
            if not isinstance(error, ConnectionError) or turn == TRIES - 1:
                raise
            time.sleep(PAUSE * 2**turn)
    raise AssertionError


def _told(channel: Channel, peer: Peer) -> dict[str, Any]:
    """The answer. Raises `Vanished` if the part is not there, `Unreachable` for any other error there."""
    answer = channel.hear()
    if error := answer.get("error"):
        raise (Vanished if answer.get("gone") else Unreachable)(f"node {peer.text}: {error!s:.500}")
    return answer


class Which(NamedTuple):
    """A part that a node has, or can get."""

    rank: int
    number: int
    where: str  # "own": of a rank that ran there; "held": a copy; "remote": at the remote place
    name: str = ""  # of the set, at the remote place
    key: int = 0  # of its record, as far as that is known
    history: str = ""

    @property
    def known(self) -> tuple[int, str]:
        return self.key, self.history


def ask_record(peer: Peer, which: Which) -> bytes:
    """The record of a set there, as it lies there. Raises `Unreachable`, `Vanished`."""
    with _asking(peer, do="record", **which._asdict()) as channel:
        sum_ = _told(channel, peer).get("record")
        content = b"".join(channel.take(LARGEST_RECORD))
        if sum_ != digest(content):
            raise Unreachable(f"node {peer.text}: its record is not what it vouches for")
        return content


def ask_sets(peer: Peer) -> list[str]:
    """The names of the sets of this run at the remote place, newest first, as that node sees them. Raises
    `Unreachable`."""
    with _asking(peer, do="look") as channel:
        found = _told(channel, peer).get("sets")
        if type(found) is not list or not all(type(name) is str for name in found):
            raise Unreachable(f"node {peer.text}: it does not say which sets are there")
        return found


class Coming(NamedTuple):
    """A part, as `part.unpack` needs it."""

    bundle: int
    content: bytes
    blocks: Iterator[bytes]


@contextlib.contextmanager
def ask_part(peer: Peer, which: Which) -> Iterator[Coming]:
    """Raises `Unreachable`, `Vanished`; also when the blocks are read. If these end early something went wrong there:
    who unpacks them sees that."""
    with _asking(peer, do="part", **which._asdict()) as channel:
        answer = _told(channel, peer)
        try:
            bundle = whole(answer, "bundle", 0, 1 << 62)
            content = b"".join(channel.take(LARGEST_RECORD))
            if answer.get("record") != digest(content):
                raise Refused("its record is not what it vouches for")
            yield Coming(bundle, content, channel.take(whole(answer, "length", 0, 1 << 62)))
        except Refused as error:
            raise Unreachable(f"node {peer.text}: {error}") from error


def ask_to_hold(peer: Peer, part: Part, blocks: Iterable[bytes | bytearray | memoryview]) -> None:
    """On return the other node has this part, durably. Raises `Unreachable`, and what the blocks raise."""
    record = part.record
    request = {"rank": record.rank, "bundle": part.bundle, "content": len(part.content), "length": part.length,
               "record": digest(part.content)}  # fmt: skip
    with _asking(peer, do="hold", **request) as channel:
        if _told(channel, peer).get("have"):
            return
        try:
            channel.give([part.content])
            channel.give(blocks)
        except OSError as error:
            if error.filename is None:  # of the connection: perhaps it says why
                _told(channel, peer)
            raise
        _told(channel, peer)


def ask_segments(peer: Peer, identity: str) -> list[Any] | None:
    """What that node has of this set, rank by rank, as its rows say; None: not all of its ranks have committed it.
    Raises `Unreachable`, `Vanished`."""
    with _asking(peer, do="segments", set=identity) as channel:
        answer = _told(channel, peer)
        data = b"".join(channel.take(LARGEST_RECORD))
        if answer.get("sum") != digest(data):
            raise Unreachable(f"node {peer.text}: its words are not what it vouches for")
        try:
            found = json.loads(data) if answer.get("there") else None
        except (ValueError, RecursionError):
            found = ""
        if found is not None and not isinstance(found, list):
            raise Unreachable(f"node {peer.text} says what cannot be read")
        return found


def ask_layout(peer: Peer, name: str) -> bytes:
    """What a parity there is made of, as it lies there. Raises `Unreachable`, `Vanished`."""
    with _asking(peer, do="layout", name=name) as channel:
        sum_ = _told(channel, peer).get("sum")
        content = b"".join(channel.take(LARGEST_RECORD))
        if sum_ != digest(content):
            raise Unreachable(f"node {peer.text}: its layout is not what it vouches for")
        return content


@contextlib.contextmanager
def ask_stripe(
    peer: Peer, identity: str, sum_: str, begin: int, end: int
) -> Iterator[tuple[Iterator[bytes], object]]:  # fmt: skip
    """These bytes of the line that node has of this set, whose segments have the digest `sum_`, and what it says that
    they were like when it proved them (`line.vouched`). They end early if something went wrong there. Raises
    `Unreachable`, `Vanished`; also when the blocks are read."""
    with _asking(peer, do="stripe", set=identity, sum=sum_, begin=begin, end=end) as channel:
        proven = _told(channel, peer).get("proven")
        yield _coming(peer, channel, end - begin), proven


def _coming(peer: Peer, channel: Channel, most: int) -> Iterator[bytes]:
    try:
        yield from channel.take(most)
    except Ended as error:
        raise _ended(peer, error) from error
    except (OSError, Refused) as error:
        raise Unreachable(f"node {peer.text}: {getattr(error, 'strerror', None) or error}") from error


def ask_range(peer: Peer, which: Which, sum_: str, begin: int, end: int) -> bytearray:
    """These bytes of a parity, or of a part whose record has the digest `sum_`, as they lie there; fewer if it ends
    before. In one connection, which waits for no other one: many ranks may do this at once. Raises `Unreachable`,
    `Vanished`."""
    with _asking(peer, do="range", **which._asdict(), sum=sum_, begin=begin, end=end) as channel:
        _told(channel, peer)
        found = bytearray()
        for block in channel.take(end - begin):
            found += block
        return found
