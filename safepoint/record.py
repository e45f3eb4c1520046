"""The states of a set, and its record.

    state       on disk                               who may restore it         a death here means
    TAKEN       set-N/taken.json, files moved         settle, if it can be       settle completes it, or it is as if
                or moving                             proven whole               this hide had not been called
    STORED      the same, everything fsynced,         settle, by the checksums   as TAKEN
                and record.json.new
    COMMITTED   set-N/record.json                     everybody                  nothing is lost
    gone        gone-N/, being deleted                nobody                     the next start deletes the rest
    failed      failed-N/: its fsync failed; kept     nobody                     the set before it is restored
                until the next commit or failure of
                its number, for the user

`saving` moves a set to the right and down; `restoring.survey` is the executable twin of this table: it says of each set
what it is. Each file here is sealed (`sealed`).
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from safepoint.patterns import EXCLUDED, NAME, SIDE, Way, above, follows, per_rank
from safepoint.sealed import PATH, Unsealed, rows_of, seal, unseal

NUMBER_BITS = 40  # of a key; names of sets have at most 12 digits


Kind = Literal["file", "append", "tree", "dir", "link"]  # append: the first `size` bytes of the file in W


Form = Literal["raw", "zst", "tar"]  # raw: under its own name; zst: packed, one frame; tar: in the bundle


class Item(NamedTuple):
    """One thing that `hide` took: a file, or a directory as a whole."""

    path: str
    kind: Way
    size: int
    mtime_ns: int
    inode: int
    tree: bool = False
    compress: int | None = None
    without: tuple[str, ...] = ()  # patterns of what lies in this directory and is not saved

    @property
    def carried(self) -> bool:
        """The program has not written it since the set before, from which this one has it: W has none."""
        return self.kind == "copy" and not self.inode


class Life(NamedTuple):
    """From one start to the next: what a set is known by beside its number, as numbers come again after a fall-back,
    and a node that was away may bring sets back of a life that the others gave up."""

    number: int = 0  # greater than that of every life before, as far as the ranks of this one know
    history: str = ""  # 62 random bits in hexadecimal, the same on all ranks


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
    life: int = 0  # 0, and no history: written in format 1
    history: str = ""
    extra: dict[str, Any] | None = None  # what the program gave along

    @property
    def key(self) -> int:
        return key(self.life, self.number)

    @property
    def label(self) -> str:
        return label(self.number, self.step)

    @property
    def per_rank(self) -> bool:
        return _per_rank(self)


class StoredFile(NamedTuple):
    """One file of a set. `size` and `checksum` are of its uncompressed bytes."""

    path: str
    kind: Kind  # tree, dir and link have no bytes of their own
    size: int = 0
    checksum: str = ""
    mode: int = 0
    mtime_ns: int = 0
    kept: Form = "raw"
    stored_size: int = 0  # bytes that the set keeps of it
    offset: int = 0  # in the bundle
    target: str = ""  # of a link
    group: int = -1  # its number; -1: not known

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
    life: int = 0  # these as in Taken
    history: str = ""
    extra: dict[str, Any] | None = None
    parents: dict[str, Any] | None = None  # directories of W that lead to the files: mode and group of each

    @property
    def key(self) -> int:
        return key(self.life, self.number)

    @property
    def label(self) -> str:
        return label(self.number, self.step)

    @property
    def per_rank(self) -> bool:
        return _per_rank(self)


def _per_rank(what: Taken | Record) -> bool:
    """Whether each rank has files of its own in this set, so that all of them are needed."""
    listed = (pattern for pattern in what.patterns if not pattern.startswith(EXCLUDED))
    return what.saver is None or any(map(per_rank, listed))


def dump(what: Taken | Record) -> bytes:
    """Sealed: the fields by name, and of "files" a row each, whose fields are named in "columns"."""
    columns = Item._fields if isinstance(what, Taken) else StoredFile._fields
    return seal({**what._asdict(), "columns": columns})


class Final(NamedTuple):
    """A file of the finish mark."""

    path: str
    kind: Kind
    size: int
    checksum: str


class Mark(NamedTuple):
    """The finish mark."""

    number: int
    step: int | None
    time: float
    version: str
    ranks: int
    files: tuple[Final, ...]
    life: int = 0
    history: str = ""


class Initial(NamedTuple):
    """A file that was there at the first start."""

    path: str
    size: int
    mtime_ns: int
    inode: int
    directory: bool = False  # nothing is said of directories in format 1


class Baseline(NamedTuple):
    """What the first start found."""

    ranks: int
    saver: int | None
    patterns: tuple[str, ...]
    files: tuple[Initial, ...]


def parse_taken(data: bytes) -> Taken:
    return _parsed(Taken, Item, unseal(data))  # type: ignore[no-any-return]


def parse_record(data: bytes) -> Record:
    return _parsed(Record, StoredFile, unseal(data))  # type: ignore[no-any-return]


def parse_mark(data: bytes) -> dict[str, Any]:
    return _with_objects(Mark, Final, unseal(data))


def parse_baseline(data: bytes) -> dict[str, Any]:
    return _with_objects(Baseline, Initial, unseal(data))


def _parsed(kind: type[Any], row_kind: type[Any], content: dict[str, Any]) -> Any:
    """The fields of a sealed file. It may come from elsewhere: what it names must lie in W."""
    columns = content.get("columns")
    (whole,) = rows_of(kind, list(content), [list(content.values())])
    files = rows_of(row_kind, columns if type(columns) is list else [None], whole.files)
    _check_paths(files)
    if not re.fullmatch("([0-3][0-9a-f]{15})?", getattr(whole, "history", "")):
        raise Unsealed("its history is none")
    for pair in (getattr(whole, "parents", None) or {}).values():
        if type(pair) is not list or len(pair) != 2 or not all(type(n) is int and -1 <= n < 1 << 32 for n in pair):
            raise Unsealed("its directories are none")
    if "patterns" in kind._fields:
        try:
            any(map(per_rank, whole.patterns))
        except ValueError as error:
            raise Unsealed(f"its patterns cannot be read: {error}") from error
    return whole._replace(files=tuple(files))


def _with_objects(kind: type[Any], row_kind: type[Any], content: dict[str, Any]) -> dict[str, Any]:
    """The content itself, checked in the same way: here the rows are objects."""
    rows, names = content.get("files"), list(row_kind._fields)
    if type(rows) is not list or not all(type(row) is dict for row in rows):
        raise Unsealed("its rows are not objects")
    rows = [[row.get(name, row_kind._field_defaults.get(name)) for name in names] for row in rows]
    _parsed(kind, row_kind, {**content, "columns": names, "files": rows})
    return content


def _check_paths(files: Sequence[Any]) -> None:
    """Raise `Unsealed` unless these are different files of the program's directory, each named in the shortest way."""
    paths = {file.path for file in files}
    if len(paths) < len(files):
        raise Unsealed("it names a file twice")
    # What is no directory has nothing below it. (A baseline does not say which these are.)
    leaves = {file.path for file in files if hasattr(file, "kind") and not _is_directory(file)}
    trees = {file.path for file in files if getattr(file, "kind", "") == "tree"}
    links = {file.path: file.target for file in files if getattr(file, "target", "")}
    sound: set[str] = set()  # directories of paths that were looked at: a hundred thousand files may lie in one
    for file in files:
        directory, _, name = file.path.rpartition("/")
        plain = getattr(file, "kind", "") not in ("dir", "link") and not getattr(file, "target", "")
        if plain and directory in sound and name not in ("", ".", "..", SIDE, NAME) and len(file.path) <= PATH:
            continue
        if getattr(file, "kind", "") in ("dir", "link") and trees.isdisjoint(above(file.path)):
            raise Unsealed(f"it names {file.path} as part of a directory that it does not name")
        target = getattr(file, "target", "")
        no_link = hasattr(file, "target") and (file.kind == "link") != bool(target)
        if no_link or max(len(file.path), len(target)) > PATH:
            raise Unsealed(f"it names {file.path[:100]} as what it cannot be")
        if file.path.startswith(("/", "../")) or file.path == ".." or file.path.split("/")[0] in (SIDE, NAME):
            raise Unsealed(f"it names {file.path}, which is not a file of the program's directory")
        if target and not follows(file.path, target, min(trees.intersection(above(file.path)), key=len), links.get):
            raise Unsealed(f"it names {file.path} as a link that leads out of its directory")
        if posixpath.normpath(file.path) != file.path or file.path == "." or not leaves.isdisjoint(above(file.path)):
            raise Unsealed(f"it names {file.path} by a detour")
        sound.add(directory)


def _is_directory(file: Any) -> bool:
    return bool(file.kind in ("tree", "dir") or getattr(file, "tree", False))


def key(life: int, number: int) -> int:
    """What orders sets, and what ranks agree on: the newest life first, and in it the newest number."""
    return life << NUMBER_BITS | number


def mark_key(mark: dict[str, Any] | None) -> int:
    """Sets up to this are ended history, as the finish mark says; of unfinished runs, none."""
    return key(mark.get("life", 0), mark["number"]) if mark else 0


def number_of(key: int) -> int:
    return key & ((1 << NUMBER_BITS) - 1)


def life_of(key: int) -> int:
    return key >> NUMBER_BITS


def label(number: int, step: int | None) -> str:
    """How messages call a set."""
    return f"set {number}" if step is None else f"set {number} (step {step})"
