"""`safepoint fetch`: bring a set from another place into a directory."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import partial
from typing import Any, TypeVar

import click

from safepoint import manifest, words
from safepoint.cli import terminal
from safepoint.cli.look.elsewhere import within_errors
from safepoint.disk.files import exists
from safepoint.errors import DamagedError, ManifestError, NothingSavedError, SaveError, UsageError
from safepoint.opening import check_format
from safepoint.owner import Waiting, claim
from safepoint.patterns import NAME
from safepoint.program import SETTINGS
from safepoint.record import mark_key
from safepoint.restoring.read import Damaged
from safepoint.restoring.survey import finish_mark, survey
from safepoint.root import PRIVATE, Root
from safepoint.sealed import write_durably
from safepoint.tiers import note
from safepoint.tiers.fetching import AGAIN, Fetch, Found, make_ready, newest, refuse_full, roots_for, sets_at, why_not
from safepoint.tiers.names import Name
from safepoint.tiers.place import Unreachable, Vanished, place_at
from safepoint.tiers.remote import Remote, needed
from safepoint.tiers.url import RANK, of_rank, place_of, refuse_secrets

DISK = terminal.DISK
Made = TypeVar("Made")


@click.command()
@click.argument("url", metavar="URL")
@click.argument("directory", metavar="[DIR]", default=".", type=click.Path(file_okay=False, path_type=str))
@click.option("--set", "number", type=int, metavar="N", help="This set, not the newest whole one.")
@click.option("--step", type=int, metavar="N", help="The newest whole set of this step.")
@click.option(
    "--rank", type=click.IntRange(0), metavar="R", help="For {rank} in URL, if each rank has a place of its own."
)
@click.option("--list", "only_list", is_flag=True, help="Only show what is there.")
@terminal.as_json
def fetch(
    url: str, directory: str, number: int | None, step: int | None, rank: int | None, only_list: bool, as_json: bool
) -> None:  # fmt: skip
    """Bring the newest whole set from another place into DIR, where the program's restore finds it.

    DIR is made if it is not there. Nothing at the place is changed. The manifest comes along if DIR has none. Where DIR
    has newer sets nothing is done. Killed, the next fetch begins anew.
    """
    if number is not None and step is not None:
        raise click.UsageError("--set and --step both say which set")
    refuse_secrets(url)
    if RANK in url:
        if rank is None:
            raise click.UsageError(f"URL has {RANK} in it: --rank says which one")
        url = of_rank(url, rank)
    url = place_of(url, os.getcwd())
    remote = Remote(within_errors(lambda: place_at(url, DISK, os.getcwd()), url, "fetched from"))
    if only_list:
        _list(remote, url, as_json)
        return
    found = _fetch(remote, url, os.path.realpath(directory), number, step, as_json)
    if found and not as_json:
        what = f"set {found.name.number}{'' if found.step is None else f' (step {found.step})'}"
        terminal.say(f"fetched {what}: {words.size(found.size)}, into {os.path.realpath(directory)}; restore takes it")


def _list(remote: Remote, url: str, as_json: bool) -> None:
    def rows(make: Callable[[Found], Made]) -> list[Made]:
        return within_errors(lambda: [make(each) for each in sets_at(remote, remote.look())], url, "fetched from")

    if as_json:
        terminal.put({"place": url, "sets": (found := rows(_content))})
    elif table := rows(_row):
        heads = ["set", "step", "age", "size", "ranks", "state"]
        terminal.table(heads, table, right=("set", "step", "age", "size", "ranks"))
    if not (found if as_json else table):
        raise NothingSavedError(f"there is no set at {url}")


def _row(each: Found) -> list[str]:
    one = next(iter(each.parts.values()), None)
    return [
        str(each.name.number), "-" if each.step is None else str(each.step),
        words.age(one.record.time).removesuffix(" ago") if one else "-", words.size(each.size),
        f"{len(each.parts)}/{len(needed(one.record)) if one else '?'}", why_not(each) or "whole",
    ]  # fmt: skip


def _content(each: Found) -> dict[str, Any]:
    one = next(iter(each.parts.values()), None)
    return {
        "number": each.name.number, "step": each.step, "time": one.record.time if one else None, "size": each.size,
        "ranks": sorted(each.parts), "whole": not each.why, "reasons": {str(r): text for r, text in each.why.items()},
    }  # fmt: skip


def _fetch(remote: Remote, url: str, work: str, number: int | None, step: int | None, as_json: bool) -> Found | None:
    """The set that was brought, None if it was here already. If one turns out to be damaged, the next older one."""
    passed: dict[Name, DamagedError] = {}
    vanished = 0
    while vanished <= AGAIN:
        try:
            found = within_errors(partial(newest, remote, number, step, url, passed), url, "fetched from")
        except NothingSavedError as error:
            raise next(iter(passed.values()), error) from None
        with ExitStack() as held:
            try:
                return _bring(remote, url, work, found, as_json, held)
            except Vanished:
                vanished += 1
            except Unreachable as error:
                raise SaveError(f"{error}; all sets are as they were") from error
            except Damaged as error:
                damage = DamagedError(f"set {found.name.number} not fetched from {url}: {error}")
                if number is not None or step is not None:
                    raise damage from error
                passed[found.name] = damage
                click.echo(f"safepoint: {terminal.printable(str(damage))}; an older set is looked for", err=True)
    raise SaveError(f"not fetched from {url}: what is old goes there faster than it comes; nothing was changed")


def _bring(remote: Remote, url: str, work: str, found: Found, as_json: bool, held: ExitStack) -> Found | None:
    if not exists(DISK, work):
        if not exists(DISK, above := os.path.dirname(work)):
            raise UsageError(f"{above} is not there: make it first; nothing was changed")
        DISK.mkdir(work, PRIVATE)  # the directory that it comes from may be closed to others
    one = make_ready(work, DISK)
    check_format(one)
    held.enter_context(note.alone(one, "fetch"))
    parts = {rank: found.parts[rank] for rank in needed(next(iter(found.parts.values())).record)}
    roots = roots_for(work, parts, DISK)
    waiting = Waiting()
    for root in roots.values():
        with suppress(FileExistsError):
            DISK.mkdir(root.path, root.mode)
        held.callback(claim(root, waiting))
    here = {rank for rank, root in roots.items() if _has(root, found)}
    lacking = {rank: parts[rank] for rank in roots if rank not in here}
    if not here and not note.read_notes(one).at(url).related and any(root.numbers("set") for root in roots.values()):
        raise UsageError(
            f"{work} has sets of a run that has nothing to do with {url}: fetch into a directory of its own; nothing "
            f"was changed"
        )
    refuse_full(one, lacking)
    job = Fetch(remote, found, roots, lacking)
    with terminal.progress(f"fetching set {found.name.number}", sum(p.size for p in lacking.values())) as advance:
        job.run(advance, url)
    _bring_manifest(work, parts, url)
    if as_json:
        terminal.put({"place": url, "directory": work, "set": found.name.number, "step": found.step,
                      "size": found.size, "here": here == set(roots)})  # fmt: skip
    elif here == set(roots):
        terminal.say(f"set {found.name.number} is in {work} already")
        return None
    return found


def _has(root: Root, found: Found) -> bool:
    """Whether it is here already. Raises `UsageError` if what is here is newer, has its number, or is not settled."""
    name, record = found.name, found.parts[root.rank if root.saver is not None else next(iter(found.parts))].record
    mark = finish_mark(root)
    if mark and mark_key(mark) >= record.key:
        raise UsageError(f"the run in {root.work} was finished, after this set: fetch into another directory")
    if exists(DISK, root.stage):
        raise UsageError(f"a restore was killed in {root.work}: `safepoint restore` first; nothing was changed")
    for candidate in survey(root):
        whose = candidate.whose
        same = whose and (whose.key, whose.history) == (record.key, record.history)
        if same and candidate.record:
            return True
        if candidate.key > record.key or candidate.number == name.number:
            how = "is newer" if candidate.key > record.key else "has the same number, and is another one or not whole"
            raise UsageError(
                f"{root.work} has set {candidate.number}, which {how}: fetch into another directory, or `safepoint "
                f"drop {candidate.number}` first; nothing was changed"
            )
    return False


def _bring_manifest(work: str, parts: dict[int, Any], url: str) -> None:
    """That of the run, where there is none."""
    text = next((part.manifest for part in parts.values() if part.manifest), "")
    path = os.path.join(work, NAME)
    if not text or exists(DISK, path):
        return
    try:
        told = manifest.parse(text, path, SETTINGS).settings["remote"]
    except ManifestError as error:
        text = terminal.printable(str(error))
        click.echo(f"safepoint: the manifest that came along is not written: {text}", err=True)
        return
    write_durably(DISK, path, text.encode("utf-8", "surrogateescape"))
    if told and RANK not in told and (there := place_of(told, work)) != url:
        text = terminal.printable(f"the manifest that came along puts sets to {there}, and this one came from {url}")
        click.echo(f"safepoint: {text}: change its line remote if that is not meant", err=True)
