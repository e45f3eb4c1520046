"""What ranks on other nodes have noted comes to the launcher as it is; and nothing that anybody else says."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from testbed.noted import Noted, Rank, plain, some

from safepoint.check import hosts, wire
from safepoint.check.landing import Landed, Landing
from safepoint.check.processes import boot
from safepoint.check.running import Run
from safepoint.check.server import Server
from safepoint.check.shipping import Shipment
from safepoint.check.tail import Noted as Note
from safepoint.check.tail import Tail
from safepoint.errors import UsageError
from safepoint.matching import match
from safepoint.nodes.transfer import Channel, Peer, Refused
from safepoint.trace import elsewhere, record
from safepoint.trace.record import AFTER, ARGUMENTS, EMPTY, ENTERED, HEADER, NOTE, RETURNED

pytestmark = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
PATIENCE_S = 30.0  # many times what it takes


class Node:
    """A directory of another node, and what follows it."""

    def __init__(self, top: Path) -> None:
        self.directory, self._top = top / "node", top
        (top / "launcher").mkdir()
        self.server = Server(top / "launcher")
        self._processes: list[subprocess.Popen[bytes]] = []

    @property
    def launcher(self) -> Path:
        return self._top / "launcher"

    def follow(self, where: wire.Where | None = None) -> subprocess.Popen[bytes]:
        (self.directory / elsewhere.FOLLOWING).touch()
        command = [sys.executable, "-c", hosts.FOLLOWER, hosts.HERE, str(self.directory)]
        environment = {**os.environ, wire.SERVER: (where or self.server.where).text()}
        with (self._top / "said").open("ab") as said:
            self._processes.append(subprocess.Popen(command, env=environment, stderr=said))
        return self._processes[-1]

    def said(self) -> str:
        return (self._top / "said").read_text()

    def child(self, *command: str) -> subprocess.Popen[bytes]:
        """A process, as that of a rank."""
        self._processes.append(subprocess.Popen(command or ("sleep", "60")))
        return self._processes[-1]

    def has(self, *ranks: int) -> bool:
        """These have come to the launcher, with what is said of them."""
        return all((self.launcher / f"rank-{rank:05d}.json").exists() for rank in ranks)

    def until(self, holds: Callable[[], object]) -> None:
        end = time.monotonic() + PATIENCE_S
        while not holds():
            assert time.monotonic() < end, (self.server.nodes and self.server.nodes[0].why, self.said())
            self.server.turn()
            time.sleep(0.01)

    def close(self) -> None:
        self.server.close()
        for one in self._processes:
            with contextlib.suppress(OSError):
                one.kill()
            one.wait()


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Node]:
    monkeypatch.setenv("SAFEPOINT_ADDRESS", "127.0.0.1")
    found = Node(tmp_path)
    yield found
    found.close()


def latest(directory: Path, rank: int) -> dict[int, tuple[object, ...]]:
    """Each note as it was given last, but for where its row is, which is another place."""
    tail, found = Tail(directory, rank), dict[int, Note]()
    while notes := tail.read():
        found |= {note.number: note for note in notes}
    tail.close()
    return {number: (*note[:13], *note[14:]) for number, note in found.items()}


def ship(shipment: Shipment, landing: Landing, landed: dict[int, Landed]) -> None:
    while said := list(shipment.more()):
        for do, words, blob in said:
            landing.apply(landed, {"do": do, **words}, blob)


def begun(trace: Path, launcher: Path, shift: int = 0) -> tuple[Shipment, Landing, dict[int, Landed]]:
    launcher.mkdir()
    shipment, landing, landed = Shipment(trace, Tail(trace, 0), shift), Landing(launcher), dict[int, Landed]()
    ship(shipment, landing, landed)
    return shipment, landing, landed


def change(rank: Rank, dice: random.Random, opened: list[int]) -> None:
    """What a tracer of several threads may do next."""
    turn = dice.randrange(4)
    if turn == 0 and opened:
        number = opened.pop(dice.randrange(len(opened)))
        rank.notes.more(HEADER + NOTE * number, AFTER, [dice.randrange(99)] * dice.randrange(3))
        rank.notes.map[HEADER + NOTE * number + NOTE - 1] = RETURNED
    elif turn == 1 and opened and dice.random() < 0.3:  # another thread is at it still: a reader ends here
        rank.notes.map[HEADER + NOTE * opened[-1] + NOTE - 1] = EMPTY
        rank.call("Barrier", 7, thread=1)
        rank.notes.map[HEADER + NOTE * opened[-1] + NOTE - 1] = ENTERED
    else:
        state = ENTERED if turn == 2 else RETURNED
        number = rank.call("Recv", dice.randrange(1, 9), peer=0, tag=5, state=state, thread=dice.randrange(2))
        rank.notes.more(HEADER + NOTE * number, ARGUMENTS, [number] * dice.randrange(5))
        if state == ENTERED:
            opened.append(number)


@pytest.mark.parametrize("seed", range(3))
def test_at_each_moment_the_launcher_has_what_the_node_has(seed: int, tmp_path: Path) -> None:
    """However much is new at once, and whatever has returned since."""
    trace, dice, opened = Noted(tmp_path / "t", 1), random.Random(seed), list[int]()
    shipment, landing, landed = begun(tmp_path / "t", tmp_path / "u")
    for _ in range(40):
        for _ in range(dice.choice((1, 1, 5, 60))):
            change(trace[0], dice, opened)
        ship(shipment, landing, landed)
        assert latest(tmp_path / "u", 0) == latest(tmp_path / "t", 0)
    trace.close()
    ship(shipment, landing, landed)
    assert latest(tmp_path / "u", 0) == latest(tmp_path / "t", 0) and shipment.complete and landed[0].complete
    assert record.count(record.names(tmp_path / "u", 0).calls) == trace[0].count


def test_a_note_points_to_its_row_wherever_that_is(tmp_path: Path) -> None:
    """Of two threads the second may have been done first."""
    trace = Noted(tmp_path / "t", 1)
    notes = trace[0].notes
    for _ in range(2):
        trace[0].call("Waitall", 3, row=(), state=ENTERED)
    for number in (1, 0):
        at = HEADER + NOTE * number
        index = notes.more(at, record.COMPLETED, [number, 0, 5] * (number + 1))
        notes.map[at + record.MORE : at + record.MORE + 4] = index.to_bytes(4, "little")
        notes.map[at + NOTE - 1] = RETURNED
    ship(*begun(tmp_path / "t", tmp_path / "u"))
    more = memoryview((tmp_path / "u/rank-00000.more").read_bytes()).cast("q").tolist()
    for note in Tail(tmp_path / "u", 0).read():
        assert more[note.more : note.more + 3] == [3 * (note.number + 1), note.number, record.COMPLETED]


def test_times_are_by_the_clock_of_the_launcher(tmp_path: Path) -> None:
    trace = Noted(tmp_path / "t", 1)
    trace[0].call("Barrier", 3)
    trace[0].call("Recv", 4, peer=0, state=ENTERED)
    ship(*begun(tmp_path / "t", tmp_path / "u", 1000))
    before, after = latest(tmp_path / "t", 0), latest(tmp_path / "u", 0)
    assert [note[1] for note in after.values()] == [int(str(note[1])) + 1000 for note in before.values()]
    assert (after[0][2], after[1][2]) == (int(str(before[0][2])) + 1000, 0)
    begins = [Tail(tmp_path / name, 0).about["begin"][0] for name in "tu"]
    assert begins[1] == begins[0] + 1000


def test_a_follower_tells_all_of_its_ranks_and_removes_what_has_come(node: Node) -> None:
    trace = some(node.directory)
    process = node.follow()
    node.until(lambda: node.has(0, 1))
    assert node.directory.exists() and not node.server.nodes[0].over
    expected = {rank: latest(node.directory, rank) for rank in range(2)}
    trace.close()
    node.until(lambda: node.server.nodes[0].over and process.poll() is not None)
    assert process.returncode == 0 and not node.directory.exists()
    for rank in range(2):  # the clocks of two processes are compared within a few ms
        come = latest(node.launcher, rank)
        assert {number: note[3:] for number, note in come.items()} == {
            number: note[3:] for number, note in expected[rank].items()
        }
        assert abs(int(str(come[0][1])) - int(str(expected[rank][0][1]))) < 10**9
    (same := node.directory.parent / "same").mkdir()
    assert plain(match.matched(node.launcher)) == plain(some(same / "t").matched())
    assert list(node.server.losses()) == [] and node.said() == ""


def test_a_rank_that_dies_stops_or_is_ended_is_told_from_there(node: Node) -> None:
    ranks = [node.child() for _ in range(3)]
    Noted(node.directory, 3, {rank: {"pid": process.pid} for rank, process in enumerate(ranks)})
    node.follow()
    node.until(lambda: node.server.nodes and len(node.server.nodes[0].processes) == 3)
    told = node.server.nodes[0].processes
    ranks[0].send_signal(signal.SIGSTOP)
    ranks[1].kill()
    node.until(lambda: told[0].stopped and told[1].gone)
    assert told[1].status == signal.SIGKILL and not told[2].gone and node.server.process(7) is None
    ranks[0].send_signal(signal.SIGCONT)
    node.until(lambda: not told[0].stopped)
    node.server.end_ranks()
    assert [process.wait() for process in ranks] == [-signal.SIGTERM, -signal.SIGKILL, -signal.SIGTERM]


def test_how_many_threads_work_is_told_from_there(node: Node) -> None:
    """Of a rank with more than are inside of calls, one computes: it is no hang."""
    text = "import threading, zlib\ndef work():\n    while True:\n        zlib.crc32(bytes(1 << 24))\n"
    busy = node.child(sys.executable, "-c", f"{text}threading.Thread(target=work).start()\nwork()\n")
    Noted(node.directory, 2, {0: {"pid": busy.pid}, 1: {"pid": node.child().pid}})
    node.follow()
    node.until(lambda: node.has(0, 1) and node.server.nodes[0].processes[0].working == 2)
    assert node.server.nodes[0].processes[1].working == 0


# A node that is lost.


def test_a_follower_whose_connection_is_cut_leaves_all_there(node: Node) -> None:
    trace = some(node.directory)
    process = node.follow()
    node.until(lambda: node.has(0, 1))
    node.server.nodes[0]._channel._socket.shutdown(socket.SHUT_RDWR)
    node.until(lambda: process.poll() is not None)
    trace[0].call("Barrier", 9)
    trace.close()
    assert node.directory.exists() and not (node.directory / elsewhere.FOLLOWING).exists()
    node.until(lambda: node.server.nodes[0].closed)
    assert list(node.server.losses()) == []  # it may have gone with the program
    node.server.settle(0)
    ((ranks, why),) = node.server.losses()
    assert ranks == (0, 1) and f":{node.directory}" in why and why.startswith("ranks 0-1 on ")
    assert Tail(node.launcher, 1).about["incomplete"] == why
    assert latest(node.directory, 0).keys() > latest(node.launcher, 0).keys()


def test_a_follower_that_goes_with_a_program_that_fails_has_gone_with_its_ranks(node: Node) -> None:
    some(node.directory)
    process = node.follow()
    node.until(lambda: node.has(0, 1))
    process.kill()
    node.server.settle(9)
    assert list(node.server.losses()) == [] and all(one.gone for one in node.server.nodes[0].processes.values())
    assert "the last moment may be missing" in node.server.remarks[0]


def test_without_a_server_a_follower_says_so_and_leaves_all_there(node: Node) -> None:
    some(node.directory).close()
    where = node.server.where._replace(port=1)  # where nobody listens who would know the secret
    assert node.follow(where).wait(PATIENCE_S) == 1
    assert "is not followed: no connection to port 1 of" in node.said() and str(node.directory) in node.said()
    assert not (node.directory / elsewhere.FOLLOWING).exists() and (node.directory / "rank-00001.calls").exists()


def test_what_a_follower_cannot_read_is_told_here(node: Node) -> None:
    """As the trace of a rank of this host would be."""
    trace = some(node.directory)
    trace[1].notes.map[HEADER + NOTE - 1] = 77
    node.follow()
    with pytest.raises(UsageError, match=r"rank-00001.calls: note 0: its last byte is none that is written"):
        node.until(lambda: False)


# Others.


def connection(server: Server) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.where.port), 10)


def test_who_has_not_the_secret_is_not_listened_to(node: Node) -> None:
    where = node.server.where
    for secret in (bytes(32), where.secret[:-1] + b"x"):
        with Channel(connection(node.server)) as channel, pytest.raises((Refused, OSError)):
            channel.greet(Peer(wire.NAME, where.port, secret))
            channel.hear()
    for garbage in (b"", b"GET / HTTP/1.1\r\n\r\n", random.Random(1).randbytes(100_000)):
        with connection(node.server) as stranger, contextlib.suppress(OSError):
            stranger.sendall(garbage)
            stranger.shutdown(socket.SHUT_WR)
            assert len(stranger.recv(100)) == 32 and stranger.recv(100) == b""  # a nonce, and no more
    silent = [connection(node.server) for _ in range(80)]
    for one in silent:
        one.close()
    assert node.server.nodes == []
    some(node.directory).close()
    node.follow()
    node.until(lambda: node.server.nodes and node.server.nodes[0].over)


def greeted(server: Server, **words: Any) -> tuple[Channel, dict[str, Any]]:
    channel = Channel(connection(server))
    channel.greet(Peer(wire.NAME, server.where.port, server.where.secret))
    wire.put(channel, "hello", host="b", directory="/d", **{"version": wire.VERSION, **words})
    return channel, wire.take(channel)[0]


def test_a_follower_of_another_version_is_told_so(node: Node) -> None:
    channel, answer = greeted(node.server, version="0.0")
    with channel:
        assert answer["do"] == "no" and "the follower is of safepoint 0.0" in answer["why"]
    assert node.server.nodes == []


def test_a_sign_of_life_is_answered(node: Node) -> None:
    """A follower that hears nothing for long leaves."""
    channel, _ = greeted(node.server)
    with channel:
        for _ in range(2):
            wire.put(channel, "here")
            assert wire.take(channel) == ({"do": "here"}, b"")


TABLE = b'{"1": ["Send", "send"]}'
ABOUT = b'{"rank": 0, "format": 1}'
BEGIN = ("file", {"rank": 0, "name": "functions", "table": "functions-python.json"}, TABLE)


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ([("text", {"rank": 0, "name": "sites", "at": 0}, b"x")], "it has not begun with rank 0"),
        ([("file", {"rank": -1, "name": "about"}, ABOUT)], "it says rank = -1"),
        ([("file", {"rank": 0, "name": "functions", "table": "../x.json"}, TABLE)], "it has no table"),
        ([("file", {"rank": 0, "name": "functions", "table": "functions-c.json"}, b"[" * 9)], "it has no table"),
        ([BEGIN, BEGIN], "another node has rank 0"),
        ([BEGIN, ("file", {"rank": 0, "name": "watch"}, ABOUT)], "is no 'watch'"),
        ([BEGIN, ("file", {"rank": 0, "name": "about"}, b'{"rank": 1}')], "that it is another one"),
        ([BEGIN, ("file", {"rank": 0, "name": "about"}, b"no")], "is no 'about'"),
        ([BEGIN, ("text", {"rank": 0, "name": "calls", "at": 0}, b"x")], "it has left out lines of rank 0"),
        ([BEGIN, ("text", {"rank": 0, "name": "sites", "at": 1}, b"x")], "it has left out lines of rank 0"),
        ([BEGIN, ("notes", {"rank": 0, "at": 9, "rows": 0, "runs": []}, b"")], "it has left out rows of rank 0"),
        ([BEGIN, ("notes", {"rank": 0, "at": 3, "rows": 0, "runs": [[0, 9]]}, bytes(64))], "it has left out rows"),
        ([BEGIN, ("notes", {"rank": 0, "at": 3, "rows": 0, "runs": [[-1, 1]]}, bytes(64))], "notes without numbers"),
        ([BEGIN, ("notes", {"rank": 0, "at": 3, "rows": 0, "runs": [[1 << 33, 1]]}, bytes(64))], "too many notes"),
        ([BEGIN, ("notes", {"rank": 0, "at": 3, "rows": 0, "runs": 7}, bytes(64))], "notes without numbers"),
        ([BEGIN, ("closed", {"rank": 0, "count": 1, "rows": 9}, b"")], "it has left out what rank 0"),
        ([BEGIN, ("remove", {"rank": 0}, b"")], "it says 'remove', which is nothing"),
        ([BEGIN, ("stacks", {"of": {"1": []}}, b"")], "where a rank is that it has not"),
        ([BEGIN, ("stacks", {"of": {"0": [["f", "x", "g"]]}}, b"")], "what it says is no stack"),
        ([BEGIN, ("state", {"rank": 0, "at": 0, "status": 1 << 40, "working": 0}, b"")], "it says status"),
    ],
)  # fmt: skip
def test_what_is_not_what_a_follower_says_loses_its_node(said: Any, why: str, node: Node) -> None:
    channel, answer = greeted(node.server)
    assert answer["do"] == "clock"
    with channel:
        for do, words, blob in said:
            with contextlib.suppress(OSError):
                wire.put(channel, do, blob, **words)
        node.until(lambda: node.server.nodes and node.server.nodes[0].closed)
    assert why in node.server.nodes[0].why
    names = {path.name.partition(".")[0] for path in node.launcher.iterdir()}
    assert names <= {"rank-00000", "functions-python"}


def test_a_rank_that_is_here_is_not_taken_from_another_node(node: Node) -> None:
    some(node.launcher)
    some(node.directory)
    node.follow()
    node.until(lambda: node.server.nodes and node.server.nodes[0].closed)
    assert "File exists" in node.server.nodes[0].why and node.server.nodes[0].landed == {}


def test_a_port_that_is_taken_is_told() -> None:
    with socket.create_server(("", 0)) as other, pytest.raises(UsageError, match=r"port \d+: Address already in use"):
        Server(Path(), other.getsockname()[1])


def test_ranks_of_another_host_that_note_here_are_told(tmp_path: Path) -> None:
    """On a file system that the nodes share, and without a server."""
    trace = Noted(tmp_path / "t", 2, {0: {"boot": boot()}, 1: {"boot": "of another host", "host": "b"}})
    for rank in range(2):
        trace[rank].call("Barrier", 3)
    trace.close()
    found = Run(tmp_path / "t", [], 0, False, print).run(["true"], os.environ)
    assert ["rank 1 ran on b" in line for line in found.remarks] == [True]
    assert found.code == 0 and found.incomplete == []
