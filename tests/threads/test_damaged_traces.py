"""What is not whole is never compared as if it were: damaged traces, and recordings that were stopped."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from testbed.threads_written import Digest, Loop, Record, Region, Statement, Table, Write, put, records, written
from testbed.traced_threads import compiled, run_of

from safepoint.errors import FormatError
from safepoint.threads import export, kinds, runs, sites, telling, texts
from safepoint.threads.compare import Found, compare
from safepoint.threads.trace import Run


def program() -> list[Statement]:
    return [Region([Loop("j", range(2, 30), lambda j: [Write("b(j)", j / 2)])]) for _ in range(3)]


def halved(path: Path) -> None:
    os.truncate(path, (path.stat().st_size // 32) * 16)


def within_an_event(path: Path) -> None:
    halved(path)
    with path.open("ab") as file:
        file.write(bytes(7) + b"\xff" + bytes(8))


def one_byte(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 5 * 16 - 1)


@pytest.mark.parametrize("harm", [Path.unlink, halved, within_an_event, one_byte, lambda path: os.truncate(path, 0)])
def test_a_file_that_is_missing_or_cut_is_named(tmp_path: Path, harm: Callable[[Path], None]) -> None:
    """Of a run that has ended; it was told as equal, or as a difference of the program."""
    for number in range(3):
        place = tmp_path / str(number)
        written(place, Table(), program(), threads=3, seed=5)
        about = (place / "run.json").read_text()
        (place / "run.json").write_text(about.replace('"format": 1', '"format": 1, "threads": 3'))
        assert len(Run(place).threads) == 3
        harm(place / f"{number:05}.ev")
        with pytest.raises(FormatError, match=rf"the trace is damaged: {number:05}\.ev (is missing|was cut)"):
            Run(place)


def test_a_table_without_its_end_is_named_in_either_order(tmp_path: Path) -> None:
    table = Table()
    a = written(tmp_path / "a", table, program())
    written(tmp_path / "b", table, program(), threads=3, seed=5)
    lines = (tmp_path / "b" / "sites.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "b" / "sites.jsonl").write_text("".join(lines[:-1]))
    b = Run(tmp_path / "b")
    for one, other in ((a, b), (b, a)):
        with pytest.raises(FormatError, match=r"b/sites\.jsonl: cut, or of another program"):
            compare(one, other)


@pytest.mark.parametrize("name", ["run.json", "sites.jsonl"])
@pytest.mark.parametrize(
    "harm", [lambda path: os.truncate(path, 1 << 40), lambda path: (path.unlink(), os.mkfifo(path))]
)
def test_what_has_no_end_is_not_read(tmp_path: Path, name: str, harm: Callable[[Path], None]) -> None:
    written(tmp_path, Table(), program())
    harm(tmp_path / name)
    with pytest.raises(FormatError, match=rf"cannot read .*{name}: not a file of at most"):
        Run(tmp_path) if name == "run.json" else sites.read(tmp_path / name)


def test_json_that_is_nested_too_deeply_is_not_ours(tmp_path: Path) -> None:
    (tmp_path / f"a{texts.TEXTS}").mkdir()
    (tmp_path / f"a{texts.TEXTS}" / texts.MARK).write_text("[" * 100000)
    assert runs.outdated([str(tmp_path / "a")]) == ""
    written(tmp_path, Table(), program())
    (tmp_path / "run.json").write_text("[" * 100000)
    with pytest.raises(FormatError, match=r"run\.json: not JSON"):
        Run(tmp_path)
    (tmp_path / "sites.jsonl").write_text("[" * 100000 + "\n")
    with pytest.raises(FormatError, match=r"sites\.jsonl:1: not a line of JSON"):
        sites.read(tmp_path / "sites.jsonl")
    (tmp_path / "sites.jsonl").write_text(
        '{"format":1,"build":""}\n{"number":"x","type":"","name":"","file":"","line":1,"line2":1}\n'
    )
    with pytest.raises(FormatError, match=r"sites\.jsonl:2: a site whose numbers"):
        sites.read(tmp_path / "sites.jsonl")


def test_events_that_read_the_same_are_told_apart(tmp_path: Path) -> None:
    """Both sides were told as `region end`, where another visit of the same region ends."""
    table = Table()
    (rows,) = records(table, program())
    at = next(at for at, row in enumerate(rows) if row[3] == kinds.REGION_END)
    other = [*rows[:at], (*rows[at][:2], kinds.REAL8, *rows[at][3:]), *rows[at + 1 :]]
    found = compare(put(tmp_path / "a", table, [rows]), put(tmp_path / "b", table, [other]))
    assert "(expected region end of type none, read region end of type real(8) at 1)" in telling.lines(found)[0]
    known = found.difference
    assert known is not None and known.a is not None
    ends = [replace(known.a, words=(visit,)) for visit in (2, 7)]
    found = replace(found, difference=replace(known, a=ends[0], b=ends[1]))
    assert "(expected region end of visit 2, read region end of visit 7 at 1)" in telling.lines(found)[0]


@pytest.mark.parametrize("segments", [1, 2])
def test_whole_segments_that_are_missing_are_damage_too(tmp_path: Path, segments: int) -> None:
    """The rest looks like a trace that ends there."""
    place = run_of(compiled("chain.c"), tmp_path, "400000", "2").directory
    path = max(place.glob("*.ev"), key=lambda each: each.stat().st_size)
    assert path.stat().st_size > 2 * kinds.SEGMENT
    os.truncate(path, path.stat().st_size - segments * kinds.SEGMENT)
    with pytest.raises(FormatError, match=rf"its files lack {segments * kinds.SEGMENT} bytes"):
        Run(place)


def test_an_event_that_is_not_whole_is_no_crash_of_the_export(tmp_path: Path) -> None:
    place = tmp_path / "b"
    written(place, Table(), [Region([Write("b", 1.0)], after=[Digest("u", (3, 1, 0))])])
    path = place / "00000.ev"
    text = bytearray(path.read_bytes())
    at = next(at for at in range(kinds.HEAD, len(text), kinds.RECORD) if text[at + 7] == kinds.DIGEST)
    text[at + kinds.RECORD + 7] = kinds.WRITE  # one of the records that belong to it
    path.write_bytes(text)
    with pytest.raises(FormatError, match=r"00000\.ev: the trace is damaged: event \d+ is not whole"):
        list(export.events(Run(place).threads[0]))


# A recording that was stopped lacks threads, ends of threads, or both: what it lacks is no difference.

STOPPED = {"ended": "exit", "stopped": "limit 4194304"}


def four_regions(wrong: int = 0) -> list[Statement]:
    def region(add: float) -> Region:
        return Region([Loop("j", range(2, 30), lambda j: [Write("b(j)", j / 2 + add)])])

    return [region(float(number == wrong)) for number in range(1, 5)]


def both_ways(a: Run, b: Run, only: set[int] | None = None) -> list[Found]:
    return [compare(Run(one.directory), Run(other.directory), only=only) for one, other in ((a, b), (b, a))]


def up_to_visit(rows: list[Record], visit: int, more: int) -> list[Record]:
    enter = next(at for at, row in enumerate(rows) if row[3] == kinds.ENTER and row[4] == visit)
    return rows[: enter + 1 + more]


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("only", [None, {1}, {3}])
@pytest.mark.parametrize("last", [True, False])
def test_a_thread_that_got_no_file(tmp_path: Path, threads: int, only: set[int] | None, last: bool) -> None:
    """It was told as `no such iteration`. The others go on as long as they have room."""
    table = Table()
    files = records(table, four_regions(), 3, seed=5)
    a = put(tmp_path / "a", table, records(table, four_regions(), threads, seed=2))
    b = put(tmp_path / "b", table, files[:2], **STOPPED, threads=3)
    if last:
        (tmp_path / "b" / "00002.ev").write_bytes(b"")  # made, and no room for its first record
    for found in both_ways(a, b, only):
        assert found.difference is None and found.code == 2 and found.regions == 0
        assert "stopped: limit 4194304" in found.undecided


@pytest.mark.parametrize(
    ("only", "code", "regions"), [(None, 2, 2), ({1}, 0, 1), ({2, 3}, 2, 1), ({3}, 2, 0), ({4}, 2, 0)]
)
@pytest.mark.parametrize("more", [0, 1, 4])
def test_a_thread_that_found_no_more_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, only: set[int] | None, code: int, regions: int, more: int
) -> None:
    """In region 3: of the two before all is known, and in it what the others did."""
    table = Table()
    files = records(table, four_regions(), 3, seed=5)
    files[1] = up_to_visit(files[1], 3, more)
    monkeypatch.setattr(kinds, "SEGMENT", kinds.HEAD + len(files[1]) * kinds.RECORD)
    a = put(tmp_path / "a", table, records(table, four_regions()), threads=1)
    b = put(tmp_path / "b", table, files, **STOPPED, threads=3)
    for found in both_ways(a, b, only):
        assert found.difference is None and (found.code, found.regions) == (code, regions)
    wrong = put(tmp_path / "wrong", table, records(table, four_regions(wrong=2)))
    for found in both_ways(wrong, b):
        assert found.difference is not None and found.difference.visit == 2
