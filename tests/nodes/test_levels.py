"""The model of runs on disks of nodes (`testbed.levels`): no schedule breaks a promise, and each mutant is noticed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from testbed import levels
from testbed.sweep import ALL, LONG

from safepoint.nodes.marker import Marker
from safepoint.nodes.session import Nodes
from safepoint.nodes.turns import IDLE, Turn
from safepoint.record import Record

SCHEDULES = 20_000 if ALL or LONG else 1_000


@pytest.mark.timeout(7200 if LONG else 600)
@pytest.mark.parametrize("xor", [False, True], ids=["copies", "parity"])
def test_no_schedule_breaks_a_promise(xor: bool) -> None:
    count, first = levels.broken(SCHEDULES, xor=xor)
    assert count == 0, first


def by_number_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sets of two histories that have one number are taken for one."""
    monkeypatch.setattr(Record, "key", property(lambda self: self.number))
    monkeypatch.setattr(levels, "key", lambda life, number: number)
    monkeypatch.setattr(levels.choose, "_said", lambda ranks, key: ([0], {0: 0}))


def prunes_by_the_local_level_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    hold = Nodes._hold

    def without(self: Nodes) -> None:
        hold(self)
        self._sets.held = frozenset()

    monkeypatch.setattr(Nodes, "_hold", without)


def each_node_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new set is in its turn whether the others have done with the last, or not."""
    monkeypatch.setattr(Nodes, "brings", lambda self: (-IDLE, -IDLE))


def forgets_what_was_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a restart only the set that was given back stays."""
    monkeypatch.setattr(Turn, "found", property(lambda self: frozenset(), lambda self, value: None), raising=False)


def removes_copies_for_a_set_on_its_way(monkeypatch: pytest.MonkeyPatch) -> None:
    hold = Nodes._hold

    def early(self: Nodes) -> None:
        safe, self.copying.safe = self.copying.safe, self.copying.now
        hold(self)
        self.copying.safe = safe
        self._sets.held = frozenset(self.copying.held)

    monkeypatch.setattr(Nodes, "_hold", early)


def tells_when_one_node_has_done(monkeypatch: pytest.MonkeyPatch) -> None:
    def agreed(self: Turn, most: int) -> None:
        if self.now:
            self.safe = self.now

    monkeypatch.setattr(Turn, "agreed", agreed)


def lost_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    """A set that one rank could not store passes for one that all have put."""
    monkeypatch.setattr(Nodes, "_lose", _done)


def _done(self: Any, number: int) -> None:
    for turn in (self.copying, self.putting):
        turn.put = turn.put or turn.has(number)


def comes_back_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """A set that the program went back behind is given back, if a node has it."""
    monkeypatch.setattr(Marker, "given_up", lambda self, life, key: False)
    judge = levels.World.judge

    def judged(self: Any, choice: Any, where: Any) -> None:
        for begun, kept in self.marker.back:
            if choice.records and choice.records[0].life < begun and choice.records[0].key > kept:
                raise levels.Broken("P4")
        judge(self, choice, where)

    monkeypatch.setattr(levels.World, "judge", judged)


MUTANTS: dict[Callable[[pytest.MonkeyPatch], None], str] = {
    by_number_alone: "P1", prunes_by_the_local_level_alone: "P2", each_node_by_itself: "P2",
    forgets_what_was_found: "P2", removes_copies_for_a_set_on_its_way: "P2", tells_when_one_node_has_done: "P2",
    lost_is_done: "P2", comes_back_behind: "P4",
}  # fmt: skip


def names_no_life(monkeypatch: pytest.MonkeyPatch) -> None:
    """New parity takes the place of that of another group, node by node."""
    monkeypatch.setattr(levels, "made_in", lambda run: 0)


def names_the_life_of_now(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that has restored again takes its parity for that of an earlier one."""
    monkeypatch.setattr(levels, "made_in", lambda run: run.life.number)


# Not of parity: no node makes any of a set that one rank could not store.
OF_COPIES = {by_number_alone, comes_back_behind, lost_is_done}
OF_PARITY: dict[Callable[[pytest.MonkeyPatch], None], str] = {
    **{mutant: promise for mutant, promise in MUTANTS.items() if mutant not in OF_COPIES},
    names_no_life: "P2", names_the_life_of_now: "P2",
}  # fmt: skip


@pytest.mark.parametrize("mutant", OF_PARITY, ids=lambda mutant: mutant.__name__)
def test_what_is_broken_on_purpose_is_noticed_with_parity(
    mutant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant(monkeypatch)
    count, _ = levels.broken(20_000, until=OF_PARITY[mutant], xor=True)
    assert count, "no schedule shows it"


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_what_is_broken_on_purpose_is_noticed(
    mutant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant(monkeypatch)
    count, _ = levels.broken(20_000, until=MUTANTS[mutant])
    assert count, "no schedule shows it"
