"""Calls that callbacks make inside of what frees, and of Finalize: they happen before that is done."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest
from testbed.given import CONSTANTS, WORLD

from safepoint.check.call import Call
from safepoint.check.named import Thing
from safepoint.check.nested import Nested
from safepoint.check.noted import AFTER, BEFORE, Noted
from safepoint.check.translated import Translator
from safepoint.trace import record
from safepoint.trace.record import ARGUMENTS, ENTERED, NO_RESULT, NONE, RETURNED

TWIN, KEPT = 0x900, 0x901
THINGS = {0: (3, Thing("comm", "", 1, 0, (range(2),), (), False)),
          1: (4, Thing("comm", "", 1, 1, (range(2),), (), False))}  # fmt: skip


def noted(number: int, function: str, enter: int, leave: int, rows: dict[int, list[int]], thread: int = 0) -> Noted:
    return Noted(number, function, enter, leave, 0, 0, NONE, NONE, NONE, NONE, 0, 0, 0, thread, 0, RETURNED, rows)


def made(number: int, handle: int) -> Noted:
    rows = {ARGUMENTS: [WORLD, 0], AFTER: [2, 1, handle]}
    return noted(number, "Comm_dup", 10 * number, 10 * number + 5, rows)


def freed(number: int, handle: int, enter: int, leave: int) -> Noted:
    return noted(number, "Comm_free", enter, leave, {ARGUMENTS: [0], BEFORE: [1, 1, handle]})


def barrier(number: int, comm: int, enter: int, thread: int = 0) -> Noted:
    return noted(number, "Barrier", enter, enter + 2, {ARGUMENTS: [comm]}, thread)


# The callback of TWIN calls Barrier on it, and frees KEPT; then WORLD is used.
FREES = [made(0, TWIN), made(1, KEPT), freed(2, TWIN, 20, 40), barrier(3, TWIN, 25), freed(4, KEPT, 30, 35),
         barrier(5, WORLD, 50)]  # fmt: skip
ENDS = [made(0, TWIN), made(1, KEPT), noted(2, "Finalize", 20, 40, {ARGUMENTS: []}), freed(3, TWIN, 25, 30),
        barrier(4, KEPT, 32), freed(5, KEPT, 35, 38), barrier(6, WORLD, 50)]  # fmt: skip


def lives(notes: Sequence[Noted]) -> list[Noted]:
    """As they are read while they are written: entered, and again when they have returned."""
    times = [(one.enter, at, one._replace(state=ENTERED, leave=0, result=NO_RESULT, rows={
        kind: row for kind, row in one.rows.items() if kind != AFTER})) for at, one in enumerate(notes)]  # fmt: skip
    times += [(one.leave, at, one) for at, one in enumerate(notes)]
    return [one for *_, one in sorted(times, key=lambda one: one[:2])]


def told(calls: Sequence[Call]) -> list[tuple[object, ...]]:
    found = []
    for call in sorted(calls, key=lambda one: one.number):
        match = call.value("match")
        found.append((call.function, call.leave, match.across if match else None))
    return found


def calls(notes: Sequence[Noted]) -> list[Call]:
    nested, translator = Nested(), Translator(0, 2, CONSTANTS)
    given = [one for note in notes for one in nested.ordered(note)]
    return [call for one in [*given, *nested.rest()] for call in translator.calls(one, THINGS)]


@pytest.mark.parametrize("notes", [FREES, ENDS], ids=["frees", "ends"])
def test_read_while_it_is_written_or_afterwards_a_call_means_the_same(notes: list[Noted]) -> None:
    """The communicator that is being freed is there for the callback: without that its Barrier would have no place
    among the collective calls of the others."""
    later = told(calls(notes))
    assert told(calls(lives(notes))) == later
    assert all(match for function, _, match in later if function in ("Barrier", "Comm_dup", "Comm_free"))


def test_finalize_is_the_last_call_but_for_those_after_it() -> None:
    for notes in ENDS, lives(ENDS):
        found = sorted(calls(notes), key=lambda one: one.number)
        assert [one.function for one in found] == ["Comm_dup"] * 2 + ["Comm_free", "Barrier", "Comm_free", "Finalize",
                                                                      "Barrier"]  # fmt: skip


def test_nothing_is_lost_wherever_the_notes_end() -> None:
    """A process may die, or be read, at any time."""
    for notes in lives(FREES), lives(ENDS), FREES, ENDS:
        for end in range(len(notes)):
            found = calls(notes[:end])
            assert len(found) == len({one.number for one in notes[:end]}), (end, found)


def test_a_thread_that_calls_after_it_has_returned_lets_it_go_at_once() -> None:
    nested = Nested()
    first = list(nested.ordered(freed(0, TWIN, 20, 40)))
    assert [(one.number, one.state) for one in first] == [(0, ENTERED)]
    assert [one.number for one in nested.ordered(barrier(1, WORLD, 30, thread=1))] == [1]
    assert [(one.number, one.state) for one in nested.ordered(barrier(2, WORLD, 41, thread=1))] == [
        (0, record.RETURNED),
        (2, record.RETURNED),
    ]


def test_a_rank_that_makes_no_more_calls_is_waited_for_by_time() -> None:
    for note in freed(0, TWIN, 20, 40), noted(0, "Finalize", 20, 40, {ARGUMENTS: []}):
        nested = Nested()
        list(nested.ordered(note))
        assert list(nested.over(39)) == [] and list(nested.over(40)) == [note] and list(nested.rest()) == []


def test_a_second_finalize_is_given_too() -> None:
    first, second = (noted(at, "Finalize", 10 * at, 10 * at + 5, {ARGUMENTS: []}) for at in range(2))
    entered = (one._replace(state=ENTERED, leave=0) for one in (first, second))
    for one, other in itertools.product((first, next(entered)), (second, next(entered))):
        nested = Nested()
        found = [*nested.ordered(one), *nested.ordered(other), *nested.rest()]
        assert [each.number for each in found] == [0, 1]
