"""The server of a run over several nodes, beside the launcher: it hears the follower of each other node.

(1) Who calls has to prove first that it has the secret of this run, within seconds, and few may try at once.
(2) What is heard is written down at once, by a thread for each node: the files may be far ahead of who reads them.
    Nobody reads a rank's notes in the middle of that (`writing`), and nobody waits in there for what a node does.
(3) A node that is lost stays lost: its ranks may run on, and nothing is said of their ends.
(4) Where a scheduler ends all processes of a program that has failed, the followers are among them. So a follower that
    has gone a moment before such a program, or after it, has gone with its ranks: these have died. One that was
    refused here has not gone.
"""

from __future__ import annotations

import contextlib
import json
import queue
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from safepoint.check.callers import Callers
from safepoint.check.files import JSON_MAX
from safepoint.check.followed import Elsewhere
from safepoint.check.landing import RANKS_MAX, Landed, Landing
from safepoint.check.processes import PATIENCE_S
from safepoint.check.tail import TIME_MAX
from safepoint.check.wire import CLOCKS, SECRET, VERSION, Where, addresses, put, take
from safepoint.errors import UsageError
from safepoint.matching.symbols import Site
from safepoint.nodes.transfer import PATIENCE, Channel, Refused, whole
from safepoint.trace.known import ranges

SETTLES_S, ANSWERS_S, STEP_S = 10.0, 3.0, 0.01  # without a word at the end; for stacks; between two looks
NEVER_S = 1e9
ORDERS, LEAVES_S = 64, 3.0  # that a follower may have left unread; in which all of them are to take what is said last
GRACE_S = 2.0  # between the end of a follower and that of the launcher: (4)
FRAMES_MAX, TEXT_MAX, THREADS_MAX = 64, 4096, 1 << 20  # of a stack; characters of a name; of a process


class Node:
    """Another node, as its follower tells."""

    def __init__(self, channel: Channel, host: str, directory: str) -> None:
        self._channel, self._orders = channel, queue.Queue[dict[str, Any] | None](ORDERS)
        self._saying = threading.Thread(target=self._say, daemon=True)
        self.host, self.directory = host, directory
        self.landed: dict[int, Landed] = {}
        self.processes: dict[int, Elsewhere] = {}
        self.over = self.closed = self.forgotten = False  # all has come; its follower has gone; see `forget`
        self.closed_at, self.why, self.refused = 0.0, "", False  # when, and why; it was this side that has closed it
        self.lost = ""  # what is said of a node that was not followed to its end
        self.heard = time.monotonic()
        self.stacks: dict[int, list[Site]] | None = None
        self._saying.start()

    def order(self, do: str, **words: Any) -> None:
        """Have its follower do this, which nobody waits for. That it has gone is noticed when it is heard. Raises
        `Refused`: it has not taken what was said before."""
        try:
            self._orders.put_nowait({"do": do, **words})
        except queue.Full as error:
            raise Refused("it does not take what is said to it") from error

    def _say(self) -> None:
        """What was ordered, until there is no more."""
        with contextlib.suppress(OSError):
            while (words := self._orders.get()) is not None:
                put(self._channel, **words)

    def leave(self) -> None:
        """Nothing more is ordered."""
        with contextlib.suppress(queue.Full):
            self._orders.put_nowait(None)

    def left_by(self, end: float) -> None:
        """Wait until it has all that was ordered, until this moment at most."""
        self._saying.join(max(0.0, end - time.monotonic()))

    def heed(self, words: dict[str, Any], blob: bytes, landing: Landing) -> None:
        """What it says. Raises OSError, `Refused`."""
        self.heard, do = time.monotonic(), words.get("do")
        if do == "state":
            one = self.processes.get(whole(words, "rank", 0, RANKS_MAX))
            if one is not None:
                status = None if words.get("status") is None else whole(words, "status", 0, 0xFFFF)
                one.ended_at, one.status = whole(words, "at", -TIME_MAX, TIME_MAX), status
                one.working = whole(words, "working", 0, THREADS_MAX)
                one.gone, one.stopped = words.get("gone") is True, words.get("stopped") is True
                one.lives = words.get("lives") is True
        elif do == "stacks":
            self.stacks = dict(_stacks(blob, self.landed))
        elif do == "trouble":
            raise Refused(f"{words.get('why')!s:.1000}")  # it cannot read what its ranks have noted
        elif do == "over":
            self.over = True
            self.order("whole", ranks=words.get("ranks"))
        elif do == "here":
            self.order("here")  # the follower too would take long silence for an end
        else:
            self.over = self.forgotten
            self.processes.setdefault(landing.apply(self.landed, words, blob), Elsewhere())

    def close(self, why: str, refused: bool = False) -> None:
        """Its follower has gone: with its ranks, if all of these have ended. Or what it says was refused here."""
        self.closed, self.closed_at, self.why, self.refused = True, time.monotonic(), why, refused
        self.over = self.over or bool(self.landed and not self.left())

    def left(self) -> list[int]:
        """Ranks that have not come to their ends yet."""
        return [rank for rank, one in sorted(self.landed.items()) if not (one.complete or self.processes[rank].gone)]

    @property
    def lives(self) -> bool:
        """Whether one of its ranks runs still. If none does, what comes is what they have noted before."""
        return any(self.processes[rank].lives for rank in self.left())

    @property
    def place(self) -> str:
        return f"{self.host}:{self.directory}"

    @property
    def text(self) -> str:
        left = self.left()
        return f"rank{'s' * (len(left) > 1)} {ranges(left)} on {self.host}" if left else self.host


class Server:
    """Listens from the beginning. `directory`: of the trace, where all of it comes together."""

    def __init__(self, directory: Path, port: int = 0) -> None:
        """Raises `UsageError`: this port cannot be had."""
        try:
            self._callers = Callers(port)
        except OSError as error:
            raise UsageError(f"port {port}: {error.strerror}: other nodes could not reach this one") from error
        self.where = Where(self._callers.port, secrets.token_bytes(SECRET), addresses())
        self._landing, self.writing = Landing(directory), threading.RLock()
        self.nodes: list[Node] = []  # they come, and none goes
        self._told = set[int]()
        self.remarks: list[str] = []
        self.hurried = False  # by a signal: see `settle`
        self._callers.listen(self._serve)

    # Threads.

    def _serve(self, connection: socket.socket) -> None:
        with Channel(connection) as channel:
            try:
                channel.welcome(self.where.peer)
                node = _greeted(channel)
            except (OSError, Refused, RuntimeError):  # a stranger, or one of another run; or there are too many threads
                return
            finally:
                self._callers.known(connection)
            with self.writing:
                self.nodes.append(node)
            self._listen(node, channel)
            node.leave()
            with contextlib.suppress(OSError):  # it has gone
                connection.shutdown(socket.SHUT_RDWR)  # who says something there is to come to an end

    def _listen(self, node: Node, channel: Channel) -> None:
        """Until it is gone, or what it says is refused."""
        try:
            while True:
                try:
                    words, blob = take(channel)
                except OSError as error:
                    with self.writing:
                        node.close(error.strerror or str(error))
                    return
                with self.writing:
                    node.heed(words, blob, self._landing)
        except Exception as error:  # whatever it is: a thread that ended would be taken for a node that is quiet
            with self.writing:
                node.close(getattr(error, "strerror", None) or str(error), refused=True)

    # Of the thread that follows the ranks.

    def _lose(self, node: Node, why: str) -> None:
        node.closed = True
        verb, when = "are" if len(node.left()) > 1 else "is", time.strftime("%H:%M:%S")
        node.lost = f"{node.text} {verb} followed no more since {when}: {why}. The rest is in {node.place}"
        for rank in node.left():
            with contextlib.suppress(OSError):
                node.landed[rank].mark(node.lost)

    def process(self, rank: int) -> Elsewhere | None:
        """None: it is no rank of another node."""
        with self.writing:
            return next((node.processes[rank] for node in self.nodes if rank in node.processes), None)

    def losses(self) -> Iterator[tuple[tuple[int, ...], str]]:
        """The ranks of each node that has been lost since the last time, and why; but those that had ended."""
        for number, node in enumerate(self.nodes):
            with self.writing:
                if node.closed and not (node.over or node.lost) and time.monotonic() - node.closed_at > GRACE_S:
                    self._lose(node, node.why)
                left = tuple(node.left())
            if node.lost and number not in self._told:
                self._told.add(number)
                yield left, node.lost

    def ask_stacks(self, chosen: Iterable[int]) -> None:
        """Have the followers ask these ranks where they are."""
        wanted = set(chosen)
        for node in self.nodes:
            node.stacks = None
            if mine := sorted(wanted & node.processes.keys()):
                _order(node, "stacks", ranks=mine)
            else:
                node.stacks = {}

    def stacks(self) -> dict[int, list[Site]]:
        """What those who were asked have answered, in time."""
        self._until(lambda node: node.stacks is not None, ANSWERS_S)
        return {rank: sites for node in self.nodes for rank, sites in (node.stacks or {}).items()}

    def forget(self) -> None:
        """Nothing more is wanted of what ranks note: the followers remove it."""
        for node in self.nodes:
            node.over = node.forgotten = True
            _order(node, "forget")

    def end_ranks(self) -> None:
        """Have the followers end what is left of their ranks, and wait for that."""
        for node in self.nodes:
            _order(node, "end")
        self._until(lambda node: not node.left(), PATIENCE_S + ANSWERS_S)

    def settle(self, code: int) -> None:
        """The launcher has ended, with this code: wait for what the ranks have noted at last. A node whose ranks do not
        end, or from which nothing comes for a while, is lost. `hurried`: what still runs is ended first. (4)"""
        begun = time.monotonic()

        def is_settled(node: Node) -> bool:
            since = begun if node.lives else max(node.heard, begun)
            return node.over or self.hurried or time.monotonic() - since > SETTLES_S

        self._until(is_settled)
        if self.hurried:
            self.end_ranks()
            begun = time.monotonic()
            self._until(
                lambda node: node.over or bool(node.left()) or time.monotonic() - max(node.heard, begun) > SETTLES_S
            )
        with self.writing:
            for node in self.nodes:
                if node.over or node.lost:
                    continue
                if not node.closed:
                    self._lose(node, self._late(node))
                elif code and not node.refused:
                    self._fall(node)
                else:
                    self._lose(node, node.why)

    def _late(self, node: Node) -> str:
        """Why it is not waited for any longer."""
        if self.hurried and node.left():
            return "its ranks have not ended though they were told to"
        if node.lives:
            return f"its ranks have not ended {SETTLES_S:.0f} s after the launcher"
        return f"nothing has come of it for {SETTLES_S:.0f} s"

    def lost(self) -> list[str]:
        """Of each node that was not followed to its end: since when, and why."""
        return [node.lost for node in self.nodes if node.lost]

    def _fall(self, node: Node) -> None:
        self.remarks.append(f"of {node.text} the last moment may be missing: all processes there were ended at once, "
                            f"its follower too. The rest is in {node.place}")  # fmt: skip
        for rank in node.left():
            node.processes[rank].gone = True

    def _until(self, holds: Callable[[Node], bool], seconds: float = NEVER_S) -> None:
        """Of each node that is still followed."""
        end, left = time.monotonic() + seconds, True
        while left and time.monotonic() < end:
            with self.writing:
                left = not all(node.closed or holds(node) for node in self.nodes)
            if left:
                time.sleep(STEP_S)

    def close(self) -> None:
        """Let go of the followers that are still there: what they have stays on their nodes."""
        self._callers.close()
        with self.writing:
            nodes = [*self.nodes]
        for node in nodes:
            if not node.over:
                _order(node, "bye")
            node.leave()
        end = time.monotonic() + LEAVES_S
        for node in nodes:
            node.left_by(end)


def _order(node: Node, do: str, **words: Any) -> None:
    """One that takes nothing is not told, and is lost when it says something next."""
    with contextlib.suppress(Refused):
        node.order(do, **words)


def _greeted(channel: Channel) -> Node:
    """Raises OSError, `Refused`."""
    words, _ = take(channel)
    if words.get("do") != "hello" or words.get("version") != VERSION:
        refused = f"the follower is of safepoint {words.get('version')!s:.40}, and this is {VERSION}"
        put(channel, "no", why=refused)
        raise Refused(refused)
    put(channel, "clock", ns=time.monotonic_ns())
    for _ in range(CLOCKS - 1):
        if take(channel)[0].get("do") != "clock":
            raise Refused("it has not asked for the clock")
        put(channel, "clock", ns=time.monotonic_ns())
    channel.bear(PATIENCE)
    return Node(channel, *(f"{words.get(name)!s:.{TEXT_MAX}}" for name in ("host", "directory")))


def _stacks(told: bytes, mine: Iterable[int]) -> Iterator[tuple[int, list[Site]]]:
    """Raises `Refused`."""
    try:
        found = json.loads(told) if len(told) <= JSON_MAX else None
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise Refused("what it says are no stacks")
    ranks = {str(rank): rank for rank in mine}
    for rank, frames in found.items():
        if rank not in ranks or not isinstance(frames, list) or len(frames) > FRAMES_MAX:
            raise Refused("it tells where a rank is that it has not")
        for frame in frames:
            if not isinstance(frame, list) or [type(each) for each in frame] != [str, int, str]:
                raise Refused("what it says is no stack")
        yield ranks[rank], [Site(file, line, function) for file, line, function in frames]
