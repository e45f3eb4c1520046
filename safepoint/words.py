"""Sizes, durations, moments and numbers of things, as people read them: one place for all that is shown.

A duration has three forms, and a text keeps to one of them. `about` rounds to one unit and is for messages of the
program. `span` names the two largest units and is for ages. `precise` begins at microseconds and is for measurements.
A program that saves imports this too, so it imports nothing that takes time to load.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Sequence

STARTERS = {"mpiexec", "mpirun", "srun", "orterun", "prun", "mpiexec.mpich", "mpiexec.openmpi", "mpiexec.hydra"}


def about(seconds: float) -> str:
    """In the unit in which it is easily read: 0.035 s, 3.1 s, 412 s, 25 min, 7.4 h, 3.2 d."""
    if math.isinf(seconds):
        return "for ever"
    if seconds < 9.95:
        return f"{seconds:.2g} s"
    for below, unit, name in ((999.5, 1, "s"), (5970, 60, "min"), (172800, 3600, "h")):
        if seconds < below:
            return f"{seconds / unit:.{1 if unit == 3600 else 0}f} {name}"
    return f"{seconds / 86400:.1f} d"


def span(seconds: float) -> str:
    """A duration in its two largest units: 5 s, 3 min 20 s, 2 h 5 min, 3 d 4 h."""
    whole = max(0, round(seconds))
    for unit, name, below, smaller in ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= unit:
            rest = whole % unit // below
            return f"{whole // unit} {name}" + (f" {rest} {smaller}" if rest else "")
    return f"{whole} s"


def precise(seconds: float) -> str:
    """Two or three digits, in the unit that a person would use."""
    if seconds < 0.9995:
        scale, unit = (1e6, "µs") if seconds < 0.9995e-3 else (1e3, "ms")
        return f"{_digits(seconds * scale)} {unit}" if seconds > 0 else "0 s"
    if seconds < 59.5:
        return f"{_digits(seconds)} s"
    whole = round(seconds)
    days, hours, minutes = whole // 86400, whole // 3600 % 24, whole // 60 % 60
    if days:
        return f"{days} d {hours} h"
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {whole % 60:02} s"


def _digits(value: float) -> str:
    return f"{value:.2f}" if value < 0.995 else f"{value:.1f}" if value < 9.95 else f"{value:.0f}"


def age(then: float) -> str:
    return f"{span(time.time() - then)} ago"


def moment(then: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(then))


def size(bytes_: float) -> str:
    """Bytes as people read them: 999 B, 1.2 kB, 45.6 GB."""
    unit = 0
    while bytes_ >= 999.5 and unit < 5:
        bytes_, unit = bytes_ / 1000, unit + 1
    if unit == 0:
        return f"{bytes_:.0f} B"
    return f"{bytes_:.{1 if bytes_ < 99.95 else 0}f} {'kMGTP'[unit - 1]}B"


def percent(share: float) -> str:
    value = 100 * share
    return (
        "0 %" if value <= 0 else "< 0.1 %" if value < 0.05 else f"{value:.1f} %" if value < 9.95 else f"{value:.0f} %"
    )


def count(number: int, one: str, many: str = "") -> str:
    """1 rank, 2 ranks; `many` where the plural is not made by an s."""
    return f"{number} {one if number == 1 else many or one + 's'}"


def are(number: int) -> str:
    return "is" if number == 1 else "are"


def directories(number: int) -> str:
    return count(number, "directory", "directories")


def ranks(numbers: Sequence[int]) -> str:
    """Ranks as people write them: 0-3, 7."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][-1] + 1:
            runs[-1][1:] = [number]
        else:
            runs.append([number])
    return ", ".join("-".join(map(str, run)) for run in runs)


def under_way(messages: int, other: int, rank: int) -> str:
    """What a tracer has counted when all ranks were inside `hide`. `other`: with which rank; -1: a request is open, -2:
    an access epoch of a window."""
    if other >= 0:
        of = "a message" if messages == 1 else f"one of {messages} messages"
        return f"{of} between rank {other} and rank {rank}, whose lines `safepoint places` names"
    what = "a request" if other == -1 else "an access epoch"
    return f"{what} of rank {rank} that is open, whose line `safepoint places` names"


def to_check(command: Sequence[str]) -> str:
    """What tells why a program of MPI stands still or fails; empty for any other."""
    if not command or os.path.basename(command[0]) not in STARTERS:
        return ""
    import shlex  # by those alone who run programs

    return f"what its ranks did in MPI, and where: safepoint check -- {shlex.join(command)}"
