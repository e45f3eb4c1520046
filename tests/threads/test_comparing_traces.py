"""What is the same, what differs, and in which words: traces written from descriptions."""

from __future__ import annotations

import math
import struct
from pathlib import Path
from typing import Any

import pytest
from testbed.threads_chain import made, whole
from testbed.threads_written import (
    Digest,
    Event,
    Loop,
    Record,
    Region,
    Sections,
    Statement,
    Table,
    Within,
    Write,
    put,
    records,
    written,
)

from safepoint.threads import kinds, pairing, telling
from safepoint.threads.compare import Found, Rules, UnlikeTraces, compare
from safepoint.threads.difference import Iteration, filled
from safepoint.threads.trace import Run

# What is the same, what differs, and in which words: traces written from descriptions.

Both = tuple[list[Statement], list[Statement]]


def judged(place: Path, a: list[Statement], b: list[Statement], rules: Rules | None = None, threads: int = 4) -> Found:
    """A serial, B by threads."""
    table = Table()
    return compare(written(place / "a", table, a), written(place / "b", table, b, threads, seed=5), rules)


def loop(values: Any, type: int = kinds.REAL8, name: str = "b(i,j)", loose: str = "") -> list[Statement]:
    return [Region([Loop("j", range(2, 7), lambda j: [Write(name, values(j), type, loose)])])]


def test_the_words_of_a_value_that_differs(tmp_path: Path) -> None:
    """Section 1 of the design: line of the trace, file and line, value; then iteration, threads and what is equal."""
    found = judged(tmp_path, loop(lambda j: j / 2), loop(lambda j: 8.34e-309 if j == 4 else j / 2))
    lines = telling.lines(found)
    b = found.difference.b
    assert lines[0] == (
        f"Inconsistency: A(9): heat.f90:4=write b(i,4) 2.0, B({b.line}): heat.f90:4=write b(i,4) 8.34e-309"
    )
    assert lines[1] == (
        f"  iteration j = 4; region 1 (heat.f90:1); A: thread 0, B: thread {b.team}; until there 0 regions and 2 of 5 "
        f"iterations equal"
    )
    assert telling.place(found.difference) == "region 1, heat.f90:1, b(i,j)"
    assert telling.as_json(found)["difference"]["b"]["value"] == "8.34e-309"
    assert found.code == 1


def test_equal_runs_say_what_the_comparer_of_2009_said(tmp_path: Path) -> None:
    found = judged(tmp_path, loop(float), loop(float))
    assert telling.lines(found) == ["Completed comparing. No inconsistencies detected."]
    assert (found.code, found.regions) == (0, 1)


def test_the_words_of_a_structure_that_differs(tmp_path: Path) -> None:
    more = [Region([Write("x", 1.0), *loop(float)[0].body])]  # type: ignore[union-attr]
    lines = telling.lines(judged(tmp_path, more, loop(float), threads=1))
    assert lines[0] == (
        "Inconsistency: A(3): heat.f90:2=write x 1.0, B(3): heat.f90:3=loop 2..6 (expected write x, read loop at 3)"
    )


def test_an_iteration_that_nobody_ran_is_named(tmp_path: Path) -> None:
    table = Table()
    a = records(table, loop(float))
    b = [[row for at, row in enumerate(a[0]) if a[0][at - (row[3] == kinds.WRITE)][4] != 5]]
    found = compare(put(tmp_path / "a", table, a), put(tmp_path / "b", table, b))
    assert telling.lines(found)[0] == (
        "Inconsistency: A(10): heat.f90:3=iteration j = 5, B: no such iteration (expected iteration, read nothing)"
    )


@pytest.mark.parametrize("type", [kinds.REAL4, kinds.REAL8])
def test_nan_is_nan_and_minus_zero_is_zero_and_infinity_itself(tmp_path: Path, type: int) -> None:
    words = {kinds.REAL8: (0x7FF8000000000001, 0xFFF0000000000007), kinds.REAL4: (0x7FC00001, 0xFFC00002)}[type]
    one: dict[int, Any] = {2: [words[0]], 3: -0.0, 4: math.inf, 5: 1.0, 6: 2.0}
    other: dict[int, Any] = {2: [words[1]], 3: 0.0, 4: math.inf, 5: 1.0, 6: 2.0}
    assert judged(tmp_path / "1", loop(one.get, type), loop(other.get, type)).code == 0
    for number, wrong in ((2, 1.0), (4, -math.inf), (4, 1e38), (3, 1e-30)):
        found = judged(tmp_path / f"{number}{wrong}", loop(one.get, type), loop({**other, number: wrong}.get, type))
        assert found.difference.iteration.numbers == (number,)
    found = judged(tmp_path / "i", loop(one.get, type), loop({**other, 4: 1.0}.get, type), Rules(rtol=0.5, atol=9.0))
    assert found.code == 1  # no tolerance is as wide as infinity


def test_tolerances_by_name_and_exclusions(tmp_path: Path) -> None:
    pair = loop(lambda j: float(j)), loop(lambda j: j * (1 + 1e-9))
    assert judged(tmp_path / "1", *pair).code == 1
    for number, rules in enumerate(
        (
            Rules(rtol=1e-8),
            Rules(atol=1e-7),
            Rules(tolerances=(("b", 1e-8, 0.0),)),
            Rules(tolerances=(("b(i,j)", 1e-8, 0.0),)),
            Rules(exclude=("b*",)),
        )
    ):
        assert judged(tmp_path / f"t{number}", *pair, rules).code == 0
    assert judged(tmp_path / "2", *pair, Rules(rtol=1e-8, tolerances=(("b", 1e-10, 0.0),))).code == 1
    assert judged(tmp_path / "3", *pair, Rules(exclude=("c",))).code == 1


@pytest.mark.parametrize(
    ("type", "a", "b", "rules", "same"),
    [
        (kinds.INTEGER4, -7, -8, Rules(), False),
        (kinds.INTEGER4, -7, -8, Rules(atol=1.0), True),
        (kinds.INTEGER8, 1 << 62, (1 << 62) + 1, Rules(), False),
        (kinds.LOGICAL4, 1, 0xFFFFFFFF, Rules(), True),
        (kinds.LOGICAL4, 1, 0, Rules(rtol=1.0, atol=9.0), False),
        (kinds.COMPLEX8, 1 + 2j, 1 + 2.0000001j, Rules(), False),
        (kinds.COMPLEX8, 1 + 2j, 1 + 2.0000001j, Rules(rtol=1e-6), True),
        (kinds.COMPLEX8, complex(0.0, -0.0), complex(-0.0, 0.0), Rules(), True),
        (kinds.CHARACTER, "north", "south", Rules(rtol=1.0), False),
        (kinds.CHARACTER, "north by", "north", Rules(), False),
        (kinds.REAL16, [0, 0x3FFF << 48], [1, 0x3FFF << 48], Rules(), False),
        (kinds.REAL16, [0, 0x3FFF << 48], [1, 0x3FFF << 48], Rules(rtol=1e-30), True),
        (kinds.REAL16, [0, 0x3FFF << 48], [0, 0x4000 << 48], Rules(rtol=1e-3), False),
        (kinds.COMPLEX16, [0, 0x3FFF << 48, 0, 0], [0, 0x3FFF << 48, 1, 0x3FFF << 48], Rules(rtol=1e-9), False),
    ],
)
def test_each_type_is_compared_as_it_is(tmp_path: Path, type: int, a: Any, b: Any, rules: Rules, same: bool) -> None:
    first: Any = [a] if type == kinds.LOGICAL4 else a
    second: Any = [b] if type == kinds.LOGICAL4 else b
    found = judged(tmp_path, loop(lambda j: first, type), loop(lambda j: second if j == 5 else first, type), rules)
    assert (found.difference is None) is same
    if found.difference is not None:
        assert found.difference.iteration is not None and found.difference.iteration.numbers == (5,)


def digest(low: int, *values: float, count: int = 9, loose: str = "") -> list[Statement]:
    more = struct.unpack("<4Q", struct.pack("<4d", *values)) if values else ()
    return [Region([], [Digest("b", (count, low, 7, *more), loose=loose)])]


def test_digests_are_the_same_by_their_bits_or_within_a_tolerance_by_statistics(tmp_path: Path) -> None:
    one, other = digest(1, 1.0, 2.0, 1.5, 1.6), digest(2, 1.0, 2.0, 1.5, 1.6 + 1e-12)
    assert judged(tmp_path / "1", one, one).code == 0
    found = judged(tmp_path / "2", one, other)
    assert "digest b (9 real(8), 00000000000000070000000000000001, min 1.0" in telling.lines(found)[0]
    assert telling.lines(found)[1].startswith("  region 1 (heat.f90:1); A: thread 0, B: thread 0")
    said = telling.lines(judged(tmp_path / "3", one, other, Rules(rtol=1e-9)))
    assert said[1:] == ["  1 value differs in bits, and is the same within the tolerance",
                        "  1 of these is an array, compared by statistics alone"]  # fmt: skip
    assert judged(tmp_path / "4", one, digest(2, 1.0, 2.1, 1.5, 1.6), Rules(rtol=1e-9)).code == 1
    assert judged(tmp_path / "5", digest(1), digest(2), Rules(rtol=1e-9)).code == 1  # nobody knows by how much
    assert judged(tmp_path / "6", digest(1, count=8), digest(1), Rules(rtol=9.0)).code == 1


def test_a_reduction_counts_after_its_construct_alone(tmp_path: Path) -> None:
    """Within it partial sums are what threads make of them; after it the order of additions is in the last bits."""

    def summed(total: float) -> list[Statement]:
        inside = loop(lambda j: total * j, name="s", loose="reduction")
        return [*inside, Write("t", total, loose="reduced")]

    found = judged(tmp_path / "1", summed(3.0), summed(3.0 * (1 + 1e-14)))
    assert telling.lines(found) == [telling.EQUAL, "  1 reduction that differs in the last bits, within 1e-12"]
    assert judged(tmp_path / "2", summed(3.0), summed(3.1)).code == 1
    assert judged(tmp_path / "3", summed(3.0), summed(3.0 * (1 + 1e-14)), Rules(reduction_rtol=0.0)).code == 1
    one = [digest(n, total, total, total, total, count=1, loose="reduced") for n, total in ((1, 3.0), (2, 3.0 + 1e-14))]
    assert judged(tmp_path / "4", *one).code == 0
    found = judged(tmp_path / "5", digest(1, loose="reduced"), digest(2, loose="reduced"))
    assert found.code == 2 and "record both with SP_STATISTICS=1" in telling.lines(found)[0]


def test_atomic_is_compared_by_structure_alone(tmp_path: Path) -> None:
    def counted(value: float) -> list[Statement]:
        return [
            Region([Loop("j", range(5), lambda j: [Within(kinds.ATOMIC, [Write("n", value + j)]), Write("x", 1.0)])])
        ]

    assert judged(tmp_path / "1", counted(1.0), counted(2.0)).code == 0
    other = [Region([Loop("j", range(5), lambda j: [Within(kinds.ATOMIC, []), Write("x", 1.0)])])]
    assert judged(tmp_path / "2", counted(1.0), other).code == 1


def queue(values: list[float], loose: str = "") -> list[Statement]:
    each = [Within(kinds.CRITICAL, [Write("next", value, loose=loose)]) for value in values]
    return [Region([Loop("j", range(len(values)), lambda j: [each[j], Write("x", 1.0)])])]


def test_critical_is_a_bag(tmp_path: Path) -> None:
    """A queue of work hands out the same items in another order; and it is told if one is another."""
    assert judged(tmp_path / "1", queue([1.0, 2.0, 3.0, 4.0]), queue([3.0, 1.0, 4.0, 2.0])).code == 0
    found = judged(tmp_path / "2", queue([1.0, 2.0, 3.0, 4.0]), queue([3.0, 1.0, 5.0, 2.0]))
    lines = telling.lines(found)
    assert "write next 4.0, B(" in lines[0] and "write next 5.0" in lines[0]
    assert "in CRITICAL" in lines[-1]
    assert judged(tmp_path / "3", queue([1.0, 2.0], "critical"), queue([7.0, 8.0], "critical")).code == 0
    rules = Rules(atol=0.1)
    assert judged(tmp_path / "4", queue([1.0, 2.0, -3.0]), queue([-3.01, 2.01, 1.01]), rules).code == 0


def test_tickets_that_threads_draw_in_any_order(tmp_path: Path) -> None:
    """CRITICAL outside of loops: a bag of all threads if there are as many; else nobody can say which ones."""
    table = Table()
    program: list[Statement] = [Region([Within(kinds.CRITICAL, [Write("ticket", 0.0)]), Write("y", 2.0)])]

    def drawn(name: str, *tickets: int) -> Run:
        files = records(table, program, len(tickets))
        for rows, ticket in zip(files, tickets, strict=True):
            at = next(at for at, row in enumerate(rows) if row[3] == kinds.WRITE)
            rows[at] = (*rows[at][:4], ticket)
        return put(tmp_path / name, table, files)

    a = drawn("a", 1, 2, 3)
    assert compare(a, drawn("b", 3, 1, 2)).code == 0
    found = compare(a, drawn("c", 3, 1, 4))
    assert found.difference and found.difference.b and found.difference.b.team == 2
    assert compare(a, drawn("d", 7, 8)).code == 0


def test_a_thread_that_does_other_things_than_the_rest_is_named(tmp_path: Path) -> None:
    table = Table()
    program: list[Statement] = [Region([Write("x", 1.0), Event(kinds.BARRIER), Write("y", 2.0)])]
    a, b = records(table, program), records(table, program, 3)
    row = b[2][1]
    b[2][1] = (*row[:4], row[4] + 1)
    found = compare(put(tmp_path / "a", table, a), put(tmp_path / "b", table, b))
    assert found.difference and found.difference.b and found.difference.b.team == 2
    assert "  thread 2 of B does not do what thread 0 of A does, outside of what they share out" in telling.lines(found)


def test_singles_belong_to_their_place_whoever_runs_them(tmp_path: Path) -> None:
    def many(wrong: int = -1) -> list[Statement]:
        singles = [Within(kinds.SINGLE, [Write("q", -1.0 if n == wrong else float(n))], "s") for n in range(9)]
        return [Region([*singles, Sections([[Write("p", 1.0)], [Write("r", 2.0)]])])]

    assert judged(tmp_path / "1", many(), many()).code == 0
    found = judged(tmp_path / "2", many(), many(7))
    assert "write q 7.0, B(" in telling.lines(found)[0]


def test_a_value_in_a_nested_region_is_found_with_the_iterations_around_it(tmp_path: Path) -> None:
    def nested(wrong: int = -1, after: int = -1) -> list[Statement]:
        def inner(j: int) -> list[Statement]:
            return [
                Region([Loop("k", range(3), lambda k: [Write("c", j * 10.0 + k + (j == wrong and k == 1))])], team=3),
                Write("d", 1.0 + (j == after)),
            ]

        return [Region([Loop("j", range(4), inner), Write("z", 1.0)]), *loop(float)]

    assert judged(tmp_path / "1", nested(), nested()).code == 0
    lines = telling.lines(judged(tmp_path / "2", nested(), nested(2)))
    assert "write c 21.0, B(" in lines[0] and "write c 22.0" in lines[0]
    assert lines[1].startswith("  iteration k = 1 in iteration j = 2; region 1 (heat.f90:1)")
    lines = telling.lines(judged(tmp_path / "3", nested(), nested(3, 2)))
    assert "write d 1.0, B(" in lines[0] and lines[1].startswith("  iteration j = 2; region 1 (heat.f90:1)")
    assert "write c 21.0, B(" in telling.lines(judged(tmp_path / "4", nested(), nested(2, 3)))[0]


def test_a_nested_region_in_an_iteration_comes_before_what_stands_behind_it(tmp_path: Path) -> None:
    def iteration(inner: float, behind: float) -> list[Statement]:
        return [Region([Loop("j", range(1, 3), lambda j: [Region([Write("c", inner)], team=1), Write("d", behind)])])]

    right = iteration(1.0, 2.0)
    for wrong in (iteration(3.0, 2.0), iteration(3.0, 4.0)):
        found = judged(tmp_path / str(id(wrong)), right, wrong)
        assert "=write c 1.0, B(" in telling.lines(found)[0]
    assert "=write d 2.0, B(" in telling.lines(judged(tmp_path / "d", right, iteration(1.0, 4.0)))[0]


def test_what_a_nested_region_lacks_at_its_end_is_told_as_of_that_region(tmp_path: Path) -> None:
    def nested(body: list[Statement]) -> list[Statement]:
        return [Region([Region(body, team=1), Write("d", 2.0)])]

    found = judged(tmp_path, nested([Write("c", 1.0)]), nested([]))
    assert "=write c 1.0, B: no such event in that region" in telling.lines(found)[0]


def test_a_nested_region_that_every_thread_enters_comes_where_it_stands(tmp_path: Path) -> None:
    """What differs in it is later than what a thread did before it."""
    table = Table()
    program: list[Statement] = [Region([Write("x", 1.0), Region([Write("c", 2.0)]), Write("y", 3.0)])]
    a, b = records(table, program), records(table, program, 2)
    codes = {name: table.site("variable-write", name) for name in "xcy"}

    def changed(*names: str) -> list[list[Record]]:
        last = [(row[0] in [codes[name] for name in names]) for row in b[1]]
        return [b[0], [(*row[:4], row[4] ^ 1) if wrong else row for row, wrong in zip(b[1], last, strict=True)], *b[2:]]

    for number, (names, first) in enumerate((("xc", "x"), ("cy", "c"), ("y", "y"), ("c", "c"))):
        found = compare(put(tmp_path / "a", table, a), put(tmp_path / f"b{number}", table, changed(*names)))
        assert (found.difference.b.site.name, found.difference.b.thread) == (first, 1)
    files = changed("c")
    files[0] = [(*row[:4], row[4] ^ 1) if row[0] == codes["x"] else row for row in files[0]]
    found = compare(put(tmp_path / "a", table, a), put(tmp_path / "b", table, files))
    assert (found.difference.b.site.name, found.difference.b.thread) == ("x", 0)


@pytest.mark.parametrize("records_at_once", range(1, 7))
def test_a_value_of_several_words_is_whole_at_the_end_of_a_chunk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, records_at_once: int
) -> None:
    monkeypatch.setattr(pairing, "CHUNK", records_at_once)

    def off(by: float) -> list[Statement]:
        return loop(lambda j: complex(j, j * (1 + by * (j == 5))), kinds.COMPLEX8)

    assert judged(tmp_path / "1", off(0.0), off(1e-6), Rules(rtol=1e-5)).code == 0
    found = judged(tmp_path / "2", off(0.0), off(1e-3), Rules(rtol=1e-5))
    assert found.difference.iteration.numbers == (5,)


def test_the_last_value_within_the_tolerance_explains_a_branch(tmp_path: Path) -> None:
    def branch(x: float) -> list[Statement]:
        taken: list[Statement] = [Write("big", 1.0)] if x > 1 else []
        return [Region([Loop("j", range(3), lambda j: [Write("x", x if j == 1 else 0.0), *(taken if j == 1 else [])])])]

    lines = telling.lines(judged(tmp_path, branch(1.0), branch(1.0 + 1e-12), Rules(rtol=1e-9), threads=1))
    assert "(expected iteration, read write big at 5)" in lines[0]
    assert "the last value before it that is not the same in all bits: heat.f90:4: A: write x 1.0" in lines[2]


def test_edges_compare_what_both_have(tmp_path: Path) -> None:
    def edges(kept: list[int], wrong: int = -1) -> list[Statement]:
        return loop(lambda j: -1.0 if j == wrong else float(j))

    table = Table()
    a = records(table, edges([]))
    runs = []
    for name, wrong, kept in (("b", -1, {2, 6}), ("c", 6, {2, 6}), ("d", 4, {2, 6})):
        rows, skip = [], False
        for row in records(table, edges([], wrong))[0]:
            skip = row[4] not in kept if row[3] == kinds.ITER else skip and row[3] == kinds.WRITE
            rows += [] if skip else [row]
        runs.append(put(tmp_path / name, table, [rows], edges=1))
    found = [compare(put(tmp_path / "a", table, a), run) for run in runs]
    assert [each.code for each in found] == [0, 1, 0]
    assert all("of each loop of B only the first and the last 1 iteration" in telling.lines(each)[-1] for each in found)


def test_a_private_variable_without_a_value_is_no_difference_and_is_told(tmp_path: Path) -> None:
    table = Table()
    a, b = records(table, loop(float)), records(table, loop(lambda j: float(j) + (j == 5)), 2, 5)
    site = table.site("variable-read", "h")
    unset: Record = (site, 0, 0, kinds.PRIVATE_UNSET, 0)
    for rows in (*a, *b):
        rows.insert(next(at for at, row in enumerate(rows) if row[3] == kinds.ITER) + 1, unset)
    lines = telling.lines(compare(put(tmp_path / "a", table, a), put(tmp_path / "b", table, b)))
    assert "write b(i,5) 5.0, B(" in lines[0]
    assert lines[-1] == "  h is PRIVATE in heat.f90:1 and read at line 5 before it is written: it has no value there"


def test_other_programs_are_refused_unless_matched_by_name(tmp_path: Path) -> None:
    table, other = Table(), Table()
    other.site("procedure", "new")  # all numbers and lines are others
    a = written(tmp_path / "a", table, loop(float))
    files = records(other, loop(float), 3)
    b = put(tmp_path / "b", other, files, lines_from=100, build="ffff0000")
    with pytest.raises(UnlikeTraces, match=r"build 0123abcd and ffff0000; --by-name"):
        compare(a, b)
    assert compare(a, b, by_name=True).code == 0
    row = next(row for row in files[1] if row[3] == kinds.WRITE)
    files[1][files[1].index(row)] = (*row[:4], row[4] ^ 1)
    found = compare(a, put(tmp_path / "b", other, files, lines_from=100, build="ffff0000"), by_name=True)
    assert found.difference and found.difference.b and found.difference.b.site.line == 105


def test_other_levels_are_refused(tmp_path: Path) -> None:
    table = Table()
    runs = [written(tmp_path / n, table, loop(float), level={"variables": n}) for n in ("full", "modify")]
    with pytest.raises(UnlikeTraces, match="other levels, variables:full and variables:modify"):
        compare(*runs)


def test_by_hand_sites_match_by_file_and_line(tmp_path: Path) -> None:
    """A program without instrumenter numbers its sites as they come, in each run anew."""
    table, other = Table(), Table()
    for name in ("b(i,j)", "c"):
        other.site("variable-write", name)
    both: list[Statement] = [*loop(float), *loop(float, name="c")]
    a = put(tmp_path / "a", table, records(table, both), build="")
    put(tmp_path / "b", other, records(other, both, 2), build="")
    text = (tmp_path / "b" / "sites.jsonl").read_text()
    for (type, name), number in table.numbers.items():  # the lines of one source
        text = text.replace(f'"line": {other.numbers[type, name]},', f'"line": "{number}",')
    (tmp_path / "b" / "sites.jsonl").write_text(
        text.replace('"line": "', '"line": ').replace('", "line2"', ', "line2"')
    )
    assert compare(a, Run(tmp_path / "b")).code == 0


def test_a_recording_that_was_stopped_is_not_taken_for_equal(tmp_path: Path) -> None:
    table = Table()
    program = [*loop(float), *loop(float), *loop(float)]
    a = written(tmp_path / "a", table, program)
    files = records(table, program)
    b = put(tmp_path / "b", table, [files[0][:25]], ended="exit", stopped="disk full")
    found = compare(a, b)
    assert found.code == 2
    assert telling.lines(found) == [
        "Cannot tell: the recording of B was stopped: disk full: 1 region of both were compared; from there on nothing "
        "is known"
    ]


def test_a_difference_before_the_cut_counts(tmp_path: Path) -> None:
    """Also in the region in which the program was killed: most often it crashed because of it."""
    table = Table()
    good, bad = loop(float), loop(lambda j: float(j) + (j == 4))
    a = put(tmp_path / "a", table, records(table, [*good, *good]))
    for visit in (0, 1):
        rows = records(table, [*(bad if visit == 0 else good), *bad])[0]
        last = max(at for at, row in enumerate(rows) if row[3] == kinds.ITER and row[4] == 5)
        found = compare(a, put(tmp_path / f"b{visit}", table, [rows[:last]], ended=None))
        assert found.code == 1 and found.difference is not None and found.difference.visit == visit + 1


def test_only_some_regions_are_looked_at(tmp_path: Path) -> None:
    table = Table()
    good, bad = loop(float), loop(lambda j: float(j) + 1)
    a = written(tmp_path / "a", table, [*good, *good, *good, *good])
    b = written(tmp_path / "b", table, [*good, *bad, *good, *bad], 3)
    assert compare(a, b, only={1, 3}).code == 0
    found = compare(a, b, only={4})
    assert found.difference is not None and (found.difference.visit, found.difference.regions_equal) == (4, 3)


def test_a_run_that_ends_earlier_differs(tmp_path: Path) -> None:
    table = Table()
    program = [*loop(float), *loop(float), Write("x", 1.0)]
    a = written(tmp_path / "a", table, program)
    for name, part in (("1", program[:1]), ("2", program[:2])):
        found = compare(a, written(tmp_path / name, table, part, 2))
        assert found.code == 1 and "no such event; its trace ends before" in telling.lines(found)[0]
        found = compare(written(tmp_path / name, table, part, 2), a)
        assert "A: no such event" in telling.lines(found)[0]


def test_an_index_that_is_a_sum_of_known_numbers_is_told_as_its_value() -> None:
    names = {"a(i + 1)": "a(12)", "a(i - 1, j)": "a(10, j)", "a(k + 1,i-1)": "a(k + 1,10)",
             "a(2 * i + 1)": "a(2 * 11 + 1)"}  # fmt: skip
    assert {name: filled(name, Iteration(("i",), (11,))) for name in names} == names


# What tasks do is recorded by whichever thread does them: an order of chance is no difference, a digest is.


def judged_tasks(place: Path, tasks: str, b: list[Statement], only: set[int] | None) -> Found:
    table = Table()
    table.site("region", "", tasks)
    return compare(written(place / "a", table, three_regions(1.0)), written(place / "b", table, b), only=only)


def three_regions(value: float, digest: int = 1) -> list[Statement]:
    def region(x: float) -> Region:
        return Region([Loop("j", range(1, 4), lambda j: [Write("b(j)", x)])], after=[Digest("b", (3, digest, 0))])

    return [region(1.0), region(value), region(value)]


@pytest.mark.parametrize("only", [None, {2}])
def test_another_order_in_a_region_with_tasks_is_not_told_as_a_difference(
    tmp_path: Path, only: set[int] | None
) -> None:
    found = judged_tasks(tmp_path / "plain", "", three_regions(2.0), only)
    assert found.code == 1
    found = judged_tasks(tmp_path / "tasks", "task", three_regions(2.0), only)
    assert found.code == 2 and "region 2 (heat.f90:1) has TASK" in found.undecided


def test_a_digest_after_tasks_counts(tmp_path: Path) -> None:
    assert judged_tasks(tmp_path, "task", three_regions(1.0, digest=2), None).code == 1


CALLED = """\
module m
contains
  recursive subroutine add(x, a, b)
    real(8), intent(inout) :: x(:)
    integer, intent(in) :: a, b
    integer :: middle
    if (b == a) then
      x(a) = x(a) + a
    else
      middle = (a + b) / 2
      !$omp task shared(x)
      call add(x, a, middle)
      !$omp end task
      call add(x, middle + 1, b)
      !$omp taskwait
    end if
  end subroutine
end module
program t
  use m
  real(8) :: x(40)
  x = 0
  !$omp parallel
  !$omp single
  call add(x, 1, 40)
  !$omp end single
  !$omp end parallel
  print *, sum(x)
end program
"""


def test_tasks_may_be_in_a_procedure_that_the_region_calls(tmp_path: Path) -> None:
    made(tmp_path, CALLED)
    found = whole(tmp_path / "x", 3)
    assert found.difference is None, found.difference  # of three threads, one has seldom done all of it
    assert found.code == 0 or "region 1 (x.f90:23) calls add (x.f90:3), which has TASK" in found.undecided
