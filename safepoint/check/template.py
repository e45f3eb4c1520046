"""What a template says, once its text is read: who makes it is `language`, who looks for it in a run `rows`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

EVERY = 0  # instead of the number of a process or function: `pi`, `Fi`
KINDS = "error", "warning", "note"


class Item(NamedTuple):
    """`p1:Isend`, or `p1:Wait!`."""

    process: int  # from 1, or EVERY
    functions: frozenset[str]  # names of the standard without MPI_; `hide`; of a macro all its members
    text: str  # as it was written: "IPTP"
    absent: bool  # it is not called


class Argument(NamedTuple):
    """`F1(3)`, `F1(dest)`."""

    function: int  # its number, or EVERY
    name: int | str  # from 1, as in the C binding; or a name of the standard; or one of ATTRIBUTES


class Process(NamedTuple):
    """`p2`: its rank in MPI_COMM_WORLD."""

    number: int


class Constant(NamedTuple):
    """`MPI_ANY_TAG`."""

    name: str


class Condition(NamedTuple):
    """`F1(3)=F2(1)`."""

    left: Argument
    sign: str  # = != < >
    right: Argument | Process | Constant | int
    line: int


# Each alternative is a row of items that all hold: `A && B || C` is ((A, B), (C,)).
Expression = tuple[tuple[Item, ...], ...]

ATTRIBUTES = (
    "new", "result", "match", "function", "last", "bytes", "got_source", "got_tag", "step", "types", "counts", "peer",
    "tag_ub",
)  # fmt: skip


@dataclass(frozen=True)
class Template:
    """One template."""

    id: str  # the name of its file, without .tpl
    name: str
    size: int | str  # how many processes take part, or a communicator: all of it
    functions: dict[int, Expression]
    conditions: tuple[Condition, ...] = ()
    bound: dict[int, int] = field(default_factory=dict)  # processes whose ranks are given
    kind: str = "error"
    expect: str | int = "none"  # or "some", or how many situations
    text: str = ""
    path: Path = Path()
    lines: dict[int, int] = field(default_factory=dict)  # where each function is

    def open_end(self, number: int, process: int) -> bool:
        """Nothing of its process that is called comes after this function: that it is not called is only known when the
        process has ended."""
        return not any(
            item.process == process and not item.absent
            for later, rows in self.functions.items() if later > number and number != EVERY
            for row in rows for item in row
        )  # fmt: skip

    @property
    def local(self) -> bool:
        """All its functions are of one process: the notes of one rank are enough."""
        return len(
            {item.process for one in self.functions.values() for row in one for item in row} - {EVERY}
        ) == 1 and (self.size == 1)
