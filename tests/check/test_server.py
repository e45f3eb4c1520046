"""What ranks on other nodes have noted comes to the launcher as it is; and nothing that anybody else says."""

from __future__ import annotations

import contextlib
import os
import random
import re
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from testbed.noted import Noted, Rank, plain, some

from safepoint.check import callers, hosts, running, server, wire
from safepoint.check import node as follower
from safepoint.check.config import Config
from safepoint.check.landing import Landed, Landing
from safepoint.check.node import connected
from safepoint.check.processes import boot
from safepoint.check.running import Run
from safepoint.check.server import Server
from safepoint.check.shipping import Shipment
from safepoint.check.tail import Noted as Note
from safepoint.check.tail import Tail
from safepoint.errors import UsageError
from safepoint.matching import match
from safepoint.nodes import transfer
from safepoint.nodes.transfer import Channel, Peer, Refused
from safepoint.spawned import isolated
from safepoint.trace import elsewhere, record
from safepoint.trace.record import AFTER, ARGUMENTS, EMPTY, ENTERED, HEADER, NOTE, RETURNED

pytestmark = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
PATIENCE_S = 120.0  # only what hangs reaches it


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
        command = [*isolated(hosts.FOLLOWER), str(self.directory)]
        environment = {**os.environ, wire.SERVER: (where or self.server.where).text()}
        with (self._top / "said").open("ab") as said:
            self._processes.append(subprocess.Popen(command, env=environment, stderr=said))
        return self._processes[-1]

    def said(self) -> str:
        return (self._top / "said").read_text()

    def child(self, *command: str) -> subprocess.Popen[bytes]:
        """A process, as that of a rank."""
        self._processes.append(subprocess.Popen(command or ("sleep", "600")))
        return self._processes[-1]

    def has(self, *ranks: int) -> bool:
        """These have come to the launcher, with what is said of them."""
        return all((self.launcher / f"rank-{rank:05d}.json").exists() for rank in ranks)

    def until(self, holds: Callable[[], object]) -> None:
        end = time.monotonic() + PATIENCE_S
        while not holds():
            assert time.monotonic() < end, (self.server.nodes and self.server.nodes[0].why, self.said())
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


@pytest.mark.parametrize("shift", [1000, -1000, 10**15, -5 * 10**10])
def test_times_are_by_the_clock_of_the_launcher(shift: int, tmp_path: Path) -> None:
    """Which host was booted first does not matter, nor a clock that is known within milliseconds only."""
    trace = Noted(tmp_path / "t", 1, {0: {"begin": [10**11, 2 * 10**18]}})
    trace.now = 10**11
    trace[0].call("Barrier", 3)
    trace[0].call("Recv", 4, peer=0, state=ENTERED)
    ship(*begun(tmp_path / "t", tmp_path / "u", shift))
    before, after = latest(tmp_path / "t", 0), latest(tmp_path / "u", 0)
    assert [note[1] for note in after.values()] == [int(str(note[1])) + shift for note in before.values()]
    assert (after[0][2], after[1][2]) == (int(str(before[0][2])) + shift, 0)
    begins = [Tail(tmp_path / name, 0).about["begin"][0] for name in "tu"]
    assert begins[1] == begins[0] + shift


def test_an_answer_that_was_long_on_its_way_is_not_what_a_clock_is_known_by(
    node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A host that is busy, or a network: by half of it the clocks would seem to differ."""
    now = [10**9]  # of both: it goes on while an answer is on its way
    clock = SimpleNamespace(monotonic_ns=lambda: now[0], monotonic=time.monotonic, sleep=time.sleep)
    monkeypatch.setattr(follower, "time", clock)
    with socket.create_server(("127.0.0.1", 0)) as late:
        where = node.server.where._replace(port=late.getsockname()[1])

        def serve() -> None:
            with Channel(late.accept()[0]) as channel:
                channel.welcome(where.peer)
                for pause_ns in (5 * 10**8, 3 * 10**8, 0, 4 * 10**8):
                    wire.take(channel)
                    now[0] += pause_ns
                    wire.put(channel, "clock", ns=now[0])

        thread = threading.Thread(target=serve)
        thread.start()
        with connected(where) as channel:
            assert follower.greeted(channel, tmp_path) == 0
        thread.join()


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


def test_a_follower_whose_connection_is_cut_leaves_all_there(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "GRACE_S", 3600.0)
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


def test_a_node_whose_follower_cannot_read_a_file_is_lost_and_the_program_goes_on(node: Node) -> None:
    """What else was found is told."""
    trace = some(node.directory)
    trace[1].notes.map[HEADER + NOTE - 1] = 77
    node.follow()
    node.until(lambda: node.server.nodes and node.server.nodes[0].closed)
    found = Run(node.launcher, [], 0, False, print, node.server).run(["sleep", "0.1"], os.environ)
    why = found.incomplete[0]
    assert "rank-00001.calls: note 0: its last byte is none that is written. The rest is in" in why
    assert (found.code, found.code_of_program) == (2, 0) and list(node.directory.glob("rank-00001.calls"))


def test_it_is_listened_at_the_address_that_was_said_alone(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """If it is one of this host."""
    assert node.server._callers._socket.getsockname()[0] == "127.0.0.1"
    for other in ("192.0.2.1", "a-name"):
        monkeypatch.setenv("SAFEPOINT_ADDRESS", other)
        found = callers.Callers(0)
        assert found._socket.getsockname()[0] in ("::", "0.0.0.0")
        found.close()


# A launcher that ends before its ranks.


def rank_of(server: Server, **state: object) -> tuple[Channel, Callable[[], None]]:
    """A follower with one rank, and how it says that its process does something."""
    channel, _ = greeted(server)
    for do, words, blob in (BEGIN, ("file", {"rank": 0, "name": "about"}, ABOUT)):
        wire.put(channel, do, blob, **words)
    told = {"at": 0, "gone": False, "lives": True, "stopped": False, "status": None, "working": 0} | state
    return channel, lambda: wire.put(channel, "state", rank=0, **told)


@pytest.mark.parametrize(
    ("lives", "says", "why"),
    [(True, 1000, "its ranks have not ended 10 s after the launcher"), (False, 50, "nothing has come of it for 10 s")],
)
def test_after_the_launcher_it_is_waited_for_what_ranks_that_are_gone_have_noted_and_for_no_others(
    lives: bool, says: int, why: str, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As long as it comes; however much the others do: else srun that was killed would leave `check` waiting for ever.
    Each look is a second later than the one before, and in some seconds the follower says something."""
    channel, say = rank_of(node.server, lives=lives)
    say()
    node.until(lambda: node.server.nodes and node.server.nodes[0].lives is lives and node.has(0))
    (one,), now, looks = node.server.nodes, time.monotonic(), 0

    def sleep(_: float) -> None:
        nonlocal now, looks
        now, looks = now + 1, looks + 1
        if looks <= says:
            say()
            node.until(lambda: one.heard == now)

    clock = SimpleNamespace(monotonic=lambda: now, sleep=sleep, strftime=time.strftime)
    with channel, monkeypatch.context() as patch:
        patch.setattr(server, "time", clock)
        node.server.settle(0)
    assert why in node.server.lost()[0] and looks == (11 if lives else says + 11)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_what_a_launcher_has_left_behind(
    number: int, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    rank = node.child()
    Noted(node.directory, 1, {0: {"pid": rank.pid}})
    node.follow()
    node.until(lambda: node.has(0))
    reaped = threading.Thread(target=rank.wait)  # else it would stay, as a process that has ended
    reaped.start()
    settle, before = node.server.settle, signal.getsignal(number)

    def interrupted(code: int) -> None:
        signal.raise_signal(number)
        settle(code)

    monkeypatch.setattr(node.server, "settle", interrupted)
    Run(node.launcher, [], 0, False, print, node.server).run(["true"], os.environ)
    assert signal.getsignal(number) is before
    reaped.join(PATIENCE_S)
    assert rank.returncode == -signal.SIGTERM and node.server.lost() == []


# Many ranks.


def test_stacks_of_many_ranks_come_however_long_their_names_are(node: Node) -> None:
    """C++ has names of thousands of characters: all together they are more than a word may have."""
    count, name = 16, "f" * 490
    body = f"def {name}(n):\n    if n: {name}(n - 1)\n    open(sys.argv[2], 'w')\n    time.sleep(600)\n{name}(6)\n"
    text = (
        "import faulthandler, signal, sys, time\nfile = open(sys.argv[1], 'a')\n"
        f"faulthandler.register(signal.SIGRTMIN + {record.STACK_SIGNAL}, file)\n"
        f"exec(compile({body!r}, '/{name}', 'exec'))\n"
    )
    at = [node.directory.parent / f"at-{rank}" for rank in range(count)]
    node.directory.mkdir()
    pids = {
        rank: {"pid": node.child(sys.executable, "-ISc", text, str(node.directory / f"rank-{rank:05d}.stack"),
                                 str(at[rank])).pid}
        for rank in range(count)
    }  # fmt: skip
    Noted(node.directory, count, pids)
    node.follow()
    node.until(lambda: node.has(*range(count)) and all(path.exists() for path in at))
    node.server.ask_stacks(range(count))
    found = node.server.stacks()
    told = {rank: (len(sites), *sites[0][:3]) for rank, sites in found.items()}
    assert told == dict.fromkeys(range(count), (5, f"/{name}", 4, name)), node.server.nodes[0].why


def test_of_ranks_that_have_come_no_file_is_kept_open(tmp_path: Path) -> None:
    """There may be thousands, and descriptors are few."""
    landing, landed = Landing(tmp_path), dict[int, Landed]()
    before = len(os.listdir("/proc/self/fd"))
    for rank in range(50):
        words = {"do": "file", "rank": rank, "name": "functions", "table": "functions-python.json"}
        landing.apply(landed, words, TABLE)
    assert len(landed) == 50 and len(os.listdir("/proc/self/fd")) <= before + 5  # of other threads


def test_many_files_may_be_open_here_and_no_more_than_before_in_the_program(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    ask = "*resource.getrlimit(resource.RLIMIT_NOFILE), *resource.prlimit(int(sys.argv[1]), resource.RLIMIT_NOFILE)"
    text = f"import resource, sys; print({ask}, file=open(sys.argv[2], 'w'))"
    resource.setrlimit(resource.RLIMIT_NOFILE, (200, hard))
    try:
        (tmp_path / "t").mkdir()
        words = sys.executable, "-ISc", text, str(os.getpid()), str(tmp_path / "said")
        Run(tmp_path / "t", [], 0, False, print).run(words, os.environ)
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (200, hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    program, ours = map(int, (tmp_path / "said").read_text().split()[::2])
    assert program == 200 and ours == (min(hard, running.FILES_MAX) if hard > 0 else running.FILES_MAX)


# Others.


def connection(server: Server) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.where.port), PATIENCE_S)


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


def test_callers_that_keep_silent_keep_no_follower_out(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """They would not go by themselves."""
    monkeypatch.setattr(transfer, "GREETS", 3600.0)
    silent = [connection(node.server) for _ in range(callers.GREETING)]
    some(node.directory).close()
    node.follow()
    node.until(lambda: node.server.nodes and node.server.nodes[0].over)
    assert len(silent[0].recv(100)) == 32 and silent[0].recv(100) == b""
    for one in silent:
        one.close()


def test_a_follower_that_is_sent_away_tries_again(node: Node) -> None:
    """As long as there is somebody to follow."""
    with socket.create_server(("127.0.0.1", 0)) as busy:
        where = node.server.where._replace(port=busy.getsockname()[1])

        def serve() -> None:
            for _ in range(2):
                busy.accept()[0].close()
            with Channel(busy.accept()[0]) as channel:
                channel.welcome(where.peer)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        connected(where).__exit__()
        thread.join()
        threading.Thread(target=lambda: busy.accept()[0].close()).start()
        with pytest.raises(OSError, match=r"closed the connection|reset by peer"):
            connected(where, lambda: False)


def test_a_follower_that_was_not_accepted_at_once_is_accepted_later(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here: as this process has no descriptor left for a moment."""
    failed, limits = threading.Event(), resource.getrlimit(resource.RLIMIT_NOFILE)
    monkeypatch.setattr(callers, "time", SimpleNamespace(monotonic=time.monotonic, sleep=lambda _: failed.set()))
    with socket.socket() as caller:
        os.close(free := os.dup(0))  # all below are in use
        resource.setrlimit(resource.RLIMIT_NOFILE, (free, limits[1]))
        try:
            caller.connect(("127.0.0.1", node.server.where.port))
            assert failed.wait(PATIENCE_S)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    channel, answer = greeted(node.server)
    with channel:
        assert answer["do"] == "clock"


def test_a_follower_that_does_not_read_keeps_nobody_waiting(node: Node) -> None:
    channel, _ = greeted(node.server)
    node.until(lambda: node.server.nodes)
    with channel:
        node.server.nodes[0]._channel._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        channel._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        channel.patient(3)  # for a server that reads no more
        with contextlib.suppress(OSError):
            for _ in range(20_000):
                wire.put(channel, "here")
        assert node.server.writing.acquire(timeout=PATIENCE_S)
        node.server.writing.release()
        node.until(lambda: node.server.nodes[0].closed)
    assert node.server.nodes[0].why == "it does not take what is said to it"


def test_a_second_program_of_the_command_is_told(node: Node) -> None:
    """Its ranks have the numbers of others. It is not checked, so nobody knows whether it is right."""
    some(node.directory).close()
    node.follow()
    node.until(lambda: node.server.nodes and node.server.nodes[0].over)
    channel, _ = greeted(node.server)
    with channel:
        wire.put(channel, BEGIN[0], BEGIN[2], **BEGIN[1])
        node.until(lambda: len(node.server.nodes) > 1 and node.server.nodes[1].closed)
    for code in (3, 0):  # also if it fails: its follower has not gone with it
        found = Run(node.launcher, [], 0, False, print, node.server).run(["sh", "-c", f"exit {code}"], os.environ)
        (why,) = found.unchecked
        assert re.fullmatch(r"b is followed no more since \S+: another node has rank 0, or it is of a second program "
                            r"in this command: one is checked. The rest is in b:/d", why)  # fmt: skip
        assert found.code == (code or 2)


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("srun -N2", True), ("srun -n 4 -N 2", True), ("srun --nodes=2", True), ("srun --nodelist=a,b", True),
        ("srun -wa", True), ("srun -N1 -n 4", False), ("mpiexec --host=a,b", True), ("mpiexec -hosts a,b", True),
        ("nice -n 3 mpiexec -hosts a,b", True), ("mpiexec -ppn 4", False), ("mpiexec -N 2 -n 4", False),
        ("mpiexec -hosts localhost,127.0.0.1:3", False), ("mpiexec -f here -n 4", False), ("mpiexec -f there", True),
        ("mpiexec -f missing", True), ("mpiexec -configfile options", True), ("mpiexec -n 4", False), ("", False),
        ("jsrun -n 4", True), ("flux run -N2", True), ("flux run -n2", False), ("nice", False),
    ],
)  # fmt: skip
def test_it_is_listened_if_a_command_may_run_elsewhere(
    command: str, expected: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "here").write_text(f"# mine\nlocalhost:2\n\n{socket.gethostname()} slots=4\n")
    (tmp_path / "there").write_text("localhost\nb:2\n")
    words = [*command.split(), sys.executable, "solver.py"]
    job = {"SLURM_JOB_ID": "1"}
    for more in ({}, {"PBS_NODEFILE": "missing"}, {"PBS_NODEFILE": "here"}):
        assert hosts.several(Config(), words, {**job, **more}) == expected
    assert hosts.several(Config(), words, {**job, "PBS_NODEFILE": "there"})
    assert hosts.several(Config(), words, {**job, "SLURM_NNODES": "2"})


def test_srun_that_is_in_no_job_may_run_elsewhere() -> None:
    assert hosts.several(Config(), ["srun", "-n", "2", sys.executable], {})


def greeted(server: Server, **words: Any) -> tuple[Channel, dict[str, Any]]:
    channel = Channel(connection(server))
    channel.greet(Peer(wire.NAME, server.where.port, server.where.secret))
    wire.put(channel, "hello", host="b", directory="/d", **{"version": wire.VERSION, **words})
    answer = wire.take(channel)[0]
    for _ in range(wire.CLOCKS - 1 if answer["do"] == "clock" else 0):
        wire.put(channel, "clock")
        answer = wire.take(channel)[0]
    return channel, answer


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
        ([BEGIN, ("stacks", {}, b"no")], "what it says are no stacks"),
        ([BEGIN, ("stacks", {}, b'{"1": []}')], "where a rank is that it has not"),
        ([BEGIN, ("stacks", {}, b'{"0": [["f", "x", "g"]]}')], "what it says is no stack"),
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
