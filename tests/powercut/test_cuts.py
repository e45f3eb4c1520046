"""The power cut for real: a program runs on a file system of its own, stands still at some system call, the file system
is shut down without writing anything more, not even its log, and mounted again, which is a true journal recovery. Then
the program starts again. Needs root and loop devices."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import mounts
import pytest
import tally
from lives import ALL, LONG, Life, Running, Violation, directory_for_lives, goes_on, live
from mounts import Volume
from tracing import Call, calls_of, stop, stopped_at
from tracing import why_not as no_strace

STEPS = 4
SHAPES = ("solver", "kinds", "large", "many", "tree")
# Whose calls, in which way of saving, and how many of them are taken of each shape in the short and the long form.
THREADS = {
    "main": ("start", (), 1, 16),
    "saver": ("saver", (), 0, 16),
    "all in one": ("start", ("inline", "serial"), 1, 30),
}
RANDOM_SHORT, RANDOM_LONG = 1, 20  # cuts at random instants of each shape
AGAIN = 3  # every third time the restart is cut too

pytestmark = pytest.mark.timeout(0 if ALL else 3600 if LONG else 600)
kinds = pytest.mark.parametrize(
    "kind",
    [
        pytest.param(kind, marks=pytest.mark.skipif(why is not None, reason=f"{kind}: {why}"))
        for kind in mounts.KINDS
        for why in [mounts.why_not(kind) or no_strace]
    ],
)


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
        if again.steps("restored") and again.last("restored") < life.promised:
            raise Violation(f"step {life.promised} was promised, restored was {again.last('restored')}")
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
                raise Violation(f"cut at {call} of the {thread} thread: {violation}") from violation
    return cuts


def cut_at_instants(volume: Volume, shape: str, number: int, rng: random.Random) -> int:
    with durable_directory(volume, shape) as directory:
        begin = time.monotonic()
        live(directory, STEPS, shape)
        length = time.monotonic() - begin
    cuts = 0
    for index in range(number):
        with durable_directory(volume, shape) as directory:
            seconds = rng.uniform(0, length)
            life = cut_at_random(volume, directory, shape, seconds, *["inline"] * (index % 2))
            try:
                cuts += recovers(volume, directory, life, shape, rng)
            except Violation as violation:
                raise Violation(f"cut after {seconds:.4f} s: {violation}") from violation
    return cuts


def test_a_life_cut_between_the_line_of_the_library_and_its_own_has_said_nothing_yet() -> None:
    """A random instant may be that one: "restored set 3" was read as the program's step, which failed the sweep."""
    log = "restored set 3 (step 2): 7 files, 0.0 MB; set 4: taken.json: its own checksum differs"
    assert Life(-9, ["gate start 16222 ", log]).steps("restored") == []
    assert Life(-9, ["gate start 16222 ", log, "restored 2"]).last("restored") == 2
    assert Life(0, ["restored nothing", "hid 0", "safe 0", "finished 3"]).promised == 3


@kinds
@pytest.mark.parametrize("shape", SHAPES)
def test_a_power_cut_at_any_call_and_at_any_instant_leaves_one_whole_step(kind: str, shape: str) -> None:
    """G1, G2, G3, G4: what was promised to be durable is there, whole, and the program reaches its end."""
    rng = random.Random(f"{kind} {shape}")
    exact = 0
    with Volume.made(kind) as volume:
        for thread, (_, _, few, many) in THREADS.items():
            number = many if LONG else few
            exact += cut_at_calls(volume, shape, thread, 1 << 30 if ALL and many else number, rng)
        timed = cut_at_instants(volume, shape, RANDOM_LONG if LONG else RANDOM_SHORT, rng)
    tally.count("real power cuts", kind, exact + timed, at_a_call=exact, at_random=timed)
    print(f"{kind}, {shape}: {exact} cuts at a system call, {timed} at random instants")
