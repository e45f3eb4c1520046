"""Directives of OpenMP: which construct, which clauses, and how a combined construct is taken apart.

`parallel do` is `parallel` with a `do` in it. Each clause goes where the standard applies it; a variable of
`lastprivate` must be shared in the team, so its `firstprivate` goes with it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from safepoint.threads.lines import split_outside

CONSTRUCTS = [
    "parallel do simd", "parallel do", "parallel sections", "parallel workshare", "parallel masked", "parallel master",
    "parallel", "do simd", "do", "sections", "section", "single", "masked", "master", "critical", "ordered", "atomic",
    "barrier", "workshare", "simd", "task", "taskgroup", "taskwait", "taskyield", "flush", "threadprivate",
    "declare reduction", "declare simd", "declare target", "cancellation point", "cancel", "scan", "loop", "scope",
    "parallel loop", "taskloop", "taskloop simd", "parallel masked taskloop", "parallel master taskloop",
    "parallel masked taskloop simd", "parallel master taskloop simd", "target", "teams", "distribute", "depobj",
    "requires", "allocate", "assume", "error", "nothing", "interop", "tile", "unroll", "begin", "metadirective",
]  # fmt: skip
PATTERNS = [
    (name, re.compile(r"\s*".join(map(re.escape, name.split())) + r"(?![\w])", re.I))
    for name in sorted(CONSTRUCTS, key=len, reverse=True)
]
ALONE = {
    "barrier", "taskwait", "taskyield", "flush", "threadprivate", "declare reduction", "declare simd", "declare target",
    "cancellation point", "cancel", "scan", "depobj", "requires", "allocate", "error", "nothing", "section", "interop",
}  # fmt: skip
LOOPS = {
    "parallel do simd", "parallel do", "do simd", "do", "simd", "loop", "parallel loop", "taskloop", "taskloop simd",
    "parallel masked taskloop", "parallel master taskloop", "parallel masked taskloop simd",
    "parallel master taskloop simd", "distribute", "tile", "unroll",
}  # fmt: skip
OFFLOADED = re.compile(r"(\s*(enter|exit|data|update|teams|distribute|parallel|do|simd|loop|declare|target)\b)*", re.I)
SHARING = ("private", "firstprivate", "lastprivate", "shared", "reduction", "linear", "copyin", "copyprivate")
OF_TEAM = {"if", "num_threads", "default", "shared", "private", "firstprivate", "copyin", "proc_bind", "allocate",
           "reduction"}  # fmt: skip


class Clause(NamedTuple):
    name: str
    argument: str = ""

    @property
    def names(self) -> list[str]:
        """The variables, in lower case, without sections and what stands before the colon."""
        if self.name not in SHARING:
            return []
        text = self.argument
        if self.name in ("reduction", "lastprivate"):
            text = text.split(":", 1)[-1] if ":" in _before_parenthesis(text) else text
        parts = split_outside(text, ",")
        found = (part.split("(")[0].split(":")[0].strip().lower() for part in parts)
        return [name for name in found if name]

    def __str__(self) -> str:
        return f"{self.name}({self.argument})" if self.argument else self.name


def _before_parenthesis(text: str) -> str:
    """Of the list: a colon in a section of an array is not the one that ends the operator."""
    head = re.match(r"\s*(?:\w+\s*,\s*)?[^(,:]*:", text)
    return head[0] if head else ""


@dataclass(frozen=True)
class Directive:
    """`name`: of a critical construct. `end`: it closes one. `first`, `last`: numbers of lines."""

    construct: str
    clauses: tuple[Clause, ...]
    end: bool
    name: str
    first: int
    last: int
    text: str

    def argument(self, clause: str) -> str | None:
        """Of the first clause of this name; None if there is none."""
        return next((given.argument for given in self.clauses if given.name == clause), None)

    def names(self, *clauses: str) -> list[str]:
        """The variables of these clauses."""
        return [name for given in self.clauses if given.name in clauses for name in given.names]

    @property
    def collapse(self) -> int:
        """How many loops it takes; 0: cannot be read."""
        text = (self.argument("collapse") or "1").strip()
        return int(text) if text.isdigit() else 0

    @property
    def default(self) -> str:
        return (self.argument("default") or "").strip().lower()


def parse(text: str, first: int = 0, last: int = 0) -> Directive:
    """A directive without its sentinel. One that is not known has the construct ""."""
    rest, end = text.strip(), False
    if found := re.match(r"end\s*(?=[a-z])", rest, re.I):
        rest, end = rest[found.end() :], True
    matches = ((name, found) for name, pattern in PATTERNS if (found := pattern.match(rest)))
    if (match := next(matches, None)) is None:
        return Directive("", (), end, "", first, last, text)
    name, rest = match[0], rest[match[1].end() :]
    label = ""
    if name == "critical" and (found := re.match(r"\s*\(\s*(\w+)\s*\)", rest)):
        label, rest = found[1].lower(), rest[found.end() :]
    if name in ("target", "teams", "distribute", "begin"):
        words = OFFLOADED.match(rest)
        head = words[0] if words else ""
        name, rest = " ".join([name, *head.lower().split()]), rest[len(head) :]
    return Directive(name, tuple(clauses(rest)), end, label, first, last, text)


def clauses(text: str) -> Iterable[Clause]:
    at = 0
    while found := re.compile(r"[\s,]*([a-z_]\w*)\s*", re.I).match(text, at):
        at = found.end()
        argument = ""
        if text[at : at + 1] == "(":
            close = closing(text, at)
            argument, at = text[at + 1 : close].strip(), close + 1
        yield Clause(found[1].lower(), argument)


def closing(text: str, at: int) -> int:
    """Where the parenthesis that opens at `at` closes; the end of the text if it does not."""
    depth, quote = 0, ""
    for position in range(at, len(text)):
        char = text[position]
        if quote:
            quote = "" if char == quote else quote
        elif char in "'\"":
            quote = char
        elif char in "([":
            depth += 1
        elif char in ")]":
            depth -= 1
            if depth == 0:
                return position
    return len(text)


def is_alone(given: Directive) -> bool:
    """A directive with nothing in it."""
    name = given.construct
    doacross = name == "ordered" and any(clause.name in ("depend", "doacross") for clause in given.clauses)
    return (
        name in ALONE or name == "sp" or doacross or name.startswith(("target enter", "target exit", "target update"))
    )


def is_loop(name: str) -> bool:
    return name in LOOPS or (
        name.startswith(("target", "teams", "distribute")) and name.endswith((" do", " simd", " loop"))
    )


class Halves(NamedTuple):
    """A combined construct: the team's part, and the construct inside it, with their clauses."""

    team: list[Clause]
    inner: str
    clauses: list[Clause]


def split(directive: Directive) -> Halves:
    """`parallel do` and its like; `parallel` alone has no inner construct."""
    inner = directive.construct.removeprefix("parallel").strip()
    if not inner:
        return Halves(list(directive.clauses), "", [])
    team, rest, moved = list[Clause](), list[Clause](), directive.names("lastprivate", "linear")
    for clause in directive.clauses:
        modifier = re.match(r"\s*([a-z]+)\s*:", clause.argument, re.I) if clause.name == "if" else None
        of_team = clause.name in OF_TEAM and not (modifier and modifier[1].lower() != "parallel")
        if clause.name == "reduction" and re.match(r"\s*(inscan|task)\s*,", clause.argument, re.I):
            of_team = False
        if clause.name == "firstprivate" and set(clause.names) & set(moved):
            kept = [name for name in clause.names if name not in moved]
            rest.append(Clause("firstprivate", ", ".join(name for name in clause.names if name in moved)))
            clause = Clause("firstprivate", ", ".join(kept))
            if not kept:
                continue
        (team if of_team else rest).append(clause)
    if moved and directive.default in ("none", "private", "firstprivate"):
        team.append(Clause("shared", ", ".join(dict.fromkeys(moved))))
    return Halves(team, inner, rest)
