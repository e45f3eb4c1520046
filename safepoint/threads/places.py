"""What holds at a place of the source while it is written, and what is known of its unit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from safepoint.threads.choices import Levels
from safepoint.threads.doubling import Fresh, Renames
from safepoint.threads.emission import Later, Needs, Writer
from safepoint.threads.numbering import Numbering
from safepoint.threads.structure import Construct
from safepoint.threads.symbols import Scope
from safepoint.threads.uncertainty import Uncertain


class Early(NamedTuple):
    """Lines before a parallel construct, and the variables that they give a value."""

    lines: Later
    names: list[str]


@dataclass(frozen=True)
class Where:
    """What holds at a place. `order`: names whose values depend on the order of threads here, and why. `flags`: the
    logical variable of each private scalar. `team`: collects what the parallel construct must make private; None: no
    parallel construct is around. `ends`: labels at which DO loops around end. `early`: what is evaluated before the
    team of the innermost parallel construct begins. `filled`: arrays with an order of chance."""

    scope: Scope
    traced: bool = False
    around: tuple[Construct, ...] = ()
    loops: frozenset[str] = frozenset()
    protected: str = ""
    order: dict[str, str] = field(default_factory=dict)
    flags: dict[str, str] = field(default_factory=dict)
    team: list[str] | None = None
    renames: Renames = field(default_factory=Renames)
    ends: frozenset[str] = frozenset()
    early: Early | None = None
    filled: frozenset[str] = frozenset()


@dataclass
class State:
    """Of the unit that is written. `number`: of the site of the procedure. `events`: calls at its entry and exit.
    `handed`: what regions up to here hand out in an order of chance."""

    writer: Writer
    needs: Needs
    numbering: Numbering
    levels: Levels
    uncertain: Uncertain
    procedure: str
    number: int
    events: bool
    fresh: Fresh
    handed: set[str] = field(default_factory=set)
