"""Packed traces: the same notes in a twentieth of the space, whatever happens while they are packed."""

from __future__ import annotations

import json
import os
import platform
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_match_random import HOWS, matched, plain
from test_reading import some
from testbed import ran_mpi
from testbed.commands import cli
from testbed.faultdisk import FaultDisk, Killed, images
from testbed.noted import Noted
from testbed.random_mpi import program
from testbed.sweep import LONG, many, sample

from safepoint.disk import Disk
from safepoint.errors import UsageError
from safepoint.matching import columns, match, packed, reading, stored
from safepoint.matching.columns import NOTES
from safepoint.matching.stored import TraceError
from safepoint.trace import record

RUNS = 2000 if LONG else many(100)
Notes = tuple[Any, Any, int]


def by_chance(seed: int) -> Notes:
    """Notes and rows of any bytes; rows that fill their file, or do not."""
    chance = np.random.default_rng(seed)
    notes = np.frombuffer(chance.bytes(NOTES.itemsize * int(chance.integers(0, 40))), NOTES).copy()
    if seed % 3 == 0:
        notes["leave"][::2], notes["enter"] = 0, np.sort(notes["enter"])
    more = [0, 0, 0]
    for note in range(int(chance.integers(0, 6))):
        length = int(chance.integers(0, 7))
        more += [length, note, int(chance.integers(1, 5)), *chance.integers(-(2**63), 2**63 - 1, length).tolist()]
    words = np.array(more[: len(more) - seed % 2], "<i8")
    return notes, words, int(chance.integers(-1, 50))


def calls(count: int, seed: int = 1) -> Notes:
    """Such as a program makes: a loop of Isend, Irecv, Waitall, with times as a clock has them."""
    chance, notes = np.random.default_rng(seed), np.zeros(count, NOTES)
    took = chance.gamma(2, 300, (2, count)).astype("u8") + 200  # ns
    notes["leave"] = np.cumsum(took.sum(0)) + 10**15
    notes["enter"] = notes["leave"] - took[1]
    notes["function"], notes["site"] = np.arange(count) % 3 + 20, np.arange(count) % 3 + 1
    notes["peer"], notes["state"] = np.arange(count) % 2, record.RETURNED
    notes["request"] = np.where(np.arange(count) % 3 < 2, np.cumsum(np.arange(count) % 3 < 2), 0)
    words = [0, 0, 0]
    for at in range(2, count, 3):
        notes["more"][at], last = len(words), int(notes["request"][at - 1])
        words += [6, at, record.COMPLETED, last - 1, record.NONE, record.NONE, last, 1, 5]
    return notes, np.array(words, "<i8"), count


# What is packed comes back.


def test_whatever_is_packed_comes_back_bit_by_bit() -> None:
    for seed in range(RUNS):
        notes, words, count = by_chance(seed)
        found = columns.unpack(columns.pack(notes, words, count))
        assert found[0].tobytes() == notes.tobytes() and found[1].tolist() == words.tolist(), seed
        assert found[2] == count


def test_a_call_takes_three_bytes() -> None:
    """With times that differ by a microsecond; those that wait for milliseconds take two bytes more."""
    notes, words, count = calls(30_000)
    size = len(columns.pack(notes, words, count))
    assert size / count < 3, size / count


def test_random_programs_are_matched_as_before_when_they_are_packed(tmp_path: Path) -> None:
    for seed in range(-(-RUNS // 4)):
        written = program(seed, **HOWS[seed % len(HOWS)])
        before = matched(tmp_path / "t", written, ran_mpi.run(written, seed))
        packed.pack(tmp_path / "t")
        after = match.matched(tmp_path / "t")
        assert plain(after) == plain(before) and after.remarks == before.remarks, seed
        assert not list((tmp_path / "t").glob("*.calls")) and not list((tmp_path / "t").glob("*.more"))
        shutil.rmtree(tmp_path / "t")


def test_the_notes_of_a_rank_that_was_killed_are_packed_without_the_rest_of_a_segment(tmp_path: Path) -> None:
    trace = some(tmp_path / "t")
    trace.close(0, 1)
    before = match.matched(tmp_path / "t")
    assert packed.pack(tmp_path / "t")[0] == 2 * 18
    assert sum(path.stat().st_size for path in (tmp_path / "t").glob("*.packed")) < 3000
    after = match.matched(tmp_path / "t")
    assert plain(after) == plain(before) and after.remarks == before.remarks
    assert "rank 0 was killed" in before.remarks[0]


def test_what_is_packed_is_not_packed_again(tmp_path: Path) -> None:
    some(tmp_path / "t").close()
    first = packed.pack(tmp_path / "t")
    disk = FaultDisk(tmp_path / "t")
    assert packed.pack(tmp_path / "t", disk) == (first[0], first[2], first[2])
    assert {operation.split()[0] for operation in disk.record.ops} == {"lock", "sync"}


# Whatever happens.


def disks(tmp_path: Path, **how: Any) -> Iterator[tuple[FaultDisk, Path]]:
    """One for each operation of packing a trace of two ranks, which is its number; each with such a trace."""
    some(tmp_path / "whole").close()
    shutil.copytree(tmp_path / "whole", tmp_path / "counted")
    counting = FaultDisk(tmp_path / "counted")
    packed.pack(tmp_path / "counted", counting)
    assert len(counting.record.changing) >= 8, counting.record.ops
    for number in sample(range(len(counting.record.ops)), 2):
        directory = tmp_path / f"t{number}"
        shutil.copytree(tmp_path / "whole", directory)
        yield FaultDisk(directory, **{name: number for name in how if how[name] is int}), directory


def whole(directory: Path, like: Path) -> bool:
    return plain(match.matched(directory)) == plain(match.matched(like))


def packs_on(directory: Path, like: Path) -> None:
    packed.pack(directory)
    assert whole(directory, like)
    assert {path.suffix for path in directory.iterdir()} - {".lock"} == {".json", ".packed", ".sites", ".objects"}


def test_packing_that_is_killed_at_any_operation_leaves_the_trace_and_goes_on(tmp_path: Path) -> None:
    for disk, directory in disks(tmp_path, kill_at=int):
        with pytest.raises(Killed):
            packed.pack(directory, disk)
        assert whole(directory, tmp_path / "whole"), disk.kill_at
        packs_on(directory, tmp_path / "whole")


def test_packing_in_which_any_operation_fails_says_so_and_goes_on(tmp_path: Path) -> None:
    for disk, directory in disks(tmp_path, fail_at=int):
        with pytest.raises(UsageError, match=r"not packed whole: .*all notes of it are intact"):
            packed.pack(directory, disk)
        assert whole(directory, tmp_path / "whole"), disk.failed
        packs_on(directory, tmp_path / "whole")


def test_a_power_cut_at_any_operation_of_packing_leaves_the_trace(tmp_path: Path) -> None:
    some(tmp_path / "t").close()
    shutil.copytree(tmp_path / "t", tmp_path / "whole")
    disk, seen = FaultDisk(tmp_path / "t"), 0
    packed.pack(tmp_path / "t", disk)
    for image in images(disk.record, str(tmp_path), at=sample([*disk.record.changing, len(disk.record.ops)], 3)):
        assert whole(Path(image.directory), tmp_path / "whole"), str(image)
        packs_on(Path(image.directory), tmp_path / "whole")
        shutil.rmtree(image.directory)
        seen += 1
    assert seen > 5


@pytest.mark.parametrize("fault", ["another note", "an error"])
def test_what_does_not_read_back_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    some(tmp_path / "t").close()
    shutil.copytree(tmp_path / "t", tmp_path / "whole")
    right = columns.unpack

    def wrong(data: bytes) -> Notes:
        notes, more, count = right(data)
        if fault == "an error":
            raise ValueError("a column is damaged")
        notes["tag"][3] += 1
        return notes, more, count

    monkeypatch.setattr(columns, "unpack", wrong)
    with pytest.raises(UsageError, match=r"read back.*all notes of it are intact"):
        packed.pack(tmp_path / "t")
    monkeypatch.undo()
    assert whole(tmp_path / "t", tmp_path / "whole") and not list((tmp_path / "t").glob("*.packed"))


def test_a_rank_that_still_runs_is_left_alone(tmp_path: Path) -> None:
    """Else it would write where nobody looks any more."""
    boot = packed.BOOT.read_text("ascii").strip() if packed.BOOT.exists() else ""
    here = {"pid": os.getpid(), "host": platform.node(), "boot": boot}
    trace = Noted(tmp_path / "t", 2, {1: here})
    with pytest.raises(UsageError, match=f"rank 1 still runs, as process {os.getpid()}$"):
        packed.pack(tmp_path / "t")
    assert not list((tmp_path / "t").glob("*.packed"))
    trace.close()
    assert packed.pack(tmp_path / "t")[0] == 0
    Noted(tmp_path / "far", 2, {1: {**here, "host": "far"}})
    with pytest.raises(UsageError, match=r"rank 1 has not ended, as far as can be seen from here: pack .* on far$"):
        packed.pack(tmp_path / "far")


def test_two_that_pack_do_not_meet(tmp_path: Path) -> None:
    some(tmp_path / "t").close()
    release = Disk().lock(str(tmp_path / "t" / packed.LOCK))
    assert release
    with pytest.raises(UsageError, match=r"another --pack is at work there$"):
        packed.pack(tmp_path / "t")
    assert not list((tmp_path / "t").glob("*.packed*"))
    release()
    assert packed.pack(tmp_path / "t")[0]


# Damage.


def test_a_packed_file_that_is_torn_or_damaged_is_refused_by_name(tmp_path: Path) -> None:
    some(tmp_path / "t").close()
    packed.pack(tmp_path / "t")
    file = tmp_path / "t/rank-00001.packed"
    data, chance = file.read_bytes(), random.Random(3)
    torn = [data[:size] for size in (0, 7, 39, 40, *(chance.randrange(len(data)) for _ in range(40)))]
    flipped = [
        data[:at] + bytes([data[at] ^ 1 << chance.randrange(8)]) + data[at + 1 :]
        for at in (*range(40), *(chance.randrange(len(data)) for _ in range(RUNS)))
    ]
    for bad in (*torn, *flipped):
        file.write_bytes(bad)
        with pytest.raises(TraceError, match=r"rank-00001\.packed: (it|its|a) "):
            reading.read(tmp_path / "t")


def sealed(count: int, notes: int, words: int, body: bytes) -> bytes:
    """With a right checksum: by somebody who means harm."""
    return columns.sealed(columns.HEAD.pack(columns.MAGIC, count, notes, words), body)


def _rows(number: int) -> bytes:
    """The columns of no notes and so many rows, of which the first says that it has so many bytes."""
    columns_ = [bytes(0)] * (len(record.FIELDS) + 2) + [bytes(24), b"\1", number.to_bytes(8, "little")]
    large = b"\x28\xb5\x2f\xfd\xc0\0" + (8 * number).to_bytes(8, "little") + bytes(9)  # a frame of zstd
    frames = [*(columns.zstandard.compress(column) for column in columns_), large]
    return b"".join(columns.SIZE.pack(len(frame)) + frame for frame in frames)


def hostile() -> dict[str, bytes]:
    notes, more, count = calls(30)
    body, bomb = columns.pack(notes, more, count)[40:], columns.zstandard.compress(bytes(1 << 26), 19)
    return {
        "more notes than it can hold": sealed(-1, 1 << 40, 3, body),
        "fewer than none": sealed(-1, -1, 3, body),
        "other sizes": sealed(count, len(notes) + 1, len(more), body),
        "other words": sealed(count, len(notes), len(more) + 1, body),
        "no columns": sealed(count, 0, 0, b""),
        "a column of zeros without end": sealed(1, 1, 3, columns.SIZE.pack(len(bomb)) + bomb),
        "more rows than it can hold": sealed(1, 0, 3, _rows(1 << 40)),
        "a column that ends outside": sealed(1, 1, 3, columns.SIZE.pack(1 << 60) + bytes(100)),
    }


def test_a_packed_file_cannot_ask_for_memory_that_it_does_not_pay_for() -> None:
    for harm, data in hostile().items():
        with pytest.raises(ValueError, match=r"column|holds more|rows"):
            columns.unpack(data)
            pytest.fail(harm)


def test_many_equal_notes_pay_by_zeros_behind() -> None:
    notes = np.zeros(100_000, NOTES)
    data = columns.pack(notes, np.zeros(3, "<i8"), len(notes))
    assert len(columns.unpack(data)[0]) == len(notes)
    assert len(data) >= notes.nbytes / columns.MOST


def test_a_format_that_is_newer_is_refused(tmp_path: Path) -> None:
    some(tmp_path / "t").close()
    packed.pack(tmp_path / "t")
    file = tmp_path / "t/rank-00000.packed"
    file.write_bytes(file.read_bytes().replace(b"SPPACK1\n", b"SPPACK2\n", 1))
    with pytest.raises(TraceError, match=r"rank-00000\.packed: its format is not known here"):
        reading.read(tmp_path / "t")


# The command.


def test_the_command_says_what_it_has_saved(tmp_path: Path) -> None:
    some(tmp_path / "t").close()

    def run(*words: object) -> tuple[int, str]:
        done = cli("trace", *words)
        return done.exit_code, done.output

    code, said = run("--pack", tmp_path / "t")
    assert code == 0 and "36 calls, " in said and " bytes a call" in said
    for words, wrong in (
        (("--pack", tmp_path / "none"), "there is no such file or directory"),
        (("--pack", __file__), "is not the directory of a trace"),
        (("--pack", tmp_path), "is not a trace: it has no rank-00000.json"),
        (("--pack", tmp_path / "t", tmp_path / "t"), "take one trace"),
        (("--pack", "--export-otf2", "o", tmp_path / "t"), "each by itself"),
    ):
        code, said = run(*words)
        assert code == UsageError.code and wrong in said, (words, said)


def test_a_packed_file_is_said_to_be_gone_if_it_goes(tmp_path: Path) -> None:
    some(tmp_path / "t").close()
    packed.pack(tmp_path / "t")
    names = record.names(tmp_path / "t", 1)
    stored.packed(names).unlink()
    assert json.loads(names.about.read_text())["rank"] == 1
    with pytest.raises(TraceError, match=r"rank-00001\.calls: No such file"):
        reading.read(tmp_path / "t")
