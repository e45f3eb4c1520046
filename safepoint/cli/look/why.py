"""`safepoint why`: what `restore` would do now, set by set and file by file; nothing is changed."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import click

from safepoint import companions, words
from safepoint.cli import terminal
from safepoint.cli.look import elsewhere
from safepoint.cli.look.overview import look
from safepoint.cli.look.state import Overview, SetState
from safepoint.cli.look.verify import read_all
from safepoint.disk.files import listdir, stat_or_none
from safepoint.errors import DamagedError, OverwrittenError, RefusedFileError, SafepointError
from safepoint.manifest import Manifest
from safepoint.patterns import Match, above
from safepoint.record import Item, Record, StoredFile, Taken, label
from safepoint.restoring.baseline import judge_baseline, refuse_outside
from safepoint.restoring.grown import begun_anew
from safepoint.restoring.read import Damaged
from safepoint.restoring.survey import changed_since, read_taken
from safepoint.root import Root

MOST_FILES = 30  # files; of more the rest is counted


class Fate(NamedTuple):
    """What happens to one file. `action`: replaced, put back, cut back, untouched, discarded."""

    path: str
    rank: int
    action: str
    text: str


@dataclass
class Forecast:
    """`outcome`: restored, finished, first start, initial files, or error."""

    outcome: str
    sentence: str
    chosen: SetState | None = None
    passed: list[tuple[SetState, str]] = field(default_factory=list)
    fates: list[Fate] = field(default_factory=list)
    error: SafepointError | None = None


@click.command()
@terminal.directory
@click.option("--quick", is_flag=True, help="Do not read the checksums; believe names and sizes.")
@click.option("--all", "every", is_flag=True, help=f"Every file, also if they are more than {MOST_FILES}.")
@elsewhere.level
@terminal.as_json
def why(directory: str, quick: bool, every: bool, level: str, as_json: bool) -> None:
    """What restore would do now, and why, in plain sentences.

    Which set it would give back, why not a newer one, and what would happen to each listed file. Nothing is changed.
    Assumed is a restart with as many ranks as the newest set has. With --level remote: which set `safepoint fetch`
    would bring from the other place.
    """
    if level == "remote":
        elsewhere.why(look(terminal.DISK, directory), quick=quick, as_json=as_json)
        return
    seen = look(terminal.DISK, directory, read=not quick)
    forecast = foresee(seen, quick=quick)
    forecast.error = forecast.error or seen.manifest_error
    if as_json:
        terminal.put(_content(seen, forecast))
    elif not (forecast.error and seen.empty):
        for sentence in _sentences(seen, forecast, quick):
            terminal.prose(sentence)
        shown = forecast.fates if every else forecast.fates[:MOST_FILES]
        if shown:
            terminal.say()
            several = len({fate.rank for fate in forecast.fates}) > 1
            rows = [[fate.path, *[str(fate.rank)] * several, fate.text] for fate in shown]
            terminal.table(["file", *["rank"] * several, "what happens to it"], rows, right=("rank",))
        if len(shown) < len(forecast.fates):
            terminal.say(f"… and {len(forecast.fates) - len(shown)} more (--all)")
    if forecast.error:
        raise forecast.error


def foresee(seen: Overview, *, quick: bool) -> Forecast:
    """What `restore` would do. As in `choose`: the newest set of which every rank can give its part."""
    if seen.mark_error:
        return Forecast("error", "Restore fails.", error=DamagedError(seen.mark_error))
    if seen.on_nodes and not seen.finished:
        text = "Restore looks at the disks of all nodes that the program is started on, and at the remote place"
        where = f"{seen.on_nodes[0].upper()}{seen.on_nodes[1:]}."
        return Forecast("on nodes", f"{text} (`safepoint why --level remote`). {where}")
    if outside := _outside(seen):
        return Forecast("error", "Restore fails.", error=outside)
    passed: list[tuple[SetState, str]] = []
    for each in seen.sets:
        if each.state == "ended":
            continue
        damage = "" if quick or not each.usable else _damage(seen, each)
        if each.usable and not damage:
            return _given_back(seen, each, passed)
        passed.append((each, damage or each.why or each.state))
    if passed and (seen.begun or any(each.usable for each, _ in passed)):
        reasons = "\n  ".join(f"{each.label}: {reason}" for each, reason in passed)
        error = DamagedError(f"none of the sets in {seen.work} is whole; no file would be touched:\n  {reasons}")
        return Forecast("error", "Restore fails: no set is whole.", passed=passed, error=error)
    if seen.mark:
        return Forecast("finished", _finished(seen, seen.mark))
    return _first_start(seen, passed)


def _outside(seen: Overview) -> RefusedFileError | None:
    """Why restore would refuse an entry that leads out of the directory."""
    for rank in seen.ranks:
        root = seen.root(rank.rank)
        if seen.manifest is None:
            return None
        try:
            refuse_outside(root, seen.manifest.owned_by(root.rank, root.ranks, root.saver))
        except RefusedFileError as error:
            return error
    return None


def _damage(seen: Overview, each: SetState) -> str:
    """What the checksums say against a set."""
    found = read_all(seen, [each])
    bad = {rank: reason for (_, rank), (state, reason) in found.items() if state in ("damaged", "gone")}
    return "; ".join(f"rank {rank}: {reason}" if len(each.needed) > 1 else reason for rank, reason in bad.items())


def _given_back(seen: Overview, each: SetState, passed: list[tuple[SetState, str]]) -> Forecast:
    files, size, _ = each.totals
    when = f" of {words.moment(each.time)} ({words.age(each.time)})" if each.time else ""
    who = f" of {words.count(len(each.needed), 'rank')}" if len(each.needed) > 1 else ""
    done = "" if each.state == "complete" else "commits and "
    sentence = f"Restore {done}gives back {each.label}{when}: {words.count(files, 'file')}{who}, {words.size(size)}."
    return Forecast("restored", sentence, each, passed, fates(seen, each))


def _finished(seen: Overview, mark: dict[str, Any]) -> str:
    step = "" if mark["step"] is None else f" at step {mark['step']}"
    changed = changed_since(Root(seen.work), mark)
    but = f" These are no longer what they were: {', '.join(changed)}." if changed else ""
    return (
        f"The run was finished{step} ({words.moment(mark['time'])}). Restore leaves the files in place alone, since "
        f"they are the result, and says so.{but}"
    )


def _first_start(seen: Overview, passed: list[tuple[SetState, str]]) -> Forecast:
    """No set was ever complete, so the program begins with its initial files."""
    back = [
        Fate(item.path, rank, "put back", "put back: it is an initial file")
        for each, _ in passed
        for rank, part in each.parts.items()
        for item in (part.taken.files if part.taken else ())
        if item.kind == "move"
    ]
    if passed:
        text = "No set was ever complete: restore puts the initial files back, and the program begins anew."
        return Forecast("initial files", text, passed=passed, fates=back)
    found: list[Fate] = []
    for rank in seen.ranks:
        if rank.baseline and seen.manifest:
            try:
                torn, grown = judge_baseline(rank.root, seen.manifest)
            except (OverwrittenError, DamagedError) as error:
                return Forecast("error", "Restore fails.", error=error)
            aside = "moved to discarded/: it did not exist at the first start, so it is torn"
            found += [Fate(path, rank.rank, "discarded", aside) for path in torn]
            found += [
                Fate(path, rank.rank, "cut back", f"cut back to the {size} bytes it had at the first start")
                for path, size in grown.items()
            ]
    return Forecast("first start", "There is no set: restore returns None, and the program begins anew.", fates=found)


def fates(seen: Overview, each: SetState) -> list[Fate]:
    """What happens to each file that a set holds, or that its manifest means, on all ranks."""
    found: list[Fate] = []
    for rank, part in each.parts.items():
        what = part.description
        if what is None or seen.manifest is None:
            continue
        root = seen.root(rank, each)
        mine = seen.manifest.owned_by(root.rank, root.ranks, what.saver)
        there = _find(root, mine)
        found += _of_the_set(root, what, there, _carried(root, what))
        found += _beside_it(root, what, mine, there)
        known = {fate.path for fate in found if fate.rank == root.rank}
        found += [
            Fate(
                each.path,
                root.rank,
                "discarded",
                f"moved to discarded/: it lies beside {each.of}, and is not of the set",
            )
            for each in companions.beside(root, known)
        ]
    return sorted(found)


def _find(root: Root, listed: Manifest) -> dict[str, Match]:
    return listed.find(root.work, terminal.DISK.stat, root.rank, root.ranks, listdir=partial(listdir, terminal.DISK))[0]


def _carried(root: Root, what: Record | Taken) -> set[str]:
    """What the program had not written again for this set."""
    with suppress(Damaged, OSError):
        taken = what if isinstance(what, Taken) else read_taken(root, what.number)
        return {item.path for item in taken.files if item.carried}
    return set()


def _of_the_set(
    root: Root, what: Record | Taken, there: dict[str, Match], carried: set[str]
) -> list[Fate]:  # fmt: skip
    found = []
    trees = {f.path for f in what.files if (f.kind == "tree" if isinstance(what, Record) else f.tree)}  # type: ignore[union-attr]
    for file in what.files:
        if file.kind in ("dir", "link") or not trees.isdisjoint(above(file.path)):
            continue
        tree = file.path in trees
        name = file.path + "/" * tree
        listed = there.get(file.path)
        info = listed.info if listed else stat_or_none(terminal.DISK, os.path.join(root.work, file.path))
        if info is None:
            again = "; not written for each set: listed as copy it would have stayed in place"
            found.append(Fate(name, root.rank, "put back", f"put back{again * (file.path in carried)}"))
        elif file.kind == "append":
            found.append(_append(root, what.number, file, info.st_size))
        elif tree:
            found.append(Fate(name, root.rank, "replaced", "replaced; the present one moves to discarded/"))
        else:
            found.append(Fate(name, root.rank, "replaced", "replaced"))
    return found


def _append(root: Root, number: int, file: StoredFile | Item, now: int) -> Fate:
    path, then = file.path, file.size
    if isinstance(file, StoredFile) and begun_anew(root, number, file):
        text = "put back from the copy that the set has of it; the present one moves to discarded/"
        return Fate(path, root.rank, "put back", text)
    if now > then:
        return Fate(path, root.rank, "cut back", f"cut back from {now} to {then} bytes")
    if now < then:
        return Fate(path, root.rank, "untouched", f"untouched: it has {now} of the {then} bytes that the set needs")
    return Fate(path, root.rank, "untouched", f"untouched: it has the {then} bytes of the set")


def _beside_it(root: Root, what: Record | Taken, mine: Manifest, there: dict[str, Match]) -> list[Fate]:
    """Files in W that are listed and not in the set."""
    theirs = {file.path for file in what.files}
    then = mine.as_of(what.patterns)
    strays = there if then == mine else _find(root, then)
    found = []
    for path in there:
        if path in theirs:
            continue
        if path in strays:
            found.append(Fate(path, root.rank, "discarded", "moved to discarded/: the set does not have it"))
        else:
            found.append(Fate(path, root.rank, "untouched", "untouched: listed only since this set"))
    return found


def _sentences(seen: Overview, forecast: Forecast, quick: bool) -> list[str]:
    found = []
    if seen.manifest_error:
        found.append("A program cannot start here, as there is no good manifest. With one:")
    if seen.running:
        found.append(f"A run is at work here, so no other can start ({seen.who}). If it were killed now:")
    elif seen.who != "not running":
        found.append(f"Here a run was {seen.who}. If it does not:")
    found.append(forecast.sentence)
    if forecast.chosen:
        found.append("Its checksums were not read." if quick else "All its checksums hold.")
        found += [f"Not {each.label}: {reason}." for each, reason in forecast.passed]
        newer = [str(each.number) for each, _ in forecast.passed]
        older = [s.number for s in seen.sets if s.number < forecast.chosen.number and s.state == "complete"]
        if newer:
            found.append(f"Restore then removes {'set' if len(newer) == 1 else 'sets'} {', '.join(reversed(newer))}.")
        if older:
            found.append(f"Behind it {'is' if len(older) == 1 else 'are'} {', '.join(label(n, None) for n in older)}.")
    elif forecast.outcome != "error":
        found += [f"Not {each.label}: {reason}." for each, reason in forecast.passed]
    return found


def _content(seen: Overview, forecast: Forecast) -> dict[str, Any]:
    chosen = forecast.chosen
    return {
        "directory": seen.work,
        "outcome": "error" if forecast.error else forecast.outcome,
        "text": forecast.sentence,
        "set": chosen.number if chosen else None,
        "step": chosen.step if chosen else None,
        "passed_over": [{"set": each.number, "step": each.step, "reason": why} for each, why in forecast.passed],
        "files": [fate._asdict() for fate in forecast.fates],
        "error": forecast.error and {"code": forecast.error.code, "text": str(forecast.error)},
    }
