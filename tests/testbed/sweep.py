"""Sweeps: a program is killed, loses its power, or has a call fail, at each operation in turn; then it starts again.

What must hold then is in `kept`, in the same words for the model and for real processes. `make test` takes every m-th
operation, from the k-th on, and the last one; k is another one with each commit, so that in time all of them are
tried. What fails names k and m. `make crash` takes more of them, `make crash-all` all.
"""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TypeVar
from zlib import crc32

import pytest

from testbed import tally
from testbed.faultdisk import FaultDisk, Image, images
from testbed.paths import HOUSE
from testbed.program import SAVERS, SHAPES, Program, Violation, new_directory, restart, restart_image, steps_of

# How much is tried: little in `make test`, a sample in `make proof`, more in `make proof-all` and `make crash`, every
# case in `make crash-all`.
LEVEL = ("", "proof", "long", "all").index(os.environ.get("SAFEPOINT_CRASH", ""))
PROOF, LONG, ALL = (level <= LEVEL for level in (1, 2, 3))
# Where little time is left .ci/run lets `make proof` take so many times fewer operations.
COARSER = 1.0 if LONG else max(1.0, float(os.environ.get("SAFEPOINT_COARSER", "1")))
STEPS = 3
SINGLE = 10_000 if LONG else 1  # of the changes since the point before so many are dropped and kept each by itself
LIBRARY, IN_A_ROW = "operations of the library", "two faults in a row"  # as docs/evidence.md calls what was done


# Which operations.


@cache
def turn() -> int:
    """A number that is another one with each commit; 0 outside of a repository."""
    try:
        done = subprocess.run(["git", "-C", str(HOUSE), "rev-parse", "HEAD"], capture_output=True, text=True)
    except OSError:
        return 0
    return int(done.stdout[:12], 16) if done.returncode == 0 else 0


def _turn_here() -> int:
    """Another one at each line that takes a sample: what two of them take meets in all ways in time."""
    frame = sys._getframe(2)
    return crc32(f"{turn()} {os.path.basename(frame.f_code.co_filename)} {frame.f_lineno}".encode())


T = TypeVar("T")


def one_of(values: Sequence[T]) -> list[T]:
    """Of cases that take long: another one with each commit in `make test`, all in `make crash`."""
    return list(values) if LONG else [values[_turn_here() % len(values)]]


def some_of(values: Sequence[T], count: int, proof: int | None = None) -> list[T]:
    """So many of these cases in `make test`, `proof` (or twice as many) in `make proof`, all in `make crash`.

    They are spread evenly over the list, and are other ones with each commit.
    """
    count = (proof or 2 * count) if PROOF else count
    if LONG or count >= len(values):
        return list(values)
    begin = _turn_here() % len(values)
    return [values[at] for at in sorted((begin + len(values) * k // count) % len(values) for k in range(count))]


def many(examples: int) -> int:
    """How many examples a property is tried on: all of these in `make proof`, an eighth in `make test`."""
    return examples if PROOF else max(10, examples // 8)


class Points(list[int]):
    """Operations of a recorded run: every m-th from the k-th on, and the last one."""

    def __init__(self, of: Sequence[int], every: int = 1) -> None:
        self.m = max(min(every, len(of)), 1)
        self.k = turn() % self.m
        super().__init__(dict.fromkeys([*of[self.k :: self.m], *of[-1:]]))

    def __str__(self) -> str:
        return f"k = {self.k}, m = {self.m}"


def sample(points: Sequence[int], short: int, long: int = 1) -> Points:
    """Every so-manieth of them in `make test`, `make proof` and `make crash`; all in `make crash-all`."""
    return Points(points, 1 if ALL else long if LONG else round((2 if PROOF else 5) * short * COARSER))


CASES = [(shape, saver, initial) for shape in SHAPES for saver in SAVERS for initial in (False, True)]
if not LONG:  # the shape with every kind of file is sampled
    CASES = [case for case in CASES if case[0] == "plain" or case[1:] in (("now", False), ("late", True))]
each_case = pytest.mark.parametrize(("shape", "saver", "initial"), CASES)


def part(points: Sequence[int], shape: str, every: int) -> Points:
    """Less of the shape with many files."""
    return sample(points, 14 * every, every) if shape == "kinds" else sample(points, 6 * every)


# What must hold.


def kept(least: int, restored: int | None, *said: object) -> None:
    """G2, G2k, G4: what is given back is not older than what was promised; -1 or None is a first start."""
    if (-1 if restored is None else restored) < least:
        raise Violation(f"step {least} was promised, restored was {restored}{f': {said}' if said else ''}")


def nothing_lost(before: Program, after: Program) -> None:
    """G2k, G4: what `hide` had returned for is what comes back, however fresh."""
    kept(before.steps if before.finished else before.handed, after.restored)


def promised(durable_at: list[tuple[int, int]]) -> Callable[[int], int]:
    """The step that must survive a power cut before an operation, by when which one was promised."""
    return lambda ops: max([step for at, step in durable_at if at <= ops], default=-1)


@contextmanager
def told(when: str, points: Points | None = None) -> Iterator[None]:
    """A violation becomes a failure that says when it happened."""
    try:
        yield
    except Violation as violation:
        pytest.fail(f"{when}{f' [{points}]' if points else ''}: {violation}")


# Lives.


def lived(directory: Path, shape: str = "plain", saver: str = "now", initial: bool = False, **how: int) -> Program:
    """One life in a new directory, to its end or to where its disk ends it."""
    disk = FaultDisk(new_directory(directory, shape, initial=initial), **how)  # type: ignore[arg-type]
    program = Program(disk, shape, saver, steps_of(saver, STEPS), initial)
    program.run()
    return program


def undisturbed(directory: Path, shape: str = "plain", saver: str = "now", initial: bool = False) -> Program:
    """A whole life, with every operation it made."""
    program = lived(directory, shape, saver, initial)
    assert program.finished, program.errors
    return program


def killed(directory: Path, like: Program, at: int) -> Program:
    """The same life, dead at operation `at`."""
    return lived(directory, like.shape, like.saver, like.initial, kill_at=at)


def failed(directory: Path, like: Program, at: int, code: int, *, from_then_on: bool = False, **how: bool) -> Program:
    """The same life, in which operation `at` fails with this error."""
    disk = FaultDisk(
        new_directory(directory, like.shape, initial=like.initial), fail_at=at, error=code, from_then_on=from_then_on
    )
    program = Program(disk, like.shape, like.saver, like.steps, like.initial, **how)  # type: ignore[arg-type]
    program.run()
    return program


class Stopped(Exception):
    """The program ended here, on purpose."""


def stopped_after(directory: Path, kind: str, sets: int) -> Program:
    """A life that ends when so many sets are committed, and the next files are half written; nothing in flight."""
    program = Program(FaultDisk(new_directory(directory, kind)), kind, "wait", sets, False)
    write, count = program._write, 0

    def counting(files: dict[str, bytes]) -> None:
        nonlocal count
        count += 1
        if count <= sets:
            write(files)
            return
        program.disk.overwrite(str(directory / "junk-of-no-entry"), b"")
        raise Stopped

    program._write = counting  # type: ignore[method-assign]
    with pytest.raises(Stopped):
        program.run()
    (directory / "junk-of-no-entry").unlink()
    return program


# The sweeps.


def kills(into: Path, whole: Program, points: Points, *, of: str) -> None:
    """G1, G2k, G3, G4: die before, and in the middle of, each of these operations; start again."""
    for at in points:
        directory = into / f"killed-{at}"
        first = killed(directory, whole, at)
        with told(f"killed at {at} ({whole.disk.record.ops[at]})", points):
            if not first.disk.dead or first.errors:
                raise Violation(f"it did not die there: {first.errors}")
            nothing_lost(first, restart(FaultDisk(directory, inodes=first.disk.inodes), first))
        tally.count("deaths in the model", of)
        shutil.rmtree(directory)


def cuts(
    into: Path,
    program: Program,
    points: Points,
    *,
    of: str,
    seed: int = 1,
    singles: int = 1,
    most: int = SINGLE,
    least: Callable[[int], int] | None = None,
    kill_at: Callable[[int], int] = lambda number: -1,
    after: str = "",
) -> int:
    """G1, G2, G3, G4: cut the power before each of these operations, in all the states that the model of the disk
    allows, and start again; `kill_at`: the first start after it is killed, too. The number of states."""
    least = least or promised(program.durable_at)
    count = 0
    for image in images(
        program.disk.record, str(into), seed=seed, singles=singles, most=most, at=points, promised=least
    ):
        survives(image, program, least(image.ops), of=of, points=points, kill_at=kill_at(count), after=after)
        count += 1
    return count


def survives(
    image: Image,
    program: Program,
    least: int,
    *,
    of: str,
    points: Points | None = None,
    kill_at: int = -1,
    after: str = "",
) -> None:
    """One state that a power cut could leave: the next start gives back one whole step, and reaches the end."""
    op = [*program.disk.record.ops, "the end"][image.ops]
    try:
        with told(f"{after}{image} ({op}){f', then killed at {kill_at}' * (kill_at >= 0)}", points):
            kept(least, restart_image(image, program, kill_at=kill_at).restored)
        tally.count("states of the model", of)
    finally:
        shutil.rmtree(image.directory)


def errors(
    into: Path,
    whole: Program,
    points: Points,
    code: int,
    holds: Callable[[Program, Path], object],
    *,
    from_then_on: bool = False,
    go_on: bool = False,
) -> None:
    """G7: each of these operations fails, once or from then on; then look at what is there."""
    for at in points:
        directory = into / f"failed-{at}"
        program = failed(directory, whole, at, code, from_then_on=from_then_on, go_on=go_on)
        when = f"{errno.errorcode[code]} {'from' if from_then_on else 'at'} {at} ({program.disk.failed})"
        with told(f"{when}, errors {program.errors}", points):
            holds(program, directory)
        shutil.rmtree(directory)
