"""Every name below the side directory, the bytes of its small files, and the states of a set.

    state       on disk                               who may restore it         a death here means
    TAKEN       set-N/taken.json, files moved         settle, if it can be       settle completes it, or it is as if
                or moving                             proven whole               this hide had not been called
    STORED      the same, everything fsynced,         settle, by the checksums   as TAKEN
                and record.json.new
    COMMITTED   set-N/record.json                     everybody                  nothing is lost
    gone        gone-N/, being deleted                nobody                     the next start deletes the rest
    failed      failed-N/: its fsync failed; kept     nobody                     the set before it is restored
                until the next commit, for the user

`save` moves a set to the right and down, `restore.verify` is the executable twin of this table: it says of each set
what it is. All small files are sealed: JSON whose first line carries the xxh3-128 of the lines between it and the last.
"""

from __future__ import annotations

import json
import os
import posixpath
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

from safepoint.codec import checksum
from safepoint.disk import Disk, cause
from safepoint.errors import FormatError, RefusedFileError, RestoreError, SaveError
from safepoint.manifest import NAME, SIDE, of_each

FORMAT = 1
FORMAT_LINE = f"safepoint {FORMAT}\n"
_ROOT = re.compile(r"rank-(\d{5,})")
_APART = re.compile(r"log-(\d{5,})\.jsonl")
_STATES = re.compile(r"(set|failed|gone)-(\d{8,18})")


@dataclass
class Root:
    """The names below W/.safepoint.d for one rank of `ranks`. `work` is absolute and free of symbolic links.

    `saver`: the rank that owns what is not of each rank. None: this rank is alone in W; then its root has the name of
    rank 0, whatever its number, so that a second program in W, of one process or many, meets its lock.
    """

    work: str
    rank: int = 0
    ranks: int = 1
    saver: int | None = 0

    def __post_init__(self) -> None:
        self.side = os.path.join(self.work, SIDE)
        self.format = os.path.join(self.side, "FORMAT")
        self.finished = os.path.join(self.side, "finished.json")
        self.halt = os.path.join(self.side, "halt.json")
        self.path = os.path.join(self.side, f"rank-{0 if self.saver is None else self.rank:05d}")
        self.apart = os.path.join(self.side, f"log-{self.rank:05d}.jsonl")  # of a rank that has nothing to save
        names = ("lock", "owner.json", "baseline.json", "log.jsonl", "stage", "discarded", "attempts.json", "lost.json")
        self.lock, self.owner, self.baseline, self.log, self.stage, self.discarded, self.attempts, self.lost = (
            os.path.join(self.path, name) for name in names
        )

    def state(self, state: str, number: int) -> str:
        return f"{self.path}/{state}-{number:08d}"

    def set(self, number: int) -> str:
        return self.state("set", number)

    def taken(self, number: int) -> str:
        return os.path.join(self.set(number), "taken.json")

    def record(self, number: int) -> str:
        return os.path.join(self.set(number), "record.json")

    def stored(self, number: int, path: str) -> str:
        """Where a set has the file with this path as it was taken; without one, all of them."""
        return f"{self.set(number)}/files/{path}" if path else f"{self.set(number)}/files"

    def packed(self, number: int, path: str) -> str:
        return f"{self.set(number)}/packed/{path}.zst"

    def bundle(self, number: int) -> str:
        return os.path.join(self.set(number), "bundle.tar")

    def where(self, number: int, file: StoredFile) -> str:
        """What holds the bytes of a file of this set."""
        if file.kind == "append":
            return os.path.join(self.work, file.path)
        if file.kept == "tar":
            return self.bundle(number)
        return self.packed(number, file.path) if file.kept == "zst" else self.stored(number, file.path)

    def numbers(self, disk: Disk, state: str) -> list[int]:
        """The numbers of the sets in this state ("set", "failed", "gone"), ascending."""
        if not disk.exists(self.path):
            return []
        matches = map(_STATES.fullmatch, disk.listdir(self.path))
        return sorted(int(match[2]) for match in matches if match and match[1] == state)

    def unknown(self, disk: Disk) -> list[str]:
        """The names in this root that are none of the library's."""
        ours = (self.lock, self.owner, self.baseline, self.log, self.stage, self.discarded, self.attempts, self.lost)
        known = {os.path.basename(name) + end for name in ours for end in ("", ".new")}
        return [name for name in disk.listdir(self.path) if name not in known and not _STATES.fullmatch(name)]

    def beyond(self, disk: Disk) -> list[Root]:
        """The roots in W of ranks that a program of so many ranks does not have."""
        matches = map(_ROOT.fullmatch, disk.listdir(self.side))
        return [Root(self.work, int(m[1]), self.ranks, self.saver) for m in matches if m and int(m[1]) >= self.ranks]

    def shown(self, path: object) -> str:
        """A path as the user knows it: relative to W, and by its own name if a set keeps it."""
        name = os.path.relpath(os.fsdecode(path), self.work) if isinstance(path, (str, bytes)) else str(path)
        name = name.replace(os.sep, "/")
        return re.sub(rf"^{re.escape(SIDE)}/rank-\d+/(set-\d+/files|set-\d+/packed|stage)/", "", name)

    @contextmanager
    def reporting(self, kind: type[SaveError] | type[RestoreError], what: str, holds: str) -> Iterator[None]:
        """Turn the system's error into ours: cannot what, which file, the cause, what still holds."""
        try:
            yield
        except OSError as error:
            raise kind(f"{what}: {self.shown(error.filename)}: {cause(error)}; {holds}", error.errno) from error

    def guard(self, paths: Iterable[str]) -> None:
        """Refuse paths whose directories are, by symbolic links, outside of W."""
        for parent in {os.path.dirname(path) for path in paths} - {""}:
            real = os.path.realpath(os.path.join(self.work, parent))
            if os.path.commonpath((real, self.work)) != self.work:
                raise RefusedFileError(f"{parent}/ leads outside the working directory, to {real}")


def roots(disk: Disk, work: str) -> tuple[list[Root], list[str]]:
    """The roots in W by their names, each as that of a rank with a saver, and the names that are none of ours."""
    known = {name + new for name in ("FORMAT", "finished.json", "halt.json") for new in ("", ".new")}
    names = disk.listdir(os.path.join(work, SIDE))
    matches = {name: _ROOT.fullmatch(name) for name in names}
    found = sorted(int(match[1]) for match in matches.values() if match)
    unknown = [name for name in names if name not in known and not matches[name] and not _APART.fullmatch(name)]
    return [Root(work, rank) for rank in found], unknown


def logs(disk: Disk, side: str) -> dict[int, str]:
    """The log of each rank below a side directory."""
    found = {}
    for name in disk.listdir(side):
        if match := _APART.fullmatch(name):
            found[int(match[1])] = os.path.join(side, name)
        elif (match := _ROOT.fullmatch(name)) and disk.exists(path := os.path.join(side, name, "log.jsonl")):
            found[int(match[1])] = path
    return found


class Unsealed(Exception):
    """The file is not what was written: cut short, or changed since."""


def seal(content: dict[str, Any]) -> bytes:
    """The content as JSON in one line, after a line with the checksum of that line."""
    body = json.dumps({"format": FORMAT, **content}).encode() + b"\n"
    return f'{{"xxh3_128": "{checksum(body)}", "content":\n'.encode() + body + b"}\n"


def unseal(data: bytes) -> dict[str, Any]:
    """The content of a sealed file. Raises `Unsealed` if a single bit of it is not what was written."""
    first, _, rest = data.partition(b"\n")
    body = rest[:-2]
    if rest[-2:] != b"}\n" or first != f'{{"xxh3_128": "{checksum(body)}", "content":'.encode():
        raise Unsealed("its own checksum differs")
    content: dict[str, Any] = json.loads(body)
    if content.get("format", 0) > FORMAT:
        raise FormatError(f"written by a newer safepoint, in format {content['format']}; this one knows {FORMAT}")
    return content


def write_durably(disk: Disk, path: str, data: bytes) -> None:
    """Replace a small file: on return the new content survives a power cut. Killed inside: the old or the new."""
    new = path + ".new"
    if disk.exists(new):
        disk.remove(new)  # of a process that died here
    disk.write(new, data)
    # The content before the name: otherwise a power cut could leave the name with nothing under it.
    disk.sync_files([new])
    disk.rename(new, path)
    disk.sync_dir(os.path.dirname(path))


class Item(NamedTuple):
    """One thing that `hide` took: a file, or a directory as a whole."""

    path: str
    kind: str  # move, copy, append
    size: int
    mtime_ns: int
    inode: int
    tree: bool = False
    compress: int | None = None


class Taken(NamedTuple):
    """What `hide` wrote down before the first file moved."""

    number: int
    step: int | None
    time: float  # seconds since the epoch
    host: str
    boot: str
    mount: str | None
    rank: int
    ranks: int
    saver: int | None  # the rank that has what is not of each rank; None: this rank has all that is listed
    patterns: tuple[str, ...]  # the manifest's entries at that time, whoever owns them
    files: tuple[Item, ...]

    @property
    def label(self) -> str:
        return label(self.number, self.step)

    @property
    def of_each(self) -> bool:
        return _of_each(self)


class StoredFile(NamedTuple):
    """One file of a set. `size` and `checksum` are of its uncompressed bytes."""

    path: str
    kind: str  # file; append: the first `size` bytes of the file in W; tree, dir, link: no bytes of their own
    size: int = 0
    checksum: str = ""
    mode: int = 0
    mtime_ns: int = 0
    kept: str = "raw"  # raw, under its own name; zst: packed, one frame; tar: in the bundle, from `offset` on
    stored_size: int = 0  # bytes that the set keeps of it
    offset: int = 0
    target: str = ""  # of a link

    @property
    def has_bytes(self) -> bool:
        return self.kind in ("file", "append")


class Record(NamedTuple):
    """The commit record of a set."""

    number: int
    step: int | None
    time: float  # when it was taken, seconds since the epoch
    committed: float
    host: str
    version: str
    rank: int
    ranks: int
    saver: int | None  # these as in Taken
    patterns: tuple[str, ...]  # only what these match can be a stray
    files: tuple[StoredFile, ...]

    @property
    def label(self) -> str:
        return label(self.number, self.step)

    @property
    def of_each(self) -> bool:
        return _of_each(self)


def _of_each(what: Taken | Record) -> bool:
    """Whether each rank has files of its own in this set, so that all of them are needed."""
    return what.saver is None or any(map(of_each, what.patterns))


def dump(what: Taken | Record) -> bytes:
    """Sealed: the fields by name, and of "files" a row each, whose fields are named in "columns"."""
    columns = Item._fields if isinstance(what, Taken) else StoredFile._fields
    return seal({**what._asdict(), "columns": columns})


def parse_taken(data: bytes) -> Taken:
    return Taken(**_rows(unseal(data), Item))


def parse_record(data: bytes) -> Record:
    return Record(**_rows(unseal(data), StoredFile))


def _rows(content: dict[str, Any], row_type: type[Any]) -> dict[str, Any]:
    """The fields of a sealed file. It may come from elsewhere: what it names must lie in W."""
    del content["format"]
    columns = content.pop("columns")
    content["files"] = tuple(row_type(**dict(zip(columns, row, strict=True))) for row in content["files"])
    links = {file.path for file in content["files"] if getattr(file, "target", "")}
    for file in content["files"]:
        way = posixpath.join(posixpath.dirname(file.path), getattr(file, "target", ""))
        for path in (file.path, posixpath.normpath(way)):
            if path.startswith(("/", "../")) or path == ".." or path.split("/")[0] in (SIDE, NAME):
                raise Unsealed(f"it names {path}, which is not a file of the program's directory")
        if posixpath.normpath(file.path) != file.path or links.intersection(_above(file.path)):
            raise Unsealed(f"it names {file.path} by a detour")
    return content


def _above(path: str) -> Iterator[str]:
    while path := posixpath.dirname(path):
        yield path


def label(number: int, step: int | None) -> str:
    """How messages call a set."""
    return f"set {number}" if step is None else f"set {number} (step {step})"
