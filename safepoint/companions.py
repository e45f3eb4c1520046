r"""The files that belong to a listed file and are not listed: journals, logs and locks that a database keeps beside it.

(1) What holds data of a listed file is taken with it, in the same way, or `hide` refuses: else a restart lacks it.
(2) What lies beside a file that is given back, and is not of the set, goes to `discarded/` before the file has its
    name: else the program applies the journal of a later state to the older file, and nobody is told.
(3) A name alone tells nothing: what the listed file begins with does, or, where it is encrypted, what the journal
    begins with. One look at each kind of name in a session: a `hide` of other files costs no further call.

HDF5 (SWMR too), netCDF, Zarr and the databases of GDBM are one file, or a directory, and have no companions.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Collection, Iterator, Mapping
from stat import S_ISREG
from typing import NamedTuple
from weakref import WeakKeyDictionary

from safepoint.disk import Disk
from safepoint.disk.files import listdir, stat_or_none
from safepoint.errors import RefusedFileError
from safepoint.manifest import Manifest
from safepoint.patterns import Match, escaped, excluded, quoted
from safepoint.root import Root

HEAD = 64  # bytes at the beginning of a file, which tell what it is


class Format(NamedTuple):
    """Names in the directory of a file, and by what one knows that they belong to it."""

    name: str
    beside: str  # a regular expression: `base` or `stem` is what they have in common with the file
    begins: bytes  # what the file begins with, or, with `tells`, another one in its directory; as a regular expression
    data: bool = True  # else these are locks and the like, that hold nothing of the program
    files: str = ".+"  # the names that such a file may have
    tells: str = ""  # `{stem}` is the name of the file without its extension
    own: bytes = b"(?!)"  # what alone tells it of one of `beside`


_SQLITE, _LMDB, _BERKELEY = rb"SQLite format 3\0", rb".{12}(?:.{4}|.{12})?(?:\xde\xc0\xef\xbe|\xbe\xef\xc0\xde)", (
    rb".{12}(\x62\x31\x05\0|\0\x05\x31\x62|\x61\x15\x06\0|\0\x06\x15\x61|\x53\x22\x04\0|\0\x04\x22\x53"
    rb"|\x82\x45\x07\0|\0\x07\x45\x82)"
)  # fmt: skip
_MDBX, _LEVEL = rb".{21}\x11\x4c\xef\xbd\x9d\x65\x59", r"\d+\.(?:ldb|sst|log|blob)|CURRENT|MANIFEST-\d+|OPTIONS-\d+"
FORMATS = (
    # mj…: the journal of a transaction over several databases, without which SQLite ignores theirs
    Format("SQLite", r"(?P<base>.+)-(?:wal2?|journal|mj\w+)", _SQLITE,
           own=rb"\x37\x7f\x06[\x82\x83]|\xd9\xd5\x05\xf9\x20\xa1\x63\xd7"),
    Format("SQLite", r"(?P<base>.+)-shm", _SQLITE, data=False),
    Format("DuckDB", r"(?P<base>.+?)\.wal(?:\.\w+)?", rb".{8}DUCK"),
    Format("DuckDB", r"(?P<base>.+)\.tmp", rb".{8}DUCK", data=False),
    Format("Kyoto or Tokyo Cabinet", r"(?P<base>.+)\.wal", rb"KC\n|ToKyO CaBiNeT"),
    Format("LMDB", r"(?P<base>.+)-lock", _LMDB, data=False),
    Format("LMDB", r"lock\.mdb", _LMDB, data=False, files=r"data\.mdb"),
    Format("MDBX", r"(?P<base>.+)-lck|mdbx\.lck", _MDBX, data=False),
    Format("Berkeley DB", r"log\.\d{10}", _BERKELEY),
    Format("Berkeley DB", r"__db\..+", _BERKELEY, data=False),
    Format("ZODB", r"(?P<base>.+)\.(?:index|lock|tmp)", rb"FS[23]\d", data=False),
    Format("dbm.dumb", r"(?P<stem>.+)\.(?:dat|dir)", rb"""(['"]).*\1, \(\d""", files=r".+\.(?:dat|dir)",
           tells="{stem}.dir"),
    Format("LevelDB or RocksDB", _LEVEL, rb"MANIFEST-\d+\n", files=_LEVEL, tells="CURRENT"),
    Format("LevelDB or RocksDB", r"LOCK|LOG(?:\.old.*)?|IDENTITY", rb"MANIFEST-\d+\n", data=False, files=_LEVEL,
           tells="CURRENT"),
)  # fmt: skip
_ANY = "|".join(re.sub(r"\?P<\w+>", "?:", each.beside) for each in FORMATS)
_known: WeakKeyDictionary[Root, dict[str, str]] = WeakKeyDictionary()  # rule (3), by names without their numbers


class Companion(NamedTuple):
    path: str
    of: str  # the listed file
    format: str
    data: bool

    def __str__(self) -> str:
        return f"{self.path} holds data of {self.of} ({self.format})"


def _begins(pattern: bytes, head: bytes) -> bool:
    return re.match(pattern, head, re.S) is not None


def beside(root: Root, paths: Collection[str]) -> Iterator[Companion]:
    """What is in W beside these files, or what `stage/` has of them, and belongs to one of them."""
    names: dict[str, set[str]] = {}
    for path in paths:
        names.setdefault(os.path.dirname(path), set()).add(os.path.basename(path))
    for directory, listed in names.items():
        try:
            there = listdir(root.disk, os.path.join(root.work, directory))
        except (FileNotFoundError, NotADirectoryError):
            continue
        for name in there:
            if name not in listed and re.fullmatch(_ANY, name) and (found := _belongs(root, directory, name, listed)):
                yield found


def orphans(root: Root, manifest: Manifest) -> dict[str, os.stat_result]:
    """What would hold data, by its name, of a listed file of which nothing is there: a power cut may leave that of one
    that was being made. The next file of that name must not meet it."""
    found: dict[str, os.stat_result] = {}
    means = functools.partial(manifest.decides, rank=root.rank, size=root.ranks)
    names = functools.partial(listdir, root.disk)
    for directory in {"", *manifest.reach(root.work, root.disk.stat, root.rank, root.ranks, listdir=names)}:
        for path in (os.path.join(directory, name) for name in names(os.path.join(root.work, directory))):
            listed = [each.of for each in owners(path) if each.data and means(each.of)]
            info = stat_or_none(root.disk, os.path.join(root.work, path)) if listed and not means(path) else None
            if info and S_ISREG(info.st_mode) and not any(_is_told(root, of) for of in listed):
                found[path] = info
    return found


def _is_told(root: Root, path: str) -> bool:
    """Whether a file says what it is: it is there, and begins with more than NUL bytes."""
    return bool(_head(root.disk, os.path.join(root.work, path)).strip(b"\0"))


def _belongs(root: Root, directory: str, name: str, listed: Collection[str]) -> Companion | None:
    for number, each in enumerate(FORMATS):
        for base in _bases(number, name, listed):
            own = os.path.join(root.work, directory, name)
            if _is(root, directory, base, number) or _begins(each.own, _head(root.disk, own)):
                path, of = os.path.join(directory, name), os.path.join(directory, base)
                return Companion(path, of, each.name, each.data)
    return None


def _bases(number: int, name: str, listed: Collection[str]) -> list[str]:
    """Which of the listed names of its directory this one could belong to, by that format."""
    match = re.fullmatch(FORMATS[number].beside, name)
    if not match:
        return []
    common = match.groupdict()
    if common.get("base"):
        return [common["base"]] if common["base"] in listed else []
    stem = common.get("stem")
    names = [name for name in listed if stem in (None, os.path.splitext(name)[0])]
    return sorted(name for name in names if re.fullmatch(FORMATS[number].files, name))


def _is(root: Root, directory: str, name: str, number: int) -> bool:
    """Whether a listed file is of this format, as it is in W or in `stage/`."""
    tells = FORMATS[number].tells.format(stem=os.path.splitext(name)[0]) or name
    tops = (os.path.join(top, directory, tells) for top in (root.stage, root.work))
    return any(_begins(FORMATS[number].begins, _head(root.disk, full)) for full in tops)


def _head(disk: Disk, full: str) -> bytes:
    """What a file begins with; of what is no file, or gone, nothing."""
    info = stat_or_none(disk, full)
    if info is None or not S_ISREG(info.st_mode):
        return b""
    with disk.open(full) as file:
        return file.read(HEAD)


@functools.lru_cache(maxsize=100_000)  # `hide` asks for thousands of files, again and again
def _without_numbers(path: str) -> str:
    return re.sub(r"\d+", "#", path)


def format_of(root: Root, path: str) -> str:
    """The name of the format of a file, if others may lie beside it. Rule (3): as the first of such names was."""
    directory, name = os.path.split(path)
    key, known = _without_numbers(path), _known.setdefault(root, {})
    if key not in known:
        head = _head(root.disk, os.path.join(root.work, path))
        known[key] = next(
            (
                each.name
                for number, each in enumerate(FORMATS)
                if re.fullmatch(each.files, name)
                and (_is(root, directory, name, number) if each.tells else _begins(each.begins, head))
            ),
            "",
        )
    return known[key]


def add(
    root: Root, manifest: Manifest, found: dict[str, Match], *, refuse: bool = False, locks: bool = False
) -> dict[str, str]:
    """Rule (1): add what holds data of these files to them, each as the entry of the file that it belongs to says;
    those that were added, with that file. `locks`: these and the like too. `refuse`: raise `RefusedFileError` for what
    cannot be taken in that way."""
    files = [path for path, (entry, info) in found.items() if info.st_size and S_ISREG(info.st_mode)]
    known, added = [path for path in files if format_of(root, path)], {}
    for each in beside(root, known) if known else ():
        info = stat_or_none(root.disk, os.path.join(root.work, each.path))
        if info is None or not (each.data or locks):
            continue
        entry = found[each.of].entry
        if refuse:
            _refuse(root, manifest, found, each)
        if each.path not in found:
            found[each.path], added[each.path] = Match(entry, info), each.of
    return added


def _refuse(root: Root, manifest: Manifest, found: Mapping[str, Match], each: Companion) -> None:
    entry, other = found[each.of].entry, found.get(each.path)
    if entry.kind == "append":
        raise RefusedFileError(
            f"{each}, which is not a file that only grows: list it as {quoted(escaped(each.of))} copy"
        )
    if excluded(manifest.without(root.rank, root.ranks), each.path):
        raise RefusedFileError(
            f"{each}, and a line with ! excludes it: leave that line out, it is saved with {each.of}"
        )
    if manifest.shared and entry.per_rank and not each.path.startswith(os.path.splitext(each.of)[0]):
        raise RefusedFileError(
            f"{each}, and perhaps of files of other ranks: give each rank a directory of its own, and list that"
        )
    if other and other.entry.kind != entry.kind:
        line = f"{quoted(escaped(each.path))} {entry.kind if entry.kind == 'copy' else ''}".strip()
        raise RefusedFileError(
            f"{each}, and line {other.entry.line} lists it in another way than line {entry.line} that: list it as "
            f"{line} optional, or leave its line out: it is saved with {each.of}"
        )


def refuse_left_out(disk: Disk, path: str, full: str) -> None:
    """Rule (1), of what is excluded from a directory that is saved as a whole. Raises `RefusedFileError`."""
    directory, name = os.path.split(full)
    for number, each in enumerate(FORMATS):
        match = re.fullmatch(FORMATS[number].beside, name) if each.data else None
        base = match.groupdict().get("base") if match else None
        if base and _begins(FORMATS[number].begins, _head(disk, os.path.join(directory, base))):
            found = Companion(path, os.path.join(os.path.dirname(path), base), each.name, data=True)
            raise RefusedFileError(f"{found}, and a line with ! excludes it: leave that line out")


def owners(path: str, root: Root | None = None) -> list[Companion]:
    """To which files this one may belong, by its name; with `root` only those in W that are of such a format."""
    directory, name = os.path.split(path)
    found = []
    for number, each in enumerate(FORMATS) if re.fullmatch(_ANY, name) else ():
        match = re.fullmatch(each.beside, name)
        base = match.groupdict().get("base") if match else None
        if base and (root is None or _is(root, directory, base, number)):
            found.append(Companion(path, os.path.join(directory, base), each.name, each.data))
    return found
