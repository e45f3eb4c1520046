"""The power cut for real: a program runs on a file system of its own, stands still at some system call, the file system
is shut down without writing anything more, not even its log, and mounted again, which is a true journal recovery. Then
the program starts again. Needs root and loop devices."""

from __future__ import annotations

import random
import time

import pytest
from testbed import tally
from testbed.lives import Life, live
from testbed.mounts import KINDS, Volume
from testbed.powercut import (
    STEPS,
    THREADS,
    cut_at_calls,
    cut_at_random,
    durable_directory,
    on_file_systems,
    recovers,
)
from testbed.program import Violation
from testbed.sweep import ALL, LONG, some_of
from testbed.tracing import why_not as no_strace

SHAPES = ("solver", "kinds", "large", "many", "tree")
RANDOM_SHORT, RANDOM_LONG = 1, 20  # cuts at random instants of each shape

pytestmark = pytest.mark.timeout(0 if ALL else 3600 if LONG else 600)


def cut_at_instants(volume: Volume, shape: str, number: int, rng: random.Random) -> int:
    with durable_directory(volume, shape) as directory:
        begin = time.monotonic()
        live(directory, STEPS, shape)
        length = time.monotonic() - begin
    cuts = 0
    for index in range(number):
        with durable_directory(volume, shape) as directory:
            seconds = rng.uniform(0, length)
            life = cut_at_random(volume, directory, shape, seconds, *(([], ["inline"], ["slow"])[index % 3]))
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


@on_file_systems("kind, shape", some_of([(kind, shape) for shape in SHAPES for kind in KINDS], 3), no_strace)
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
