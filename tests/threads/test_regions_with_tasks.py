"""What tasks do is recorded by whichever thread does them: an order of chance is no difference, a digest is."""

from __future__ import annotations

from pathlib import Path

import pytest
from testbed.threads_written import Digest, Loop, Region, Statement, Table, Write, written

from safepoint.threads.compare import Found, compare


def judged(place: Path, tasks: str, b: list[Statement], only: set[int] | None) -> Found:
    table = Table()
    table.site("region", "", tasks)
    return compare(written(place / "a", table, program(1.0)), written(place / "b", table, b), only=only)


def program(value: float, digest: int = 1) -> list[Statement]:
    def region(x: float) -> Region:
        return Region([Loop("j", range(1, 4), lambda j: [Write("b(j)", x)])], after=[Digest("b", (3, digest, 0))])

    return [region(1.0), region(value), region(value)]


@pytest.mark.parametrize("only", [None, {2}])
def test_another_order_in_a_region_with_tasks_is_not_told_as_a_difference(
    tmp_path: Path, only: set[int] | None
) -> None:
    found = judged(tmp_path / "plain", "", program(2.0), only)
    assert found.code == 1
    found = judged(tmp_path / "tasks", "task", program(2.0), only)
    assert found.code == 2 and "region 2 (heat.f90:1) has TASK" in found.undecided


def test_a_digest_after_tasks_counts(tmp_path: Path) -> None:
    assert judged(tmp_path, "task", program(1.0, digest=2), None).code == 1
