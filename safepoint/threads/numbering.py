"""The sites of one source, numbered as they are made, and what was recorded or left out."""

from __future__ import annotations

from collections.abc import Sequence

from safepoint.threads.lines import Line
from safepoint.threads.sites import Site


class Numbering:
    """`first`: the first free number. A statement counts once, however many values it assigns."""

    def __init__(self, lines: Sequence[Line], first: int) -> None:
        self.lines, self.next = lines, first
        self.sites: list[Site] = []
        self.recorded: set[int] = set()
        self.left_out: dict[tuple[int, str], int] = {}
        self.warnings: list[tuple[int, str]] = []

    def new(self, type: str, name: str, at: int, last: int | None = None, *, clauses: str = "", loose: str = "",
            private: bool = False, procedure: str = "") -> int:  # fmt: skip
        where = self.lines[at]
        line2 = self.lines[at if last is None else last].line
        self.sites.append(
            Site(self.next, type, name, where.file, where.line, line2, clauses, loose, private, procedure)
        )
        self.next += 1
        return self.next - 1

    def records(self, at: int) -> None:
        self.recorded.add(at)

    def leaves(self, at: int, why: str) -> None:
        """Something at this line is not recorded."""
        self.left_out.setdefault((at, why), self.lines[at].line)

    def left(self) -> list[tuple[int, str]]:
        return sorted((line, why) for (_, why), line in self.left_out.items())

    @property
    def statements(self) -> int:
        """Those that assign something."""
        return len(self.recorded | {at for at, _ in self.left_out})
