"""The lines of a Fortran source, free or fixed form: which of them make a statement, a directive, or nothing.

(1) A line stands for one statement at most: `a = 1; b = 2` becomes two lines that both name the user's line.
(2) Each line knows the file and the line that it comes from: INCLUDE is followed, `# 30 "file"` is obeyed.
(3) The text of a statement has no comment, no continuation and no label; fparser reads only that.
(4) What depends on the preprocessor is taken as OpenMP sees it; such statements are marked: nothing is inserted there.
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from safepoint.threads.conditions import Conditions

FREE_WIDTH, FIXED_WIDTH = 130, 72
MARKER = re.compile(r'#\s*(?:line\s+)?(\d+)(?:\s+"([^"]*)")?')
INCLUDE = re.compile(r"""\s*include\s*(['"])(.+?)\1\s*(!.*)?$""", re.I)
LABEL = re.compile(r"\s*(\d{1,5})(?=\s|$)\s*")
FREE_SENTINEL = re.compile(r"\s*!\$(omp|sp)(?=[\s&]|$)", re.I)
FIXED_SENTINEL = re.compile(r"[c*!]\$(omp(?=.)|sp(?=\s))", re.I)


class Line(NamedTuple):
    text: str
    file: str
    line: int


class Statement(NamedTuple):
    """`first`, `last`: numbers of lines. `conditional`: only one of the two programs may have it."""

    first: int
    last: int
    text: str
    label: str = ""
    conditional: bool = False


class Sentinel(NamedTuple):
    """A directive, `!$omp` or `!$sp`, without its sentinel and continuation."""

    first: int
    last: int
    text: str
    kind: str


class Source(NamedTuple):
    lines: list[Line]
    statements: list[Statement]
    sentinels: list[Sentinel]
    free: bool

    def between(self, start: int, end: int) -> list[Statement]:
        """The statements in the lines from `start` on, before `end`."""
        first = bisect.bisect_left(self.statements, start, key=lambda given: given.first)
        found = list[Statement]()
        while first < len(self.statements) and self.statements[first].first < end:
            found.append(self.statements[first])
            first += 1
        return found


def is_free(path: Path) -> bool:
    return path.suffix.lower() not in (".f", ".for", ".ftn", ".f77", ".fpp")


def read(path: Path, *, free: bool, width: int = FIXED_WIDTH, include: Sequence[Path] = (),
         defines: Sequence[str] = ()) -> Source:  # fmt: skip
    """Raises OSError if the file cannot be read."""
    lines = list(_physical(path, str(path), include, 0))
    scan = (_Free if free else _Fixed)(lines, width, Conditions(defines))
    scan.run()
    return Source(scan.lines, scan.statements, scan.sentinels, free)


def _physical(path: Path, name: str, include: Sequence[Path], depth: int) -> Iterator[Line]:
    """The lines with those of included files in place; an INCLUDE whose file is not found stays."""
    file, number = name, 0
    for text in path.read_bytes().decode(errors="surrogateescape").splitlines():
        number += 1
        if marker := MARKER.match(text):
            number, file = int(marker[1]) - 1, marker[2] or file
            continue
        if (found := INCLUDE.match(text)) and depth < 9:
            for directory in (path.parent, *include):
                if (directory / found[2]).is_file():
                    yield from _physical(directory / found[2], str(directory / found[2]), include, depth + 1)
                    break
            else:
                yield Line(text, file, number)
            continue
        yield Line(text, file, number)


class _Scan:
    """What both forms share: statements are collected part by part and put down when they end."""

    def __init__(self, given: Sequence[Line], width: int, conditions: Conditions) -> None:
        self.given, self.width, self.conditions = given, width, conditions
        self.lines: list[Line] = []
        self.statements: list[Statement] = []
        self.sentinels: list[Sentinel] = []
        self.start = 0  # of the statement or directive that is being read
        self.parts: list[str] = []
        self.kind = ""  # code, conditional, omp, sp; empty: between statements

    def directive_of_cpp(self, text: str) -> bool:
        """Whether the line is for the preprocessor, or left out by it."""
        if re.match(r"\s*#", text):
            self.conditions.see(text)
            return True
        return not self.conditions.active

    def close(self) -> None:
        """Put down what was read so far. Lines between the first and the last, comments among them, belong to it."""
        if not self.kind:
            return
        text, last = "".join(self.parts).strip(), self.end
        if self.kind in ("omp", "sp"):
            self.sentinels.append(Sentinel(self.start, last, text, self.kind))
        elif text:
            self._put(text, last, self.kind == "conditional" or self.conditions.of_openmp)
        self.kind, self.parts = "", []

    def _put(self, text: str, last: int, conditional: bool) -> None:
        pieces = [piece for piece in split_outside(text, ";") if piece.strip()]
        if len(pieces) == 1:
            self.statements.append(_labelled(self.start, last, pieces[0], conditional))
            return
        first = self.lines[self.start]
        indent = re.match(r" *", first.text)[0] if isinstance(self, _Free) else ""  # type: ignore[index]
        after, comments = (
            self.lines[last + 1 :],
            [line for line in self.lines[self.start : last + 1] if self.is_comment(line.text)],
        )
        del self.lines[self.start :]
        self.lines += comments
        for piece in pieces:
            start = len(self.lines)
            made = self.written(indent + piece.strip(), conditional and self.kind == "conditional")
            self.lines += [Line(part, first.file, first.line) for part in made]
            self.statements.append(_labelled(start, len(self.lines) - 1, piece, conditional))
        self.lines += after

    end = 0

    def written(self, text: str, sentinel: bool) -> list[str]:
        raise NotImplementedError

    def is_comment(self, text: str) -> bool:
        return bool(re.match(r"\s*!(?!\$\s)", text))


class _Free(_Scan):
    quote = ""

    def run(self) -> None:
        for line in self.given:
            self.lines.append(line)
            self.one(line.text, len(self.lines) - 1)
        self.close()

    def one(self, text: str, at: int) -> None:
        if self.directive_of_cpp(text) or not text.strip():
            return
        kind, code = "code", text
        if sentinel := FREE_SENTINEL.match(text):
            kind, code = sentinel[1].lower(), text[sentinel.end() :]
        elif found := re.match(r"\s*!\$(?=[\s&])", text):
            kind, code = "conditional", text[found.end() :]
        elif re.match(r"\s*!", text):
            return
        if self.kind and kind != self.kind:
            self.close()
            self.quote = ""
        if not self.kind:
            self.kind, self.start = kind, at
        elif code.lstrip().startswith("&"):
            code = code.lstrip()[1:]
        else:
            code = " " + code.lstrip()
        code, self.quote, goes_on = _code(code, self.quote)
        self.parts.append(code)
        self.end = at
        if not goes_on:
            self.close()
            self.quote = ""

    def written(self, text: str, sentinel: bool) -> list[str]:
        return wrap_free(text, "!$ " if sentinel else "")


class _Fixed(_Scan):
    quote = ""

    def run(self) -> None:
        for line in self.given:
            kind, label, code, goes_on = self.taken_apart(line.text)
            if kind and not goes_on:
                self.close()
                self.quote = ""
            self.lines.append(line)
            if not kind or (goes_on and kind != self.kind):
                continue
            at = len(self.lines) - 1
            if not goes_on:
                self.kind, self.start, self.parts = kind, at, [f"{label} "]
            code, self.quote, _ = _code(code, self.quote, ampersand=False)
            code = code.ljust(self.width - 6) if self.quote else code.rstrip() or " "
            self.parts.append(f"{code} " if kind in ("omp", "sp") else code)
            self.end = at
        self.close()

    def taken_apart(self, text: str) -> tuple[str, str, str, bool]:
        """Kind (empty: nothing), label, code, and whether it continues a statement."""
        if self.directive_of_cpp(text) or not text.strip():
            return "", "", "", False
        if sentinel := FIXED_SENTINEL.match(text):
            head = sentinel.end()
            goes_on = text[head : head + 1] not in ("", " ", "0", "\t")
            return sentinel[1].lower(), "", text[head + 1 : self.width], goes_on
        kind = "code"
        if re.match(r"[cC*!]\$[ \d]{3}[ 0\S]", text):
            kind, text = "conditional", "  " + text[2:]
        elif text[0] in "cC*!dD" or re.match(r"\s*!", text):
            return "", "", "", False
        if "\t" in text[:6]:
            label, _, code = text.partition("\t")
            if code[:1] in tuple("123456789"):
                return kind, "", code[1:], True
            return kind, label.strip(), code, False
        goes_on = text[5:6] not in ("", " ", "0") and not text[:5].strip()
        return kind, text[:5].strip(), text[6 : self.width], goes_on

    def written(self, text: str, sentinel: bool) -> list[str]:
        return wrap_fixed(text, "!$" if sentinel else "", self.width)

    def is_comment(self, text: str) -> bool:
        return bool(re.match(r"\s*!(?!\$)|[cC*](?!\$)", text))


def _labelled(first: int, last: int, text: str, conditional: bool) -> Statement:
    label = LABEL.match(text)
    if label and label.end() < len(text):
        return Statement(first, last, text[label.end() :].strip(), label[1], conditional)
    return Statement(first, last, text.strip(), "", conditional)


def _code(text: str, quote: str, *, ampersand: bool = True) -> tuple[str, str, bool]:
    """The line without its comment; the quote that is open at its end; whether the statement goes on."""
    for at, char in enumerate(text):
        if quote:
            quote = "" if char == quote else quote
        elif char in "'\"":
            quote = char
        elif char == "!":
            text = text[:at]
            break
    if ampersand and text.rstrip().endswith("&"):
        return text.rstrip()[:-1], quote, True
    return text, quote, False


def split_outside(text: str, mark: str) -> list[str]:
    """At each mark that is in no string and in no parentheses."""
    quote, depth, start, found = "", 0, 0, list[str]()
    for at, char in enumerate(text):
        if quote:
            quote = "" if char == quote else quote
        elif char in "'\"":
            quote = char
        elif char in "([":
            depth += 1
        elif char in ")]":
            depth -= 1
        elif char == mark and depth == 0:
            found.append(text[start:at])
            start = at + 1
    return [*found, text[start:]]


def wrap_free(text: str, sentinel: str = "", width: int = FREE_WIDTH) -> list[str]:
    """A statement, or a directive after its sentinel, on as many lines as it needs; tokens may be cut."""
    room, found = width - len(sentinel) - 3, list[str]()
    while len(text) > room:
        cut = _cut(text, room)
        found.append(f"{sentinel}{text[:cut]}&")
        text = "&" + text[cut:]
    return [*found, sentinel + text]


def wrap_fixed(text: str, sentinel: str = "", width: int = FIXED_WIDTH) -> list[str]:
    """The same from column 7 on; the label, if there is one, is in front of the text."""
    label = LABEL.match(text) if not sentinel else None
    head = f"{label[1]:<6}" if label else f"{sentinel:<6}"
    text = text[label.end() :] if label else text
    found, room = list[str](), width - 6
    while len(text) > room:
        cut = _cut(text, room) if sentinel.lower().endswith("omp") else room
        found.append(head + text[:cut])
        head, text = f"{sentinel:<5}&", text[cut:]
    return [*found, head + text]


def _cut(text: str, room: int) -> int:
    """Where to go to the next line: at a comma or blank, if there is one."""
    return max(text.rfind(",", 0, room), text.rfind(" ", 0, room)) + 1 or room
