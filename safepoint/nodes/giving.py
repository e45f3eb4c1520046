"""What a node does for the others: it gives what it has, and holds copies of their parts. See `transfer`."""

from __future__ import annotations

import contextlib
import errno
import logging
import socket
import threading
from collections.abc import Iterable, Iterator
from typing import Any, Protocol

from safepoint.disk.files import NO_DESCRIPTOR, cause, read, room
from safepoint.errors import SafepointError
from safepoint.nodes.held import flush, has, hold, keys_of
from safepoint.nodes.line import GRAIN, Line, Lines, Proven, part
from safepoint.nodes.nearby import held_ranks
from safepoint.nodes.parity import layout_path, newest, stored
from safepoint.nodes.transfer import GREETS, PATIENCE, Altered, Channel, Peer, Refused, Strangers, digest, whole
from safepoint.restoring.read import Damaged
from safepoint.root import Root
from safepoint.sealed import LAST
from safepoint.tiers.names import IDENTITY
from safepoint.tiers.part import LARGEST_RECORD, Changed, Part
from safepoint.tiers.place import Unreachable, Vanished
from safepoint.tiers.remote import Index

MOST = 16 << 20  # bytes of a range
logger = logging.getLogger("safepoint")
Block = bytes | bytearray | memoryview
AT_ONCE = 64  # requests that are answered at a time, others wait
STRANGERS, OF_ONE = 256, 64  # connections that have not greeted; and those of one address


class Shelf(Protocol):
    """The remote place, as the server of a node gives what is there: so no process of a program loads its packages."""

    def sets(self) -> list[str]:
        """The names of those of this run, newest first. Raises `Unreachable`."""

    def index(self, name: str, rank: int) -> Index:
        """Raises `Damaged`, `Vanished`, `Unreachable`."""

    def pieces(self, name: str, part: Index) -> Iterator[bytes]:
        """Raises the same."""


class Server:
    """Listens on one address, in threads of their own."""

    def __init__(
        self, root: Root, secret: bytes, host: str, port: int = 0, shelf: Shelf | None = None,
        lines: Lines | None = None, patience: float = PATIENCE,
    ) -> None:  # fmt: skip
        """`root`: any of W. `shelf`: the remote place. `lines`: of this node, for the parity of others. `patience`: as
        of a `Peer`. Raises `OSError`."""
        self._lines, self._proven = lines, Proven()
        self._root, self._shelf, self.host = root, shelf, host
        self._free, self._strangers = threading.BoundedSemaphore(AT_ONCE), Strangers(STRANGERS, OF_ONE)
        self._admitted = 0  # bytes of copies that are under way
        self._lock = threading.Lock()
        self.busy = 0  # copies that are being taken in, and stripes that are given
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._socket = socket.socket(family)
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._socket.bind((host, port))
            self._socket.listen(STRANGERS)
        except BaseException:
            self._socket.close()
            raise
        self.port: int = self._socket.getsockname()[1]
        self._me = Peer(host, self.port, secret, patience)
        self._newest = {rank: max(keys_of(root.held(rank)).values(), default=0) for rank in held_ranks(root)}
        self._newest_parity = newest(root)
        self.kept = 0  # the key of the newest set that is on two nodes everywhere; 0: none is known to be
        threading.Thread(target=self._accept, name="safepoint-node", daemon=True).start()

    def floor(self, rank: int) -> int:
        """The copy with this key stays, and those before: one is the newest that was on two nodes everywhere."""
        return self.kept or self._newest.get(rank, 0)

    def parity_floor(self) -> int:
        """The same of parity."""
        return self.kept or self._newest_parity

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, address = self._socket.accept()
            except OSError:
                if self._socket.fileno() < 0:
                    return
                threading.Event().wait(0.1)  # no descriptors, say
                continue
            self._strangers.came(connection, host := str(address[0]))
            threading.Thread(target=self._serve, args=(connection, host), name="safepoint-node", daemon=True).start()

    def _serve(self, connection: socket.socket, host: str) -> None:
        ours = False
        try:
            with connection:
                try:
                    channel = Channel(connection)
                    channel.welcome(self._me)
                finally:
                    self._strangers.left(connection)
                ours = True
                channel.patient(GREETS)  # who has greeted asks at once; and holds nothing until then
                request = channel.hear()
                channel.patient(self._me.patience)
                with self._free:
                    self._answer(channel, request)
        except ConnectionAbortedError as error:  # the other side knows only that it ended early
            logger.warning("what node %s asked for cannot be given: %s", host, error)
        except Refused as error:  # of one of ours: what it said was changed on the way
            logger.log(logging.WARNING if ours else logging.DEBUG, "a connection of node %s ended: %s", host, error)
        except OSError as error:
            logger.debug("a connection ended: %s", error)

    def _answer(self, channel: Channel, request: dict[str, Any]) -> None:
        known = {
            "record": self._give_record, "part": self._give_part, "hold": self._hold, "look": self._look,
            "segments": self._give_segments, "stripe": self._give_stripe, "range": self._give_range,
            "layout": self._give_layout,
        }  # fmt: skip
        do = known.get(str(request.get("do")))
        if do is None:
            raise Refused("it asks for what nobody does here")
        try:
            do(channel, request)
        except (FileNotFoundError, Changed, Vanished) as error:
            channel.say(error=f"it is not there ({error})", gone=True)
        except Damaged as error:
            channel.say(error=str(error), gone=True)
        except Altered as error:  # it is sent again
            logger.warning("a part of rank %s that another node sent is not taken in: %s", request.get("rank"), error)
            channel.say(error=str(error))
        except (Unreachable, SafepointError) as error:
            channel.say(error=str(error))
        except OSError as error:
            if error.filename is None:  # of the connection
                raise
            gone = request.get("do") != "hold" and _is_damage(error)
            channel.say(error=f"{self._root.shown(error.filename)}: {cause(error)}", gone=gone)
        else:
            return
        channel.leave()

    def _look(self, channel: Channel, request: dict[str, Any]) -> None:
        channel.say(sets=self._shelf.sets() if self._shelf else [])

    def _rank(self, request: dict[str, Any]) -> int:
        return whole(request, "rank", 0, self._root.ranks - 1)

    def _of(self, request: dict[str, Any]) -> tuple[Root, int]:
        rank, number = self._rank(request), whole(request, "number", 0, LAST)
        return self._root.held(rank) if request.get("where") == "held" else self._root.of(rank), number

    def _give_record(self, channel: Channel, request: dict[str, Any]) -> None:
        if request.get("where") == "remote" and self._shelf:
            data = self._shelf.index(str(request.get("name")), self._rank(request)).content
        else:
            root, number = self._of(request)
            data = read(root.disk, root.record(number), LARGEST_RECORD)
        channel.say(record=digest(data))
        channel.give([data])

    def _give_part(self, channel: Channel, request: dict[str, Any]) -> None:
        with contextlib.ExitStack() as stack:
            part: Part | Index
            pieces: Iterable[Block]
            if request.get("where") == "remote" and self._shelf:
                name = str(request.get("name"))
                part = self._shelf.index(name, self._rank(request))
                length, pieces = part.size, self._shelf.pieces(name, part)
            else:
                part = Part(*self._of(request), stack)
                length, pieces = part.length, part.blocks()
            channel.say(bundle=part.bundle, length=length, record=digest(part.content))
            channel.give([part.content])
            _give(channel, pieces)

    def _line(self, request: dict[str, Any]) -> Line | None:
        identity = str(request.get("set"))
        if self._lines is None or not IDENTITY.fullmatch(identity):
            raise Vanished("no parity is made here")
        return self._lines.of(identity)

    def _give_segments(self, channel: Channel, request: dict[str, Any]) -> None:
        line = self._line(request)
        if line:
            with self._at_work():
                try:
                    line.prove()  # so that nobody has to wait for it in the middle of a stripe
                except (Changed, Damaged):
                    self._forget()
                    raise
        channel.say(there=line is not None, sum=digest(line.told if line else b""))
        channel.give([line.told] if line else [])

    def _give_stripe(self, channel: Channel, request: dict[str, Any]) -> None:
        line = self._line(request)
        if line is None or digest(line.told) != request.get("sum"):
            raise Vanished("the set is another one than was told")
        begin = whole(request, "begin", 0, line.length)
        end = whole(request, "end", begin, line.length)
        if any(at % GRAIN and at < line.length for at in (begin, end)):
            raise Refused("it asks for half a grain")
        with self._at_work():
            try:
                line.prove()
                channel.say(proven=line.vouched(begin, end))
                _give(channel, line.between(begin, end))
            except (Changed, Damaged, ConnectionAbortedError):
                self._forget()
                raise

    def _forget(self) -> None:
        if self._lines:
            self._lines.forget()

    def _give_layout(self, channel: Channel, request: dict[str, Any]) -> None:
        data = read(self._root.disk, layout_path(self._root, str(request.get("name"))), LARGEST_RECORD)
        channel.say(sum=digest(data))
        channel.give([data])

    def _give_range(self, channel: Channel, request: dict[str, Any]) -> None:
        begin = whole(request, "begin", 0, 1 << 62)
        end = whole(request, "end", begin, begin + MOST)
        if request.get("where") == "parity":
            line = self._proven.of(*stored(self._root, str(request.get("name"))))
        else:
            (root, number), sum_ = self._of(request), str(request.get("sum"))
            line = self._proven.of((root.path, number, sum_), lambda: part(root, number, sum_))
        channel.say()
        try:
            _give(channel, line.range(begin, end))
        except ConnectionAbortedError:
            self._proven.forget()
            raise

    @contextlib.contextmanager
    def _at_work(self) -> Iterator[None]:
        with self._lock:
            self.busy += 1
        try:
            yield
        finally:
            with self._lock:
                self.busy -= 1

    def _hold(self, channel: Channel, request: dict[str, Any]) -> None:
        rank = self._rank(request)
        bundle, size = whole(request, "bundle", 0, 1 << 62), whole(request, "content", 1, LARGEST_RECORD)
        length, free = whole(request, "length", 0, 1 << 62), room(self._root.side)
        with self._lock:
            needs = self._admitted + 2 * length  # as much is left for the next set of this node
            if needs > free:
                channel.say(error=f"a copy of {length} bytes has no room: {free:.0f} are free, and {needs} are needed")
                return
            self._admitted += length
        held = self._root.held(rank)
        try:
            with self._at_work():
                if number := has(held, str(request.get("record"))):
                    flush(held)  # who has taken it in may have died before
                    channel.say(have=number)
                    return
                channel.say()
                content = b"".join(channel.take(size))
                if request.get("record") != digest(content):
                    raise Damaged("its record is not what it vouches for")
                hold(held, bundle, content, channel.take(length), lambda: self.floor(rank))
                channel.say()
        finally:
            with self._lock:
                self._admitted -= length


class _Broken(Exception):
    """What is given breaks off. `gone`: it is not here as it should be, however often it is asked for."""

    def __init__(self, why: str, *, gone: bool) -> None:
        super().__init__(why)
        self.gone = gone


def _guarded(blocks: Iterable[Block]) -> Iterator[Block]:
    """What goes wrong with them is none of the connection."""
    try:
        yield from blocks
    except (Damaged, Changed, Vanished) as error:
        raise _Broken(str(error), gone=True) from error
    except Unreachable as error:
        raise _Broken(str(error), gone=False) from error
    except OSError as error:
        raise _Broken(f"{error.filename or 'a file'}: {cause(error)}", gone=_is_damage(error)) from error


def _is_damage(error: OSError) -> bool:
    """And nothing that is otherwise the next time."""
    return error.errno not in {*NO_DESCRIPTOR, errno.ENOMEM, errno.EAGAIN, errno.EINTR}


def _give(channel: Channel, blocks: Iterable[Block]) -> None:
    """Raises `ConnectionAbortedError` if they break off, which the other side is told."""
    try:
        channel.give(_guarded(blocks))
    except _Broken as error:
        channel.break_off(str(error), gone=error.gone)
        raise ConnectionAbortedError(str(error)) from error
