"""Warnings of what hinders sets on their way: the table of `troubles`, each after each other, without processes."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from testbed import levels

from safepoint import Session
from safepoint.nodes.marker import Node
from safepoint.nodes.session import Nodes
from safepoint.nodes.turns import Asked
from safepoint.record import Life
from safepoint.tiers import beside
from safepoint.tiers.beside import Beside
from safepoint.tiers.names import identity

SET = identity(1, 2, "0123456789abcdef")


class Process:
    """Stands for `Started`: says what a test lets it say, and ends when the test lets it."""

    gone = False

    def __init__(self, *_: object) -> None:
        self.to_say: list[str] = []
        self.moved = 0.0

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
        well = run.hears(f"there {SET}", f"copied {SET}")
        assert well == [f"sets go to {run.of.url} again"], (first, second, well)
        assert run.hears(f"there {SET}", "fine", f"copied {SET}") == [], (first, second)


def test_a_trouble_of_the_place_and_one_of_the_process_are_told_in_both_orders(serial: Run) -> None:
    each_after_each(serial, "process", "place")


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
