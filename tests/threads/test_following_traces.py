"""Real programs, compared while they run: stopped at the first difference, and their traces discarded on the way."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from testbed.traced_threads import compiled, ran

from safepoint.errors import UsageError
from safepoint.threads import follow as following
from safepoint.threads import kinds, telling
from safepoint.threads.compare import compare
from safepoint.threads.follow import follow
from safepoint.threads.trace import Run, _end


@contextmanager
def running(place: Path, *arguments: int, threads: int = 1, ahead: int = 0) -> Iterator[subprocess.Popen[bytes]]:
    """A sweep in a directory; killed at the end if it has not ended."""
    place.mkdir()
    environ = {**os.environ, "SP_LEVEL": "full", "OMP_NUM_THREADS": str(threads), "SP_AHEAD": str(ahead)}
    program = compiled("swept.c", "gcc", *(["-fopenmp"] if threads > 1 else ["-Wno-unknown-pragmas"]))
    made = subprocess.Popen([program, *map(str, arguments)], cwd=place, env=environ, stdout=subprocess.DEVNULL)
    try:
        yield made
    finally:
        made.kill()
        made.wait()


FOREVER = 10**9  # sweeps; it is killed at the end


def trace(place: Path) -> Path:
    return place / "swept.threads"


def state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


class Filling:
    """Kinds of a file that is written while its end is sought: what is looked at one by one is older than the rest."""

    def __init__(self, before: int, after: int, records: int) -> None:
        self.before, self.after = (np.where(np.arange(records) < end, kinds.WRITE, 0) for end in (before, after))

    def __len__(self) -> int:
        return len(self.before)

    def __getitem__(self, which: Any) -> Any:
        return self.after[which] if isinstance(which, slice) else self.before[which]


def test_the_end_of_a_trace_is_found_while_a_segment_is_filled() -> None:
    """It was taken for the begin of that segment, and an iteration of another thread for one that nobody had run."""
    segment = kinds.SEGMENT // kinds.RECORD
    for before, after in ((5, segment - 1), (5, segment), (5, segment + 7), (segment + 3, 3 * segment)):
        assert _end(Filling(before, after, 3 * segment)) == after  # type: ignore[arg-type]


def test_two_programs_that_run_are_compared_to_their_end(tmp_path: Path) -> None:
    with running(tmp_path / "a", 8, 300, 0, 20000), running(tmp_path / "b", 8, 300, 0, 30000, threads=3):
        found = follow(trace(tmp_path / "a"), trace(tmp_path / "b"))
    assert (found.code, found.regions, found.stopped_pids) == (0, 8, []), telling.lines(found)
    assert compare(Run(trace(tmp_path / "a")), Run(trace(tmp_path / "b"))).code == 0


def test_both_programs_are_stopped_at_the_first_difference(tmp_path: Path) -> None:
    """Their process ids are told, for a debugger; they can go on."""
    with (
        running(tmp_path / "a", FOREVER, 40, 0, 5000) as a,
        running(tmp_path / "b", FOREVER, 40, 5, 5000, threads=3) as b,
    ):
        found = follow(trace(tmp_path / "a"), trace(tmp_path / "b"))
        assert found.difference is not None and found.difference.visit == 5
        assert found.difference.iteration is not None and found.difference.iteration.numbers == (20,)
        assert found.stopped_pids == [a.pid, b.pid]
        assert f"kill -CONT: {a.pid} and {b.pid}" in "\n".join(telling.lines(found))
        while (state(a.pid), state(b.pid)) != ("T", "T"):
            time.sleep(0.01)


def test_a_program_that_runs_is_compared_with_a_trace_that_is_there(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    ran(compiled("swept.c", "gcc", "-Wno-unknown-pragmas"), tmp_path / "a", "6", "50", SP_LEVEL="full")
    with running(tmp_path / "b", FOREVER, 50, 0, 5000, threads=2) as b:
        found = follow(trace(tmp_path / "a"), trace(tmp_path / "b"))
        assert found.difference is not None and found.difference.visit == 7  # A has no more
        assert found.stopped_pids == [b.pid]


def test_a_program_that_is_killed_is_followed_as_far_as_it_came(tmp_path: Path) -> None:
    with running(tmp_path / "a", FOREVER, 50), running(tmp_path / "b", FOREVER, 50, 0, 5000, threads=2) as b:
        while len(list(trace(tmp_path / "b").glob("*.ev"))) < 2:  # both threads of it have begun
            time.sleep(0.01)
        b.send_signal(signal.SIGKILL)
        b.wait()
        found = follow(trace(tmp_path / "a"), trace(tmp_path / "b"))
    assert found.code == 2 and "the trace of B has no end" in found.undecided, telling.lines(found)


def test_what_was_compared_is_discarded_and_the_programs_wait_for_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Traces of 20 MB each with room for a few segments: two are enough for a region and what is ahead of it."""
    monkeypatch.setattr(following, "AHEAD", 1)
    with (
        running(tmp_path / "a", 20, 30000, 0, 0, ahead=1),
        running(tmp_path / "b", 20, 30000, 0, 0, threads=2, ahead=1),
    ):
        found = follow(trace(tmp_path / "a"), trace(tmp_path / "b"), discard=True)
    assert (found.code, found.regions) == (0, 20), telling.lines(found)
    for side in ("a", "b"):
        status = [path.stat() for path in trace(tmp_path / side).glob("*.ev")]
        assert sum(each.st_size for each in status) > 10 << 20
        assert sum(each.st_blocks * 512 for each in status) < 7 << 20
    with pytest.raises(UsageError, match="its events were given back as they were compared"):
        compare(Run(trace(tmp_path / "a")), Run(trace(tmp_path / "b")))


def test_a_region_that_is_larger_than_what_may_be_ahead_is_let_through(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "AHEAD", 1)
    with (
        running(tmp_path / "a", 2, 300000, 2, 0, ahead=1),
        running(tmp_path / "b", 2, 300000, 2, 0, threads=2, ahead=1),
    ):
        found = follow(trace(tmp_path / "a"), trace(tmp_path / "b"), discard=True)
    assert (found.code, found.regions) == (0, 2), telling.lines(found)


def test_lines_of_a_trace_are_counted_from_its_begin_though_that_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "AHEAD", 1)
    with running(tmp_path / "a", 9, 30000, 0, 0, ahead=1), running(tmp_path / "b", 9, 30000, 8, 0, threads=2, ahead=1):
        found = follow(trace(tmp_path / "a"), trace(tmp_path / "b"), discard=True)
    assert found.difference is not None and found.difference.a is not None
    assert found.difference.a.line == 7 * (2 * 30000 + 7) + 4 + 2 * 15000 + 1
