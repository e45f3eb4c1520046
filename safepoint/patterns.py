"""The entries of a manifest: which files each means, and of which rank.

`*`, `?`, `[…]` and `**` match as in the shell, hidden files only by a dot of their own. `{rank}` and `{size}` take a
format as in Python. Ranks that share a directory must never take one another's files for their own.
"""

from __future__ import annotations

import fnmatch
import functools
import glob
import os
import posixpath
import re
import string
from collections.abc import Callable, Iterable, Iterator, Sequence
from stat import S_ISDIR
from typing import Literal, NamedTuple

from safepoint.errors import ManifestError

NAME = ".safepoint"
SIDE = ".safepoint.d"
EXCLUDED = "/!"  # before a pattern of what is excluded, among those of entries: none of these begins with a slash

Stat = Callable[[str], os.stat_result]


_BARE = re.compile(r"[\w./*?\[\]{}@%+:~-]+")  # a name that needs no quotes, whatever stands in its line


_GLYPH = re.compile(r"\[[^\]]+\]|.", re.S)  # of a glob: a class, or one character


Way = Literal["move", "copy", "append"]  # how a set gets a file: by a rename, as a snapshot, or not at all


class Entry(NamedTuple):
    """One line of the manifest: which files, and how they are saved."""

    line: int
    text: str  # as the user wrote it, for messages
    pattern: str  # a glob; literal names are escaped; `{rank}` and `{size}` not yet filled in
    kind: Way
    tree: bool  # a whole directory
    compress: int | None  # zstd level
    optional: bool
    mark: bool = False  # written last: then, under `safepoint run`, all of a set is there
    grows: bool = False  # it may be open for writing, as rows are added; also of a snapshot (append copy)

    @property
    def per_rank(self) -> bool:
        return per_rank(self.pattern)

    def filled(self, rank: int, size: int) -> str:
        return self.pattern.format(rank=rank, size=size)

    def literal(self, rank: int, size: int) -> str | None:
        """The one path that this entry can mean; None if it is a pattern."""
        return plan_of(self, rank, size)[0]

    def means(self, path: str, rank: int, size: int) -> bool:
        """Whether this entry of that rank means the file, or a directory that holds it."""
        return _means(self.filled(rank, size), path, inside=self.tree)


class Match(NamedTuple):
    """A file that an entry means, and what it looked like."""

    entry: Entry
    info: os.stat_result


def excluded(without: Iterable[str], path: str) -> bool:
    """Whether one of these patterns means the path, or a directory that holds it; hidden ones only by a dot."""
    return any(_means(pattern, path, inside=True, hidden=False) for pattern in without)


def may_exclude(without: Entry, entry: Entry) -> bool:
    """Whether something that the entry means, or that lies in a directory that it means, could be excluded by this."""
    pattern, listed = (_with_rank(each.pattern, "[0-9a-f]*").split("/") for each in (without, entry))
    if len(pattern) > len(listed) and "**" not in listed:
        return entry.tree and _may_lie_in(pattern, listed)
    return _may_lie_in([*listed, "*"], pattern)


def escaped(name: str) -> str:
    """The pattern that means this name: braces doubled, and what is special in a glob in brackets."""
    name = "".join(f"[{c}]" if c in "*?[" else c for c in name)
    return name.replace("{", "{{").replace("}", "}}")


def quoted(name: str) -> str:
    """A name or pattern as a manifest has it."""
    if _BARE.fullmatch(name):
        return name
    escapes = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t"}
    return '"' + "".join(escapes.get(c, c) for c in name) + '"'


MOST_LINKS = 40  # as Linux follows on one way


def above(path: str) -> Iterator[str]:
    """The directories on the way to this path, the nearest first."""
    while path := posixpath.dirname(path):
        yield path


def follows(path: str, target: str, tree: str, link_at: Callable[[str], str | None]) -> bool:
    """Whether a symbolic link at `path` in a listed directory leads into that: step by step, as the kernel goes, for of
    a link on the way `..` is what is above its target. All paths are relative to W. `link_at`: the target of the link
    at a path, None if there is none. A link that leads in a circle leads nowhere."""
    top, here, links = tree.split("/"), path.split("/")[:-1], 0
    ahead = target.split("/")[::-1]
    while ahead and links < MOST_LINKS:
        word = ahead.pop()
        if target.startswith("/") or (word == ".." and not here):
            return False
        here = here[:-1] if word == ".." else here + [word] * (word not in ("", "."))
        if here[: len(top)] != top[: len(here)]:  # beside the directory, and beside what is above it
            return False
        if word not in ("", ".", "..") and len(here) > len(top) and (inner := link_at("/".join(here))) is not None:
            target, links = inner, links + 1
            here.pop()
            ahead += inner.split("/")[::-1]
    return len(here) >= len(top) or links == MOST_LINKS


@functools.cache
def plan_of(entry: Entry, rank: int, size: int) -> tuple[str | None, str]:
    """The one path that an entry means, or None and the pattern to look for."""
    pattern = entry.filled(rank, size)
    name = re.sub(r"\[([*?[])\]", r"\1", pattern)
    return (name if glob.escape(name) == pattern else None), pattern


def per_rank(pattern: str) -> bool:
    """Whether a pattern means a file of each rank."""
    return any(name for _, name, _, _ in string.Formatter().parse(pattern))


def _with_rank(pattern: str, text: str) -> str:
    """The pattern with `text` in place of {rank}; what else is in braces stays."""
    return re.sub(r"(\{\{|\}\})|\{rank[^}]*\}", lambda match: match[1] or text, pattern)


def check_apart(path: str, entry: Entry, size: int, trees: list[Entry]) -> None:
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
def claimed_by(each: tuple[Entry, ...], path: str, rank: int, size: int) -> tuple[int, Entry] | None:
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
    return len(path) > len(tree) and all(
        _may_meet(tuple(_GLYPH.findall(one)), tuple(_GLYPH.findall(other))) for one, other in ways
    )


@functools.lru_cache(maxsize=10_000)  # else two long globs would take for ever
def _may_meet(one: tuple[str, ...], other: tuple[str, ...]) -> bool:
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


def _means(pattern: str, path: str, *, inside: bool, hidden: bool = True) -> bool:
    """Whether a pattern means this path; `inside`: or a directory that holds it."""
    parts, components = path.split("/"), pattern.split("/")
    ends = range(1, len(parts) + 1) if inside else [len(parts)]
    return any(matches(parts[:end], components, hidden=hidden) for end in ends)


def matches(parts: Sequence[str], pattern: Sequence[str], *, hidden: bool = True) -> bool:
    """Whether a path matches a pattern, both by components, without a look at the disk. `hidden`: a wildcard may stand
    for a dot at the beginning of a name."""

    def fits(part: str, component: str) -> bool:
        shown = hidden or part[:1] != "." or component[:1] == "."
        return shown and (component == "**" or fnmatch.fnmatchcase(part, component))

    ends = {0}  # so many parts may be matched by the components so far
    for component in pattern:
        further = {end + 1 for end in ends if end < len(parts) and fits(parts[end], component)}
        if component == "**":
            while further - ends:
                ends |= further
                further = {end + 1 for end in further if end < len(parts) and fits(parts[end], component)}
        else:
            ends = further
    return len(parts) in ends


def globbed(work: str, path: str, parts: list[str], stat: Stat, listdir: Callable[[str], list[str]]) -> Iterator[str]:
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
        yield from globbed(work, path, rest, stat, listdir)
    for name in names:
        below = f"{path}/{name}" if path else name
        if part == "**" and _is_directory(f"{work}/{below}", stat):
            yield from globbed(work, below, parts, stat, listdir)
        if rest and part != "**":
            yield from globbed(work, below, rest, stat, listdir)
        elif not rest:
            yield below


def _is_directory(path: str, stat: Stat) -> bool:
    try:
        return S_ISDIR(stat(path).st_mode)
    except (FileNotFoundError, NotADirectoryError):  # another rank has just moved it away
        return False


def expand(
    entry: Entry, work: str, stat: Stat, listdir: Callable[[str], list[str]], rank: int, size: int
) -> dict[str, Match]:
    literal, pattern = plan_of(entry, rank, size)
    paths = [literal] if literal else sorted(set(globbed(work, "", pattern.split("/"), stat, listdir)))
    found = {}
    for path in paths:
        try:
            info = stat(f"{work}/{path}")
        except (FileNotFoundError, NotADirectoryError):
            continue
        if literal or (path.split("/")[0] not in (SIDE, NAME) and entry.tree == S_ISDIR(info.st_mode)):
            found[path] = Match(entry, info)  # a glob without a trailing slash means files only, else directories
    return found
