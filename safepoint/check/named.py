"""What the numbers in the notes of a rank mean: functions, lines, communicators, constants.

The files are read while they grow: each as far as its lines are whole, and no part of it a second time.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, NamedTuple

from safepoint.check.call import digest
from safepoint.check.files import Lines, TraceError, read_json
from safepoint.matching import symbols
from safepoint.matching.symbols import Site
from safepoint.trace import record, roles

SPAN = re.compile(r"(-1|[0-9]{1,9})(?:-([0-9]{1,9}))?")
Spans = tuple[range, ...]  # ranks of the world; range(-1, 0): one that is outside


class Thing(NamedTuple):
    """A communicator, window or file, as one rank knows it."""

    kind: str  # "comm", "win", "file"
    name: str
    parent: int  # its number; 0: it has none that is known
    note: int  # that made it; -1: it was made where the tracer does not look
    members: Spans
    remote: Spans  # of an intercommunicator; empty of others
    outside: bool  # it has processes that are not in the world

    def world(self, rank: int) -> int:
        """The rank in the world of one that is addressed by this; -1: there is none."""
        for span in self.remote or self.members:
            if 0 <= rank < len(span):
                return span[rank]
            rank -= len(span)
        return -1

    def all(self) -> frozenset[int]:
        """All ranks of the world that take part."""
        return frozenset(rank for span in (*self.members, *self.remote) for rank in span if rank >= 0)


class Named:
    """Of one rank. `about`: what its `.json` says."""

    def __init__(self, directory: Path, about: dict[str, Any]) -> None:
        """Raises `TraceError`."""
        self._directory, self._about = directory, about
        names = record.names(directory, about["rank"])
        self._files = names
        self._site_lines = Lines(names.sites)
        try:
            self._object_lines = Lines(names.objects)
        except TraceError:
            self._site_lines.close()
            raise
        self.functions: dict[int, tuple[str, str]] = {}  # name and kind of each number
        self.things: list[Thing] = []  # number 1 is things[0]
        self.keys: list[object] = []  # by which another rank knows each of these
        self._sites: list[str] = []
        self._resolved: list[Site] = []
        self._spans: dict[str, Spans] = {}
        self._made: dict[object, int] = {}
        self.constants: dict[str, int] = {}

    def refresh(self) -> None:
        """Read what has come. Raises `TraceError`."""
        if not self.functions:
            self._read_functions()
        self._sites += self._site_lines.new()
        for line in self._object_lines.new():
            try:
                thing = self._thing(json.loads(line))
            except (ValueError, TypeError, RecursionError) as error:
                raise TraceError(f"{self._files.objects}: line {len(self.things) + 1}: {error}") from error
            self.things.append(thing)
            self.keys.append(self._key(thing))
        path = self._files.about.with_suffix(".constants")
        if not self.constants and path.exists():
            self.constants = {name: value for name, value in read_json(path).items() if type(value) is int}

    @property
    def sites(self) -> int:
        """How many lines there are."""
        return len(self._sites)

    def site(self, number: int) -> Site:
        """Where a call stands: that of line `number` of `.sites`; with 0, it is not known."""
        if not 0 < number <= len(self._sites):
            return Site("", 0, "")
        if number > len(self._resolved):
            self._resolved += symbols.sites(self._sites[len(self._resolved) :])
        return self._resolved[number - 1]

    def thing(self, number: int) -> Thing | None:
        return self.things[number - 1] if 0 < number <= len(self.things) else None

    def key(self, number: int) -> object:
        """By which other ranks know this thing too; None: there is no such one."""
        return self.keys[number - 1] if 0 < number <= len(self.keys) else None

    def close(self) -> None:
        self._site_lines.close()
        self._object_lines.close()

    def _read_functions(self) -> None:
        name = str(self._about.get("functions"))
        if re.fullmatch(r"functions-[a-z0-9]{1,32}\.json", name) is None:
            raise TraceError(f"{self._files.about}: {name[:40]!r} is no table of functions")
        path, found = self._directory / name, {}
        for number, row in read_json(path).items():
            right = re.fullmatch(r"[0-9]{1,5}", number) and isinstance(row, list) and len(row) == 2
            if not right or not all(isinstance(word, str) for word in row):
                raise TraceError(f"{path}: the row of {number!r} is no function")
            found[int(number)] = row[0], row[1]
        self.functions = found

    def _thing(self, line: Any) -> Thing:
        """Raises ValueError, TypeError."""
        line = {"name": "", "members": "", "remote": "", "outside": False, "kind": "", "parent": 0, "note": -1,
                **dict(line)}  # fmt: skip
        right = all(isinstance(line[name], str) for name in ("name", "members", "remote", "kind"))
        if not right or type(line["note"]) is not int or type(line["parent"]) is not int:
            raise ValueError("its fields are of other types")
        members, remote = self._spans_of(line["members"]), self._spans_of(line["remote"])
        return Thing(line["kind"], line["name"], line["parent"], line["note"], members, remote, bool(line["outside"]))

    def _spans_of(self, text: str) -> Spans:
        """Raises ValueError."""
        if text not in self._spans:
            spans = list[range]()
            for word in text.split(",") if text else ():
                found = SPAN.fullmatch(word)
                first = int(found[1]) if found else 0
                last = int(found[2] or first) if found else -1
                if not first <= last < self._about["size"] or (found and found[2] and first < 0):
                    raise ValueError(f"{word[:40]!r} are no ranks of {self._about['size']}")
                spans.append(range(first, last + 1))
            self._spans[text] = tuple(spans)
        return self._spans[text]

    def _key(self, thing: Thing) -> object:
        """The n-th thing of these members that was made of the same one; of those whose parent another rank may not
        have, the n-th of these members."""
        number = len(self.things)
        if number == record.WORLD:
            return "world"
        if number == record.SELF:
            return "self", self._about["rank"]
        sides = frozenset((thing.members, thing.remote))  # an intercommunicator has them the other way round there
        by = self.key(thing.parent) if thing.parent < number and not thing.remote else None
        made = thing.kind, digest(by, sorted(map(repr, sides)))
        self._made[made] = self._made.get(made, 0) + 1
        return (*made, self._made[made])


def kind_of(name: str) -> str:
    """Of a function, as `roles` has it; "ours" of those of this library."""
    return "ours" if name in roles.OURS.values() else roles.kind(name)
