"""A recording that was stopped lacks threads, ends of threads, or both: what it lacks is no difference."""

from __future__ import annotations

from pathlib import Path

import pytest
from testbed.threads_written import Loop, Record, Region, Statement, Table, Write, put, records

from safepoint.threads import kinds
from safepoint.threads.compare import Found, compare
from safepoint.threads.trace import Run

STOPPED = {"ended": "exit", "stopped": "limit 4194304"}


def program(wrong: int = 0) -> list[Statement]:
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
    files = records(table, program(), 3, seed=5)
    a = put(tmp_path / "a", table, records(table, program(), threads, seed=2))
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
    files = records(table, program(), 3, seed=5)
    files[1] = up_to_visit(files[1], 3, more)
    monkeypatch.setattr(kinds, "SEGMENT", kinds.HEAD + len(files[1]) * kinds.RECORD)
    a = put(tmp_path / "a", table, records(table, program()), threads=1)
    b = put(tmp_path / "b", table, files, **STOPPED, threads=3)
    for found in both_ways(a, b, only):
        assert found.difference is None and (found.code, found.regions) == (code, regions)
    wrong = put(tmp_path / "wrong", table, records(table, program(wrong=2)))
    for found in both_ways(wrong, b):
        assert found.difference is not None and found.difference.visit == 2
