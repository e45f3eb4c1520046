"""`safepoint verify`: are the sets still what was committed."""

from __future__ import annotations

import threading
from typing import Any

import click

from safepoint import words
from safepoint.cli import terminal
from safepoint.cli.look import elsewhere
from safepoint.cli.look.completion import set_numbers
from safepoint.cli.look.overview import look
from safepoint.cli.look.state import Overview, SetState
from safepoint.disk.files import exists
from safepoint.errors import DamagedError
from safepoint.restoring.verify import verify as read_sets


@click.command()
@terminal.directory
@click.option("--set", "number", type=int, metavar="N", shell_complete=set_numbers, help="Only this set.")
@elsewhere.level
@terminal.as_json
def verify(directory: str, number: int | None, level: str, as_json: bool) -> None:
    """Read all that is kept and compare it with its checksums.

    Nothing is changed, and a run may be at work. Of append files, which are in place, the beginning is read that
    belongs to the set. Exit code 18 if a committed set is damaged on any rank. With --level remote all bytes are read
    that are at the other place; a set of which not all is there yet is incomplete, and not damaged.
    """
    seen = look(terminal.DISK, directory)
    if level == "remote":
        elsewhere.verify(seen, number, as_json=as_json)
        return
    seen.raise_if_empty()
    sets = [seen.find(number)] if number is not None else list(seen.sets)
    found = read_all(seen, sets)
    rows = [(s, rank, *found[s.number, rank]) for s in sets for rank in _ranks(s)]
    bad = [row for row in rows if row[2] in ("damaged", "missing")]
    if as_json:
        terminal.put(_content(seen, sets, found))
    else:
        heads = ["set", "step", "ranks", "size", "result"]
        terminal.table(heads, _together(rows), right=("set", "step", "size"))
    if bad:
        numbers = sorted({s.number for s, *_ in bad})
        raise DamagedError(
            f"damaged: {', '.join(seen.find(n).label for n in numbers)}; `safepoint why` says what a restart takes"
        )


def read_all(seen: Overview, sets: list[SetState]) -> dict[tuple[int, int], tuple[str, str]]:
    """By number and rank what a part is, after its checksums (ok, damaged, uncommitted, gone, missing), and why."""
    total = sum(file.size for each in sets for _, file in each.files)
    found: dict[tuple[int, int], tuple[str, str]] = {}
    lock = threading.Lock()
    with terminal.progress("reading", total) as advance:

        def tick(more: int) -> None:
            with lock:  # several threads read
                advance(more)

        for rank in seen.ranks:
            numbers = {s.number for s in sets if rank.rank in s.parts}
            states = read_sets(rank.root, tick, numbers) if numbers else {}
            for number in numbers:
                found[number, rank.rank] = _judged(seen, rank.rank, number, states.get(number))
    there = {rank.rank for rank in seen.ranks}
    for each in sets:
        for lacking in set(each.needed) - each.parts.keys():
            # A rank may be behind with a set; but that it has no directory is no state that a run leaves.
            nowhere = lacking not in there
            found[each.number, lacking] = (
                ("missing", "no directory of this rank") if nowhere else ("uncommitted", "does not have it")
            )
    return found


def _ranks(each: SetState) -> list[int]:
    return sorted({*each.parts, *each.needed})


def _judged(seen: Overview, rank: int, number: int, state: str | None) -> tuple[str, str]:
    if state == "committed":
        return "ok", ""
    if state == "uncommitted":
        return "uncommitted", seen.find(number).parts[rank].reason
    root = next(r.root for r in seen.ranks if r.rank == rank)
    if state is None or not exists(terminal.DISK, root.set(number)):
        return "gone", "it was removed while it was read"  # by a run at work
    return "damaged", state


def _together(rows: list[tuple[SetState, int, str, str]]) -> list[list[str]]:
    """A row for all ranks of which the same is to be said of a set."""
    groups: dict[tuple[int, str], tuple[SetState, list[int]]] = {}
    for each, rank, state, reason in rows:
        groups.setdefault((each.number, f"{state}: {reason}" if reason else state), (each, []))[1].append(rank)
    shown = []
    for (number, result), (each, them) in groups.items():
        size = sum(file.size for rank, file in each.files if rank in them)
        step = "-" if each.step is None else str(each.step)
        shown.append([str(number), step, words.ranks(them), words.size(size), result])
    return shown


def _content(seen: Overview, sets: list[SetState], found: dict[tuple[int, int], tuple[str, str]]) -> dict[str, Any]:
    def parts(each: SetState) -> list[dict[str, Any]]:
        results = [(rank, *found[each.number, rank]) for rank in _ranks(each)]
        return [{"rank": rank, "state": state, "reason": reason} for rank, state, reason in results]

    return {
        "directory": seen.work,
        "sets": [{"number": each.number, "step": each.step, "ranks": parts(each)} for each in sets],
        "damaged": sorted({number for (number, _), (state, _) in found.items() if state in ("damaged", "missing")}),
    }
