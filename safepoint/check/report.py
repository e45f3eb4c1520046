"""What is said of what was found: places with their situations, for people and as JSON."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Protocol

from safepoint import words
from safepoint.check.arguments import Given, described
from safepoint.check.call import Call
from safepoint.check.messages import Message
from safepoint.check.situations import Cell, Place, Situation
from safepoint.check.template import EVERY, Template
from safepoint.matching.symbols import Site
from safepoint.trace.known import ranges

Sited = Callable[[Call], Site]


class Known(Protocol):
    """What is known of a run besides its situations (`follow.Follower`)."""

    def site(self, call: Call) -> Site: ...
    def fates(self) -> dict[int, str]: ...
    @property
    def cwd(self) -> str: ...


STARTS = "Start", "Startall"


def place_of(site: Site, cwd: str = "") -> str:
    """`halo.c:41`: as short as it is clear."""
    file = site.file
    if cwd and file.startswith(cwd.rstrip(os.sep) + os.sep):
        file = file[len(cwd.rstrip(os.sep)) + 1 :]
    elif os.path.isabs(file):
        file = os.path.basename(file)
    return f"{file}:{site.line}" if site.line else file or "?"


def text_of(call: Call) -> str:
    """`Isend(buf, 100, MPI_DOUBLE, dest=2, …)`."""
    arguments = call.arguments
    if isinstance(arguments, Message):
        arguments = arguments.by
    return described(arguments) if isinstance(arguments, Given) else call.function


def made(call: Call) -> Call | None:
    """Where the persistent request was made that is started here, or with which this message is."""
    who: Given | None = None
    if isinstance(call.arguments, Given):
        who = call.arguments.init
    elif isinstance(message := call.arguments, Message) and message.by.function in STARTS:
        who = message.who if message.who is not message.by else None
    return None if who is None else replace(call, function=who.function, site=who.noted.site, arguments=who)


def label(cell: Cell) -> str:
    return "Fi" if cell.function == EVERY else f"F{cell.function}"


def rows(situation: Situation, known: Known) -> Iterator[tuple[str, str, str, str]]:
    """For each column: its name, whose it is, where, and what."""
    sited, cwd, fates = known.site, known.cwd, known.fates()
    for cell in situation.cells:
        who = f"rank{'s' if len(cell.ranks) > 1 else ''} {ranges(list(cell.ranks))}"
        if cell.call is None:
            how = sorted({fates[rank] for rank in cell.ranks if rank in fates})
            fate = f", which {' or '.join(how)}" if how else ""
            yield label(cell), "", "", f"not called: {cell.text}{f' ({who}{fate})' if cell.ranks else ''}"
        else:
            text = text_of(cell.call)
            if (init := made(cell.call)) is not None:
                text = f"{text} of {text_of(init)} {place_of(sited(init), cwd)}"
            yield label(cell), who, place_of(sited(cell.call), cwd), text


def lines(template: Template, places: Sequence[Place], known: Known, everything: bool) -> Iterator[str]:
    """All of one template. `everything`: each situation in full, not only the first of a place."""
    total = sum(len(place.situations) for place in places)
    head = f"[{template.id}] {template.name}"
    kind = template.kind if template.expect == "none" else "expected" if template.expect else "not expected"
    counts = f"{kind}, {words.count(total, 'situation')}, {words.count(len(places), 'place')}"
    yield f"{head}{' ' * max(2, 78 - len(head))}{counts}"
    number = 0
    for place in places:
        number += 1
        shown = place.situations if everything else [place.first]
        for turn, one in enumerate(shown):
            yield from _situation(number + turn, one, known)
        if others := place.situations[len(shown) :]:
            also = sorted({rank for one in others for rank in one.ranks})
            last = f" to #{number + len(others)}" if len(others) > 1 else ""
            yield f" #{number + 1}{last}  the same lines on rank{'s' * (len(also) > 1)} {ranges(also)}"
        number += len(place.situations) - 1


def _situation(number: int, situation: Situation, known: Known) -> Iterator[str]:
    found = list(rows(situation, known))
    widths = [max(len(row[at]) for row in found) for at in range(3)]
    for turn, row in enumerate(found):
        mark = f"#{number}" if turn == 0 else ""
        if not row[1]:
            yield f" {mark:<4}{row[0]:<{widths[0]}}  {row[3]}"
            continue
        cells = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=False))
        yield f" {mark:<4}{cells}  {row[3]}"


def as_json(template: Template, places: Sequence[Place], known: Known) -> dict[str, Any]:
    return {
        "template": template.id,
        "name": template.name,
        "kind": template.kind,
        "count": sum(len(place.situations) for place in places),
        "places": [
            {"calls": [_call(cell, known) for cell in place.first.cells], "ranks": place.ranks,
             "count": len(place.situations)}
            for place in places
        ],
    }  # fmt: skip


def _call(cell: Cell, known: Known) -> dict[str, Any]:
    sited = known.site
    if cell.call is None:
        fates = {str(rank): fate for rank, fate in known.fates().items() if rank in cell.ranks}
        return {"column": label(cell), "not_called": cell.text.split(", "), "ranks": list(cell.ranks), "fates": fates}
    found = {"column": label(cell), "rank": cell.call.rank, **_one(cell.call, sited)}
    if (init := made(cell.call)) is not None:
        found["made"] = _one(init, sited)
    return found


def _one(call: Call, sited: Sited) -> dict[str, Any]:
    """The function is that which the program calls, not `message_sent`."""
    arguments, site = call.arguments, sited(call)
    function = arguments.by.function if isinstance(arguments, Message) else call.function
    return {"function": function, "file": site.file, "line": site.line, "text": text_of(call)}


def judged(template: Template, count: int) -> str:
    """Why this template fails; "" if it does not, or only tells."""
    if template.expect == "some":
        return "" if count else "it was expected, and did not occur"
    if isinstance(template.expect, int):
        times = words.count(template.expect, "time")
        return "" if count == template.expect else f"it was expected {times}, and occurred {words.count(count, 'time')}"
    return "error" if count and template.kind == "error" else ""
