"""Drawn programs: whatever the schedule, two runs are equal; and one change is found where it is."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from unittest.mock import patch

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from testbed.sweep import many
from testbed.threads_drawn import Plan, changeable, event, plans, program
from testbed.threads_written import Table, put, records

from safepoint.threads import canon, difference, kinds, pairing, telling, walk
from safepoint.threads.compare import compare

some = settings(max_examples=many(240), suppress_health_check=list(HealthCheck))
chunks = st.sampled_from([3, 20, 1 << 18])  # records that are looked at together
teams = st.integers(1, 8)
seeds = st.integers(0, 999)


@contextmanager
def chunked(records: int) -> Iterator[None]:
    """With so few records at a time."""
    with ExitStack() as stack:
        for module in (canon, difference, pairing, walk):
            stack.enter_context(patch.object(module, "CHUNK", records))
        yield


@some
@given(plans(), teams, teams, seeds, seeds, chunks)
def test_a_program_is_equal_to_itself_at_any_schedule(
    plan: list[Plan], a: int, b: int, seed: int, other: int, chunk: int
) -> None:
    table = Table()
    with chunked(chunk), tempfile.TemporaryDirectory(dir="/dev/shm") as directory:
        runs = [
            put(Path(directory, name), table, records(table, program(plan), team, drawn))
            for name, team, drawn in (("a", a, seed), ("b", b, other))
        ]
        found = compare(*runs)
        assert (found.difference, found.code) == (None, 0), telling.lines(found)
        assert found.regions == sum(each[0] == "region" for each in plan) or not found.regions


@some
@given(plans(), teams, teams, seeds, seeds, chunks, st.data())
def test_one_change_is_found_at_exactly_its_place(
    plan: list[Plan], a: int, b: int, seed: int, other: int, chunk: int, data: st.DataObject
) -> None:
    table = Table()
    files = [records(table, program(plan), team, drawn) for team, drawn in ((a, seed), (b, other))]
    places = changeable(table, files[1])
    if not places:
        return
    file, at = data.draw(st.sampled_from(places))
    how = data.draw(st.sampled_from(["value", "lost", "more", "site"]))
    record = files[1][file][at]
    strange = table.site("variable-write", "strange")
    change = {
        "value": [(*record[:4], record[4] ^ 1)],
        "lost": [],
        "more": [(strange, *record[1:]), record],
        "site": [(strange, *record[1:])],
    }[how]
    files[1][file][at : at + 1] = change
    with chunked(chunk), tempfile.TemporaryDirectory(dir="/dev/shm") as directory:
        found = compare(*(put(Path(directory, name), table, rows) for name, rows in zip("ab", files, strict=True)))
        difference = found.difference
        assert difference is not None and found.code == 1
        lines = telling.lines(found)
        if difference.b is None:  # the last of all: A has one more
            assert how == "lost" and (at == len(files[1][file]) or difference.nested), lines
            return
        assert (difference.b.thread, difference.b.line) == (file, event(files[1][file], at)), (how, lines)
        assert difference.what == ("value" if how == "value" else "structure"), lines


@some
@given(plans(alike=False), teams, seeds, chunks, st.data())
def test_of_two_changes_the_one_is_told_that_a_serial_program_does_first(
    plan: list[Plan], team: int, seed: int, chunk: int, data: st.DataObject
) -> None:
    """Of nested regions that each thread enters at one place, all of thread 0's comes first; there are none here."""
    table = Table()
    files = [records(table, program(plan), threads, seed) for threads in (1, team)]
    places = changeable(table, files[1])
    if not places:
        return
    serial = {(row[0], row[4]): at for at, row in enumerate(files[0][0]) if row[3] == kinds.WRITE}
    changed = data.draw(st.lists(st.sampled_from(places), min_size=min(2, len(places)), max_size=6, unique=True))
    order = {}
    for file, at in changed:
        row = files[1][file][at]
        order[file, event(files[1][file], at)] = serial[row[0], row[4]]
        files[1][file][at] = (*row[:4], row[4] ^ 1)
    with chunked(chunk), tempfile.TemporaryDirectory(dir="/dev/shm") as directory:
        found = compare(*(put(Path(directory, name), table, rows) for name, rows in zip("ab", files, strict=True)))
        assert found.difference is not None and found.difference.b is not None
        told = found.difference.b.thread, found.difference.b.line
        assert order[told] == min(order.values()), telling.lines(found)


@some
@given(plans(), teams, teams, seeds, seeds, st.data())
def test_a_trace_cut_at_any_records_is_no_crash(
    plan: list[Plan], a: int, b: int, seed: int, other: int, data: st.DataObject
) -> None:
    table = Table()
    files = [records(table, program(plan), team, drawn) for team, drawn in ((a, seed), (b, other))]
    files[1] = [rows[: data.draw(st.integers(0, len(rows)))] for rows in files[1]]
    with tempfile.TemporaryDirectory(dir="/dev/shm") as directory:
        one = put(Path(directory, "a"), table, files[0])
        cut = put(Path(directory, "b"), table, files[1], ended=None)
        for pair in ((one, cut), (cut, one), (cut, cut)):
            found = compare(*pair)
            assert telling.lines(found) and found.code in (1, 2)


@some
@given(plans(inner=False), teams, teams, seeds, seeds, st.data())
def test_a_kill_leaves_what_is_equal_until_there(
    plan: list[Plan], a: int, b: int, seed: int, other: int, data: st.DataObject
) -> None:
    """A thread may be anywhere in the region in which the first one was killed, and nowhere else."""
    table = Table()
    files = [records(table, program(plan), team, drawn) for team, drawn in ((a, seed), (b, other))]
    visits = sum(record[3] == kinds.REGION for record in files[1][0])
    if not visits:
        return
    visit = data.draw(st.integers(1, visits))
    for number, rows in enumerate(files[1]):
        at = {
            record[3]: n
            for n, record in enumerate(rows)
            if record[3] in (kinds.ENTER, kinds.LEAVE) and record[4] == visit
        }
        files[1][number] = rows[: data.draw(st.integers(at[kinds.ENTER], at[kinds.LEAVE] + (number > 0)))]
    with tempfile.TemporaryDirectory(dir="/dev/shm") as directory:
        one = put(Path(directory, "a"), table, files[0])
        cut = put(Path(directory, "b"), table, files[1], ended=None)
        for pair in ((one, cut), (cut, one), (cut, cut)):
            found = compare(*pair)
            assert (found.difference, found.code, found.regions) == (None, 2, visit - 1), telling.lines(found)
            assert "no end" in found.undecided
