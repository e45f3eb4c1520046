"""The instrumented text: the user's lines, what is put between them, and markers that name the user's lines."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Union

from safepoint.threads.lines import FIXED_WIDTH, Line, Source, wrap_fixed, wrap_free

PREFIX, OTHER_PREFIX = "sp_", "sptr_"
LOGICAL, INTEGER = "logical", "integer(8)"
Part = Union[Line, "Later"]


class Later(list[Line]):
    """A place whose lines are known only when more was written."""


class Writer:
    """`indent` follows the user's lines. Lines that are put in name the line that they belong to."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.parts: list[Part] = []
        words = {word.lower() for line in source.lines for word in re.findall(r"\bsp_\w*", line.text, re.I)}
        self.prefix = OTHER_PREFIX if words else PREFIX

    def raw(self, first: int, end: int) -> None:
        """The user's lines from `first` on, without `end`."""
        self.parts += self.source.lines[first:end]

    def put(self, text: str, at: int) -> None:
        self.parts += self.made(text, at)

    def later(self) -> Later:
        self.parts.append(place := Later())
        return place

    def made(self, text: str, at: int) -> list[Line]:
        """The lines of a statement that belongs to line `at`."""
        where = self.source.lines[at]
        if not self.source.free:
            found = wrap_fixed(text)
        else:
            indent = re.match(r"\s*", where.text)
            found = wrap_free((indent[0] if indent and len(indent[0]) < 60 else "") + text)
        return [Line(each, where.file, where.line) for each in found]

    def directive(self, text: str, at: int) -> list[Line]:
        """A directive without its sentinel."""
        where = self.source.lines[at]
        if self.source.free:
            found = []
            for number, each in enumerate(wrap_free(text, "")):
                found.append(("!$omp " if number == 0 else "!$omp") + each)
        else:
            found = wrap_fixed(text, "!$omp", FIXED_WIDTH)
        return [Line(each, where.file, where.line) for each in found]

    def text(self) -> str:
        return "\n".join(marked(self._flat())) + "\n"

    def _flat(self) -> Iterator[Line]:
        for part in self.parts:
            if isinstance(part, Later):
                yield from part
            else:
                yield part


def marked(lines: Iterator[Line]) -> Iterator[str]:
    """With a marker wherever the next line is not the next one of the file. A compiler counts on by itself."""
    file, number = "", 0
    for line in lines:
        if (line.file, line.line) != (file, number):
            yield f'# {line.line} "{line.file}"'
        yield line.text
        file, number = line.file, line.line + 1


class Needs:
    """What one unit needs: names of the runtime, and variables of its own."""

    def __init__(self, writer: Writer) -> None:
        self.writer = writer
        self.names: set[str] = set()
        self.variables: dict[str, str] = {}

    def runtime(self, name: str) -> str:
        """`write` is sp_write, or what stands for it if the user has names with sp_."""
        self.names.add(name)
        return self.writer.prefix + name

    def variable(self, letter: str, type: str) -> str:
        name = f"{self.writer.prefix}{letter}{len(self.variables) + 1}"
        self.variables[name] = type
        return name

    def use(self) -> str:
        """The USE statement; empty if nothing is needed."""
        renames = [f"sp_{name}" if self.writer.prefix == PREFIX else f"{self.writer.prefix}{name} => sp_{name}"
                   for name in sorted(self.names)]  # fmt: skip
        return f"use sp_trace, only: {', '.join(renames)}" if renames else ""

    def declarations(self) -> list[str]:
        found = []
        for type in (INTEGER, LOGICAL):
            names = [name for name, given in self.variables.items() if given == type]
            found += [f"{type} :: {', '.join(names[at : at + 8])}" for at in range(0, len(names), 8)]
        return found


def call(name: str, *arguments: object) -> str:
    return f"call {name}({', '.join(map(str, arguments))})"


def joined(names: Sequence[str]) -> str:
    return ", ".join(dict.fromkeys(names))
