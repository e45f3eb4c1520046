"""Which sets stay when newer ones are durable: `keep = 2 + every 100 steps + daily + best 3 by loss`.

What a rule wants is decided by step, time and extra of the sets that are there, which are the same on all ranks.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from safepoint import extra

EVERY = 10**9  # sets: more than any run has
FORM = "takes a whole number from 1, or all; and rules, as in 2 + every 100 steps + daily + best 3 by loss"
PERIODS = {"hourly": "%Y-%m-%d %H", "daily": "%Y-%m-%d", "weekly": "%G-%V", "monthly": "%Y-%m"}


class Fact(NamedTuple):
    """What a rule may know of a set."""

    number: int
    step: int | None
    time: float
    extra: Mapping[str, Any] | None


class Rule(NamedTuple):
    """`what`: one of PERIODS, "every" so many steps, or the "best" so many by a name, the smallest if `sign` is 1."""

    what: str
    size: int = 0
    name: str = ""
    sign: int = 1

    def __str__(self) -> str:
        if self.what == "every":
            return f"every {self.size} steps"
        return f"best {self.size} by {'largest ' * (self.sign < 0)}{self.name}" if self.what == "best" else self.what

    def wanted(self, facts: Sequence[Fact]) -> Iterable[int]:
        """Of these sets, oldest first, the numbers of those that it wants."""
        if self.what == "best":
            values = [(self.sign * v, f.number) for f in facts if (v := extra.number(f.extra, self.name)) is not None]
            return [number for _, number in sorted(values)[: self.size]]  # of equal ones the older
        found: dict[Hashable, int] = {}  # the oldest of each group: no later set takes its place
        for fact in facts:
            if self.what in PERIODS:
                found.setdefault(time.strftime(PERIODS[self.what], time.localtime(fact.time)), fact.number)
            elif fact.step is not None:
                found.setdefault(fact.step // self.size, fact.number)
        return found.values()


class Keep(NamedTuple):
    """So many of the newest, and what any of the rules wants."""

    newest: int
    rules: tuple[Rule, ...] = ()

    def __str__(self) -> str:
        return " + ".join(["all" if self.newest >= EVERY else str(self.newest), *map(str, self.rules)])

    def superfluous(self, committed: Sequence[int], fact: Callable[[int], Fact | None]) -> Sequence[int]:
        """Of these sets, oldest first, those that may go. A damaged one is wanted by no rule."""
        rest = committed[: -self.newest]
        wanted = self.wanted(committed, fact) if rest else ()
        return [number for number in rest if number not in wanted]

    def wanted(self, committed: Sequence[int], fact: Callable[[int], Fact | None]) -> set[int]:
        """What the rules want: it stays after `finish` too."""
        if self.newest >= EVERY:
            return {*committed}
        facts = [known for number in committed if (known := fact(number))] if self.rules else []
        return {number for rule in self.rules for number in rule.wanted(facts)}


def parse(text: str) -> Keep:
    """Raises `ValueError`."""
    first, *rest = (" ".join(part.split()) for part in text.split("+"))
    if first == "all" and not rest:
        return Keep(EVERY)
    if not re.fullmatch(r"[1-9]\d{0,8}", first):
        raise ValueError(FORM)
    return Keep(int(first), tuple(map(_rule, rest)))


def _rule(text: str) -> Rule:
    if text in PERIODS:
        return Rule(text)
    if match := re.fullmatch(r"every ([1-9]\d{0,17}) steps?", text):
        return Rule("every", int(match[1]))
    if match := re.fullmatch(r"best ([1-9]\d{0,8}) by (largest )?(.+)", text):
        return Rule("best", int(match[1]), match[3], -1 if match[2] else 1)
    raise ValueError(FORM)
