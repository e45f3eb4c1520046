"""The comparison of two runs in words: what differs first, since when, and where to look for the reason.

The reasons are patterns that mistakes in a restart leave: steps counted wrong by one, a file of another rank read, rows
written twice, a generator seeded anew. None fits: then only what was equal until then is said.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from safepoint import words
from safepoint.disk import Disk
from safepoint.disk.files import read
from safepoint.ledger.compare import Comparison, Item, Rules
from safepoint.ledger.kept import Sets
from safepoint.ledger.sides import Side, find

DISK = Disk()
SHOWN_DIFFERENCES = 8  # differences of the first differing step
SMALL_FILE_BYTES = 64 << 20  # of a file that is looked through for lines that are there twice


def explain(found: Comparison, rules: Rules, sets: Sets) -> None:
    """Say of what differs first by how much, where the sets are still there."""
    for item in found.first[:SHOWN_DIFFERENCES]:
        if not item.text and item.a and item.b:
            tolerance = rules.tolerance(item.name)
            item.difference = item.difference or sets(item.step, item.name, item.a, item.b, *tolerance)
            item.text = item.difference.text if item.difference else _sizes(item)


def _sizes(item: Item) -> str:
    a, b = (each.sums.get(item.name, [None])[0] if each else None for each in (item.a, item.b))
    if a == b:
        return f"{a} bytes, which differ; the sets are not kept any more, so nobody can say by how much"
    return f"{a} and {b} bytes"


def told(found: Comparison, names: tuple[str, str] = ("A", "B")) -> list[str]:
    """What differs first, in lines."""
    step = found.first[0].step
    lines = [f"first difference: step {step}"]
    for item in found.first[:SHOWN_DIFFERENCES]:
        of = f" (rank {item.rank})" if item.what == "files" and found.ranks != (1, 1) else ""
        kind = "value " if item.what == "values" else ""
        lines.append(f"  {kind}{item.name}{of}: {item.text}")
        places = [f"{name}: {row.at}" for name, row in zip(names, (item.a, item.b), strict=True) if row and row.at]
        if places:
            lines.append(f"    {', '.join(places)}")
    if len(found.first) > SHOWN_DIFFERENCES:
        lines.append(f"  and {len(found.first) - SHOWN_DIFFERENCES} more")
    lines.append(f"  {_since(found.first[0], names)}")
    never = sorted(found.compared - found.names.keys())
    equal = f"until then equal: {words.count(found.before, 'step')}"
    lines.append(
        equal + (f"; equal throughout: {', '.join(never[:5])}{' …' if len(never) > 5 else ''}" if never else "")
    )
    return lines


def _since(item: Item, names: tuple[str, str]) -> str:
    since = item.since
    if not since.restarts:
        return f"{names[1]} had not been restarted before"
    step = "" if since.step is None else f" (step {since.step})"
    times = words.count(since.restarts, "time")
    return f"{names[1]} had been restarted {times} before, the last time from set {since.set}{step}"


def where_to_look(found: Comparison, a: Side, sets: Sets) -> str:
    """From what was equal until then: what kind of mistake that is, in a sentence or two."""
    first = found.first[0]
    since = first.since
    if not since.restarts:
        return "The runs differ without a restart before: it is the program, its input or the machine, not the restart."
    return _of_other_step_or_rank(found, a) or _twice(found, sets) or _alone(found) or _not_saved(found)


def _of_other_step_or_rank(found: Comparison, a: Side) -> str:
    """What B has at this step A has too, but at another one, or in another file."""
    places = find(a, {item.checksums[1] for item in found.first})
    shifts: dict[str, set[int]] = {}
    for item in found.first:
        base = item.name.partition(" (rank")[0]
        for step, name, rank in places.get(item.checksums[1], []):
            if (name, rank) == (base, item.rank):
                shifts.setdefault(item.name, set()).add(step - item.step)
            elif step == item.step and item.what == "files":
                return (
                    f"What {item.name} holds here is, in A, {name}{f' of rank {rank}' if rank != item.rank else ''}: "
                    f"after the restart one was read, or computed, for the other. Look at how names of files are made."
                )
    if not shifts:
        return ""
    step, (name, of) = found.first[0].step, min(shifts.items())
    common = set.intersection(*shifts.values()) & {-1, 1}
    if common and len(shifts) == len(found.first):
        return (
            f"What the files hold at step {step} is, in A, that of step {step + min(common)}: after a restart steps "
            f"are counted wrong by one. The files that are given back hold their step; go on with the one after it."
        )
    older = [shift for shift in of if shift < 0]
    if not older:
        return ""  # by chance
    then = step + max(older)
    return (
        f"What {name} holds at step {step} is, in A, that of step {then}, and not so the rest: it was begun anew, or "
        f"an older state of it was taken, such as that of a random number generator which was seeded again."
    )


def _twice(found: Comparison, sets: Sets) -> str:
    """A file that only grows was not cut back: rows are there twice."""
    for item in found.first:
        if item.what == "files" and item.a and item.b:
            one, other = (sets.read(n, item.name, row, SMALL_FILE_BYTES) for n, row in ((0, item.a), (1, item.b)))
            if look := twice(item.name, one, other):
                return look
    return ""


def small(path: str) -> bytes | None:
    """What a file holds, if it is not large."""
    try:
        return read(DISK, path, SMALL_FILE_BYTES)
    except OSError:
        return None


def twice(name: str, a: bytes | None, b: bytes | None) -> str:
    """A sentence if a text has all the lines that the other one has, and some of them again; else nothing."""
    if a is None or b is None or len(b) <= len(a) or b"\0" in a:
        return ""
    lines, more = a.splitlines(), b.splitlines()
    if len(more) <= len(lines) or not set(more) <= set(lines):
        return ""
    return (
        f"{name} has lines twice: those that were written after the set that was restored, and again after the "
        f"restart. List it with the attribute append: then a restart cuts it back."
    )


def _alone(found: Comparison) -> str:
    """Nothing else depends on what differs."""
    others = found.compared - found.names.keys()
    if len(found.names) != 1 or len(others) < 2:
        return ""
    names = ", ".join(sorted(found.names)[:4])
    return (
        f"Only {names} differs, to the end; all else stays equal ({', '.join(sorted(others)[:4])}). So it is something "
        f"that the rest does not depend on, and that a restart begins anew or does not bring back: accumulated "
        f"statistics, a counter, a time."
    )


def _not_saved(found: Comparison) -> str:
    first = found.first[0]
    step = "" if first.since.step is None else f" at step {first.since.step}"
    begin = f"{first.name} is the first value that differs"
    if first.what == "files":
        begin = f"All that was given back{step} is equal to A, and step {first.step} is not"
    ranks = ", or what another rank has" if max(found.ranks) > 1 else ""
    return (
        f"{begin}: so it is computed from something that is in none of the files, or is not read from them: a field of "
        f"the step before, the state of a random number generator, a counter, a time step{ranks}. To come closer: "
        f"safepoint.watch(step, name=value, …) on what the step uses."
    )


def as_json(found: Comparison) -> dict[str, Any]:
    """For --json."""
    return {
        "steps": found.steps, "equal_steps": found.equal, "tolerated": found.tolerated,
        "only_a": found.only[0], "only_b": found.only[1],
        "first": [_item(item) for item in found.first],
        "names": {name: asdict(trouble) for name, trouble in found.names.items()},
    }  # fmt: skip


def _item(item: Item) -> dict[str, Any]:
    since = item.since
    return {
        "step": item.step, "name": item.name, "what": item.what, "rank": item.rank, "text": item.text,
        "at_a": item.a.at if item.a else None, "at_b": item.b.at if item.b else None,
        "restarts": since.restarts, "restored_set": since.set, "restored_step": since.step,
    }  # fmt: skip
