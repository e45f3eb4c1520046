"""Warnings of what hinders sets on their way: the table of `troubles`, each after each other, without processes."""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from testbed import levels
from testbed.waiting import wait_for

from safepoint import SaveError, Session
from safepoint.cli.act import orders
from safepoint.cli.act.orders import Orders
from safepoint.nodes.marker import Node
from safepoint.nodes.session import Nodes
from safepoint.nodes.turns import Asked
from safepoint.record import Life
from safepoint.tiers import beside, troubles
from safepoint.tiers.beside import Beside
from safepoint.tiers.names import identity

SET = identity(1, 2, "0123456789abcdef")


class Process:
    """Stands for `Started`: says what a test lets it say, and ends when the test lets it."""

    gone = False

    def __init__(self, *_: object) -> None:
        self.to_say: list[str] = []
        self.moved, self.heard = 0.0, beside.time.monotonic()

    def lines(self) -> list[list[str]]:
        said, self.to_say = self.to_say, []
        return [line.split(" ", 1) for line in said]

    def say(self, line: str) -> bool:
        return True

    def ask(self, *_: object, **__: object) -> str:
        return "1"

    def let_go(self) -> None:
        pass

    def last_words(self) -> str:
        return "no room"


class Run(NamedTuple):
    """One rank of a run, and what it has warned of."""

    of: Beside
    caplog: pytest.LogCaptureFixture

    def hears(self, *lines: str, ends: bool = False) -> list[str]:
        """The warnings that are new after this."""
        self.caplog.clear()
        process: Any = self.of._drain
        assert process, "there is no process"
        process.to_say += lines
        process.gone = ends
        self.of._tend()
        return [record.getMessage() for record in self.caplog.records if record.levelno >= logging.WARNING]

    def begins_another(self) -> list[str]:
        """The process that begins when the last one has ended."""
        self.of._began = -beside.ANEW
        self.of._tend()
        return self.hears()


@pytest.fixture
def serial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> Iterator[Run]:
    """A run whose sets go to a remote place."""
    monkeypatch.setattr(beside, "Started", Process)
    (tmp_path / ".safepoint").write_text("u.dat\nremote = ../place\n")
    with Session(tmp_path) as session:
        (tmp_path / "u.dat").write_text("1")
        session.hide(1, wait=True)
        of: Any = session._beside
        yield Run(of, caplog)
        session.close()


@pytest.fixture
def on_nodes(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> Run:
    """The first rank of a run on disks of nodes, with a set that is to be copied and to be put."""
    near: Any = levels.Run(levels.World(0), [0, 1, 2], Life(1, "0123456789abcdef"), 1).ranks[0].near
    near._home.nodes, near._home.here = [Node(f"n{at}", "", "", ()) for at in range(3)], 0
    near._pid, near._lock = beside.os.getpid(), beside.threading.Lock()
    near._over, near._fatal, near._why, near._once, near.url = False, "", "", False, "s3://bucket/run"
    near._answers, near.peers, near._drain = {}, [], Process()
    monkeypatch.setattr(beside, "Started", Process)
    near._limit, near._process = 600.0, "the process beside the run on n0"
    near._root, near._words, near._secret = None, lambda: [], b""
    near._begin_copy(Asked(2, SET))
    near._begin_put(Asked(2, SET))
    near._began = beside.time.monotonic()
    return Run(near, caplog)


class Trouble(NamedTuple):
    """What begins it, and what its warning says."""

    begin: Callable[[Run], list[str]]
    says: str


def dies(run: Run) -> list[str]:
    """And another one begins."""
    return run.hears(ends=True) + run.begins_another()


TROUBLES = {
    "process": Trouble(dies, "has ended, and another one begins: no room"),
    "place": Trouble(lambda run: run.hears("trouble the disk is full"), "the disk is full; the run goes on"),
    "copy": Trouble(lambda run: run.hears(f"uncopied {SET} n1 is away"), "no copy on n1 (): n1 is away"),
    "deaf": Trouble(lambda run: run.hears("deaf no port is free"), "no port is free; the run goes on"),
    "waits place": Trouble(lambda run: run.hears("waits place waiting for s3://b/r"), "waiting for s3://b/r"),
    "waits copy": Trouble(lambda run: run.hears("waits copy waiting for node n1"), "waiting for node n1"),
    "over": Trouble(lambda run: run.hears("over another run has taken over"), "any more: another run has taken over"),
}


def each_after_each(run: Run, *names: str) -> None:
    """Each trouble is one warning, whichever other one there is; and one again, when all was well meanwhile."""
    for first, second in itertools.permutations(names, 2):
        for name in (first, second):
            said = TROUBLES[name].begin(run)
            assert len(said) == 1 and TROUBLES[name].says in said[0], (first, second, name, said)
            for known in (first, name):
                assert TROUBLES[known].begin(run) == [], (first, second, known)
        well = run.hears(f"there {SET}", f"copied {SET}", *["ready h 1"] * isinstance(run.of, Nodes))
        well = well or [f"sets go to {run.of.url} again"] * ({first, second} <= {"deaf", "copy", "waits copy"})
        assert well == [f"sets go to {run.of.url} again"], (first, second, well)
        assert run.hears(f"there {SET}", "fine", f"copied {SET}") == [], (first, second)


def test_a_trouble_of_the_place_and_one_of_the_process_are_told_in_both_orders(serial: Run) -> None:
    each_after_each(serial, "process", "place", "waits place")


def test_each_trouble_on_disks_of_nodes_is_told_after_each_other(on_nodes: Run) -> None:
    assert isinstance(on_nodes.of, Nodes)
    on_nodes.of.copying.put = True  # no set to copy: see below
    each_after_each(on_nodes, *TROUBLES)


def test_a_place_in_trouble_from_the_begin_of_the_next_process_on_is_told(serial: Run) -> None:
    """What began silently is no success: the trouble of the process has not ended, and that of the place is new."""
    assert len(serial.hears(ends=True)) == 1
    assert serial.begins_another() == []
    assert serial.hears("trouble the disk is full") == ["the disk is full; the run goes on"]
    assert serial.hears(ends=True) == [] == serial.begins_another()
    assert serial.hears("fine") == [f"sets go to {serial.of.url} again"]


def test_a_run_whose_sets_go_nowhere_any_more_says_so_once_and_begins_no_process(serial: Run) -> None:
    """Whatever was told before."""
    for name in ("process", "place"):
        TROUBLES[name].begin(serial)
    assert len(TROUBLES["over"].begin(serial)) == 1
    assert serial.hears(ends=True) == []
    serial.of._began = -beside.ANEW
    serial.of._tend()
    assert serial.of._drain is None


def test_a_node_whose_process_ends_says_that_its_set_has_no_copy(on_nodes: Run) -> None:
    """The other nodes may have copied theirs: the next set waits for this node, and they have nothing to say."""
    assert isinstance(on_nodes.of, Nodes)
    assert on_nodes.hears(ends=True)[1:] == ["no copy on n1 (): no room; the run goes on"]
    assert on_nodes.begins_another() == [] and TROUBLES["copy"].begin(on_nodes) == []
    assert on_nodes.hears(f"copied {SET}") == []
    assert len(on_nodes.hears(ends=True)) == 1  # its set is copied: there is nothing to say of that
    on_nodes.begins_another()
    on_nodes.of._begin_copy(Asked(3, identity(1, 3, "0123456789abcdef")))
    on_nodes.of._began = -beside.ANEW  # another process begins at once
    assert on_nodes.hears(ends=True) == []


def test_a_process_that_cannot_begin_is_told_once(
    serial: Run, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def cannot(*_: object) -> None:
        raise OSError("no such Python")

    serial.hears(f"there {SET}", ends=True)
    serial.of._troubles.end("process")
    monkeypatch.setattr(beside, "Started", cannot)
    caplog.clear()
    for _ in range(2):
        serial.of._began = -beside.ANEW
        serial.of._tend()
    assert [each.getMessage() for each in caplog.records] == [
        f"no drain could be started: no such Python; nothing goes to {serial.of.url} now"
    ]


def test_a_process_of_a_node_that_was_stopped_is_told_while_a_set_is_in_its_turn(
    on_nodes: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody waits for it: `hide` goes on, and no set is copied any more."""
    assert on_nodes.hears() == []
    monkeypatch.setattr(troubles, "SILENT", -1.0)
    assert [each[:52] for each in on_nodes.hears()] == ["the process beside the run on n0 has said nothing fo"]
    assert on_nodes.hears() == []
    monkeypatch.undo()
    monkeypatch.setattr(beside, "Started", Process)
    assert on_nodes.hears("moves", f"copied {SET}", f"there {SET}") == []
    monkeypatch.setattr(troubles, "SILENT", -1.0)
    assert on_nodes.hears() == []  # nothing is in its turn


def test_a_node_that_does_not_listen_costs_the_set_at_the_place_nothing(on_nodes: Run) -> None:
    assert isinstance(on_nodes.of, Nodes)
    on_nodes.hears("deaf no port is free")
    assert not on_nodes.of.putting.lost
    assert on_nodes.hears("ready h 7", "deaf no port is free") == ["no port is free; the run goes on"]


def test_who_is_waited_for_is_told_while_nothing_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other end of the pipe."""
    of, said = Orders.__new__(Orders), list[tuple[str, ...]]()
    of._waits, of._moved = {}, 0.0
    monkeypatch.setattr(of, "say", lambda *words: said.append(words))
    for name in ("FIRST_WORD", "NEXT_WORD", "LOOK"):
        monkeypatch.setattr(orders, name, 0.01)
    of.awaits("copy", "node n1")
    of.awaits("place", "s3://b/r")
    of.awaits("place", "")
    threading.Thread(target=of._watch, daemon=True).start()
    wait_for(lambda: len(said) > 3)
    assert {words[:2] for words in said} == {("waits", "copy")} and "waiting for node n1: no progress" in said[0][2]
    since = of._waits["copy"][1]
    of.moves()
    assert of._waits["copy"][1] == since
    of.moves("copy")
    assert of._waits["copy"][1] > since
    of.awaits("copy", "")


def test_a_process_that_does_not_say_where_it_listens_is_named_and_given_up(
    on_nodes: Run, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    near: Any = on_nodes.of
    near._port, near._limit, near._home.node = 0, 0.0, near._home.nodes[0]
    monkeypatch.setattr(troubles, "SILENT", -1.0)
    with pytest.raises(SaveError, match=r"on n0 has said nothing for .*given up after 0 s.*stall_timeout"):
        near._listen()
    assert "the process beside the run on n0 has said nothing" in caplog.records[0].getMessage()
