"""The model of runs on disks of nodes (`testbed.levels`): no schedule breaks a promise, and each mutant is noticed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from testbed import levels
from testbed.sweep import LONG, PROOF

from safepoint.nodes.marker import Marker
from safepoint.nodes.session import Nodes
from safepoint.nodes.turns import IDLE, Turn
from safepoint.record import Record

SCHEDULES = 20_000 if LONG else 1_000 if PROOF else 200


@pytest.mark.timeout(7200 if LONG else 600)
@pytest.mark.parametrize("xor", [False, True], ids=["copies", "parity"])
def test_no_schedule_breaks_a_promise(xor: bool) -> None:
    count, first = levels.broken(range(SCHEDULES), xor=xor)
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


# Which promise each breaks, and the schedule that showed it last: the first that is tried.
Mutants = dict[Callable[[pytest.MonkeyPatch], None], tuple[str, int]]
OF_COPIES: Mutants = {
    by_number_alone: ("P1", 5), prunes_by_the_local_level_alone: ("P2", 66), each_node_by_itself: ("P2", 0),
    forgets_what_was_found: ("P2", 228), removes_copies_for_a_set_on_its_way: ("P2", 161),
    tells_when_one_node_has_done: ("P2", 1), lost_is_done: ("P2", 22), comes_back_behind: ("P4", 6371),
}  # fmt: skip


def names_no_life(monkeypatch: pytest.MonkeyPatch) -> None:
    """New parity takes the place of that of another group, node by node."""
    monkeypatch.setattr(levels, "made_in", lambda run: 0)


def names_the_life_of_now(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that has restored again takes its parity for that of an earlier one."""
    monkeypatch.setattr(levels, "made_in", lambda run: run.life.number)


# Without those of sets that one rank could not store: no node makes any parity of them.
OF_PARITY: Mutants = {
    prunes_by_the_local_level_alone: ("P2", 12), each_node_by_itself: ("P2", 0), forgets_what_was_found: ("P2", 153),
    removes_copies_for_a_set_on_its_way: ("P2", 12), tells_when_one_node_has_done: ("P2", 0),
    names_no_life: ("P2", 855), names_the_life_of_now: ("P2", 206),
}  # fmt: skip


def noticed(mutants: Mutants, *, xor: bool) -> None:
    for mutant, (promise, known) in mutants.items():
        with pytest.MonkeyPatch.context() as broken:
            mutant(broken)
            count, _ = levels.broken((known, *range(20_000)), until=promise, xor=xor)
        assert count, f"{mutant.__name__}: no schedule shows it"


def test_what_is_broken_on_purpose_is_noticed() -> None:
    noticed(OF_COPIES, xor=False)


def test_what_is_broken_on_purpose_is_noticed_with_parity() -> None:
    noticed(OF_PARITY, xor=True)
