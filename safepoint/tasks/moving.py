"""A result as a directory: filled under a name that nobody looks for, then renamed to the one that counts."""

from __future__ import annotations

import contextlib
import stat
from collections.abc import Sequence

from safepoint.disk import Disk
from safepoint.disk.files import exists, read, remove_tree, stat_or_none
from safepoint.disk.kernel import write_all
from safepoint.tasks import kept, names
from safepoint.tasks.jobs import FILE, Output, Record
from safepoint.tasks.values import Encoded, walk

FILES = "files"  # the directory, below `done/KEY`, of files that bodies made


def fill(disk: Disk, stage: str, encoded: Sequence[Encoded]) -> tuple[tuple[Output, ...], list[str], list[str]]:
    """Put these outputs into an empty directory; them as they are kept, and which files and directories there are.
    Files of bodies are moved there, and nobody may write to them any more."""
    outputs: list[Output] = []
    files: list[str] = []
    directories: list[str] = []
    for number, each in enumerate(encoded):
        if each.kind == FILE:
            name = f"{FILES}/{each.below}"
        else:
            name = f"{f'out-{number}' if each.name else 'out'}.{each.kind}"
            with disk.create(f"{stage}/{name}") as file:
                for piece in each.pieces:
                    write_all(file, piece)
            files.append(f"{stage}/{name}")
        outputs.append(Output(each.name, each.kind, each.digest, each.nbytes, name))
    for each in sorted((each for each in encoded if each.path), key=lambda each: each.below):
        if exists(disk, each.path):  # else it was moved with a directory that is another output
            _move(disk, stage, each)
    if any(each.path for each in encoded):
        found = list(walk(disk, f"{stage}/{FILES}"))
        directories = [f"{stage}/{FILES}", *(f"{stage}/{FILES}/{way}" for way, is_directory in found if is_directory)]
        own = [f"{stage}/{FILES}/{way}" for way, is_directory in found if not is_directory]
        for path in own:
            info = disk.stat(path)
            disk.set_mode_and_time(path, info.st_mode & ~0o222, info.st_mtime_ns)
        files += own
    return tuple(outputs), files, directories


def _move(disk: Disk, stage: str, each: Encoded) -> None:
    way = f"{stage}/{FILES}"
    for part in ("", *each.below.split("/")[:-1]):
        way = f"{way}/{part}" if part else way
        if not exists(disk, way):
            disk.mkdir(way)
    disk.rename(each.path, f"{way}/{each.below.rpartition('/')[2]}")


def write_file(disk: Disk, path: str, data: bytes) -> None:
    with disk.create(path) as file:
        write_all(file, data)


def settle(disk: Disk, directory: str, stage: str, key: str) -> Record | None:
    """Give a durable directory the name that counts. If another attempt was first: its record, and this one is gone."""
    target = f"{directory}/{names.DONE}/{key}"
    while True:
        try:
            disk.rename(stage, target)  # a kill before it: the vertex runs again; after it: the vertex has finished
            return None
        except OSError:
            if not exists(disk, target):
                raise
        first = whole(disk, target, key)
        if first is not None:
            remove_tree(disk, stage)
            return first
        hide(disk, directory, names.DONE, [key])


def settle_loose(disk: Disk, directory: str, stage: str, key: str) -> None:
    """As `settle`, for what is not kept: the newest stays, as its record will be the one that was told last."""
    target = f"{directory}/{names.LOOSE}/{key}"
    while True:
        try:
            disk.rename(stage, target)
            return
        except OSError:
            if not exists(disk, target):
                raise
        hide(disk, directory, names.LOOSE, [key])


def hide(disk: Disk, directory: str, below: str, keys: Sequence[str]) -> None:
    """Remove these keys from `done` or `loose`. Not at once under their own names: killed in between, that would leave
    a key with a part of its files."""
    away = names.make(disk, directory, names.GONE)
    for key in keys:
        with contextlib.suppress(FileNotFoundError):  # another process did so
            disk.rename(f"{directory}/{below}/{key}", f"{away}/{key}")
    if below == names.DONE:
        # Their names, before what they hold: else a power cut could leave a key with a part of its files.
        disk.sync_dir(f"{directory}/{below}")
    remove_tree(disk, away)


def whole(disk: Disk, path: str, key: str) -> Record | None:
    """The record of `done/KEY`, if that and each file is there, with the size that it should have."""
    try:
        record = kept.unsealed(read(disk, f"{path}/{names.RECORD}", 1 << 30), key)
    except (OSError, kept.Strange):
        return None
    for output in record.outputs:
        info = stat_or_none(disk, f"{path}/{output.file}")
        if info is None or not (stat.S_ISDIR(info.st_mode) or info.st_size == output.nbytes):
            return None
    return record
