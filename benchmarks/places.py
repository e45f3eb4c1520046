"""How fast are legal places found? Of a trace of a solver: halo exchange by requests, a sum over all ranks, and `hide`.

    python benchmarks/places.py [--actions 10000000] [--notes 1000000] [--ranks 8] [--rounds 3] [--results DIR]

1. `order`: arcs, strongly connected components, a longest chain; time and memory for each action, at each level.
   Goals: at most 250 ns and 60 bytes an action, 10⁷ actions in 3 s.
2. One line of the program judged at all its visits. Goal: 0.25 s for 10⁷ actions.
3. All lines and what blocks them; the verdicts of chance with 1 % of the receives from any source; the cut nearest to a
   moment; the least legal cut through a gap.
4. Algorithm 2 of 2006 beside the linear one, over the number of actions.
5. Before all that: the notes of such a solver, as a tracer writes them, are read and matched. Goal: 400 ns a note for
   the matching, of 10⁶ notes.

Times are CPU time, the least of the rounds, which take turns. Memory is the peak of what numpy allocates beside the
trace.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from datetime import date
from pathlib import Path

import numpy as np

from safepoint.matching.match import match
from safepoint.matching.matched import ALIVE, COLLECTIVE, MARKS, MESSAGE, MESSAGES, NO_STEP, Ints, Matched, Site
from safepoint.matching.reading import NOTES, read
from safepoint.places.chance import Chance
from safepoint.places.graph import LEVELS, order
from safepoint.places.lines import HIDE, Line, candidates, judge, nearest
from safepoint.places.oracle import Definition
from safepoint.trace import record, roles

CALLS = "Irecv", "Irecv", "Isend", "Isend", "Waitall", "Allreduce"  # of one step of a rank
TURN_NS = 1_000


def solver(actions: int, ranks: int, wild: float = 0.0) -> Matched:
    """Each rank exchanges with both neighbours in a ring; `wild`: so many of the receives are from any source."""
    steps = max(actions // (len(CALLS) * ranks), 1)
    own = steps * len(CALLS)
    begins = np.arange(ranks + 1) * own
    at = begins[:-1, None] + np.arange(steps)[None, :] * len(CALLS)  # (ranks, steps): the first of each step
    left, right = np.roll(at, 1, axis=0), np.roll(at, -1, axis=0)
    messages = exchange(at, left, right, own, wild)
    sums = messages.size + np.tile(np.arange(steps), ranks)
    member = np.concatenate([np.column_stack([messages["sent"], messages["received"]]).ravel(), (at.T + 5).ravel()])
    group = np.concatenate([np.repeat(np.arange(messages.size), 2), np.sort(sums)])
    enter = np.tile(np.arange(own), ranks) * TURN_NS
    marks = np.zeros(steps * ranks, MARKS)
    marks["rank"], marks["gap"] = np.repeat(np.arange(ranks), steps), np.tile(np.arange(steps) * len(CALLS), ranks)
    marks["enter"] = marks["leave"] = marks["gap"] * TURN_NS
    marks["site"], marks["step"], marks["hide"] = len(CALLS) + 1, NO_STEP, True
    completes = np.stack([at, at + 1, at + 2, at + 3]).ravel()
    return Matched(
        begins=begins,
        enter=enter,
        leave=enter + TURN_NS // 2,
        site=np.tile(np.arange(1, len(CALLS) + 1), steps * ranks),
        function=np.tile(np.arange(len(CALLS)), steps * ranks),
        record=np.tile(np.arange(own), ranks),
        member=member,
        group=group,
        kind=np.repeat([MESSAGE, COLLECTIVE], [messages.size, steps]),
        arcs=np.empty((0, 2), "i8"),
        requests=np.column_stack([completes, np.tile((at + 4).ravel(), 4)]),
        never=np.empty(0, "i8"),
        messages=messages,
        marks=marks,
        unsure=np.empty((0, 2), "i8"),
        alive=np.empty(0, ALIVE),
        sites=[Site("", 0, ""), *(Site("solver.py", line, "main") for line in range(11, 12 + len(CALLS)))],
        functions=list(CALLS),
        names=[],
        objects=["MPI_COMM_WORLD"],
        remarks=[],
    )


def exchange(at: Ints, left: Ints, right: Ints, own: int, wild: float) -> np.ndarray:
    """The messages of steps that begin at these actions, `own` of them on each rank."""
    # Irecv 0 takes what the left neighbour sends by its second Isend, Irecv 1 what the right one sends by its first.
    sent, posted = np.stack([left + 3, right + 2]), np.stack([at, at + 1])
    received = np.stack([at + 4, at + 4])
    messages = np.zeros(sent.size, MESSAGES)
    messages["sent"], messages["posted"], messages["received"] = sent.ravel(), posted.ravel(), received.ravel()
    messages["group"] = np.arange(sent.size)
    messages["source"], messages["dest"] = messages["sent"] // own, messages["posted"] // own
    messages["tag"] = np.repeat([1, 2], at.size)
    messages["wild_source"] = np.random.default_rng(1).random(sent.size) < wild
    return messages


def least_of(rounds: int, works: dict[str, Callable[[], object]]) -> dict[str, float]:
    """Seconds of CPU time of each, in turns: all here is one thread."""
    least = dict.fromkeys(works, math.inf)
    for _ in range(rounds):
        for name, work in works.items():
            begin = time.process_time()
            work()
            least[name] = min(least[name], time.process_time() - begin)
    return least


def peak(work: Callable[[], object]) -> int:
    """Bytes."""
    tracemalloc.start()
    work()
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return most


def of_orders(matched: Matched, rounds: int) -> list[str]:
    works = {level: (lambda level=level: order(matched, level)) for level in LEVELS}
    least, actions = least_of(rounds, works), matched.actions
    rows = ["| order, level | seconds | ns an action | bytes an action | places |", "|---|---|---|---|---|"]
    for level, work in works.items():
        used, places = peak(work) / actions, order(matched, level).places
        rows.append(f"| {level} | {least[level]:.2f} | {least[level] / actions * 1e9:.0f} | {used:.0f} | {places:,} |")
    return rows


def of_lines(matched: Matched, wild: Matched, rounds: int) -> list[str]:
    found = order(matched)
    lines = candidates(matched)
    hide: list[Line] = [line for line in lines if line.what == HIDE]
    middle = int(matched.begins[1]) // 2
    works: dict[str, Callable[[], object]] = {
        "one line judged": lambda: judge(found, hide),
        "candidates": lambda: candidates(matched),
        f"all {len(lines)} lines judged": lambda: judge(found, lines),
        "the cut nearest to a moment": lambda: nearest(found, middle * TURN_NS + 7),
        "the least cut through a gap": lambda: found.least(0, middle - middle % len(CALLS)),
        "chance, no wildcard": lambda: Chance(matched).limits(found.first),
        "chance, 1 % wildcards": lambda: Chance(wild).limits(found.first),
    }
    least = least_of(rounds, works)
    rows = ["| what | seconds | ns an action |", "|---|---|---|"]
    return rows + [f"| {name} | {least[name]:.2f} | {least[name] / matched.actions * 1e9:.0f} |" for name in works]


def of_2006(rounds: int) -> list[str]:
    """Two ranks, more and more steps."""
    rows = ["| actions | Algorithm 2 of 2006, ms | linear, ms | ratio |", "|---|---|---|---|"]
    for steps in (1, 2, 4, 6, 9):
        matched = solver(steps * len(CALLS) * 2, 2)
        works = {"old": lambda of=matched: Definition(of).algorithm_2("files"), "new": lambda of=matched: order(of)}
        least = least_of(rounds, works)
        old, new = least["old"], least["new"]
        rows.append(f"| {matched.actions} | {old * 1e3:.1f} | {new * 1e3:.2f} | {old / new:,.0f} |")
    return rows


def written(directory: Path, notes: int, ranks: int) -> None:
    """The trace of a solver of so many notes, without lines."""
    steps, functions = max(notes // (len(CALLS) * ranks), 1), roles.functions({})
    number, step = {name: int(at) for at, (name, _) in functions.items()}, np.arange(steps)
    (directory / "functions-python.json").write_text(json.dumps(functions))
    for rank in range(ranks):
        left, right = (rank - 1) % ranks, (rank + 1) % ranks
        about = {"format": record.FORMAT, "rank": rank, "size": ranks, "begin": [0, 0], "argv": ["solver.py"],
                 "functions": "functions-python.json"}  # fmt: skip
        things = [{"kind": "comm", "members": members} for members in (f"0-{ranks - 1}", f"{rank}")]
        names = record.names(directory, rank)
        names.about.write_text(json.dumps(about))
        names.sites.write_text("")
        names.objects.write_text("".join(json.dumps(thing) + "\n" for thing in things))
        calls = np.zeros((steps, len(CALLS)), NOTES)
        calls["enter"] = np.arange(calls.size).reshape(calls.shape) * TURN_NS
        calls["leave"], calls["state"], calls["comm"] = calls["enter"] + TURN_NS // 2, record.RETURNED, record.WORLD
        for name in ("peer", "tag", "got_peer", "got_tag"):
            calls[name] = record.NONE
        rows = np.zeros((steps, 3 + 3 * 4), "i8")
        rows[:, 0], rows[:, 1], rows[:, 2] = 3 * 4, step * len(CALLS) + 4, record.COMPLETED
        for at, (peer, tag) in enumerate(((left, 2), (right, 1), (left, 1), (right, 2))):
            calls["peer"][:, at], calls["tag"][:, at], calls["request"][:, at] = peer, tag, 4 * step + at + 1
            got = (peer, tag) if at < 2 else (record.NONE, record.NONE)
            rows[:, 3 + 3 * at], rows[:, 4 + 3 * at], rows[:, 5 + 3 * at] = 4 * step + at + 1, *got
        calls["function"] = [number[name] for name in CALLS]
        calls["comm"][:, 4], calls["more"][:, 4] = 0, record.HEAD.size // 8 + step * rows.shape[1]
        head = record.HEAD.pack(record.MAGIC, record.NOTE, calls.size).ljust(record.HEADER, b"\0")
        names.calls.write_bytes(head + calls.tobytes())
        names.more.write_bytes(record.HEAD.pack(record.MAGIC, 8, rows.size) + rows.tobytes())


def of_notes(notes: int, ranks: int, rounds: int) -> list[str]:
    with tempfile.TemporaryDirectory() as directory:
        written(Path(directory), notes, ranks)
        trace = read(Path(directory))
        works = {"read": lambda: read(Path(directory)), "matched": lambda: match(trace)}
        least, used = least_of(rounds, works), peak(works["matched"])
    matched, count = match(trace), sum(len(rank.notes) for rank in trace.ranks)
    steps = count // (len(CALLS) * ranks)
    assert not len(matched.never) and not matched.remarks and len(matched.kind) == (2 * ranks + 1) * steps
    rows = [f"| {name} | {least[name]:.2f} | {least[name] / count * 1e9:.0f} |" for name in works]
    head = ["| notes, that are | seconds | ns a note |", "|---|---|---|"]
    return [*head, *rows, "", f"{count:,} notes; matching takes {used / count:.0f} bytes a note at most"]


def main() -> None:
    parser = argparse.ArgumentParser(description="Legal places: how fast they are found.")
    parser.add_argument("--actions", type=int, default=10_000_000)
    parser.add_argument("--notes", type=int, default=1_000_000)
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--results", type=Path)
    given = parser.parse_args()
    matched, wild = solver(given.actions, given.ranks), solver(given.actions, given.ranks, wild=0.01)
    head = (
        f"# Legal places: {matched.actions:,} actions, {matched.ranks} ranks\n\n{date.today()}, {platform.machine()}, "
    )
    head += f"Python {platform.python_version()}, numpy {np.__version__}; least of {given.rounds}"
    parts = [[head], of_orders(matched, given.rounds), of_lines(matched, wild, given.rounds), of_2006(given.rounds),
             of_notes(given.notes, given.ranks, given.rounds)]  # fmt: skip
    page = "\n\n".join("\n".join(part) for part in parts) + "\n"
    print(page)
    if given.results:
        (given.results / "places.md").write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
