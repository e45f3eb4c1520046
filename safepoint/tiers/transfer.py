"""How a part of a set goes from one node to another: one TCP connection for each request.

    server  32 random bytes
    client  32 random bytes, and HMAC(secret, "client", both, host and port of the server)
    server  HMAC(secret, "server", the same)
    client  a frame with the request: what to do, and with which part
    server  a frame with the answer, or with an error; then, or before it, the part as frames, and an empty one

A frame is its length in four bytes, and as many bytes. One of words ends with an HMAC of them, by a key that both have
of the greeting; words before and after a part have the digest of its record, which has the checksums of its files. The
secret is new in each life of the run, and goes to all ranks by MPI: so nothing that another program says is listened
to, nor what this one said before, nor a run that was taken for dead. No name, size or path that a peer says is used
before it was looked at. Nothing is encrypted.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import os
import socket
import struct
import sys
import time
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from safepoint.disk.signals import look
from safepoint.tiers.part import LARGEST_RECORD, Part
from safepoint.tiers.place import Unreachable, Vanished

NONCE, LENGTH = 32, struct.Struct(">I")
FRAME, HEAD = 1 << 20, 64 << 10  # bytes of a frame at most; and of one with a request or an answer
GREETS, PATIENCE = 10.0, 600.0  # seconds for the greeting as a whole; for an answer: a flush may take long
ASKS = 60.0  # and for one that needs no flush
TRIES, PAUSE = 5, 0.2  # of a connection that is refused, or closed in the greeting: many may come at once; seconds
MAC = 32
LEAVES = 5.0  # seconds for which a side that has refused something listens
AWAY_MS = 5000  # a peer that acknowledges nothing for so long is gone


class Peer(NamedTuple):
    """Where another node listens."""

    host: str
    port: int
    secret: bytes

    @property
    def text(self) -> str:
        return f"{self.host}:{self.port}"


class Refused(Exception):
    """What was said is not what this program would say."""


class Channel:
    """One connection, after the greeting of one side. Raises `OSError`, `Refused`."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if sys.platform == "linux":  # elsewhere a peer that is gone is noticed later
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, AWAY_MS)
            for option, value in ((socket.TCP_KEEPIDLE, 2), (socket.TCP_KEEPINTVL, 1), (socket.TCP_KEEPCNT, 3)):
                connection.setsockopt(socket.IPPROTO_TCP, option, value)
        self._until, self._key, self._said, self._heard = time.monotonic() + GREETS, b"", 0, 0
        connection.settimeout(GREETS)

    def greet(self, peer: Peer) -> None:
        """As client. Raises `Refused` if the server does not know the secret, or is another one."""
        theirs, mine = self._exactly(NONCE), os.urandom(NONCE)
        both = theirs + mine + peer.text.encode()
        self._socket.sendall(mine + _sign(peer.secret, b"client", both))
        if not hmac.compare_digest(self._exactly(NONCE), _sign(peer.secret, b"server", both)):
            raise Refused("another program listens there")
        self._begin(_sign(peer.secret, b"key", both), b"c")

    def welcome(self, me: Peer) -> None:
        """As server. Raises `Refused`."""
        self._socket.sendall(mine := os.urandom(NONCE))
        theirs, signed = self._exactly(NONCE), self._exactly(NONCE)
        both = mine + theirs + me.text.encode()
        if not hmac.compare_digest(signed, _sign(me.secret, b"client", both)):
            raise Refused("another program, or another life of this one, has called")
        self._socket.sendall(_sign(me.secret, b"server", both))
        self._begin(_sign(me.secret, b"key", both), b"s")

    def _begin(self, key: bytes, role: bytes) -> None:
        self._key, self._role, self._until = key, role, 0.0
        self._socket.settimeout(PATIENCE)

    def say(self, **words: Any) -> None:
        data = json.dumps(words).encode()
        data += _sign(self._key, self._role, b"%d " % self._said + data)
        self._said += 1
        self._socket.sendall(LENGTH.pack(len(data)) + data)

    def hear(self) -> dict[str, Any]:
        """Raises `Refused` for what the other side has not said, and for what is no request, or no answer."""
        frame = self._frame(HEAD)
        data, signed = frame[:-MAC], frame[-MAC:]
        other = b"s" if self._role == b"c" else b"c"
        if not hmac.compare_digest(signed, _sign(self._key, other, b"%d " % self._heard + data)):
            raise Refused("somebody else has said that")
        self._heard += 1
        try:
            found = json.loads(data)
        except (ValueError, RecursionError) as error:
            raise Refused("it says what cannot be read") from error
        if not isinstance(found, dict):
            raise Refused("it says what is no request")
        return found

    def give(self, blocks: Iterable[bytes | bytearray | memoryview]) -> None:
        for block in blocks:
            view = memoryview(block)
            for at in range(0, len(view), FRAME):
                look()
                piece = view[at : at + FRAME]
                self._socket.sendall(LENGTH.pack(len(piece)))
                self._socket.sendall(piece)
        self._socket.sendall(LENGTH.pack(0))

    def take(self, most: int) -> Iterator[bytes]:
        """The blocks of a part, or a record; no more than so many bytes. To be heard to its end."""
        while block := self._frame(FRAME):
            look()
            most -= len(block)
            if most < 0:
                raise Refused("it sends more than it said")
            yield block

    def patient(self, seconds: float) -> None:
        """For each word, and each frame, that is awaited."""
        self._socket.settimeout(seconds)

    def __enter__(self) -> Channel:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def leave(self) -> None:
        """Nothing more is said. What still comes is taken, for a while: else what was said last might be lost."""
        end = time.monotonic() + LEAVES
        with contextlib.suppress(OSError):  # it has gone before
            self._socket.shutdown(socket.SHUT_WR)
            self._socket.settimeout(LEAVES)
            while self._socket.recv(FRAME) and time.monotonic() < end:
                pass

    def _frame(self, most: int) -> bytes:
        (length,) = LENGTH.unpack(self._exactly(LENGTH.size))
        if length > most:
            raise Refused(f"it sends a frame of {length} bytes")
        return self._exactly(length)

    def _exactly(self, size: int) -> bytes:
        data = bytearray(size)
        view = memoryview(data)
        while view:
            if self._until:  # the greeting has so long as a whole
                self._socket.settimeout(max(self._until - time.monotonic(), 0.001))
            count = self._socket.recv_into(view)
            if not count:
                raise ConnectionResetError("the other side has closed the connection")
            view = view[count:]
        return bytes(data)


def _sign(secret: bytes, role: bytes, what: bytes) -> bytes:
    return hmac.digest(secret, role + b" " + what, hashlib.sha256)


def digest(content: bytes) -> str:
    """Of a record, for the words that vouch for it."""
    return hashlib.sha256(content).hexdigest()


def whole(words: dict[str, Any], name: str, least: int, most: int) -> int:
    """A number that a peer has said. Raises `Refused`."""
    value = words.get(name)
    if type(value) is not int or not least <= value <= most:
        raise Refused(f"it says {name} = {value!r:.50}")
    return value


@contextlib.contextmanager
def _asking(peer: Peer, **request: Any) -> Iterator[Channel]:
    """A connection, over which this was asked. Raises `Unreachable`."""
    try:
        channel = _greeted(peer)
        with channel:
            channel.patient(PATIENCE if request["do"] in ("hold", "part") else ASKS)
            channel.say(**request)
            yield channel
    except (OSError, Refused) as error:
        if getattr(error, "filename", None):  # of this disk
            raise
        raise Unreachable(f"node {peer.text}: {getattr(error, 'strerror', None) or error}") from error


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
        return [name for name in found if type(name) is str] if type(found) is list else []


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


def listening_address(*, one_host: bool) -> str:
    """Of the interface by which other nodes reach this one. Raises `OSError`."""
    if told := os.environ.get("SAFEPOINT_ADDRESS"):
        return told
    if one_host:
        return "127.0.0.1"
    try:
        found = socket.gethostbyname(socket.gethostname())
        if not found.startswith("127."):
            return found
    except OSError:
        pass
    for family, somewhere in ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1")):
        with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((somewhere, 9))  # nothing is sent: the kernel says by which interface it would be
            return str(probe.getsockname()[0])
    raise OSError("this host has no address that others could reach: name one by SAFEPOINT_ADDRESS")
