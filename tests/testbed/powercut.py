"""Real power cuts: a program stands still on a file system of its own, which is shut down without writing anything
more, not even its log, and mounted again. That is a true journal recovery. Needs root and loop devices.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from testbed import mounts
from testbed.lives import Life, Running, directory_for_lives, goes_on
from testbed.mounts import Volume
from testbed.program import Violation
from testbed.sweep import kept
from testbed.tracing import Call, calls_of, stop, stopped_at

STEPS = 4
# Whose calls, in which way of saving, and how many of them are taken of each shape in the short and the long form.
# With a slow saver sets wait, and give way to newer ones.
THREADS = {
    "main": ("start", (), 1, 16),
    "saver": ("saver", (), 0, 16),
    "all in one": ("start", ("inline", "serial"), 1, 30),
    "main, faster than the disk": ("start", ("slow",), 1, 8),
    "saver, slower than the program": ("saver", ("slow",), 0, 8),
}
AGAIN = 3  # every third time the restart is cut too


def on_file_systems(names: str, cases: Iterable[Any], also: str | None = None, **how: Any) -> pytest.MarkDecorator:
    """Parameters, the first of which is a kind of file system: left out, with the reason, where none can be mounted, or
    where what is needed `also` is missing."""
    found = []
    for case in cases:
        kind = case if isinstance(case, str) else case[0]
        why = mounts.why_not(kind) or also
        marks = [pytest.mark.skipif(why is not None, reason=f"{kind}: {why}")]
        found.append(pytest.param(*([case] if isinstance(case, str) else case), marks=marks))
    return pytest.mark.parametrize(names, found, **how)


@contextmanager
def durable_directory(volume: Volume, shape: str) -> Iterator[Path]:
    """A working directory with a manifest, as it has been there for long."""
    with directory_for_lives(volume.path, shape) as directory:
        durable(directory)
        yield directory


def durable(directory: Path) -> None:
    """The manifest and the way to it, as they have been there for long."""
    for path in (directory / ".safepoint", directory, directory.parent):
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)


def cut(volume: Volume, program: Running) -> Life:
    """The power goes while this life stands still; what it had said until then."""
    volume.shut_down()
    program.kill()
    life = program.end()
    volume.umount()
    volume.mount()
    return life


def cut_at_random(volume: Volume, directory: Path, shape: str, seconds: float, *options: str) -> Life:
    with Running(directory, STEPS, shape, *options, "gate-start") as program:
        program.until("gate start")
        program.go()
        time.sleep(seconds)
        stop(program)
        return cut(volume, program)


def recovers(volume: Volume, directory: Path, life: Life, shape: str, rng: random.Random) -> int:
    """After a cut: start again, every third time with another cut in between. The number of cuts."""
    cuts = 1
    if rng.randrange(AGAIN) == 0:
        again = cut_at_random(volume, directory, shape, rng.uniform(0, 0.04))
        if again.steps("restored"):
            kept(life.promised, again.last("restored"))
        life.said += again.said
        cuts += 1
    goes_on(directory, life, STEPS, shape, cut=True)
    return cuts


def calls_to_cut(volume: Volume, shape: str, gate: str, options: tuple[str, ...], number: int) -> list[Call]:
    """Evenly spread over the calls of a whole life."""
    if not number:
        return []
    with durable_directory(volume, shape) as directory:
        calls = calls_of(directory, gate, STEPS, shape, *options)
    every = max(len(calls) // number, 1)
    return calls[every // 2 :: every][:number]


def cut_at_calls(volume: Volume, shape: str, thread: str, number: int, rng: random.Random, *broken: str) -> int:
    """Cut at so many calls of this thread, each time in a new directory. The number of cuts."""
    gate, options = THREADS[thread][:2]
    cuts = 0
    for call in calls_to_cut(volume, shape, gate, (*options, *broken), number):
        with durable_directory(volume, shape) as directory:
            with stopped_at(directory, gate, call, STEPS, shape, *options, *broken) as (program, stopped):
                life = cut(volume, program)
            try:
                cuts += recovers(volume, directory, life, shape, rng) - (not stopped)
            except Violation as violation:
                raise Violation(f"cut at {call} of a thread ({thread}): {violation}") from violation
    return cuts
