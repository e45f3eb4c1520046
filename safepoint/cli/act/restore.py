"""`safepoint restore`: what the program's own restore does, by hand and for all ranks at once; or elsewhere."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from typing import Any

import click

from safepoint import words
from safepoint.cli import terminal
from safepoint.cli.act.holding import alone_in
from safepoint.cli.look.overview import look
from safepoint.cli.look.state import Overview, SetState
from safepoint.disk.files import exists, listdir, remove_tree, write
from safepoint.errors import DamagedError, NothingSavedError, RestoreError, UsageError
from safepoint.manifest import Manifest
from safepoint.record import Record, mark_key
from safepoint.restoring.baseline import check_baseline, refuse_outside
from safepoint.restoring.grown import keep_prefixes
from safepoint.restoring.newer import drop_newer
from safepoint.restoring.read import Damaged
from safepoint.restoring.settle import give_up, settle
from safepoint.restoring.stage import BY_HAND, Progress, clear_stage, extract, stage
from safepoint.restoring.survey import survey
from safepoint.restoring.swap import swap
from safepoint.root import Root
from safepoint.saving.memory import Memory, Options
from safepoint.session import __version__

DISK = terminal.DISK


@click.command()
@terminal.directory
@click.option("--set", "number", type=int, metavar="N", help="This set, not the newest whole one.")
@click.option("--to", type=click.Path(path_type=str), metavar="TO", help="Extract it there, a new or empty directory.")
@terminal.yes
@terminal.as_json
def restore(directory: str, number: int | None, to: str | None, yes: bool, as_json: bool) -> None:
    """Put a set back into place by hand, or extract it elsewhere.

    In place: as the program's own restore, for all ranks at once, while no run is at work. Newer sets are removed,
    after a question. With --to nothing in DIR is changed, no lock is taken, and DIR may be read-only.
    """
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
        terminal.put(_content(seen, None, "finished", []))
    else:
        terminal.say(text)


def _in_place(directory: str, seen: Overview, number: int | None, yes: bool, as_json: bool) -> None:
    """Settle, choose, stage, swap, as `session` does with one rank per process."""
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
    with ExitStack() as on_error:
        for rank in seen.ranks:
            if not resumed[rank.rank]:  # else what is there says that a restore was killed, and must be repeated
                on_error.callback(clear_stage, rank.root)
        chosen, passed = _staged(seen, number, memory)
        newer = [s for s in seen.sets if s.number > chosen.number]
        if newer and not terminal.agreed(_question(chosen, newer, dict(passed)), yes=yes):
            raise UsageError("not restored; nothing was changed")
        on_error.pop_all()
    aside = _swap(seen, chosen, resumed, finished)
    _note(seen, chosen, passed, aside)
    files, size, _ = chosen.totals
    if as_json:
        terminal.put(_content(seen, chosen, "restored", aside))
        return
    terminal.say(f"restored {chosen.label}: {words.count(files, 'file')}, {words.size(size)}, in {seen.work}")
    for each, reason in passed:
        terminal.say(f"not {each.label}: {reason}")
    if aside:
        terminal.say(f"moved to discarded/: {', '.join(aside)}")


def _reporting(root: Root) -> AbstractContextManager[None]:
    return root.reporting(RestoreError, "cannot restore", "all sets are as they were, and restore may be repeated")


def _question(chosen: SetState, newer: list[SetState], reasons: dict[SetState, str]) -> str:
    lines = [f"  {s.label}: {reasons.get(s) or ('whole' if s.usable else s.why or s.state)}" for s in newer]
    return "\n".join([f"{chosen.label} is to be restored. This removes what is newer:", *lines, "Remove it?"])


def _candidates(seen: Overview, number: int | None) -> Iterator[SetState]:
    yield from [seen.find(number)] if number is not None else seen.sets


def _staged(seen: Overview, number: int | None, memory: Memory) -> tuple[SetState, list[tuple[SetState, str]]]:
    """The set whose parts are now staged on every rank, all of them through their checksums; and why no newer one."""
    passed: list[tuple[SetState, str]] = []
    for each in _candidates(seen, number):
        whole = each.state == "complete" or (each.state == "foreign" and number is not None)
        reason = each.why or each.state
        if whole:
            reason = _stage(seen, each, memory)
            if not reason:
                return each, passed
        passed.append((each, reason))
    reasons = "\n  ".join(f"{each.label}: {reason}" for each, reason in passed)
    if number is None and not seen.begun:
        raise NothingSavedError(
            f"no set in {seen.work} was ever complete; when the program starts, its initial files are put back:\n"
            f"  {reasons}"
        )
    what = "none of the sets" if number is None else f"set {number}, the only one asked for, of those"
    raise DamagedError(
        f"{what} in {seen.work} is {'not ' * (number is not None)}whole; no file was touched:\n  {reasons}\n{BY_HAND}"
    )


def _records(each: SetState) -> dict[int, Record]:
    return {rank: part.record for rank, part in each.parts.items() if part.record}


def _stage(seen: Overview, each: SetState, memory: Memory) -> str:
    """Stage all parts; what is wrong with one, or nothing."""
    total = sum(file.size for _, file in each.files)
    with terminal.progress(f"reading {each.label}", total) as advance:
        for rank, record in _records(each).items():
            try:
                stage(seen.root(rank, each), record, memory, _steps(advance))
            except Damaged as error:
                return f"rank {rank}: {error}" if len(each.needed) > 1 else str(error)
    return ""


def _steps(advance: Callable[[int], None]) -> Progress:
    """What takes the bytes read so far, for what takes those since the last call."""
    done = 0

    def tick(now: int, _: int) -> None:
        nonlocal done
        advance(now - done)
        done = now

    return tick


def _swap(seen: Overview, chosen: SetState, resumed: dict[int, bool], finished: int) -> list[str]:
    """Swap in all parts, and drop what is newer on every rank; the names of what was moved out of the way."""
    records, aside = _records(chosen), []
    patterns = next(iter(records.values())).patterns
    for number, record in records.items():  # of all ranks, before W changes on any
        root = seen.root(number, chosen)
        for reason in keep_prefixes(root, record, _owned(seen.manifest, root).setting("copy_append_below")):
            click.echo(f"safepoint: {reason}", err=True)
    for rank in seen.ranks:
        root = seen.root(rank.rank, chosen)
        mine = _owned(seen.manifest, root)
        with _reporting(root):
            if rank.rank in records:
                aside += swap(root, mine, records[rank.rank], resumed=resumed[rank.rank])
            else:
                give_up(root, finished, resumed=resumed[rank.rank])
                if exists(DISK, root.baseline):
                    aside += check_baseline(root, mine)
            left = drop_newer(root, mine, chosen.number, patterns)
            if left:
                names = ", ".join(left)
                click.echo(f"safepoint: damaged, and only in a newer set, kept as a failed one: {names}", err=True)
            clear_stage(root, records.get(rank.rank))
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
    top = os.path.realpath(to)
    if exists(DISK, top) and (not os.path.isdir(top) or listdir(DISK, top)):
        raise UsageError(f"{top} is there and not an empty directory; nothing was changed")
    passed = []
    for each in _candidates(seen, number):
        reason = each.why or each.state
        if set(each.needed) <= set(_records(each)) and (not each.reasons or each.state == "foreign"):
            reason = _copied(seen, each, top)
            if not reason:
                break
        passed.append(f"{each.label}: {reason}")
    else:
        reasons = "\n  ".join(passed)
        raise DamagedError(f"no such set in {seen.work} is whole; nothing was extracted:\n  {reasons}")
    if as_json:
        terminal.put(_content(seen, each, "extracted", [], top))
        return
    files, size, _ = each.totals
    terminal.say(f"extracted {each.label}: {words.count(files, 'file')}, {words.size(size)}, to {top}")
    for reason in passed:
        terminal.say(f"not {reason}")


def _copied(seen: Overview, each: SetState, top: str) -> str:
    """Copy all parts of a set to `top`; what is wrong with one, or nothing. On error `top` is as it was."""
    new = not exists(DISK, top)
    if new:
        DISK.mkdir(top)
    with ExitStack() as on_error:
        on_error.callback(_empty, top, new)
        with terminal.progress(f"extracting {each.label}", sum(file.size for _, file in each.files)) as advance:
            for rank, record in _records(each).items():
                try:
                    extract(seen.root(rank, each), record, top, advance)
                except Damaged as error:
                    if not exists(DISK, seen.root(rank, each).set(each.number)):
                        return "a run at work has removed it meanwhile"
                    return f"rank {rank}: {error}" if len(each.needed) > 1 else str(error)
        on_error.pop_all()
    return ""


def _empty(top: str, new: bool) -> None:
    for name in listdir(DISK, top):
        remove_tree(DISK, os.path.join(top, name))
    if new:
        DISK.rmdir(top)


def _content(
    seen: Overview, chosen: SetState | None, outcome: str, aside: list[str], to: str | None = None
) -> dict[str, Any]:
    return {
        "directory": seen.work,
        "outcome": outcome,
        "to": to,
        "set": chosen.number if chosen else None,
        "step": chosen.step if chosen else seen.mark and seen.mark["step"],
        "files": [file.path for _, file in chosen.files if file.kind in ("file", "append", "link")] if chosen else [],
        "discarded": aside,
    }
