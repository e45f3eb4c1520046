"""Damaged traces: flipped bytes, cut files and hostile numbers give an error that names the file, or a trace."""

from __future__ import annotations

import os
import random
import re
import shutil
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from testbed import ran_mpi
from testbed.noted import some
from testbed.random_mpi import program
from testbed.sweep import LONG, many
from testbed.written_down import killed, written_down

from safepoint.matching import match, reading
from safepoint.matching.matched import NONE, Matched
from safepoint.matching.reading import TraceError, read
from safepoint.places.graph import order
from safepoint.trace import record
from safepoint.trace.record import HEADER, NOTE

DAMAGES = 20_000 if LONG else many(240)
HOSTILE = [0, 1, 2, 3, 2**15, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 2, 2**32 - 1, 2**62, 2**63 - 1, 2**63, 2**64 - 1]
NAMED = re.compile(r"rank-\d{5}\.\w+|functions-\w+\.json|rank \d|its sites are damaged|is not a trace|ranks name more")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Closed traces, and some of which ranks were killed."""
    directory = tmp_path_factory.mktemp("whole")
    some(directory / "0").close()
    some(directory / "1").close(1)
    for seed in range(2, 8):
        written = program(seed, cut_short=True, events=14, wild=0.6)
        outcome = ran_mpi.run(written, seed)
        written_down(directory / str(seed), written, outcome).close(*killed(outcome))
    for path in directory.glob("*/*"):  # a segment of zeros says no more than a part of it
        if path.suffix in (".calls", ".more") and path.stat().st_size > record.SEGMENT / 2:
            os.truncate(path, HEADER + 60 * NOTE if path.suffix == ".calls" else 4096)
    return directory


# Each changes one file, somewhere.


def flipped(path: Path, chosen: random.Random) -> None:
    data = bytearray(path.read_bytes())
    for _ in range(chosen.choice([1, 1, 4])):
        data[within(path, data, chosen)] ^= 1 << chosen.randrange(8)
    path.write_bytes(data)


def overwritten(path: Path, chosen: random.Random) -> None:
    data = bytearray(path.read_bytes())
    at = within(path, data, chosen)
    part = chosen.choice([b"\xff\xff\xff\x7f", b"\xff" * 4, bytes(4), b"\1\0\0\0", bytes(NOTE)])
    data[at : at + len(part)] = part[: len(data) - at]
    path.write_bytes(data)


def cut(path: Path, chosen: random.Random) -> None:
    os.truncate(path, chosen.randrange(path.stat().st_size))


def doubled(path: Path, chosen: random.Random) -> None:
    data = path.read_bytes()
    begin = chosen.randrange(len(data))
    path.write_bytes(data[:begin] + data[begin : begin + chosen.randrange(200)] + data[begin:])


def hostile(path: Path, chosen: random.Random) -> None:
    """Another number where one is, in notes, rows and text."""
    data = bytearray(path.read_bytes())
    number = chosen.choice([*HOSTILE, chosen.randrange(30)])
    if path.suffix == ".calls":
        kind, offset = reading.NOTES.fields[chosen.choice(record.FIELDS)][:2]  # type: ignore[index]
        note = chosen.randrange(max((len(data) - HEADER) // NOTE, 1))
        at, size = HEADER + note * NOTE + offset, kind.itemsize
    elif path.suffix == ".more":
        at, size = 8 * chosen.randrange(max(len(data) // 8, 1)), 8
    else:
        numbers = list(re.finditer(rb"-?[0-9]+", bytes(data))) or [re.match(rb"", b"")]
        one = chosen.choice(numbers)
        assert one is not None
        data[one.start() : one.end()] = chosen.choice([f"{number}", f"-{number}", "9" * 30, "9" * 5000]).encode()
        path.write_bytes(data)
        return
    data[at : at + size] = (number % 2 ** (8 * size)).to_bytes(size, "little")[: max(len(data) - at, 0)]
    path.write_bytes(data)


def within(path: Path, data: bytearray, chosen: random.Random) -> int:
    """A place in the file: of notes mostly in one of them."""
    inside = path.suffix == ".calls" and chosen.random() < 0.9 and len(data) > HEADER
    return chosen.randrange(HEADER if inside else 0, len(data))


WAYS: list[Callable[[Path, random.Random], None]] = [flipped, overwritten, cut, doubled, hostile, hostile, hostile]


@pytest.mark.hypothesis  # in make proof, too, with more of them
def test_a_damaged_trace_is_an_error_that_names_the_file_or_a_trace(whole: Path, tmp_path: Path) -> None:
    """In memory as those of a whole one, and no number lets it go on for ever."""
    became = {"a trace": 0, "an error": 0}
    for seed in range(DAMAGES):
        chosen = random.Random(seed)
        damaged = tmp_path / "damaged"
        shutil.copytree(whole / str(chosen.randrange(8)), damaged)
        for _ in range(chosen.choice([1, 1, 1, 3])):
            path = chosen.choice([path for path in sorted(damaged.iterdir()) if path.stat().st_size])
            chosen.choice(WAYS)(path, chosen)
        try:
            became[judged(damaged)] += 1
        except BaseException as error:
            raise AssertionError(f"seed {seed}") from error
        shutil.rmtree(damaged)
    assert min(became.values()) > DAMAGES / 10, became


def judged(directory: Path) -> str:
    """What became of it. Nothing else may come out, and no memory be asked for but a few times the files'."""
    size = sum(path.stat().st_size for path in directory.iterdir())
    tracemalloc.start()
    try:
        matched = match.match(read(directory))
    except TraceError as error:
        assert NAMED.search(str(error)), error
        return "an error"
    finally:
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert most < 20 * size + (8 << 20), f"{most} bytes for {size}"
    refers_nowhere(matched)
    order(matched)
    return "a trace"


def refers_nowhere(matched: Matched) -> None:
    """Outside its own tables, that is."""

    def inside(numbers: np.ndarray, count: int, least: int = 0) -> bool:
        return bool(np.all((numbers >= least) & (numbers < count)))

    actions, names = matched.actions, len(matched.names)
    assert inside(matched.site, len(matched.sites)) and inside(matched.function, len(matched.functions))
    assert inside(matched.member, actions) and inside(matched.group, len(matched.kind))
    assert inside(matched.arcs, actions) and inside(matched.requests[:, 0], actions)
    assert inside(matched.requests[:, 1], actions, NONE) and inside(matched.never, actions)
    assert inside(matched.marks["site"], len(matched.sites)) and inside(matched.alive["name"], names)
    for name in ("sent", "posted", "received"):
        assert inside(matched.messages[name], actions, NONE)
    assert inside(matched.messages["group"], len(matched.kind), NONE)
    assert inside(matched.messages["source"], matched.ranks, NONE)
    assert inside(matched.messages["dest"], matched.ranks, NONE)
    assert inside(matched.messages["comm"], len(matched.objects))
    counts = np.diff(matched.begins)
    for rank, gap in ((matched.marks["rank"], matched.marks["gap"]), matched.unsure.T):
        assert inside(rank, matched.ranks) and np.all((gap >= 0) & (gap <= counts[rank]))
