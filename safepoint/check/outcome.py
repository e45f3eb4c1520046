"""What came of a check: the situations by their templates, how the ranks ended, and the exit code."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from safepoint import words
from safepoint.check import report
from safepoint.check.follow import Follower
from safepoint.check.rollcall import Hang
from safepoint.check.situations import Place, Situation, places
from safepoint.check.template import Template
from safepoint.trace.elsewhere import SECOND

NOTHING = (
    "nothing was seen: the program has not called MPI, or it did not start, or this tracer sees none of its calls "
    "(see --with)"
)
NO_MISTAKE = "no mistake was found"
PARTLY = (
    "so it is not known what these ranks have not done: what belongs to several ranks is not judged to the end. With "
    "their files put beside the others, safepoint check DIR does it"
)
NOT_ALONE = (
    "the command has started another program of MPI, which was not checked: its ranks have the numbers of those of the "
    "first. Give each a safepoint check of its own"
)
FOUND, UNDECIDED = 1, 2  # exit codes


def _is(template: Template, kind: str) -> bool:
    """What is expected is none of them."""
    return template.kind == kind and template.expect == "none"


@dataclass
class Outcome:
    """`follower` knows where the calls are."""

    templates: Sequence[Template]
    follower: Follower
    situations: list[Situation] = field(default_factory=list)
    hang: Hang | None = None
    deaths: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    incomplete: list[str] = field(default_factory=list)  # ranks that were not followed to their ends, and why
    unchecked: list[str] = field(default_factory=list)  # what else has run, which says nothing of these ranks
    code_of_program: int = 0
    ended_by_us: bool = False

    def by_template(self) -> Iterator[tuple[Template, list[Place]]]:
        """All of them, with where they were found."""
        of: dict[str, list[Situation]] = {}
        for one in self.situations:
            of.setdefault(one.template, []).append(one)
        for template in self.templates:
            yield template, places(of.get(template.id, []), self._line)

    def _line(self, call: Any) -> str:
        return report.place_of(self.follower.site(call), self.follower.cwd)

    def count(self, template: Template) -> int:
        return sum(one.template == template.id for one in self.situations)

    def _missed(self, template: Template) -> str:
        """What was expected of it, and is not so."""
        why = report.judged(template, self.count(template)) if self.follower.size else ""
        return why if why != "error" else ""

    @property
    def code(self) -> int:
        """Of the command."""
        if self.hang is not None:
            return FOUND
        if self.follower.size and any(report.judged(one, self.count(one)) for one in self.templates):
            return FOUND
        if not self.follower.size or self.incomplete or self.unchecked:
            return self.code_of_program or UNDECIDED
        return self.code_of_program

    def lines(self, everything: bool) -> Iterator[str]:
        """For people. `everything`: each situation in full."""
        for template, found in self.by_template():
            if found:
                yield from report.lines(template, found, self.follower, everything)
            if why := self._missed(template):
                yield f"[{template.id}] {template.name}: {why}"
        if self.hang is not None:
            yield self.hang.text
        yield from self.deaths
        if self.incomplete:
            yield from self.incomplete
            yield PARTLY
        yield from (*self.unchecked, *self.remarks, *self.follower.remarks())
        if self.code_of_program and not self.ended_by_us:
            yield f"the program has ended with code {self.code_of_program}"
        yield self.summary()

    def summary(self) -> str:
        """The last line."""
        if not self.follower.size:
            return NOTHING
        kinds = [
            words.count(sum(self.count(one) for one in self.templates if _is(one, kind)), kind)
            for kind in ("error", "warning", "note")
            if any(_is(one, kind) and self.count(one) for one in self.templates)
        ]
        if missed := sum(bool(self._missed(one)) for one in self.templates):
            kinds.append(f"{missed} of what was expected did not occur so")
        seen = f"{words.count(self.follower.size, 'rank')}, {words.count(self.follower.calls, 'call')} noted"
        with_ = words.count(len(self.templates), "template")
        nothing = (
            ""
            if self.hang
            else "no mistake was found in what has come"
            if self.incomplete or self.unchecked
            else NO_MISTAKE
        )
        found = ", ".join(kinds) or nothing
        return f"{seen}, {with_}: {', '.join(filter(None, (found, 'it hangs' if self.hang else '')))}"

    def as_json(self) -> dict[str, Any]:
        hang = self.hang
        return {
            "situations": [
                report.as_json(template, found, self.follower) for template, found in self.by_template() if found
            ],
            "expected": {one.id: why for one in self.templates if (why := self._missed(one))},
            "hang": None if hang is None else {
                "ranks": list(hang.ranks), "deadlock": hang.deadlock, "stuck": list(hang.stuck), "text": hang.text,
                "at": [one._asdict() for one in hang.at],
            },
            "deaths": self.deaths,
            "incomplete": [*self.incomplete, *self.unchecked],
            "remarks": [*self.remarks, *self.follower.remarks()],
            "ranks": self.follower.size,
            "calls": self.follower.calls,
            "program": self.code_of_program,
            "code": self.code,
        }  # fmt: skip


def second(directory: Path) -> list[str]:
    """What is said of a trace of one program, if the command had several."""
    return [NOT_ALONE] * (directory / SECOND).exists()
