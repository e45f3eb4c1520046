"""`safepoint trace --pack`: put the notes of a trace in columns, which take a twentieth of the space.

Each rank by itself: `rank-00000.packed` takes the place of `.calls` and `.more`. At each moment one of both is whole,
and `stored` takes the packed file if there is one. So whoever dies in here, or loses power, leaves a trace that can be
read, and packing again goes on.

(1) A packed file gets its name when its contents are durable, and were read back: a fault in `columns` would else be
    seen when nothing else is left.
(2) What it was made of goes when its name is durable: a power cut could else keep the removal, and lose the name.
(3) The notes of a rank that still runs are left alone: it writes where nobody would look any more.
(4) One at a time, by a lock of the kernel that dies with its process: of two the first could give its name to the half
    of the other, and remove what both are made of.
"""

from __future__ import annotations

import contextlib
import os
import platform
from pathlib import Path
from typing import Any

import numpy as np

from safepoint.disk import Disk, kernel
from safepoint.errors import UsageError
from safepoint.matching import columns, reading, stored
from safepoint.matching.stored import Stored, TraceError
from safepoint.trace import record

LOCK = "pack.lock"
BOOT = Path("/proc/sys/kernel/random/boot_id")


def pack(trace: Path, disk: Disk | None = None) -> tuple[int, int, int]:
    """Pack what is not packed yet: how many notes the trace has, the bytes of them and their rows before, and now.

    Raises `UsageError`: what is not packed then is as it was.
    """
    disk, found = disk or Disk(), (0, 0, 0)
    if not trace.is_dir():
        raise TraceError(f"{trace} is not the directory of a trace")
    abouts = reading.ranks_of(trace)
    for about in abouts:
        if about["ended"] is None and (runs := _runs(about)):
            raise UsageError(f"{trace}: rank {about['rank']} {runs}")
    try:
        if (release := disk.lock(str(trace.resolve() / LOCK))) is None:  # (4)
            raise UsageError(f"{trace}: another --pack is at work there")
        try:
            for about in abouts:
                one = _pack(disk, record.names(trace.resolve(), about["rank"]))
                found = tuple(map(sum, zip(found, one, strict=True)))  # type: ignore[assignment]
        finally:
            release()
    except OSError as error:
        what = f"{error.filename or trace}: {error.strerror or error}"
        raise UsageError(f"{trace} is not packed whole: {what}; all notes of it are intact") from error
    return found


def _pack(disk: Disk, names: record.Names) -> tuple[int, int, int]:
    target = stored.packed(names)
    before = sum(path.stat().st_size for path in (names.calls, names.more) if path.exists())
    beside = target.with_suffix(".packed.new")
    if os.path.lexists(beside):  # of one that was killed
        disk.remove(str(beside))
    of = _trimmed(stored.stored(names))
    if not target.exists():
        try:
            with disk.create(str(beside)) as file:
                _write(file, columns.pack(*of))
            disk.sync_files([str(beside)])
            _check(disk, beside, of)  # (1)
        except BaseException:
            with contextlib.suppress(OSError):  # a full disk is to have its space back
                disk.remove(str(beside))
            raise
        disk.rename(str(beside), str(target))
    disk.sync_dir(str(target.parent))  # (2)
    for path in (names.calls, names.more):
        if path.exists():
            disk.remove(str(path))
    size = target.stat().st_size
    return len(of.notes), before or size, size


def _write(file: Any, data: bytes) -> None:
    view = memoryview(data)
    while len(view):
        view = view[file.write(view) :]


def _check(disk: Disk, path: Path, of: Stored) -> None:
    """Raises `UsageError` if what is on the disk is not the same."""
    with disk.open(str(path)) as file:
        data = file.read()
    try:
        notes, more, count = columns.unpack(data)
        same = notes.tobytes() == of.notes.tobytes() and np.array_equal(more, of.more) and count == of.told
    except ValueError as error:
        raise UsageError(f"{path}: it cannot be read back: {error}; all notes of it are intact") from error
    if not same:
        raise UsageError(f"{path}: it does not read back as it was written; all notes of it are intact")


def _trimmed(of: Stored) -> Stored:
    """Without the zeros behind: a rank that was killed leaves the rest of a segment."""
    there = of.notes["state"] != record.EMPTY
    notes = of.notes[: len(of.notes) - int(np.argmax(there[::-1])) if there.any() else 0]
    words, at = of.more, 3
    while at + 3 <= len(words) and words[at + 2] in columns.KINDS and 0 <= words[at] <= len(words) - at - 3:
        at += 3 + int(words[at])
    if at <= len(words) and not words[at:].any():
        words = words[:at]
    return Stored(notes if of.told < 0 else of.notes, words, of.told)


def _runs(about: dict[str, Any]) -> str:
    """Why it may still write; empty: it does not."""
    if about["host"] != platform.node():
        return f"has not ended, as far as can be seen from here: pack the trace on {about['host']}"
    boot = BOOT.read_text("ascii").strip() if BOOT.exists() else ""
    alive = about["boot"] == boot and type(about.get("pid")) is int and kernel.began(about["pid"]) is not None
    return f"still runs, as process {about['pid']}" if alive else ""
