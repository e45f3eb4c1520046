"""`safepoint restore`: what the program's own restore does, by hand and for all ranks at once; or elsewhere."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from typing import Any

import click

from safepoint import words
from safepoint.cli import terminal
from safepoint.cli.act.holding import alone_in
from safepoint.cli.look.completion import set_numbers
from safepoint.cli.look.overview import look
from safepoint.cli.look.state import Overview, SetState
from safepoint.disk.files import exists, listdir, remove_tree, write
from safepoint.errors import DamagedError, NothingSavedError, RestoreError, SafepointError, UsageError
from safepoint.manifest import Manifest
from safepoint.owner import refuse_held
from safepoint.ranks import Serial
from safepoint.record import Record, StoredFile, mark_key, number_of
from safepoint.restoring.baseline import check_baseline, refuse_outside
from safepoint.restoring.choose import Choice, Parts, choose, staged
from safepoint.restoring.grown import keep_prefixes
from safepoint.restoring.newer import drop_newer
from safepoint.restoring.read import Damaged
from safepoint.restoring.settle import give_up, settle
from safepoint.restoring.stage import BY_HAND, Progress, clear_stage, extract
from safepoint.restoring.survey import survey
from safepoint.restoring.swap import swap, touched
from safepoint.root import PRIVATE, Root
from safepoint.saving.memory import Memory, Options
from safepoint.session import __version__

DISK = terminal.DISK


@click.command()
@terminal.directory
@click.option(
    "--set", "number", type=int, metavar="N", shell_complete=set_numbers,
    help="This set, not the newest whole one.",
)  # fmt: skip
@click.option("--step", type=int, metavar="N", help="The newest set of this step.")
@click.option("--to", type=click.Path(path_type=str), metavar="TO", help="Extract it there, a new or empty directory.")
@terminal.yes
@terminal.as_json
def restore(
    directory: str, number: int | None, step: int | None, to: str | None, yes: bool, as_json: bool
) -> None:  # fmt: skip
    """Put a set back into place by hand, or extract it elsewhere.

    In place: as the program's own restore, for all ranks at once, while no run is at work. Newer sets are removed,
    after a question. With --to nothing in DIR is changed, no lock is taken, and DIR may be read-only.
    """
    if step is not None:
        if number is not None:
            raise click.UsageError("--set and --step both say which set")
        number = look(DISK, directory).find_step(step).number
    if to is not None:
        _extract(directory, number, to, as_json)
        return
    with alone_in(directory) as seen:
        if seen.finished or (number is not None and seen.has_ended(number)):
            _tell_finished(seen, number, as_json)
            return
        seen.raise_if_empty()
        _in_place(directory, seen, number, yes, as_json)


def _tell_finished(seen: Overview, number: int | None, as_json: bool) -> None:
    step = "" if not seen.mark or seen.mark["step"] is None else f" at step {seen.mark['step']}"
    text = f"the run in {seen.work} was finished{step}: the files in place are the result, and are left alone"
    if number is not None:
        raise NothingSavedError(f"{text}; its sets are gone, so there is no set {number} to go back to")
    if as_json:
        terminal.put(_content(seen, None, "finished", {}))
    else:
        terminal.say(text)


def _in_place(directory: str, seen: Overview, number: int | None, yes: bool, as_json: bool) -> None:
    """The steps of `Restart.run`, for all ranks at once, with a question before W is touched."""
    finished = mark_key(seen.mark)
    assert seen.manifest  # alone_in has seen to it
    setting = seen.manifest.setting
    memory = Memory(Options(__version__, setting("pack_threads"), setting("bundle_from")))
    for rank in seen.ranks:
        root = seen.root(rank.rank)
        refuse_outside(root, _owned(seen.manifest, root))
    for rank in seen.ranks:
        root = seen.root(rank.rank)
        with _reporting(root):
            settle(root, DISK.page_cache(root.path), survey(root, finished), root.numbers("gone"), memory)
    seen = look(DISK, directory, mine=True)
    resumed = {rank.rank: exists(DISK, rank.root.stage) for rank in seen.ranks}
    asked = None if number is None else seen.find(number)
    with ExitStack() as on_error:
        for rank in seen.ranks:
            if not resumed[rank.rank]:  # else what is there says that a restore was killed, and must be repeated
                on_error.callback(clear_stage, rank.root)
        choice = choose(seen.parties(asked), Serial(), partial(_staged, memory, seen.manifest))
        passed = _passed(seen, asked, choice)
        if choice.number is None:
            raise _nothing_whole(seen, asked, choice, passed)
        chosen = seen.find(choice.number)
        newer = [s for s in seen.sets if s.number > chosen.number]
        if newer and not terminal.agreed(_question(chosen, newer, dict(passed)), yes=yes):
            raise UsageError("not restored; nothing was changed")
        on_error.pop_all()
    aside = _swap(seen, chosen, choice.records, resumed, finished)
    _note(seen, chosen, passed, aside)
    if as_json:
        terminal.put(_content(seen, chosen, "restored", choice.records, aside))
        return
    terminal.say(f"restored {chosen.label}: {_totals(choice.records)}, in {seen.work}")
    for each, reason in passed:
        terminal.say(f"not {each.label}: {reason}")
    if aside:
        terminal.say(f"moved to discarded/: {', '.join(aside)}")


def _reporting(root: Root) -> AbstractContextManager[None]:
    return root.reporting(RestoreError, "cannot restore", "all sets are as they were, and restore may be repeated")


def _question(chosen: SetState, newer: list[SetState], reasons: dict[SetState, str]) -> str:
    lines = [f"  {s.label}: {reasons.get(s) or ('whole' if s.usable else s.why or s.state)}" for s in newer]
    return "\n".join([f"{chosen.label} is to be restored. This removes what is newer:", *lines, "Remove it?"])


def _passed(seen: Overview, asked: SetState | None, choice: Choice) -> list[tuple[SetState, str]]:
    """Why not each newer set of those that might have been chosen. What was known before names all of its ranks."""
    tried = [asked] if asked else [s for s in seen.sets if s.state != "ended"]
    reasons = {number_of(key): reason for key, (_, reason) in reversed(choice.passed.items())}
    known = {s: s.why for s in tried if s is not asked or s.state != "foreign"}
    newer = [s for s in tried if choice.number is None or s.number > choice.number]
    return [(s, known.get(s) or reasons.get(s.number) or s.state) for s in newer]


def _nothing_whole(
    seen: Overview, asked: SetState | None, choice: Choice, passed: list[tuple[SetState, str]]
) -> SafepointError:  # fmt: skip
    reasons = "\n  ".join(f"{each.label}: {reason}" for each, reason in passed)
    if asked is None and not choice.lost:
        return NothingSavedError(
            f"no set in {seen.work} was ever complete; when the program starts, its initial files are put back:\n"
            f"  {reasons}"
        )
    what = f"set {asked.number}, the only one asked for, of those" if asked else "none of the sets"
    return DamagedError(
        f"{what} in {seen.work} is {'not ' * (asked is not None)}whole; no file was touched:\n  {reasons}\n{BY_HAND}"
    )


def _bar(doing: str, parts: Parts) -> AbstractContextManager[Callable[[int], None]]:
    """One for all parts of a set."""
    records = [part.record for _, part in parts if part.record]
    return terminal.progress(f"{doing} {records[0].label}", sum(file.size for r in records for file in r.files))


def _staged(memory: Memory, listed: Manifest | None, parts: Parts) -> dict[int, str]:
    """The trial of a restore in place: that of the program's own."""
    with _bar("reading", parts) as advance:
        damage = staged(memory, _steps(advance), parts)
    for root, part in () if damage else parts:
        if part.record:
            refuse_held(root, f"{part.record.label} not restored", touched(root, _owned(listed, root), part.record))
    return damage


def _steps(advance: Callable[[int], None]) -> Progress:
    """What takes the bytes read so far, for what takes those since the last call."""
    done = 0

    def tick(now: int, _: int) -> None:
        nonlocal done
        advance(now - done if now >= done else now)  # of the next part it is counted anew
        done = now

    return tick


def _swap(
    seen: Overview, chosen: SetState, records: dict[int, Record], resumed: dict[int, bool], finished: int
) -> list[str]:  # fmt: skip
    """Swap in all parts, and drop what is newer on every rank; the names of what was moved out of the way."""
    aside: list[str] = []
    patterns = next(iter(records.values())).patterns
    its = {rank.rank: records.get(seen.root(rank.rank, chosen).rank) for rank in seen.at_hand(chosen)}
    for number, record in its.items():  # all of them, before W changes on any
        root = seen.root(number, chosen)
        limit = _owned(seen.manifest, root).setting("copy_append_below")
        for reason in keep_prefixes(root, record, limit) if record else ():
            click.echo(f"safepoint: {reason}", err=True)
    for rank in seen.ranks:
        root, record = seen.root(rank.rank, chosen), its.get(rank.rank)
        mine = _owned(seen.manifest, root)
        with _reporting(root):
            if record:
                aside += swap(root, mine, record, resumed=resumed[rank.rank])
            else:
                give_up(root, finished, resumed=resumed[rank.rank])
                if exists(DISK, root.baseline):
                    aside += check_baseline(root, mine)
            left = drop_newer(root, mine, chosen.number, patterns, root.numbers("set"))
            if left:
                names = ", ".join(left)
                click.echo(f"safepoint: damaged, and only in a newer set, kept as a failed one: {names}", err=True)
            clear_stage(root, record)
    return aside


def _owned(listed: Manifest | None, root: Root) -> Manifest:
    assert listed
    return listed.owned_by(root.rank, root.ranks, root.saver)


def _note(seen: Overview, chosen: SetState, passed: list[tuple[SetState, str]], aside: list[str]) -> None:
    """One line in each log, as the program's own restore writes it."""
    reasons = [f"{each.label}: {reason}" for each, reason in passed]
    line = {"time": time.time(), "event": "restored", "pid": os.getpid(), "set": chosen.number, "step": chosen.step,
            "passed_over": reasons, "aside": aside, "by_hand": True}  # fmt: skip
    for rank in seen.ranks:
        try:
            if not exists(DISK, rank.root.log):
                write(DISK, rank.root.log, b"")
            DISK.append(rank.root.log, json.dumps(line).encode() + b"\n")
        except OSError as error:  # nothing depends on it
            click.echo(f"safepoint: cannot write to {error.filename}: {error.strerror}", err=True)


def _extract(directory: str, number: int | None, to: str, as_json: bool) -> None:
    seen = look(DISK, directory)
    seen.raise_if_empty()
    if seen.finished and number is None:
        raise NothingSavedError(f"the run in {seen.work} was finished: the files in place are the result, copy those")
    extraction = _Extraction(os.path.realpath(to))
    asked = None if number is None else seen.find(number)
    with ExitStack() as on_error:
        on_error.callback(extraction.undo)
        choice = choose(seen.parties(asked), Serial(), extraction)
        passed = [f"{each.label}: {reason}" for each, reason in _passed(seen, asked, choice)]
        if choice.number is None:
            reasons = "\n  ".join(passed)
            raise DamagedError(f"no such set in {seen.work} is whole; nothing was extracted:\n  {reasons}")
        on_error.pop_all()
    chosen = seen.find(choice.number)
    if as_json:
        terminal.put(_content(seen, chosen, "extracted", choice.records, to=extraction.top))
        return
    terminal.say(f"extracted {chosen.label}: {_totals(choice.records)}, to {extraction.top}")
    for reason in passed:
        terminal.say(f"not {reason}")


class _Extraction:
    """The trial of `--to`: the parts are copied to `top`, in place of those of a set that did not withstand it."""

    def __init__(self, top: str) -> None:
        self.top, self._new, self._ours = top, not exists(DISK, top), False
        self._refuse_full()

    def _refuse_full(self) -> None:
        if not self._new and (not os.path.isdir(self.top) or listdir(DISK, self.top)):
            raise UsageError(f"{self.top} is there and not an empty directory; nothing was changed")

    def __call__(self, parts: Parts) -> dict[int, str]:
        self.undo()
        self._refuse_full()  # somebody else may have come first: what is there then is theirs
        if self._new:
            DISK.mkdir(self.top, PRIVATE)  # W, or what is above it, may be closed to others
        self._ours = True
        with _bar("extracting", parts) as advance:
            for root, part in parts:
                assert part.record
                try:
                    extract(root, part.record, self.top, advance)
                except Damaged as error:
                    gone = not exists(DISK, root.set(part.number))
                    return {root.rank: "a run at work has removed it meanwhile" if gone else str(error)}
        return {}

    def undo(self) -> None:
        """`top` as it was before."""
        if self._ours:
            for name in listdir(DISK, self.top):
                remove_tree(DISK, os.path.join(self.top, name))
            if self._new:
                DISK.rmdir(self.top)
            self._ours = False


def _files(records: dict[int, Record]) -> list[StoredFile]:
    return [file for _, record in sorted(records.items()) for file in record.files]


def _totals(records: dict[int, Record]) -> str:
    files = [file for file in _files(records) if file.has_bytes]
    return f"{words.count(len(files), 'file')}, {words.size(sum(file.size for file in files))}"


def _content(
    seen: Overview, chosen: SetState | None, outcome: str, records: dict[int, Record], aside: Sequence[str] = (),
    to: str | None = None,
) -> dict[str, Any]:  # fmt: skip
    return {
        "directory": seen.work,
        "outcome": outcome,
        "to": to,
        "set": chosen.number if chosen else None,
        "step": chosen.step if chosen else seen.mark and seen.mark["step"],
        "files": [file.path for file in _files(records) if file.kind in ("file", "append", "link")],
        "discarded": list(aside),
    }
