"""The manifest: `.safepoint` text to entries and settings, and which files the entries mean.

    # comment                  u.npy                      fields/*.vtk   compress
    "two words.dat"  optional  'literally [this]*.dat'    run.zarr/      copy
    part-{rank:04d}.h5         history.csv  append        keep = 2

A name may be bare, in double quotes (where a backslash escapes: \\" \\\\ \\n \\t) or in single quotes (literal, nothing
in it is special); one with a comma or a semicolon is quoted. `*`, `?`, `[…]` and `**` match as in the shell, hidden
files only by a dot of their own. `{rank}` and `{size}` take a format as in Python, and make a file that of each rank;
all others belong to one rank, the saver. A literal brace is doubled. If several lines match one file, the last decides,
but a file of a rank is never another's; what lies in a listed directory is saved as part of it.
"""

from __future__ import annotations

import fnmatch
import functools
import glob
import os
import posixpath
import re
import string
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from stat import S_ISDIR, S_ISREG
from types import MappingProxyType
from typing import Any, NamedTuple

from safepoint.disk import cause
from safepoint.errors import ManifestError, RefusedFileError
from safepoint.pace import Every, every
from safepoint.times import duration

NAME = ".safepoint"
SIDE = ".safepoint.d"
EXAMPLE = """\
    u.npy                   # the files that make a save point, one per line
    history.csv   append    # a file that only grows
    keep = 2                # a setting"""
ATTRIBUTES = ("append", "compress", "copy", "mark", "optional")
LEVELS = range(1, 23)  # of zstd
LEDGER = ("off", "minimal", "modify", "full")
EVERY = 10**9  # sets: more than any run has
DEFAULT_LEVEL = 3

LONGEST = 64 << 20  # bytes of a manifest: a million names

Stat = Callable[[str], os.stat_result]
_TOKEN = re.compile(r"""\s*(?: (?P<comment>\#.*) | "(?P<double>(?:[^"\\]|\\.)*)" | '(?P<single>[^']*)' """
                    r"""| (?P<equals>=(?=\s|$)) | (?P<bare>[^\s"'\#][^\s]*) )(?=\s|$)""", re.X)  # fmt: skip
_ASIDE = re.compile(r"""(?:^|(?<=\s))\#.* | "(?:[^"\\]|\\.)*" | '[^']*'""", re.X)  # comments, and what is quoted
_BRACES = re.compile(r"(?: [^{}] | \{\{ | \}\} | \{(?:rank|size)(?::0?[1-9]?\d?[dx]?)?\} )*", re.X | re.S)
_GLYPH = re.compile(r"\[[^\]]+\]|.", re.S)  # of a glob: a class, or one character
_ESCAPES = {'"': '"', "\\": "\\", "n": "\n", "t": "\t"}
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def _count(text: str) -> int:
    if not re.fullmatch(r"[1-9]\d*", text):
        raise ValueError("takes a whole number from 1")
    return int(text)


def _threads(text: str) -> int:
    if not re.fullmatch(r"\d{1,3}", text):
        raise ValueError("takes a number of threads, or 0 for one on each core")
    return int(text)


def _bytes(text: str) -> int:
    match = re.fullmatch(r"(\d+)\s*([KMGT]?)(?:i?B)?", text)
    if not match:
        raise ValueError("takes a size, such as 64 MiB")
    return int(match[1]) * _UNITS[match[2]]


def _keep(text: str) -> int:
    if text == "all":
        return EVERY
    try:
        return _count(text)
    except ValueError as error:
        raise ValueError(f"{error}, or all") from None


def level(text: str) -> int:
    """How much the ledger notes, by its name."""
    if text not in LEDGER:
        raise ValueError(f"takes one of {', '.join(LEDGER)}")
    return LEDGER.index(text)


def number(text: str) -> int:
    if not text.isdecimal() or len(text) > 9:
        raise ValueError("takes a whole number from 0")
    return int(text)


SETTINGS: dict[str, tuple[Callable[[str], Any], Any]] = {
    "keep": (_keep, 2),  # how many committed sets stay; all: they stay after finish too
    "every": (every, Every()),  # when `due` says that it is time: 10 steps, 15min, auto
    "mtbf": (duration, None),  # mean time between failures, seconds; None: estimated from the log
    "ledger": (level, 1),  # what log.jsonl tells of the contents of files and values
    "edges": (number, 0),  # only so many first and last steps of watched values; 0: every step
    "bundle_from": (_count, 100),  # so many small files of a set are kept in one tar
    "pack_threads": (_threads, 1),  # that compress at the same time; 0: one for each core
    "copy_open_below": (_bytes, 64 << 20),  # up to this size a file still open for writing is snapshotted
    "copy_append_below": (_bytes, 64 << 20),  # and the beginning of an append file copied that is given back
}
_TIGHT_SETTING = re.compile(rf"^\s*({'|'.join(SETTINGS)})\s*=\s*")  # keep=2 is as good as keep = 2


class Entry(NamedTuple):
    """One line of the manifest: which files, and how they are saved."""

    line: int
    text: str  # as the user wrote it, for messages
    pattern: str  # a glob; literal names are escaped; `{rank}` and `{size}` not yet filled in
    kind: str  # move, copy, append
    tree: bool  # a whole directory
    compress: int | None  # zstd level
    optional: bool
    mark: bool = False  # written last: then, under `safepoint run`, all of a set is there

    @property
    def of_each(self) -> bool:
        return of_each(self.pattern)

    def filled(self, rank: int, size: int) -> str:
        return self.pattern.format(rank=rank, size=size)

    def literal(self, rank: int, size: int) -> str | None:
        """The one path that this entry can mean; None if it is a pattern."""
        return _plan(self, rank, size)[0]

    def means(self, path: str, rank: int, size: int) -> bool:
        """Whether this entry of that rank means the file, or a directory that holds it."""
        parts, pattern = path.split("/"), self.filled(rank, size).split("/")
        ends = range(1, len(parts) + 1) if self.tree else [len(parts)]
        return any(_matches(parts[:end], pattern) for end in ends)


class Match(NamedTuple):
    """A file that an entry means, and what it looked like."""

    entry: Entry
    info: os.stat_result


class Manifest(NamedTuple):
    """All entries, or, after `owned_by`, those of one rank."""

    path: str
    entries: tuple[Entry, ...]
    settings: Mapping[str, Any] = MappingProxyType({})
    others: tuple[Entry, ...] = ()  # the entries that are not this rank's
    shared: bool = False  # other ranks have their files in the same directory

    def setting(self, name: str) -> Any:
        return self.settings.get(name, SETTINGS[name][1])

    @property
    def patterns(self) -> tuple[str, ...]:
        return tuple(entry.pattern for entry in (*self.entries, *self.others))

    @property
    def moves(self) -> bool:
        """Whether files of any rank move away in `hide`: then those that stay in place say nothing of a step."""
        return any(entry.kind == "move" and not entry.optional for entry in (*self.entries, *self.others))

    def as_of(self, patterns: Iterable[str]) -> Manifest:
        """Without the entries that were not yet there when these were its patterns."""
        then = set(patterns)
        return self._replace(entries=tuple(entry for entry in self.entries if entry.pattern in then))

    def in_place(self) -> Manifest:
        """The same files, none of which moves."""
        entries = (entry._replace(kind="copy" if entry.kind == "move" else entry.kind) for entry in self.entries)
        return self._replace(entries=tuple(entries))

    def owned_by(self, rank: int, size: int, saver: int | None) -> Manifest:
        """What is left to one rank: the entries of each rank and, for the saver, all others; without a saver, all.

        Raises `ManifestError` if ranks that share a directory could take one another's files for their own.
        """
        every = sorted((*self.entries, *self.others), key=lambda entry: entry.line)
        if saver is not None and size > 1:
            trees = [entry for entry in every if entry.tree and not entry.of_each]
            for entry in every:
                if entry.of_each:
                    _check_apart(self.path, entry, size, trees)
        mine: list[Entry] = []
        rest: list[Entry] = []
        for entry in every:
            (mine if saver in (None, rank) or entry.of_each else rest).append(entry)
        return self._replace(entries=tuple(mine), others=tuple(rest), shared=saver is not None and size > 1)

    def reach(
        self, work: str, stat: Stat, rank: int = 0, size: int = 1, *, listdir: Callable[[str], list[str]] = os.listdir
    ) -> set[str]:
        """The directories below `work` that `find` looks into, but for those that `**` finds, which are no links."""
        found: set[str] = set()
        for entry in self.entries:
            parts = _plan(entry, rank, size)[1].split("/")[:-1]
            while parts and parts[-1] == "**":
                parts.pop()
            found.update(_glob(work, "", parts, stat, listdir) if parts else ())
        return {path for path in found if os.path.isdir(os.path.join(work, path))}

    def find(
        self, work: str, stat: Stat, rank: int = 0, size: int = 1, *, listdir: Callable[[str], list[str]] = os.listdir
    ) -> tuple[dict[str, Match], list[Entry]]:
        """The files that exist now, by path relative to `work`, and the entries without any that are not optional.

        `stat` looks at a file itself (os.lstat). A directory that cannot be read is an error, never an empty one.
        """
        found: dict[str, Match] = {}
        missing = []
        each = tuple(entry for entry in self.entries if entry.of_each) if self.shared else ()
        for entry in self.entries:
            matches = _expand(entry, work, stat, listdir, rank, size)
            if not matches and not entry.optional:
                missing.append(entry)
            for path in list(matches) if each else ():
                claim = _claimed(each, path, rank, size)
                if claim and entry.of_each:
                    raise RefusedFileError(
                        f"{self.path}:{entry.line}: {path} is a file of rank {rank} by {entry.text}, and of rank "
                        f"{claim[0]} by {claim[1].text} (line {claim[1].line}): only one rank can save it"
                    )
                if claim:
                    del matches[path]
            found.update(matches)
        trees = {path: match.entry.kind for path, match in found.items() if match.entry.tree}
        for path in list(found) if trees else ():
            tree = next((way for way in above(path) if way in trees), None)
            if tree is not None:
                entry = found.pop(path).entry
                if entry.kind not in ("move", trees[tree]) or entry.compress is not None:
                    raise RefusedFileError(
                        f"{self.path}:{entry.line}: {path} lies in {tree}/, which is listed too and saved as a whole: "
                        f"give the attributes to {tree}/, or list its files one by one"
                    )
        return found, missing

    def shown_missing(
        self, missing: Sequence[Entry], work: str, stat: Stat, rank: int, size: int, listdir: Callable[[str], list[str]]
    ) -> str:
        """These entries by name and line, and of a glob what it would match with a slash at its end, or without."""
        texts = []
        for entry in missing:
            text = f"{entry.filled(rank, size)} (line {entry.line})"
            other = entry._replace(tree=not entry.tree)
            if entry.literal(rank, size) is None and (there := _expand(other, work, stat, listdir, rank, size)):
                what = "is a file: leave out the slash" if entry.tree else "is a directory: add a slash"
                text = f"{entry.filled(rank, size)}{'/' * entry.tree} (line {entry.line}; {next(iter(there))} {what})"
            texts.append(text)
        return ", ".join(texts)


def above(path: str) -> Iterator[str]:
    """The directories on the way to this path, the nearest first."""
    while path := posixpath.dirname(path):
        yield path


@functools.cache
def _plan(entry: Entry, rank: int, size: int) -> tuple[str | None, str]:
    """The one path that an entry means, or None and the pattern to look for."""
    pattern = entry.filled(rank, size)
    name = re.sub(r"\[([*?[])\]", r"\1", pattern)
    return (name if glob.escape(name) == pattern else None), pattern


def of_each(pattern: str) -> bool:
    """Whether a pattern means a file of each rank."""
    return any(name for _, name, _, _ in string.Formatter().parse(pattern))


def _with_rank(pattern: str, text: str) -> str:
    """The pattern with `text` in place of {rank}; what else is in braces stays."""
    return re.sub(r"(\{\{|\}\})|\{rank[^}]*\}", lambda match: match[1] or text, pattern)


def _check_apart(path: str, entry: Entry, size: int, trees: list[Entry]) -> None:
    """Refuse an entry whose files of one rank could be taken for another's, or for part of a listed directory."""
    first, last = entry.filled(0, size), entry.filled(size - 1, size)
    if first == last:
        raise ManifestError(
            f"{path}:{entry.line}: {entry.text} is the same file for all {size} ranks: add {{rank}}, or leave {{size}} "
            f"out to let the saver alone have it"
        )
    marked = _with_rank(entry.pattern, "\0")
    wild = len(first) != len(last) and re.search(r"[*?\]]\0|\0[*?[]", marked)
    if wild or re.search(r"[*?\]]\0[*?[]", marked):
        raise ManifestError(
            f"{path}:{entry.line}: {entry.text}: with {size} ranks a wildcard beside {{rank}} matches files of "
            f"other ranks too (1* is also 10): put another character between, or give it a width, such as {{rank:05d}}"
        )
    anyone = _with_rank(entry.pattern, "[0-9a-f]*").split("/")
    for tree in trees:
        if _may_lie_in(anyone, tree.pattern.split("/")):
            raise ManifestError(
                f"{path}:{entry.line}: {entry.text} is of each rank and may lie in {tree.text} (line {tree.line}), "
                f"which the saver saves as a whole: list the files of {tree.text} one by one"
            )


@functools.lru_cache(maxsize=100_000)
def _claimed(each: tuple[Entry, ...], path: str, rank: int, size: int) -> tuple[int, Entry] | None:
    for entry in each:
        anyone = entry._replace(pattern=_with_rank(entry.pattern, "*"))
        if anyone.means(path, rank, size):
            for other in sorted(_numbers_in(path, size) - {rank}):
                if entry.means(path, other, size):
                    return other, entry
    return None


def _may_lie_in(path: Sequence[str], tree: Sequence[str]) -> bool:
    """Whether what the pattern `path` means could lie in a directory that `tree` means, both by components."""
    if "**" in tree or "**" in path[: len(tree)]:
        return True
    ways = zip(path, tree, strict=False)
    return len(path) > len(tree) and all(_may_meet(_GLYPH.findall(one), _GLYPH.findall(other)) for one, other in ways)


def _may_meet(one: Sequence[str], other: Sequence[str]) -> bool:
    """Whether two globs, given as lists of their glyphs, could match the same name. Two classes are taken to meet."""
    if not one or not other:
        return set(one) | set(other) <= {"*"}
    if "*" in (one[0], other[0]):
        star, rest = (one, other) if one[0] == "*" else (other, one)
        return _may_meet(star[1:], rest) or _may_meet(star, rest[1:])
    classes = [glyph for glyph in (one[0], other[0]) if len(glyph) > 1 or glyph == "?"]
    single = other[0] if one[0] in classes else one[0]
    fits = len(classes) == 2 or fnmatch.fnmatchcase(single, classes[0] if classes else glob.escape(other[0]))
    return fits and _may_meet(one[1:], other[1:])


def _numbers_in(path: str, size: int) -> set[int]:
    """The ranks whose number could be part of this path, in decimal or hexadecimal."""
    runs = re.findall(r"[0-9a-f]+", path)
    pieces = {run[i:j] for run in runs for i in range(len(run)) for j in range(i + 1, len(run) + 1)}
    numbers = {int(piece, base) for piece in pieces for base in (10, 16) if base == 16 or piece.isdecimal()}
    return {number for number in numbers if number < size}


def _matches(parts: Sequence[str], pattern: Sequence[str]) -> bool:
    """Whether a path matches a pattern, both by components, without a look at the disk."""
    if not pattern:
        return not parts
    if pattern[0] == "**":
        return any(_matches(parts[skip:], pattern[1:]) for skip in range(len(parts) + 1))
    return bool(parts) and fnmatch.fnmatchcase(parts[0], pattern[0]) and _matches(parts[1:], pattern[1:])


def _glob(work: str, path: str, parts: list[str], stat: Stat, listdir: Callable[[str], list[str]]) -> Iterator[str]:
    """What matches the components `parts` below `path`. (glob.glob takes a directory that it cannot read for empty.)"""
    part, rest = parts[0], parts[1:]
    if not glob.has_magic(part):
        names = [part]
    else:
        fits = re.compile(fnmatch.translate(part)).match  # "**" fits every name, as "*" does
        try:
            names = [n for n in sorted(listdir(f"{work}/{path}")) if (n[0] != "." or part[0] == ".") and fits(n)]
        except (FileNotFoundError, NotADirectoryError):
            return
    if part == "**" and rest:
        yield from _glob(work, path, rest, stat, listdir)
    for name in names:
        below = f"{path}/{name}" if path else name
        if part == "**" and _is_directory(f"{work}/{below}", stat):
            yield from _glob(work, below, parts, stat, listdir)
        if rest and part != "**":
            yield from _glob(work, below, rest, stat, listdir)
        elif not rest:
            yield below


def _is_directory(path: str, stat: Stat) -> bool:
    try:
        return S_ISDIR(stat(path).st_mode)
    except (FileNotFoundError, NotADirectoryError):  # another rank has just moved it away
        return False


def _expand(
    entry: Entry, work: str, stat: Stat, listdir: Callable[[str], list[str]], rank: int, size: int
) -> dict[str, Match]:
    literal, pattern = _plan(entry, rank, size)
    paths = [literal] if literal else sorted(set(_glob(work, "", pattern.split("/"), stat, listdir)))
    found = {}
    for path in paths:
        try:
            info = stat(f"{work}/{path}")
        except (FileNotFoundError, NotADirectoryError):
            continue
        if literal or (path.split("/")[0] not in (SIDE, NAME) and entry.tree == S_ISDIR(info.st_mode)):
            found[path] = Match(entry, info)  # a glob without a trailing slash means files only, else directories
    return found


def load(directory: str) -> Manifest:
    """Read `.safepoint` in `directory`. Raises `ManifestError` naming file, line and cause."""
    return parse(read(directory), os.path.join(directory, NAME))


def read(directory: str) -> str:
    """The text of `.safepoint` in `directory`. Raises `ManifestError`."""
    path = os.path.join(directory, NAME)
    try:
        info = os.stat(path)  # first: to open a fifo would wait for ever, and a device has no end
        if info.st_size > LONGEST or not (S_ISREG(info.st_mode) or S_ISDIR(info.st_mode)):
            what = f"{info.st_size} bytes, more than {LONGEST}" if S_ISREG(info.st_mode) else "not a regular file"
            raise ManifestError(f"cannot read the manifest {path}: {what}")
        with open(path, encoding="utf-8", errors="surrogateescape", newline="") as file:
            return file.read().removeprefix("\ufeff")
    except FileNotFoundError:
        raise ManifestError(f"no manifest {path}: list your files in it, for example\n{EXAMPLE}") from None
    except OSError as error:
        raise ManifestError(f"cannot read the manifest {path}: {cause(error)}", error.errno) from error


def parse(text: str, path: str = NAME) -> Manifest:
    """Entries and settings of a manifest's text; `path` is for messages. Raises `ManifestError`."""
    entries: dict[str, Entry] = {}
    settings: dict[str, Any] = {}
    mark: Entry | None = None
    for number, line in enumerate(text.split("\n"), 1):
        try:
            line = _TIGHT_SETTING.sub(r"\1 = ", line)
            if not re.match(r"\s*\S+\s+=(\s|$)", line) and re.search("[,;]", _ASIDE.sub("", line)):
                raise ValueError(f"{line.strip()}: one name a line, without commas; quote a name that has one")
            tokens = list(_tokens(line))
            if len(tokens) >= 2 and tokens[1][0] == "equals":
                name, value = _setting(tokens)
                if name in settings:
                    raise ValueError(f"{name} is set twice")
                settings[name] = value
            elif tokens:
                entry = _entry(number, tokens)
                found = entry.tree and glob.has_magic(entry.pattern)  # run*/ and run* find different things
                if mark and entry.mark:
                    raise ValueError(f"{mark.text} (line {mark.line}) is the mark already: only one file is the last")
                mark = entry if entry.mark else mark
                earlier = entries.setdefault(entry.pattern + "/" * found, entry)
                if earlier is not entry:
                    raise ValueError(f"{entry.text} is listed in line {earlier.line} already")
        except ValueError as error:
            raise ManifestError(f"{path}:{number}: {error}") from None
    if not entries:
        raise ManifestError(f"{path}: no file is listed; for example\n{EXAMPLE}")
    return Manifest(path, tuple(entries.values()), settings)


def _tokens(line: str) -> Iterator[tuple[str, str]]:
    position = 0
    while line[position:].strip():
        match = _TOKEN.match(line, position)
        if not match:
            rest = line[position:].strip()
            cause = "a quote is not closed, or text follows it" if rest[0] in "\"'" else "cannot be read"
            raise ValueError(f"{rest}: {cause}")
        position = match.end()
        if match.lastgroup == "comment":
            return
        yield str(match.lastgroup), match[str(match.lastgroup)]


def _setting(tokens: list[tuple[str, str]]) -> tuple[str, Any]:
    name, value = tokens[0][1], " ".join(text for _, text in tokens[2:])
    if name not in SETTINGS:
        raise ValueError(f"unknown setting {name}{_perhaps(name, SETTINGS)}")
    try:
        return name, SETTINGS[name][0](value)
    except ValueError as error:
        raise ValueError(f"{name} {error}, not {value or 'nothing'}") from None


def _perhaps(word: str, known: Iterable[str]) -> str:
    import difflib  # here: only a manifest with a mistake needs it

    close = difflib.get_close_matches(word, list(known), 1)
    return f"; did you mean {close[0]}?" if close else f" (known: {', '.join(sorted(known))})"


def _entry(line: int, tokens: list[tuple[str, str]]) -> Entry:
    (quoting, text), *attributes = tokens
    given: dict[str, int] = {}
    for _, attribute in attributes:
        key, equals, value = attribute.partition("=")
        if key not in ATTRIBUTES or (equals and key != "compress"):
            perhaps = _perhaps(key, ATTRIBUTES).replace(" (known: ", "; one name a line, then its attributes (")
            raise ValueError(f"unknown attribute {attribute}{perhaps}")
        if key in given:
            raise ValueError(f"{key} is given twice")
        if equals and not (value.isdecimal() and int(value) in LEVELS):
            raise ValueError(f"compress takes a level from {LEVELS[0]} to {LEVELS[-1]}, not {value or 'nothing'}")
        given[key] = int(value) if equals else DEFAULT_LEVEL
    if "mark" in given and ("append" in given or "optional" in given):
        raise ValueError("a mark is written anew, as the last file of every set: that excludes append and optional")
    name = re.sub(r"\\(.)", _unescape, text) if quoting == "double" else text
    tree = name.endswith("/")
    if "append" in given and ("copy" in given or "compress" in given or tree):
        raise ValueError("an append file stays in place and grows: that excludes copy, compress and directories")
    kind = "copy" if "copy" in given else "append" if "append" in given else "move"
    pattern = _pattern(name, literal=quoting == "single")
    return Entry(line, text, pattern, kind, tree, given.get("compress"), "optional" in given, "mark" in given)


def _unescape(match: re.Match[str]) -> str:
    if match[1] not in _ESCAPES:
        raise ValueError(f"unknown escape {match[0]}")
    return _ESCAPES[match[1]]


def _pattern(name: str, *, literal: bool) -> str:
    if not name or "\0" in name:
        raise ValueError("the name is empty or contains a NUL byte")
    clean = posixpath.normpath(name)
    glob_of = glob.escape(clean).replace("{", "{{").replace("}", "}}") if literal else clean
    if not _BRACES.fullmatch(glob_of):
        what = "{rank} and {size} are known, with a format such as {rank:04d}; a literal brace is doubled"
        raise ValueError(f"{name}: {what}")
    if name.startswith("/") or ".." in name.split("/"):
        raise ValueError(f"{name} leads outside the working directory; names are relative to it, without ..")
    if clean == "." or clean.split("/")[0] in (NAME, SIDE):
        raise ValueError(f"{name} cannot be saved: it holds the save points themselves")
    return glob_of
