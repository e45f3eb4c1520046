"""The manifest: `.safepoint` text to entries and settings, and which files the entries mean.

    # comment                  u.npy                      fields/*.vtk   compress
    "two words.dat"  optional  'literally [this]*.dat'    run.zarr/      copy
    part-{rank:04d}.h5         history.csv  append        keep = 2

A name may be bare, in double quotes (where a backslash escapes: \\" \\\\ \\n \\t) or in single quotes (literal, nothing
in it is special); one with a comma or a semicolon is quoted. `*`, `?`, `[…]` and `**` match as in the shell, hidden
files only by a dot of their own. `{rank}` and `{size}` take a format as in Python, and make a file that of each rank;
all others belong to one rank, the saver. A literal brace is doubled. If several lines match one file, the last decides,
but a file of a rank is never another's; what lies in a listed directory is saved as part of it. A line with a `!`
before its name excludes files of listed directories and globs (`!out/*.tmp`).
"""

from __future__ import annotations

import glob
import os
import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from stat import S_ISDIR, S_ISREG
from typing import Any, NamedTuple

from safepoint.disk.files import cause
from safepoint.errors import ManifestError, RefusedFileError
from safepoint.patterns import (
    EXCLUDED,
    NAME,
    SIDE,
    Entry,
    Match,
    Stat,
    Way,
    above,
    check_apart,
    claimed_by,
    excluded,
    expand,
    globbed,
    may_exclude,
    plan_of,
)
from safepoint.settings import ALOOF, LEVELS, SETTINGS, Setting, Untold

EXAMPLE = """\
    u.npy                   # the files that make a save point, one per line
    history.csv   append    # a file that only grows
    keep = 2                # a setting"""


ATTRIBUTES = ("append", "compress", "copy", "mark", "optional")
DEFAULT_LEVEL = 3
LONGEST = 64 << 20  # bytes of a manifest: a million names
TOKEN = re.compile(r"""\s*(?: (?P<comment>\#.*) | "(?P<double>(?:[^"\\]|\\.)*)" | '(?P<single>[^']*)' """
                    r"""| (?P<equals>=(?=\s|$)) | (?P<bare>[^\s"'\#][^\s]*) )(?=\s|$)""", re.X)  # fmt: skip
_ASIDE = re.compile(r"""(?:^|(?<=\s))\#.* | "(?:[^"\\]|\\.)*" | '[^']*'""", re.X)  # comments, and what is quoted
_BRACES = re.compile(r"(?: [^{}] | \{\{ | \}\} | \{(?:rank|size)(?::0?[1-9]?\d?[dx]?)?\} )*", re.X | re.S)
_ESCAPES = {'"': '"', "\\": "\\", "n": "\n", "t": "\t"}


class Manifest(NamedTuple):
    """All entries, or, after `owned_by`, those of one rank."""

    path: str
    entries: tuple[Entry, ...]
    settings: Mapping[str, Any]
    others: tuple[Entry, ...] = ()  # the entries that are not this rank's
    shared: bool = False  # other ranks have their files in the same directory
    exclusions: tuple[Entry, ...] = ()
    aloof: bool = False  # `hide` takes nothing: what does the program do without it?

    def setting(self, name: str) -> Any:
        return self.settings[name]

    @property
    def patterns(self) -> tuple[str, ...]:
        """Of all entries, and of what is excluded."""
        listed = tuple(entry.pattern for entry in (*self.entries, *self.others))
        return listed + tuple(EXCLUDED + entry.pattern for entry in self.exclusions)

    @property
    def moves(self) -> bool:
        """Whether files of any rank move away in `hide`: then those that stay in place say nothing of a step."""
        return any(entry.kind == "move" and not entry.optional for entry in (*self.entries, *self.others))

    @property
    def common(self) -> tuple[bool, bool]:
        """Whether a rank takes files that any other may have written, and whether it is this one."""
        whose = self.shared and any(not one.per_rank for one in self.entries)
        return whose or (self.shared and bool(self.others)), whose

    def decides(self, path: str, rank: int = 0, size: int = 1) -> Entry | None:
        """The entry that says how this file is saved: the last one that means it."""
        if excluded(self.without(rank, size), path):
            return None
        return next((entry for entry in reversed(self.entries) if entry.means(path, rank, size)), None)

    def without(self, rank: int, size: int) -> tuple[str, ...]:
        return tuple(entry.filled(rank, size) for entry in self.exclusions)  # the patterns of what is excluded

    def as_of(self, patterns: Iterable[str]) -> Manifest:
        """Without the entries that were not yet there when these were its patterns, and with what was excluded then."""
        then = set(patterns)
        gone = then - {*self.patterns}
        names = [name.removeprefix(EXCLUDED) for name in gone if name.startswith(EXCLUDED)]
        more = [Entry(0, name, name, "move", True, None, False) for name in names]
        entries = tuple(entry for entry in self.entries if entry.pattern in then)
        return self._replace(entries=entries, exclusions=(*self.exclusions, *more))

    def in_place(self) -> Manifest:
        """The same files, none of which moves; with SAFEPOINT_ALOOF in the environment no set has them either."""
        entries = (entry._replace(kind="copy" if entry.kind == "move" else entry.kind) for entry in self.entries)
        return self._replace(entries=tuple(entries), aloof=ALOOF in os.environ)

    def owned_by(self, rank: int, size: int, saver: int | None) -> Manifest:
        """What is left to one rank: the entries of each rank and, for the saver, all others; without a saver, all.

        Raises `ManifestError` if ranks that share a directory could take one another's files for their own.
        """
        every = sorted((*self.entries, *self.others), key=lambda entry: entry.line)
        if saver is not None and size > 1:
            trees = [entry for entry in every if entry.tree and not entry.per_rank]
            for entry in every:
                if entry.per_rank:
                    check_apart(self.path, entry, size, trees)
        mine, rest = list[Entry](), list[Entry]()
        for entry in every:
            (mine if saver in (None, rank) or entry.per_rank else rest).append(entry)
        return self._replace(entries=tuple(mine), others=tuple(rest), shared=saver is not None and size > 1)

    def reach(
        self, work: str, stat: Stat, rank: int = 0, size: int = 1, *, listdir: Callable[[str], list[str]] = os.listdir
    ) -> set[str]:
        """The directories below `work` that `find` looks into, but for those that `**` finds, which are no links."""
        found: set[str] = set()
        for entry in self.entries:
            parts = plan_of(entry, rank, size)[1].split("/")[:-1]
            while parts and parts[-1] == "**":
                parts.pop()
            found.update(globbed(work, "", parts, stat, listdir) if parts else ())
        return {path for path in found if os.path.isdir(os.path.join(work, path))}

    def find(
        self, work: str, stat: Stat, rank: int = 0, size: int = 1, *, listdir: Callable[[str], list[str]] = os.listdir
    ) -> tuple[dict[str, Match], list[Entry]]:
        """The files that exist now, by path relative to `work`, and the entries without any that are not optional.

        `stat` looks at a file itself (os.lstat). A directory that cannot be read is an error, never an empty one.
        """
        found, missing = dict[str, Match](), []
        each = tuple(entry for entry in self.entries if entry.per_rank) if self.shared else ()
        without = self.without(rank, size)
        for entry in self.entries:
            matches = expand(entry, work, stat, listdir, rank, size)
            if without:
                matches = {path: match for path, match in matches.items() if not excluded(without, path)}
            if not matches and not entry.optional:
                missing.append(entry)
            for path in list(matches) if each else ():
                claim = claimed_by(each, path, rank, size)
                if claim and entry.per_rank:
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
            if entry.literal(rank, size) is None and (there := expand(other, work, stat, listdir, rank, size)):
                what = "is a file: leave out the slash" if entry.tree else "is a directory: add a slash"
                text = f"{entry.filled(rank, size)}{'/' * entry.tree} (line {entry.line}; {next(iter(there))} {what})"
            texts.append(text)
        return ", ".join(texts)


def load(directory: str, settings: Mapping[str, Setting] = SETTINGS) -> Manifest:
    """Read `.safepoint` in `directory`, as `parse`. Raises `ManifestError` naming file, line and cause."""
    return parse(read(directory), os.path.join(directory, NAME), settings)


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


def parse(text: str, path: str = NAME, settings: Mapping[str, Setting] = SETTINGS) -> Manifest:
    """Entries and settings of a manifest's text; `path` is for messages, `settings` are those that it may have. Raises
    `ManifestError`."""
    entries: dict[str, Entry] = {}
    given: dict[str, Any] = {}
    tight = re.compile(rf"^\s*({'|'.join(settings)})\s*=\s*")  # keep=2 is as good as keep = 2
    mark: Entry | None = None
    exclusions: list[Entry] = []
    for number, line in enumerate(text.split("\n"), 1):
        try:
            line = tight.sub(r"\1 = ", line)
            if not re.match(r"\s*\S+\s+=(\s|$)", line) and re.search("[,;]", _ASIDE.sub("", line)):
                raise ValueError(f"{line.strip()}: one name a line, without commas; quote a name that has one")
            excludes = line.lstrip().startswith("!")
            tokens = list(_tokens(line.lstrip()[excludes:]))
            if excludes:
                exclusions.append(_exclusion(number, tokens))
            elif len(tokens) >= 2 and tokens[1][0] == "equals":
                name, value = _setting(tokens, settings)
                if name in given:
                    raise ValueError(f"{name} is set twice")
                given[name] = value
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
    for without in exclusions:
        names = {entry: entry.literal(0, 1) or entry.pattern for entry in entries.values()}
        if same := next((entry for entry, name in names.items() if excluded([without.filled(0, 1)], name)), None):
            text = f"!{without.text} excludes {same.text}, which is listed in line {same.line}: leave one line out"
            raise ManifestError(f"{path}:{without.line}: {text}")
        if not any(may_exclude(without, entry) for entry in entries.values()):
            what = "a file of a listed directory or glob can be excluded, by its path from the working directory"
            raise ManifestError(f"{path}:{without.line}: !{without.text} excludes nothing that is listed: {what}")
    if not entries:
        raise ManifestError(f"{path}: no file is listed; for example\n{EXAMPLE}")
    defaults = {name: default for name, (_, default) in settings.items()}
    return Manifest(path, tuple(entries.values()), {**defaults, **given}, exclusions=tuple(exclusions))


def _tokens(line: str) -> Iterator[tuple[str, str]]:
    position = 0
    while line[position:].strip():
        match = TOKEN.match(line, position)
        if not match:
            rest = line[position:].strip()
            cause = "a quote is not closed, or text follows it" if rest[0] in "\"'" else "cannot be read"
            raise ValueError(f"{rest}: {cause}")
        position = match.end()
        if match.lastgroup == "comment":
            return
        yield str(match.lastgroup), match[str(match.lastgroup)]


def _setting(tokens: list[tuple[str, str]], known: Mapping[str, Setting]) -> tuple[str, Any]:
    name, value = tokens[0][1], " ".join(text for _, text in tokens[2:])
    if name not in known:
        raise ValueError(f"unknown setting {name}{_perhaps(name, known)}")
    try:
        return name, known[name][0](value)
    except Untold as error:
        raise ValueError(f"{name} {error}") from None
    except ValueError as error:
        raise ValueError(f"{name} {error}, not {value or 'nothing'}") from None


def _perhaps(word: str, known: Iterable[str]) -> str:
    import difflib  # here: only a manifest with a mistake needs it

    close = difflib.get_close_matches(word, list(known), 1)
    return f"; did you mean {close[0]}?" if close else f" (known: {', '.join(sorted(known))})"


def _exclusion(line: int, tokens: list[tuple[str, str]]) -> Entry:
    if not tokens:
        raise ValueError("! is to stand before a name")
    if len(tokens) > 1:
        raise ValueError(f"what is excluded has no attributes, such as {tokens[1][1]}")
    return _entry(line, tokens)._replace(tree=True)  # or all that lies in a directory of this name


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
        which = "append" if "append" in given else "optional"
        raise ValueError(f"a mark is the last file of every set, and kept whole: leave {which} out")
    name = re.sub(r"\\(.)", _unescape, text) if quoting == "double" else text
    tree = name.endswith("/")
    grows = "append" in given
    if grows and (tree or ("compress" in given and "copy" not in given)):
        raise ValueError("an append file grows in place: that excludes directories and, without copy, compress")
    kind: Way = "copy" if "copy" in given else "append" if "append" in given else "move"
    pattern = _pattern(name, literal=quoting == "single")
    return Entry(line, text, pattern, kind, tree, given.get("compress"), "optional" in given, "mark" in given, grows)


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
