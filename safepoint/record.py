"""Every name below the side directory, the bytes of its small files, and the states of a set.

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

`save` moves a set to the right and down, `restore.verify` is the executable twin of this table: it says of each set
what it is. All small files are sealed: JSON whose first line carries the xxh3-128 of the lines between it and the last.
What is under a good seal may be written by anybody, so `rows_of` looks at every value before it is used.
"""

from __future__ import annotations

import errno
import functools
import json
import math
import os
import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from stat import S_ISDIR, S_ISLNK
from typing import Any, NamedTuple, get_args, get_origin, get_type_hints

from safepoint.codec import checksum
from safepoint.disk import Disk, cause
from safepoint.errors import FormatError, RefusedFileError, RestoreError, SaveError
from safepoint.manifest import LEVELS, NAME, SIDE, above, of_each

FORMAT = 2  # 1 knew no lives: two sets of the same number were taken for one
NUMBER_BITS = 40  # of a key; names of sets have at most 12 digits
LIVES = 1 << 22  # more than can be; what says so is none of ours
_ROOT = re.compile(r"rank-(\d{5,})")
_APART = re.compile(r"log-(\d{5,})\.jsonl")
_AWAY = {errno.ENOENT, errno.ENOTDIR, getattr(errno, "ESTALE", errno.ENOENT)}
_STATES = re.compile(r"(set|failed|gone)-(\d{8,12})")
NOTE = 16 << 20  # bytes of a small file that does not grow with the number of files: a command line may have 2 MB
LAST, RANKS, AGES = 10**12 - 1, 1 << 22, 1 << 40  # the highest number of a set, and of ranks; seconds since the epoch
PATH = 4096  # bytes of a path, as Linux has them at most
# What a number may be, by the name of its field: else it could not be a time, a mode or a name. All others: 63 bits.
WHOLE = 0, (1 << 63) - 1
RANGES: dict[str, tuple[float, float]] = {
    "number": (0, LAST), "set": (0, LAST), "step": (-math.inf, math.inf), "rank": (0, RANKS), "ranks": (1, RANKS),
    "saver": (0, RANKS), "time": (-AGES, AGES), "committed": (-AGES, AGES), "since": (-AGES, AGES),
    "until": (-AGES, AGES), "mode": (0, 0o177777), "mtime_ns": (-(1 << 63), (1 << 63) - 1), "inode": (0, (1 << 64) - 1),
    "compress": (LEVELS[0], LEVELS[-1]), "life": (0, LIVES - 1),
}  # fmt: skip


class Root:
    """The names below W/.safepoint.d for one rank of `ranks`. `work` is absolute and free of symbolic links.

    `saver`: the rank that owns what is not of each rank. None: this rank is alone in W; then its root has the name of
    rank 0, whatever its number, so that a second program in W, of one process or many, meets its lock.
    """

    def __init__(self, work: str, rank: int = 0, ranks: int = 1, saver: int | None = 0) -> None:
        self.work, self.rank, self.ranks, self.saver = work, rank, ranks, saver
        self.locked: tuple[int, int] | None = None  # device and inode of the lock that this run holds
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
        if number > LAST:
            raise FormatError(f"{self.path} cannot have a set with number {number}: no later start would find it")
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
        return f"{self.packed_in(number)}/{path}.zst"

    def packed_in(self, number: int) -> str:
        return f"{self.set(number)}/packed"

    def bundle(self, number: int) -> str:
        return os.path.join(self.set(number), "bundle.tar")

    def prefix(self, number: int, path: str, state: str = "set") -> str:
        """The copy of the beginning of an append file that a set has if it was given back."""
        return f"{self.state(state, number)}/append/{path}"

    def where(self, number: int, file: StoredFile) -> str:
        """What holds the bytes of a file of this set; of an append file as long as the program only adds to it."""
        if file.kind == "append":
            return os.path.join(self.work, file.path)
        if file.kept == "tar":
            return self.bundle(number)
        return self.packed(number, file.path) if file.kept == "zst" else self.stored(number, file.path)

    def numbers(self, disk: Disk, state: str) -> list[int]:
        """The numbers of the sets in this state ("set", "failed", "gone"), ascending."""
        if not is_ours(disk, self.path):
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
        return re.sub(rf"^{re.escape(SIDE)}/rank-\d+/(set-\d+/(?:files|packed|append)|stage)/", "", name)

    def is_ours(self, disk: Disk) -> bool:
        """Whether the lock that this run holds is the one that another run would meet; or that cannot be seen now."""
        if self.locked is None:
            return True
        try:
            info = disk.stat(self.lock)
        except OSError as error:
            return error.errno not in _AWAY
        return self.locked == (info.st_dev, info.st_ino)

    def refuse_other(self, disk: Disk, kind: type[SaveError] | type[RestoreError], what: str, holds: str) -> None:
        """Raise if the side directory is no longer the one that this run has locked: what has its name now may belong
        to another run, which nothing would keep apart from this one."""
        if not self.is_ours(disk):
            raise kind(
                f"{what}: {self.side} is not there any more, or another one is: it, or a directory above it, was "
                f"removed, moved, replaced or unmounted while this run was at work, and all sets are gone with it; "
                f"{holds}. Move it back; or close() this session and call init() again, which makes a new one",
                errno.ENOENT,
            )

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
    refuse_link(disk, side := os.path.join(work, SIDE))
    names = disk.listdir(side)
    matches = {name: _ROOT.fullmatch(name) for name in names}
    for name in filter(matches.get, names):
        refuse_link(disk, os.path.join(side, name))
    found = sorted(int(match[1]) for match in matches.values() if match)
    unknown = [name for name in names if name not in known and not matches[name] and not _APART.fullmatch(name)]
    return [Root(work, rank) for rank in found], unknown


def logs(disk: Disk, side: str) -> dict[int, str]:
    """The log of each rank below a side directory."""
    found = {}
    for name in disk.listdir(side):
        if match := _APART.fullmatch(name):
            found[int(match[1])] = os.path.join(side, name)
        elif match := _ROOT.fullmatch(name):
            refuse_link(disk, os.path.join(side, name))
            if disk.exists(path := os.path.join(side, name, "log.jsonl")):
                found[int(match[1])] = path
    return found


def is_ours(disk: Disk, *ways: str) -> bool:
    """Whether these are there, one below the other, and directories. Raises `OSError` for anything else under such a
    name: through a symbolic link files would be read, moved and deleted that are none of ours."""
    for way in ways:
        try:
            mode = disk.stat(way).st_mode
        except (FileNotFoundError, NotADirectoryError):
            return False
        if S_ISLNK(mode):
            raise OSError(errno.ELOOP, "a symbolic link, which is not followed here", way)
        if not S_ISDIR(mode):
            raise OSError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), way)
    return True


def refuse_link(disk: Disk, path: str) -> None:
    """Raise `FormatError` if the side directory, or a root in it, is something else."""
    try:
        is_ours(disk, path)
    except OSError as error:
        text = f"{path}: {error.strerror}: safepoint needs a directory of its own there; nothing was changed"
        raise FormatError(text, error.errno) from error


class Unsealed(Exception):
    """The file is not what was written: cut short, changed since, or of another content than it should have."""


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
    content = loaded(body)
    if type(content.get("format")) is not int or content["format"] < 1:
        raise Unsealed("it does not name its format")
    if content["format"] > FORMAT:
        raise FormatError(f"written by a newer safepoint, in format {content['format']}; this one knows {FORMAT}")
    return content


def loaded(data: bytes) -> dict[str, Any]:
    """A JSON object. Raises `Unsealed` if these bytes are none."""
    try:
        content = json.loads(data)
    except (ValueError, RecursionError) as error:  # a number of thousands of digits too, and lists in lists in lists
        raise Unsealed("it is no JSON that can be read") from error
    if not isinstance(content, dict):
        raise Unsealed("it has no fields")
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

    @property
    def key(self) -> int:
        return key(self.life, self.number)

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
    life: int = 0  # these as in Taken
    history: str = ""

    @property
    def key(self) -> int:
        return key(self.life, self.number)

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


class Final(NamedTuple):
    """A file of the finish mark."""

    path: str
    kind: str
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


_IN_A_SET = {"file", "append", "tree", "dir", "link"}
_WORDS = {
    (Item, "kind"): {"move", "copy", "append"}, (StoredFile, "kind"): _IN_A_SET, (Final, "kind"): _IN_A_SET,
    (StoredFile, "kept"): {"raw", "zst", "tar"},
}  # fmt: skip


def parse_taken(data: bytes) -> Taken:
    return _parsed(Taken, Item, unseal(data))  # type: ignore[no-any-return]


def parse_record(data: bytes) -> Record:
    return _parsed(Record, StoredFile, unseal(data))  # type: ignore[no-any-return]


def parse_mark(data: bytes) -> dict[str, Any]:
    return _with_objects(Mark, Final, unseal(data))


def parse_baseline(data: bytes) -> dict[str, Any]:
    return _with_objects(Baseline, Initial, unseal(data))


def read_note(disk: Disk, path: str, kind: type[Any]) -> dict[str, Any] | None:
    """The fields of a small file without a seal, that nothing depends on; None if it cannot be read."""
    try:
        return checked(kind, loaded(disk.read(path, NOTE)))._asdict()  # type: ignore[no-any-return]
    except (OSError, Unsealed):
        return None


def checked(kind: type[Any], content: Mapping[str, Any]) -> Any:
    """A NamedTuple of this kind from its fields by name; as `rows_of`."""
    return rows_of(kind, list(content), [list(content.values())])[0]


def rows_of(kind: type[Any], names: Sequence[Any], rows: Any) -> list[Any]:
    """NamedTuples of this kind, from rows with these columns; a column that is not known is left out, and one that is
    missing has its default. Raises `Unsealed` unless every value is one that its field may have."""
    if not all(type(name) is str for name in names) or len(set(names)) < len(names):
        raise Unsealed("its columns are not names")
    if type(rows) is not list or not all(type(row) is list and len(row) == len(names) for row in rows):
        raise Unsealed("its rows are not as long as its columns say")
    columns = []
    for name, types in types_of(kind).items():  # type: ignore[arg-type]
        if name in names:
            at = names.index(name)
            column = [row[at] for row in rows]
            if not _may_be(name, types, _WORDS.get((kind, name)), column):
                raise Unsealed(f"{name} is something else")
        elif name in kind._field_defaults:
            column = [kind._field_defaults[name]] * len(rows)
        else:
            raise Unsealed(f"it lacks {name}")
        columns.append(column)
    return list(map(kind._make, zip(*columns, strict=True)))


@functools.cache
def types_of(kind: type[Any]) -> dict[str, set[type]]:
    """Which types JSON gives to each field of a NamedTuple."""
    found = {}
    for name, hint in get_type_hints(kind).items():
        options = (hint,) if get_origin(hint) is tuple else get_args(hint) or (hint,)
        types = {list if get_origin(each) is tuple else each for each in options}
        found[name] = types | {int} if float in types else types
    return found


def _may_be(name: str, types: set[type], words: set[str] | None, values: list[Any]) -> bool:
    """Whether a field of this name and of these types may have each of these values."""
    low, high = RANGES.get(name, WHOLE)
    texts = [value for value in values if type(value) is str]
    texts += [text for value in values if name == "patterns" and type(value) is list for text in value]
    numbers = (value for value in values if type(value) in (int, float))
    if not ({*map(type, values)} <= types and {*map(type, texts)} <= {str} and all(low <= n <= high for n in numbers)):
        return False
    try:  # what has no bytes names no file, and is shown nowhere
        return b"\0" not in os.fsencode("".join(texts)) and (words is None or words.issuperset(texts))
    except UnicodeEncodeError:
        return False


def _parsed(kind: type[Any], row_kind: type[Any], content: dict[str, Any]) -> Any:
    """The fields of a sealed file. It may come from elsewhere: what it names must lie in W."""
    columns = content.get("columns")
    whole = checked(kind, content)
    files = rows_of(row_kind, columns if type(columns) is list else [None], whole.files)
    _check_paths(files)
    if not re.fullmatch("([0-3][0-9a-f]{15})?", getattr(whole, "history", "")):
        raise Unsealed("its history is none")
    if "patterns" in kind._fields:
        whole = whole._replace(patterns=tuple(whole.patterns))
        try:
            any(map(of_each, whole.patterns))
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
        way = posixpath.join(posixpath.dirname(file.path), target)
        for path in (file.path, posixpath.normpath(way)):
            if path.startswith(("/", "../")) or path == ".." or path.split("/")[0] in (SIDE, NAME):
                raise Unsealed(f"it names {path}, which is not a file of the program's directory")
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
