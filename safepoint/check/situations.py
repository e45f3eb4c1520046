"""What has been found: situations, and the places where they are."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from safepoint.check.call import Call


@dataclass(frozen=True, order=True)
class Cell:
    """What is in a column. Equal in two runs if the same calls are meant, by rank and number."""

    function: int  # the number of F, or EVERY
    process: int  # the number of p, or EVERY
    ranks: tuple[int, ...]  # of the call; or those that have not called it
    number: int  # of the call in its rank; -1: it is not called
    text: str  # the function; what is not called as the template names it: "Wait, Test"
    element: int = -1  # of an array: which one has begun the situation, from 0
    call: Call | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, order=True)
class Situation:
    template: str  # its id
    cells: tuple[Cell, ...]  # in the order of the columns
    binding: tuple[tuple[int, int], ...]  # the number of p, and its rank in MPI_COMM_WORLD

    @property
    def key(self) -> tuple[object, ...]:
        """Of things that can be written down: the same in each run in which the same calls were made."""
        cells = tuple(
            (each.function, each.process, each.ranks, each.number, each.text, each.element) for each in self.cells
        )
        return self.template, cells, self.binding

    @property
    def ranks(self) -> tuple[int, ...]:
        return tuple(sorted({rank for each in self.cells for rank in each.ranks}))


@dataclass
class Place:
    """Situations of the same template with the same lines and functions: the first, and how many there are."""

    first: Situation
    situations: list[Situation]

    @property
    def ranks(self) -> list[int]:
        return sorted({rank for each in self.situations for rank in each.ranks})


def places(situations: Iterable[Situation], line: Callable[[Call], str]) -> list[Place]:
    """`line` says where a call is. Which is the first of a place does not depend on the order that is given."""
    found = dict[tuple[object, ...], Place]()
    for one in sorted(situations):
        cells = tuple(
            (each.function, each.process, each.text, line(each.call) if each.call is not None else "")
            for each in one.cells
        )
        found.setdefault((one.template, cells), Place(one, [])).situations.append(one)
    return list(found.values())
