"""How a part of a set goes from one node to another: one TCP connection for each request.

    server  32 random bytes
    client  32 random bytes, and HMAC(secret, "client", both, host and port of the server)
    server  HMAC(secret, "server", the same)
    client  a frame with the request: what to do, and with which part
    server  a frame with the answer, or with an error; then, or before it, the part as frames, and an empty one

A frame is its length in four bytes, the CRC-32 of these, and as many bytes. In the middle of a part a length that
cannot be says that no more comes, and words say why. A frame of words ends with an HMAC of them, by a key that both
have of the greeting. After each part, or other bytes, words have their xxh3-128: a bit that changes on the way is
noticed before anything counts. Words before and after a part have the digest of its record, which has the checksums of
its files; words before a stripe have a digest of its bytes as they were when they were compared with those (`line`). So
each byte is compared with what the sender has proven, not only with what it has sent. The secret is new in each life of
the run, and goes to all ranks by MPI: so nothing that another program says is listened to, nor what this one said
before, nor a run that was taken for dead. No name, size or path that a peer says is used before it was looked at.
Nothing is encrypted.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import logging
import os
import socket
import struct
import sys
import threading
import time
import zlib
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import xxhash

from safepoint.disk.signals import look

logger = logging.getLogger("safepoint")
NONCE, LENGTH, HEADER = 32, struct.Struct(">I"), struct.Struct(">II")
FRAME, HEAD = 1 << 20, 64 << 10  # bytes of a frame at most; and of one with a request or an answer
GREETS, PATIENCE = 10.0, 600.0  # seconds for the greeting as a whole; for an answer: a flush may take long
WORD, NAP = 50.0, 1.0  # seconds after which who waits says so; between two looks at signals
MAC = 32
LEAVES = 5.0  # seconds for which a side that has refused something listens
AWAY_MS = 20_000  # a peer that takes no byte for so long is gone; a disk may make it wait for some time
BROKEN = 0xFFFFFFFF  # in the place of a length: no more comes, and words say why


class Peer(NamedTuple):
    """Where another node listens. `patience`: seconds without a byte after which it is given up."""

    host: str
    port: int
    secret: bytes
    patience: float = PATIENCE

    @property
    def text(self) -> str:
        return f"{self.host}:{self.port}"


class Refused(Exception):
    """What was said is not what this program would say."""


class Altered(Refused):
    """Some of the bytes that came are not those that were sent."""


class Ended(Exception):
    """What the other side gives breaks off. `words`: why."""

    def __init__(self, words: dict[str, Any]) -> None:
        super().__init__(f"{words.get('error')!s:.500}")
        self.gone = bool(words.get("gone"))


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
        self._patience, self.whom = PATIENCE, ""  # `whom`: is named in the log if it is waited for; empty: nothing is

    def greet(self, peer: Peer) -> None:
        """As client. Raises `Refused` if the server does not know the secret, or is another one."""
        theirs, mine = self._exactly(NONCE), os.urandom(NONCE)
        both = theirs + mine + peer.text.encode()
        self._send(mine + _sign(peer.secret, b"client", both))
        if not hmac.compare_digest(self._exactly(NONCE), _sign(peer.secret, b"server", both)):
            raise Refused("another program listens there")
        self._begin(_sign(peer.secret, b"key", both), b"c", peer)

    def welcome(self, me: Peer) -> None:
        """As server. Raises `Refused`."""
        self._send(mine := os.urandom(NONCE))
        theirs, signed = self._exactly(NONCE), self._exactly(NONCE)
        both = mine + theirs + me.text.encode()
        if not hmac.compare_digest(signed, _sign(me.secret, b"client", both)):
            raise Refused("another program, or another life of this one, has called")
        self._send(_sign(me.secret, b"server", both))
        self._begin(_sign(me.secret, b"key", both), b"s", me)

    def _begin(self, key: bytes, role: bytes, peer: Peer) -> None:
        self._key, self._role, self._until, self._patience = key, role, 0.0, peer.patience

    def say(self, **words: Any) -> None:
        data = json.dumps(words).encode()
        data += _sign(self._key, self._role, b"%d " % self._said + data)
        self._said += 1
        self._send(header(len(data)) + data)

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
        sum_ = xxhash.xxh3_128()
        for block in blocks:
            view = memoryview(block)
            for at in range(0, len(view), FRAME):
                look()
                piece = view[at : at + FRAME]
                sum_.update(piece)
                self._send(header(len(piece)))
                self._send(piece)
        self._send(header(0))
        self.say(sum=sum_.hexdigest())

    def break_off(self, why: str, *, gone: bool) -> None:
        """Between two blocks of what is given."""
        self._send(header(BROKEN))
        self.say(error=why, gone=gone)

    def take(self, most: int) -> Iterator[bytes]:
        """The blocks of a part, or a record; no more than so many bytes. To be heard to its end: only there `Altered`
        is raised if they are not what was sent. Raises `Ended`."""
        sum_ = xxhash.xxh3_128()
        while block := self._frame(FRAME):
            look()
            most -= len(block)
            if most < 0:
                raise Refused("it sends more than it said")
            sum_.update(block)
            yield block
        if self.hear().get("sum") != sum_.hexdigest():
            raise Altered("bytes were changed on the way: their checksum is not that of what was sent")

    def patient(self, seconds: float) -> None:
        """For each word, and each frame, that is awaited."""
        self._patience = seconds

    def bear(self, seconds: float) -> None:
        """The other side may take no byte for so long, if it is there: it may be stopped, or have much to do."""
        if sys.platform == "linux":
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(seconds * 1000))

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
        length, sum_ = HEADER.unpack(self._exactly(HEADER.size))
        if header(length) != HEADER.pack(length, sum_):  # else the rest would be awaited, or taken for something else
            raise Altered("bytes were changed on the way: the length of a frame is not what was sent")
        if length == BROKEN and most == FRAME:
            raise Ended(self.hear())
        if length > most:
            raise Refused(f"it sends a frame of {length} bytes")
        return self._exactly(length)

    def _exactly(self, size: int) -> bytes:
        data = bytearray(size)
        view = memoryview(data)
        while view:
            count = self._received(view)
            if not count:
                raise ConnectionResetError("the other side has closed the connection")
            view = view[count:]
        return bytes(data)

    def _received(self, room: memoryview) -> int:
        begun = told = time.monotonic()
        until = self._until or begun + self._patience  # the greeting has so long as a whole
        while True:
            self._socket.settimeout(max(min(until - time.monotonic(), NAP), 0.001))
            try:
                return self._socket.recv_into(room)
            except TimeoutError:
                now = time.monotonic()
                if now >= until:
                    raise TimeoutError(f"it has sent nothing for {now - begun:.0f} s") from None
                if self.whom and now >= told + WORD:
                    told, waited = now, now - begun
                    logger.warning("waiting for %s: it has sent nothing for %.0f s, and is given up after %.0f s",
                                   self.whom, waited, until - begun)  # fmt: skip
            look()

    def _send(self, data: bytes | memoryview) -> None:
        self._socket.settimeout(max(self._until - time.monotonic(), 0.001) if self._until else self._patience)
        self._socket.sendall(data)


class Strangers:
    """Connections that have not greeted yet. Who is silent keeps nobody away: beyond a bound the oldest is closed,
    which one of ours opens again. For threads."""

    def __init__(self, most: int, of_one: int) -> None:
        """`of_one`: from one address."""
        self._most, self._of_one, self._lock = most, of_one, threading.Lock()
        self._hosts: dict[socket.socket, str] = {}  # in the order in which they came

    def came(self, connection: socket.socket, host: str) -> None:
        with self._lock:
            self._hosts[connection] = host
            same = [each for each, address in self._hosts.items() if address == host]
            if len(same) > self._of_one or len(self._hosts) > self._most:
                oldest = same[0] if len(same) > self._of_one else next(iter(self._hosts))
                del self._hosts[oldest]
                with contextlib.suppress(OSError):  # its thread ends, and closes it
                    oldest.shutdown(socket.SHUT_RDWR)

    def left(self, connection: socket.socket) -> None:
        """It has greeted, or has ended. Before it is closed."""
        with self._lock:
            self._hosts.pop(connection, None)


def header(length: int) -> bytes:
    """Of a frame."""
    return HEADER.pack(length, zlib.crc32(LENGTH.pack(length)))


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
