"""The follower of a node, which the first rank there starts with the name of a directory (`hosts.FOLLOWER`).

(1) It reads what the ranks of its node note in that directory, and tells the server at the launcher: no rank waits.
(2) It does what the server asks: it asks ranks for their stacks, and ends them, each by its id and only while it is the
    same process.
(3) It ends with the connection. Without one it leaves all there: the ranks note into their files by themselves.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import platform
import queue
import random
import select
import shutil
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from safepoint.check import files, stacks, wire
from safepoint.check.busy import LEAD, Busy
from safepoint.check.followed import Process
from safepoint.check.processes import PATIENCE_S
from safepoint.check.shipping import Shipment
from safepoint.check.tail import Tail
from safepoint.errors import UsageError
from safepoint.nodes.transfer import PATIENCE, Channel, Refused, whole
from safepoint.trace import record
from safepoint.trace.elsewhere import FOLLOWING, SENT

PAUSE_S, HERE_S, CONNECT_S = 0.02, 60.0, 3.0  # between two looks; between two signs of life; for an address
SHARE = 4  # of the time of a look, after which is the next: many ranks cost no more than a part of a core
TRIES_S, FIRST_S, LONGEST_S = 60.0, 0.2, 5.0  # for a server that has no time; between two tries, at first and at last
NAME = 512  # characters of a file or function in a stack: those of C++ may have thousands


class Rank:
    """One of this node."""

    def __init__(self, directory: Path, rank: int, shift: int) -> None:
        """Raises `TraceError`."""
        self.tail = Tail(directory, rank)
        self.shipment = Shipment(directory, self.tail, shift)
        self.process = Process(self.tail.about["pid"])
        self.said: dict[str, Any] = {}
        self._marked, self._sent = False, directory / f"rank-{rank:05d}{SENT}"

    def state(self, busy: Busy) -> dict[str, Any]:
        """Of its process. Whoever is seen to be gone now has noted nothing since."""
        gone = self.process.gone or not self.process.pid
        if gone and not self.process.ended_at:  # it has ended since it was last waited for
            self.process.seen()
        return {"gone": gone, "lives": not gone, "stopped": not gone and self.process.stopped,
                "status": self.process.status, "working": busy.working(self.process.pid)}  # fmt: skip

    @property
    def ended(self) -> bool:
        """No more comes of it, and all that has come was said."""
        return bool(self.said.get("gone")) or self.shipment.complete

    def mark_sent(self) -> None:
        """It may be waiting for that at its end (`trace.elsewhere`)."""
        if not self._marked:
            self._marked = True
            with contextlib.suppress(OSError):
                self._sent.touch()


class Follower:
    """Of the ranks in this directory. `shift`: ns that the clock of this host is behind that of the server."""

    def __init__(self, directory: Path, channel: Channel, shift: int) -> None:
        self._directory, self._channel, self._shift = directory, channel, shift
        self._orders = queue.SimpleQueue[dict[str, Any] | BaseException]()
        self._ranks: dict[int, Rank] = {}
        self._busy = Busy(2 * LEAD)
        self._kill_at, self._over = 0.0, 0  # when what is left is killed; how many ranks have ended, as it was said
        self._said, self._forgotten = time.monotonic(), False

    def run(self) -> bool:
        """Until all has come to the server, or it lets go, or is lost. Whether all has come. Raises OSError, `Refused`,
        `UsageError`."""
        threading.Thread(target=self._listen, daemon=True).start()
        while True:
            while not self._orders.empty():
                order = self._orders.get()
                if isinstance(order, BaseException):
                    raise order
                if order.get("do") == "bye":
                    return False
                if order.get("do") == "whole" and order.get("ranks") == len(files.ranks(self._directory)):
                    return True
                self._obey(order)
            begun = time.monotonic()
            if not self._turn():
                self._wait(max(PAUSE_S, SHARE * (time.monotonic() - begun)))
            if self._kill_at and time.monotonic() > self._kill_at:
                self._kill_at = 0.0
                self._over = 0  # it is said again how many have ended
                self._signal(signal.SIGKILL)
            if time.monotonic() - self._said > HERE_S:
                self._put("here")
                self._said = time.monotonic()

    def _listen(self) -> None:
        try:
            while True:
                self._orders.put(wire.take(self._channel)[0])
        except (OSError, Refused) as error:
            self._orders.put(error)

    def _put(self, do: str, blob: bytes = b"", **words: Any) -> None:
        wire.put(self._channel, do, blob, **words)

    def _turn(self) -> bool:
        """Tell what is new; whether anything is."""
        if self._forgotten:
            return self._only_states()
        moved = False
        for number in files.ranks(self._directory):
            if number not in self._ranks:
                self._ranks[number] = Rank(self._directory, number, self._shift)
        self._busy.look([one.process.pid for one in self._ranks.values() if not one.ended], time.monotonic_ns())
        for number, one in self._ranks.items():
            if one.said.get("gone"):
                continue
            state = one.state(self._busy)  # before its notes: what a process that is gone has noted is read now
            gone = state["gone"]
            shipped = self._ship(one) or (gone and self._ship(one))  # a note that waits for its row is given then
            moved = moved or shipped
            self._say_state(number, one, {**state, "gone": gone and not shipped})
        self._end()
        return moved

    def _only_states(self) -> bool:
        for number, one in self._ranks.items():
            self._say_state(number, one, one.state(self._busy))
        return False

    def _say_state(self, number: int, one: Rank, state: dict[str, Any]) -> None:
        if state != one.said and (one.shipment.begun or state["gone"]):
            self._put("state", rank=number, at=one.process.ended_at + self._shift, **state)
            one.said = state

    def _end(self) -> None:
        """Of ranks that have ended: they may go on, if others are still here; else the server is asked whether it has
        all. The whole node may go with the last rank."""
        ended = [one for one in self._ranks.values() if one.ended]
        if len(ended) < len(self._ranks):
            for one in ended:
                one.mark_sent()
        elif self._over != len(ended):
            self._put("over", ranks=len(ended))
            self._over = len(ended)

    def _ship(self, one: Rank) -> bool:
        moved = False
        for do, words, blob in one.shipment.more():
            self._put(do, blob, **words)
            moved = True
        return moved

    def _wait(self, seconds: float) -> None:
        """So long; not over the end of a rank: its status is there only until its parent has waited for it."""
        poll, there = select.poll(), dict[int, Rank]()
        for one in self._ranks.values():
            if one.process.descriptor >= 0 and not one.said.get("gone"):
                there[one.process.descriptor] = one
                poll.register(one.process.descriptor, select.POLLIN)
        for descriptor, _ in poll.poll(seconds * 1000):
            there[descriptor].process.seen()
            there[descriptor].process.forget()

    # What the server asks.

    def _obey(self, order: dict[str, Any]) -> None:
        if order.get("do") == "stacks":
            asked = [rank for rank in order.get("ranks") or () if rank in self._ranks]
            pids = {rank: one.process.pid for rank, one in self._ranks.items()
                    if rank in asked and one.process.there() is not None}  # fmt: skip
            found = stacks.ask(self._directory, pids)
            told = {rank: [(site.file[-NAME:], site.line, site.function[:NAME])
                           for site in sites[: stacks.FRAMES + 1]] for rank, sites in found.items()}  # fmt: skip
            self._put("stacks", json.dumps(told).encode())
        elif order.get("do") == "forget":
            self._forgotten = True
            shutil.rmtree(self._directory, ignore_errors=True)
        elif order.get("do") == "end":
            self._signal(signal.SIGTERM)
            self._kill_at = time.monotonic() + PATIENCE_S

    def _signal(self, number: int) -> None:
        """To each of its ranks that is still there."""
        for one in self._ranks.values():
            if one.process.there() is not None:
                with contextlib.suppress(OSError):
                    os.kill(one.process.pid, number)


def connected(where: wire.Where, awaited: Callable[[], bool] = lambda: True) -> Channel:
    """With the server, by the first of its addresses that leads to it. Raises OSError: none does. Where somebody is
    that has no time now it is tried again, for a while and as long as it is `awaited`: many nodes come at once."""
    end, pause_s = time.monotonic() + TRIES_S, FIRST_S
    while True:
        failed, busy = list[str](), False
        for address in where.addresses:
            try:
                return _greeting(address, where)
            except (OSError, Refused) as error:
                failed.append(f"{address}: {getattr(error, 'strerror', None) or error}")
                busy = busy or _is_busy(error)
        if not busy or time.monotonic() > end or not awaited():
            raise OSError(f"no connection to port {where.port} of the launcher's host ({'; '.join(failed)})")
        time.sleep(pause_s * random.uniform(0.5, 1))  # else all of them would come at once again
        pause_s = min(2 * pause_s, LONGEST_S)


def _greeting(address: str, where: wire.Where) -> Channel:
    """Raises OSError, `Refused`."""
    channel = Channel(socket.create_connection((address, where.port), CONNECT_S))
    with contextlib.ExitStack() as stack:
        stack.enter_context(channel)
        channel.greet(where.peer)
        stack.pop_all()  # it is kept
        return channel


def _is_busy(error: Exception) -> bool:
    """Somebody may be there, and take a connection later."""
    return isinstance(error, (ConnectionResetError, ConnectionAbortedError, BrokenPipeError, TimeoutError)) or (
        isinstance(error, OSError) and error.errno in (errno.EAGAIN, errno.EMFILE, errno.ENFILE, errno.ENOBUFS)
    )


def _runs(directory: Path) -> bool:
    """Whether a rank that is to be followed runs still, or none has begun yet."""
    try:
        pids = [files.read_json(record.names(directory, rank).about).get("pid") for rank in files.ranks(directory)]
    except UsageError:
        return True  # it is told when it is read
    return not pids or any(os.path.exists(f"/proc/{pid}") for pid in pids)


def greeted(channel: Channel, directory: Path) -> int:
    """Say who this is. The ns by which this clock is behind that of the server: by the answer that came soonest, as it
    may be wrong by half of the time that the answer took. Raises OSError, `Refused`."""
    hello: dict[str, Any] = {"host": platform.node(), "directory": str(directory), "version": wire.VERSION}
    found = list[tuple[int, int]]()
    for turn in range(wire.CLOCKS):
        begun = time.monotonic_ns()
        wire.put(channel, "clock" if turn else "hello", **({} if turn else hello))
        words, _ = wire.take(channel)
        took = time.monotonic_ns() - begun
        if words.get("do") != "clock":
            raise Refused(f"{words.get('why')!s:.500}")
        found.append((took, whole(words, "ns", 0, 1 << 62) - begun - took // 2))
    return min(found)[1]


def follow(directory: Path, where: wire.Where) -> None:
    """All of it. Raises OSError, `Refused`: there is no connection. What went wrong later is known to the server."""
    try:
        (directory / FOLLOWING).write_text(str(os.getpid()), "ascii")
        with connected(where, lambda: _runs(directory)) as channel:
            shift = greeted(channel, directory)
            channel.bear(PATIENCE)
            _quiet(2)  # whoever started the program waits until nobody has its channels any more
            everything = _followed(Follower(directory, channel, shift), channel)
    finally:
        with contextlib.suppress(OSError):
            (directory / FOLLOWING).unlink()
    if everything:
        shutil.rmtree(directory, ignore_errors=True)


def _followed(follower: Follower, channel: Channel) -> bool:
    """Whether all has come to the server."""
    with contextlib.suppress(OSError, Refused):
        try:
            return follower.run()
        except UsageError as error:
            wire.put(channel, "trouble", why=str(error))
            channel.leave()
    return False


def _quiet(*descriptors: int) -> None:
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in descriptors:
        os.dup2(nowhere, descriptor)
    os.close(nowhere)


def _apart() -> None:
    """From the rank that has started this: its channels, its signals and its cores."""
    os.closerange(3, 1 << 20)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # it ends with the connection
        signal.signal(number, signal.SIG_IGN)
    with contextlib.suppress(OSError, AttributeError):
        os.sched_setaffinity(0, range(os.cpu_count() or 1))
        os.nice(5)


def main() -> int:
    """Its exit code, which nobody asks for."""
    directory = Path(sys.argv[1])
    _apart()
    try:
        follow(directory, wire.where(os.environ[wire.SERVER]))
    except (OSError, Refused, ValueError, KeyError) as error:
        print(f"safepoint check: {platform.node()} is not followed: {error}. What its ranks note stays in {directory}",
              file=sys.stderr, flush=True)  # fmt: skip
        return 1
    return 0
