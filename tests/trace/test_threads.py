"""The notes and rows of several threads of a Python program: none is torn, lost, or written where another is."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from testbed.checked import rows_of

from safepoint.trace import arguments, record, rows
from safepoint.trace.record import AFTER, COMPLETED, HEADER, NOTE, Full, Notes
from safepoint.trace.rows import Rows

THREADS, EACH = 4, 8_000


@pytest.fixture
def impatient() -> Iterator[None]:
    """Python goes from one thread to another as often as it can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def made(path: Path) -> Notes:
    return Notes(path, {"rank": 0, "size": 1}, 1 << 30)


def at_once(do: Callable[[int], None]) -> None:
    """All threads do it, from the same moment on. What one raises is raised."""
    ready, raised = threading.Barrier(THREADS), list[BaseException]()

    def run(number: int) -> None:
        ready.wait()
        try:
            do(number)
        except BaseException as error:
            raised.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(THREADS)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    if raised:
        raise raised[0]


def test_a_row_that_is_written_between_any_two_lines_of_another_lies_beside_it(tmp_path: Path) -> None:
    """What Python may do there: go to another thread, or to the handler of a signal."""
    notes = made(tmp_path)
    writer, others = Rows(notes, -1), list[int]()

    def between(frame: FrameType, event: str, argument: object) -> Any:
        if frame.f_code.co_filename not in (rows.__file__, record.__file__) or others[-1:] == [-1]:
            return None
        others.append(-1)
        number = 1000 + len(others)
        notes.more(HEADER + NOTE * number, COMPLETED, (number,))
        others[-1] = number
        return between

    before = sys.gettrace()
    sys.settrace(between)
    notes.more(HEADER, COMPLETED, (0, 0, 0))
    writer.one(HEADER + NOTE, AFTER, 7, 1)
    sys.settrace(before)
    notes.close("exit")
    found = rows_of(record.names(tmp_path, 0).more)
    assert len(others) > 8
    assert found == {0: {COMPLETED: [0, 0, 0]}, 1: {AFTER: [7, 1, 1]}} | {one: {COMPLETED: [one]} for one in others}


def test_the_wrappers_take_their_places_in_one_line() -> None:
    """As the two above."""
    lines, _ = arguments.rows(arguments.Method("Barrier", "comm", ("self",), False, False))
    assert [line for line in lines.splitlines() if "_more_at" in line] == [
        "end = notes._more_at = (begin := notes._more_at) + 32"
    ]


@pytest.mark.usefixtures("impatient")
def test_no_row_lies_where_another_does(tmp_path: Path) -> None:
    """Of any length, with values that say whose they are; and the file grows meanwhile."""
    notes = made(tmp_path)
    writer = Rows(notes, -1)

    def write(number: int) -> None:
        for turn in range(EACH):
            note = number * EACH + turn
            at = HEADER + NOTE * note
            notes.more(at, COMPLETED, (note,) * (1 + turn % 5))
            writer.one(at, AFTER, 7, note)

    at_once(write)
    notes.close("exit")
    found = rows_of(record.names(tmp_path, 0).more)
    assert record.names(tmp_path, 0).more.stat().st_size > record.SEGMENT
    assert len(found) == THREADS * EACH
    for note, row in found.items():
        assert row == {COMPLETED: [note] * (1 + note % EACH % 5), AFTER: [7, 1, note]}


@pytest.mark.usefixtures("impatient")
def test_a_file_that_two_threads_let_grow_at_once_grows_as_far_as_is_mapped(tmp_path: Path) -> None:
    notes = made(tmp_path)

    def grow(number: int) -> None:
        for turn in range(1, 9):
            notes.room(turn * record.SEGMENT + NOTE)
            notes.grow(turn * record.SEGMENT)

    at_once(grow)
    for file in notes.calls, notes._more:
        assert file.end == len(file.map) == 9 * record.SEGMENT
    assert (notes.map, notes.end) == (notes.calls.map, notes.calls.end)
    with pytest.raises(Full):
        notes.room(1 << 31)
    assert notes.end == 9 * record.SEGMENT
