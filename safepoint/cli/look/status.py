"""`safepoint status`: the sets, who is at work, and what a restart would take."""

from __future__ import annotations

import json
import time
from contextlib import suppress
from typing import Any

import click

from safepoint import words
from safepoint.cli import terminal
from safepoint.cli.look.overview import look
from safepoint.cli.look.state import Overview, SetState
from safepoint.disk import kernel
from safepoint.disk.files import exists
from safepoint.errors import DamagedError, ManifestError, NothingSavedError, SafepointError
from safepoint.ledger.lines import Superseded, events
from safepoint.pace.halt import halted, run_of
from safepoint.tiers.names import identity
from safepoint.tiers.note import Known, at_places, read_notes

STATES = {
    "complete": "complete",
    "completable": "uncommitted; the next start commits it",
    "saving": "being saved",
    "uncommitted": "uncommitted, cannot be completed",
    "incomplete": "incomplete",
    "damaged": "damaged",
    "foreign": "not for this number of ranks",
    "ended": "ended by the finish mark",
}
LAST_BYTES = 1 << 18  # bytes of the log that are looked at
LONGEST_EXTRA = 40  # characters of it that have room
WIDE_COLUMNS = 100  # columns from which the times and the stored sizes have room too


@click.command()
@terminal.directory
@terminal.as_json
def status(directory: str, as_json: bool) -> None:
    """What is kept here, and what a restart would take.

    Looks at names and sizes only, takes no lock, and may be asked while a run is at work, or in a copy of its
    directory. `verify` reads the contents too, `why` gives the reasons.
    """
    seen = look(terminal.DISK, directory, part=True)
    verdict = judge(seen)
    if as_json:
        terminal.put(content(seen, verdict))
    elif not (verdict and seen.empty):
        for name, text in _head(seen):
            terminal.prose(f"{name + ':' * bool(name):<11}{text}", " " * 11)
        if seen.sets:
            terminal.say()
            _table(seen)
            for each in seen.sets:
                if each.reasons and each.state not in ("ended", "complete"):
                    terminal.prose(f"{each.label}: {each.why}", "  ")
    if verdict:
        raise verdict


def judge(seen: Overview) -> SafepointError | None:
    """What stands in the way of a restart; None: nothing does."""
    if seen.nodes and seen.nodes.start:  # a part, which has no manifest
        return None
    if seen.manifest_error:
        return seen.manifest_error
    if seen.mark_error:
        return DamagedError(seen.mark_error)
    if seen.finished or seen.takes or seen.on_nodes:
        return None
    try:
        seen.raise_if_empty()
    except NothingSavedError as error:
        return error
    if seen.begun:
        return DamagedError(f"none of the sets in {seen.work} is whole: `safepoint why` says what is wrong with each")
    return NothingSavedError(f"nothing is saved here: no set in {seen.work} was ever complete")


def _head(seen: Overview) -> list[tuple[str, str]]:
    head = [("directory", seen.work), ("run", seen.who)]
    if seen.mark:
        step = "" if seen.mark["step"] is None else f" at step {seen.mark['step']}"
        head.append(("finished", f"{words.moment(seen.mark['time'])}{step}"))
    if halt := pending(seen):
        head.append(("halt", halt))
    head.append(("restart", restart(seen)))
    if kind := in_memory(seen):
        head.append(("safe from", f"kills alone: a power cut empties {kind}"))
    head += [("remote", known.trouble or _newest_at(known)) for known in elsewhere(seen)]
    if why := due(seen):
        head.append(("due", f"set {why['set']}: {why['due']}"))
    if counts := hidden(seen):
        head.append(("hidden", f"{counts['hidden']} sets in this life, {counts['stored']} of them stored"))
    perhaps = [s.label for s in seen.sets if s.perhaps and (not seen.takes or s.number > seen.takes.number)]
    if perhaps:
        head.append(("", f"or {perhaps[0]}, if its checksums hold: `safepoint why` reads them"))
    left = [leftover for leftover in seen.leftovers if leftover.size]
    if left and not seen.running:  # else they may be going just now
        total = words.size(sum(leftover.size for leftover in left))
        head.append(("leftovers", f"{words.directories(len(left))}, {total}: safepoint clean removes them"))
    unknown = [*seen.unknown, *(f"rank-{rank.rank:05d}/{name}" for rank in seen.ranks for name in rank.unknown)]
    if unknown:
        head.append(("foreign", f"not made by safepoint: {', '.join(unknown)}"))
    if seen.extra:
        head.append(("", f"ranks that the newest set does not have: {words.ranks(seen.extra)}"))
    return head


def in_memory(seen: Overview) -> str:
    """The file system that has the sets, if it is one that a power cut empties."""
    kind = kernel.file_system(seen.root(0).side) if seen.side else ""
    return kind if kind in kernel.IN_MEMORY else ""


def pending(seen: Overview) -> str:
    """What the run at work was asked for and has not yet heeded, in a few words; empty: nothing."""
    asked = halted(seen.root(0)) if seen.side and exists(terminal.DISK, seen.root(0).halt) else None
    if not asked:
        return ""
    runs = [run_of(rank.owner) for rank in seen.ranks if rank.owner]
    if not any(run in asked["runs"] for run in runs) or not any(rank.held is not False for rank in seen.ranks):
        return ""
    if asked["until"] is not None:
        left = asked["until"] - time.time()
        return f"asked for, in {words.about(left)}" if left > 0 else "asked for"
    steps = asked["steps"]
    return f"asked for, {words.count(steps, 'step')} after it is noticed" if steps else "asked for"


def hidden(seen: Overview) -> dict[str, int] | None:
    """How many sets the last life has hidden, and how many of them it has stored, if newer ones took others' place."""
    for rank in seen.ranks:
        with suppress(OSError):  # `safepoint log` says what is wrong with it
            for line in reversed(events(terminal.DISK, rank.root.log, last=LAST_BYTES)):
                if "superseded" in line:
                    found = Superseded(*line["superseded"])
                    return {"hidden": found.hidden, "stored": found.stored}
                if "began" in line:
                    break
    return None


def due(seen: Overview) -> dict[str, Any] | None:
    """The newest set's line in the log, if that says why it was time to save."""
    lines = []
    for rank in seen.ranks:
        with suppress(OSError):  # `safepoint log` says what is wrong with it
            found = events(terminal.DISK, rank.root.log, last=LAST_BYTES)
            lines += [line for line in found if line["event"] == "saved" and line.get("due")]
    newest = max((s.number for s in seen.sets), default=0)
    return next((line for line in lines if line.get("set") == newest), None)


def restart(seen: Overview) -> str:
    """What a restart would take, in a few words."""
    if seen.mark_error:
        return "fails"
    if seen.finished:
        result = "leaves the files in place alone: they are the result"
        return result if seen.nodes is None else "says that the run is finished: the result is at the remote place"
    if seen.on_nodes:
        return f"looks at the disks of all nodes, and at the remote place; {seen.on_nodes}"
    if seen.takes:
        return f"takes {seen.takes.label}"
    if seen.begun:
        return "fails: no set is whole"
    return "is a first start: no set was ever complete"


def _table(seen: Overview) -> None:
    wide = terminal.width() >= WIDE_COLUMNS
    several = any(len(s.needed) > 1 for s in seen.sets)
    given, at = any(s.extra for s in seen.sets), places(seen)
    heads = ["set", "step", *["time"] * wide, "age", "files", "size", *["stored"] * wide, *["ranks"] * several, "state",
             *["remote"] * bool(at), *["extra"] * given]  # fmt: skip
    rows = []
    for each in seen.sets:
        files, size, stored = each.totals
        when = each.time
        known = {
            "set": str(each.number),
            "step": "-" if each.step is None else str(each.step),
            "extra": extra(each),
            "time": words.moment(when) if when else "-",
            "age": words.age(when).removesuffix(" ago") if when else "-",
            "files": str(files),
            "size": words.size(size),
            "stored": words.size(stored),
            "ranks": f"{len(each.have)}/{len(each.needed)}",
            "state": STATES[each.state],
            "remote": "yes" if each.number in at else "-",
        }
        rows.append([known[head] for head in heads])
    terminal.table(heads, rows, right=("set", "step", "age", "files", "size", "stored", "ranks"))


def elsewhere(seen: Overview) -> tuple[Known, ...]:
    """The other places of its sets, as they were seen last."""
    return read_notes(seen.root(0)).places if seen.side else ()


def _newest_at(known: Known) -> str:
    """A set that is there may be gone here: those that are left have a column."""
    numbers = [int(text.split("-")[1]) for text in known.sets]
    there = f"set {max(numbers)} is at" if numbers else "nothing is known to be at"
    return f"{there} {known.url}, seen {words.age(known.time)}" if known.time else f"{there} {known.url}"


def places(seen: Overview) -> dict[int, list[str]]:
    """By number of a set where else it was whole when that place was seen last."""
    if not seen.side:
        return {}
    known = at_places(seen.root(0))
    found = {}
    for each in seen.sets:
        for what in each.descriptions:
            if urls := known.get(identity(what.life, what.number, what.history)):
                found[each.number] = urls
    return found


def extra(each: SetState) -> str:
    """What the program gave along with a set, or its beginning."""
    texts = [
        f"{name} {f'{value:.5g}' if isinstance(value, float) else json.dumps(value, ensure_ascii=False)}"
        for name, value in each.extra.items()
    ]
    text = ", ".join(texts)
    return text if len(text) <= LONGEST_EXTRA else f"{text[: LONGEST_EXTRA - 1]}…"


def content(seen: Overview, verdict: SafepointError | None) -> dict[str, Any]:
    """The overview as JSON."""
    takes, at = seen.takes, places(seen)
    return {
        "directory": seen.work,
        "manifest": None if isinstance(seen.manifest_error, ManifestError) else seen.manifest and seen.manifest.path,
        "running": bool(seen.running) if all(r.held is not None or not r.owner for r in seen.ranks) else None,
        "owner": next((r.owner for r in ([seen.running] if seen.running else seen.ranks) if r and r.owner), None),
        "finished": seen.mark and {"step": seen.mark["step"], "time": seen.mark["time"], "number": seen.mark["number"]},
        "halt": pending(seen) or None,
        "hidden": hidden(seen),
        "due": (why := due(seen)) and {"set": why["set"], "text": why["due"]},
        "restart": {"set": takes.number if takes else None, "step": takes.step if takes else None,
                    "text": restart(seen)},
        "in_memory": bool(in_memory(seen)),
        "remote": [{"place": k.url, "seen": k.time, "trouble": k.trouble} for k in elsewhere(seen)],
        "sets": [_set(each, at.get(each.number, [])) for each in seen.sets],
        "leftovers": [{"path": each.path, "what": each.what, "size": each.size} for each in seen.leftovers],
        "foreign": [*seen.unknown, *(f"rank-{rank.rank:05d}/{name}" for rank in seen.ranks for name in rank.unknown)],
        "error": verdict and {"code": verdict.code, "text": str(verdict)},
    }  # fmt: skip


def _set(each: SetState, at: list[str]) -> dict[str, Any]:
    files, size, stored = each.totals
    return {
        "number": each.number,
        "step": each.step,
        "extra": each.extra,
        "time": each.time,
        "state": each.state,
        "places": at,
        "files": files,
        "size": size,
        "stored": stored,
        "ranks": {"needed": list(each.needed), "committed": each.have},
        "reasons": {str(rank): reason for rank, reason in each.reasons.items()},
    }
