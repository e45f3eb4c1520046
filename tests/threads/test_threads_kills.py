"""A trace after a kill: every record whose call has returned is there, whole, and none is missing between two."""

from __future__ import annotations

import os
import random
import shutil
import signal
import struct
import subprocess
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from testbed.sweep import LONG, some_of, turn
from testbed.traced_threads import compiled, killable, ran, run_of

from safepoint.threads import kinds
from safepoint.threads.trace import RECORD, Run, Thread

PER_SEGMENT = kinds.SEGMENT // kinds.RECORD
FIRST = PER_SEGMENT - kinds.HEAD // kinds.RECORD  # records in the first segment


def chain(number: int, records: int, first: int = 0) -> NDArray[Any]:
    """The records `first` to `records` of a thread of chain.c; the event at the end perhaps torn."""
    begin, end = max(first - 1, 0) // 4, max(records, 1) // 4 + 1  # of four records, which three events have
    i = np.arange(3.0 * begin, 3.0 * end)
    body = np.zeros((end - begin, 4), RECORD)
    body["site"], body["kind"], body["type"] = [2, 2, 3, 3], kinds.WRITE, [6, 6, 9, 0]
    body["kind"][:, 3] = kinds.MORE
    for column, values in enumerate((i[::3], i[1::3], i[2::3], -i[2::3])):
        body["value"][:, column] = values.view(np.uint64)
    head = np.array([(1, 0, kinds.INTEGER8, kinds.WRITE, number)], RECORD)
    found = body.reshape(-1)
    return (
        np.concatenate([head, found])[first:records] if not begin else found[first - 1 - 4 * begin :][: records - first]
    )


def written(path: Path) -> tuple[NDArray[Any], int]:
    """The records up to the first without a kind, and how many with a kind come behind it."""
    size = (path.stat().st_size - kinds.HEAD) // kinds.RECORD
    every = np.fromfile(path, RECORD, max(size, 0), offset=kinds.HEAD)
    zeros = np.flatnonzero(every["kind"] == 0)
    end = int(zeros[0]) if len(zeros) else len(every)
    return every[:end], int(np.count_nonzero(every["kind"][end:]))


def whole(records: int) -> int:
    """Of so many records of a chain, those of whole events."""
    return records - 1 if records >= 4 and (records - 1) % 4 == 3 else records


STARTS = 3  # points before the first record: allocated, mapped, the head written
CHANGE = STARTS + 2 * FIRST  # the point behind the last record of the first segment


POINTS = [*range(1, 16), *range(CHANGE - 6, CHANGE + 9), CHANGE + 2 * PER_SEGMENT + 3]


@pytest.mark.parametrize("point", some_of(POINTS, 12, 31))
def test_a_kill_at_any_point_between_two_steps_leaves_all_records_before_it(point: int, tmp_path: Path) -> None:
    program = compiled("chain.c", archive=killable())
    done = ran(program, tmp_path, "200000", "1", check=False, SP_LEVEL="full", SP_KILL_AT=str(point))
    assert done.returncode == -signal.SIGKILL
    changes = sum(min(max(point - at, 0), 2) for at in (CHANGE, CHANGE + 2 + 2 * PER_SEGMENT))
    expected = max(point - STARTS - changes, 0) // 2
    run = Run(tmp_path / "chain.threads")
    found, behind = written(run.threads[0].path)
    assert (len(found), behind) == (expected, 0)
    assert (found == chain(0, expected)).all()
    assert len(run.threads[0].records) == whole(expected)
    assert (run.about["end"], run.about["ended"]) == (None, None)


@pytest.mark.parametrize("seed", range(2 if not LONG else 20))
def test_a_kill_at_a_random_moment_loses_no_record_of_four_threads(seed: int, tmp_path: Path) -> None:
    """Killed once so many calls have returned."""
    progress = tmp_path / "progress"
    progress.write_bytes(bytes(4096))
    environ = {**os.environ, "SP_LEVEL": "full", **({"SP_NOISE": "1000"} if seed % 2 else {})}
    with subprocess.Popen([compiled("chain.c"), "0", "4", progress], cwd=tmp_path, env=environ) as running:
        returned = random.Random(seed + turn()).randrange(100, 2_000_000)
        while sum(struct.unpack("<4Q", progress.read_bytes()[:32])) < returned:
            time.sleep(0.001)
        running.kill()
    at_least = struct.unpack("<4Q", progress.read_bytes()[:32])
    run = Run(tmp_path / "chain.threads")
    numbers = []
    for thread in run.threads:
        found, behind = written(thread.path)
        numbers.append(number := int(found["value"][0]))
        assert behind == 0
        assert (found == chain(number, len(found))).all(), (returned, number)
        assert len(found) >= 1 + at_least[number] + at_least[number] // 3, (returned, number)
        assert len(thread.records) == whole(len(found))
    assert sorted(numbers) == [0, 1, 2, 3]


def test_who_reads_while_the_program_writes_sees_whole_records_only(tmp_path: Path) -> None:
    environ = {**os.environ, "SP_LEVEL": "full", "SP_NOISE": "2"}
    with subprocess.Popen([compiled("chain.c"), "0", "2"], cwd=tmp_path, env=environ) as running:
        try:
            while not (tmp_path / "chain.threads" / "00001.ev").exists():
                time.sleep(0.01)
            run = Run(tmp_path / "chain.threads")
            lengths = set()
            while len(lengths) < 100:
                for thread in run.threads:
                    if count := len(thread.again()):
                        first = max(count - 500, 0)
                        expected = chain(int(thread.records["value"][0]), count, first)
                        assert (thread.records[first:] == expected).all()
                        lengths.add(count)
        finally:
            running.kill()


def test_a_trace_that_is_cut_at_any_place_of_its_last_segment_is_read_up_to_the_last_whole_event(
    tmp_path: Path,
) -> None:
    run = run_of(compiled("chain.c"), tmp_path, str(3 * FIRST // 4 + 60), "1")
    data = run.threads[0].path.read_bytes()
    records = len(run.threads[0].records)
    assert kinds.SEGMENT < kinds.HEAD + 16 * records < kinds.SEGMENT + 16 * 200
    cut = tmp_path / "00000.ev"
    for kept in range(FIRST - 3, records + 1):
        for more in (0, 15):  # bytes of the next record
            size = kinds.HEAD + kept * 16 + more
            cut.write_bytes(data[:size])
            expected = whole(kept)
            assert len(Thread(cut).records) == expected, (kept, more)
            assert (Thread(cut).records == chain(0, expected)).all()
        cut.write_bytes(data[: kinds.HEAD + kept * 16] + bytes(len(data) - kinds.HEAD - kept * 16))
        assert len(Thread(cut).records) == expected, kept


@pytest.mark.parametrize("size", [0, 7, 63, 64, 79])
def test_a_trace_that_was_cut_before_its_first_record_is_empty(size: int, tmp_path: Path) -> None:
    run = run_of(compiled("chain.c"), tmp_path, "1", "1")
    path = run.threads[0].path
    path.write_bytes(bytes(size) if size < 64 else path.read_bytes()[:size])
    assert len(Thread(path).records) == 0


def test_a_process_that_dies_in_its_first_event_leaves_a_run_that_can_be_read(tmp_path: Path) -> None:
    """Between the two steps of the first segment there is a file without a head."""
    program = compiled("chain.c", archive=killable())
    ran(program, tmp_path, "1", "1", check=False, SP_LEVEL="full", SP_KILL_AT="2")
    run = Run(tmp_path / "chain.threads")
    assert [len(thread.records) for thread in run.threads] == [0]
    shutil.rmtree(run.directory)
