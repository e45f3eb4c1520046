"""T2 and the log: what a driver makes durable, and what it does where the disk fails."""

from __future__ import annotations

import errno
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from testbed import task_bodies_engine as b
from testbed.faultdisk import FaultDisk, Killed, images
from testbed.task_graphs import AtOnce

from safepoint.errors import SaveError
from safepoint.tasks import Graph, log
from safepoint.tasks.running import drive, tasks_directory
from safepoint.tasks.saved import Store


def graph() -> Graph:
    g = Graph("g")
    small = [g.add(f"small-{n}", b.add, a=n) for n in range(3)]
    large = g.add("large", b.big, nbytes=100_000)
    g.add("sum", b.length, values=[*small, large])
    return g


def driven(directory: Path, **how: Any) -> FaultDisk:
    directory.mkdir()
    disk = FaultDisk(directory, **how)
    try:
        drive(graph(), lambda store, plan: AtOnce(store, flushes=False), directory, disk=disk)
    finally:
        disk.end()
    return disk


def test_when_run_has_returned_all_of_it_survives_a_power_cut_though_its_worker_never_flushed(tmp_path: Path) -> None:
    """T2: blocks that nobody else flushed, and the names of their journals."""
    disk = driven(tmp_path / "w")
    count = 0
    for image in images(disk.record, str(tmp_path), at=[len(disk.record.ops)]):
        records = Store(tasks_directory(image.directory)).records().values()
        assert {record.vertex for record in records} == set(graph().vertices), image
        shutil.rmtree(image.directory)
        count += 1
    assert count > 1


def test_a_journal_that_cannot_be_made_durable_is_said_and_its_results_stay(tmp_path: Path) -> None:
    whole = driven(tmp_path / "whole")
    at = next(n for n, op in enumerate(whole.record.ops) if op.startswith("sync") and "/journal-" in op)
    with pytest.raises(SaveError, match=r"may not survive a power cut: .*journal-.*they survive the end of this run"):
        driven(tmp_path / "w", fail_at=at)
    assert len(Store(tasks_directory(tmp_path / "w")).records()) == len(graph().vertices)


@pytest.mark.parametrize("name", ["log.jsonl", "graph.json"])
def test_a_log_that_cannot_be_written_costs_no_result(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    whole = driven(tmp_path / "whole")
    points = [n for n, op in enumerate(whole.record.ops) if name in op and not op.startswith(("stat", "open"))]
    assert points
    for at in points:
        caplog.clear()
        driven(tmp_path / f"{at}", fail_at=at, error=errno.ENOSPC)
        assert len(Store(tasks_directory(tmp_path / f"{at}")).records()) == len(graph().vertices)
        said = [record.message for record in caplog.records if "the run goes on without it" in record.message]
        assert len(said) == 1 and name in said[0] and os.strerror(errno.ENOSPC) in said[0], (whole.record.ops[at], said)


def test_graph_json_is_the_old_or_the_new_one_wherever_the_driver_is_killed(tmp_path: Path) -> None:
    def written(directory: Path, **how: int) -> FaultDisk:
        directory.mkdir()
        (directory / "graph.json").write_text('{"old": 1}')
        (directory / "graph.json.new").write_text('{"torn')  # of a driver that was killed before
        disk = FaultDisk(directory, **how)  # type: ignore[arg-type]
        try:
            log.put(str(directory), log.GRAPH, {"new": 2}, disk)
        except Killed:
            pass
        finally:
            disk.end()
        return disk

    whole = written(tmp_path / "whole")
    assert json.loads((tmp_path / "whole/graph.json").read_text()) == {"new": 2}
    for at in range(len(whole.record.ops)):
        written(tmp_path / f"{at}", kill_at=at)
        assert json.loads((tmp_path / f"{at}/graph.json").read_text()) in ({"old": 1}, {"new": 2}), whole.record.ops[at]
