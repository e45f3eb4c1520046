"""`--level remote`: the sets at the other place of a directory, looked at as those in it are."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, TypeVar

import click

from safepoint import words
from safepoint.cli import terminal
from safepoint.cli.look.state import Overview
from safepoint.errors import DamagedError, NothingSavedError, SaveError, UsageError
from safepoint.record import Record, label
from safepoint.restoring.read import Damaged
from safepoint.root import Root
from safepoint.tiers.fetching import Found, sets_at
from safepoint.tiers.names import Name
from safepoint.tiers.place import Unreachable, Vanished, place_at
from safepoint.tiers.remote import Listing, Remote, needed
from safepoint.tiers.url import RANK, of_rank, place_of, refuse_secrets

Result = TypeVar("Result")
LEVELS = ("local", "remote")
level = click.option(
    "--level", type=click.Choice(LEVELS), default="local", show_default=True,
    help="Of the sets here, or of those at the place of the setting `remote`.",
)  # fmt: skip


class There(NamedTuple):
    """A place, and what is there."""

    remote: Remote
    url: str
    listing: Listing

    def sets(self) -> list[Found]:
        """Newest first. Raises `NothingSavedError` if there are none."""
        found = within_errors(lambda: list(sets_at(self.remote, self.listing)), self.url, "read at")
        if not found:
            raise NothingSavedError(f"there is no set at {self.url}")
        return found

    def find(self, number: int, claim: str = "") -> Found:
        """The newest with this number; of several first one of those that were put under this claim's id."""
        there = self.sets()
        found = [each for each in there if each.name.number == number]
        if found:
            return next((each for each in found if each.name.id == claim), found[0])
        listed = ", ".join(str(each.name.number) for each in there)
        raise NothingSavedError(f"there is no set {number} at {self.url}; there are: {listed}")


def within_errors(call: Callable[[], Result], place: str, doing: str) -> Result:
    """With errors of this library for what another place, or a set there, does not do."""
    try:
        return call()
    except Unreachable as error:
        raise SaveError(f"{error}; all sets are as they were") from error
    except Damaged as error:
        raise DamagedError(f"not {doing} {place}: {error}") from error


def url_of(seen: Overview, told: str, beside: str) -> str:
    """The place; a relative directory is below `beside`."""
    newest = next((what for s in seen.sets for what in s.descriptions), None)
    alone = newest is not None and newest.saver is None and newest.ranks > 1
    if alone and newest and RANK not in told:
        raise UsageError(
            f"each rank of this program has a directory of its own, so each needs a place of its own: write {RANK} "
            f"into {told}; nothing was changed"
        )
    return place_of(of_rank(told, newest.rank if newest else 0), beside)


def look_there(seen: Overview) -> There:
    """At the place that the manifest names. Raises `UsageError` if it names none, `SaveError` if it does not answer."""
    if seen.manifest_error:
        raise seen.manifest_error
    told = seen.manifest and seen.manifest.settings["remote"]
    if not told:
        raise UsageError("the manifest names no other place: it has no setting `remote`")
    refuse_secrets(told)
    url = url_of(seen, told, seen.work)

    def call() -> There:
        remote = Remote(place_at(url, terminal.DISK, seen.work))
        return There(remote, url, remote.look())

    return within_errors(call, url, "read at")


def label_of(found: Found) -> str:
    return label(found.name.number, found.step)


def record_of(found: Found) -> Record | None:
    return next((part.record for part in found.parts.values()), None)


# verify


def read_there(there: There, sets: list[Found]) -> dict[Name, dict[int, tuple[str, str]]]:
    """Of each set by rank what its part is, after its bytes were read: ok, damaged, incomplete, gone; and why."""
    states: dict[Name, dict[int, tuple[str, str]]] = {}
    with terminal.progress("reading", sum(each.size for each in sets)) as advance:
        for each in sets:
            indexed, states[each.name] = there.listing.ranks(each.name), {}
            for rank in sorted({*each.parts, *each.why}):
                if rank in each.why:
                    kind = "damaged" if rank in indexed else "incomplete"
                    states[each.name][rank] = kind, each.why[rank]
                else:
                    call = partial(_read, there.remote, each, rank, advance)
                    states[each.name][rank] = within_errors(call, there.url, "read at")
    return states


def _read(remote: Remote, found: Found, rank: int, advance: Callable[[int], None]) -> tuple[str, str]:
    try:
        for _ in remote.pieces(found.name, found.parts[rank], advance):
            pass
    except Vanished as error:  # a drain at work removes what is old
        if found.name in remote.look().sets:
            return "damaged", str(error)
        return "gone", "it was removed while it was read"
    except Damaged as error:
        return "damaged", str(error)
    return "ok", ""


def verify(seen: Overview, number: int | None, *, as_json: bool) -> None:
    """As `safepoint verify`."""
    there = look_there(seen)
    sets = there.sets() if number is None else [there.find(number)]
    states = read_there(there, sets)
    damaged = sorted({name.number for name, ranks in states.items() if any(s == "damaged" for s, _ in ranks.values())})
    if as_json:
        rows = [
            {"number": each.name.number, "step": each.step, "ranks": [
                {"rank": rank, "state": state, "reason": why} for rank, (state, why) in states[each.name].items()
            ]} for each in sets
        ]  # fmt: skip
        terminal.put({"directory": seen.work, "place": there.url, "sets": rows, "damaged": damaged})
    else:
        heads = ["set", "step", "ranks", "size", "result"]
        terminal.table(heads, [row for each in sets for row in _rows(each, states[each.name])],
                       right=("set", "step", "size"))  # fmt: skip
    if damaged:
        raise DamagedError(
            f"damaged at {there.url}: {', '.join(f'set {n}' for n in damaged)}; `safepoint drain --anew` puts all "
            f"bytes of the newest set again"
        )


def _rows(each: Found, states: dict[int, tuple[str, str]]) -> list[list[str]]:
    """One for all ranks of which the same is to be said."""
    groups: dict[str, list[int]] = {}
    for rank, (state, why) in states.items():
        groups.setdefault(f"{state}: {why}" if why else state, []).append(rank)
    step = "-" if each.step is None else str(each.step)
    return [
        [str(each.name.number), step, words.ranks(them),
         words.size(sum(each.parts[rank].size for rank in them if rank in each.parts)), result]
        for result, them in groups.items()
    ]  # fmt: skip


# why


def why(seen: Overview, *, quick: bool, as_json: bool) -> None:
    """What `safepoint fetch` would bring from there, and why not a newer set."""
    there, passed, chosen = look_there(seen), list[tuple[Found, str]](), None
    for each in there.sets():
        bad = {rank: f"rank {rank}: {text}" for rank, text in each.why.items()}
        if not bad and not quick:
            found = read_there(there, [each])[each.name]
            bad = {rank: f"rank {rank}: {text}" for rank, (state, text) in found.items() if state != "ok"}
        if not bad:
            chosen = each
            break
        passed.append((each, "; ".join(bad.values())))
    error = None if chosen else DamagedError(f"no set at {there.url} is whole; a fetch would bring none")
    sentence = f"Fetch brings {_described(chosen)} from {there.url}." if chosen else "Fetch fails: no set is whole."
    if as_json:
        terminal.put(_content(seen, there, chosen, passed, sentence, error))
    else:
        terminal.prose(sentence)
        if chosen:
            terminal.prose("Its checksums were not read." if quick else "All its checksums hold.")
        for each, reason in passed:
            terminal.prose(f"Not {label_of(each)}: {reason}.")
    if error:
        raise error


def _described(found: Found) -> str:
    record = record_of(found)
    assert record
    files = sum(1 for part in found.parts.values() for file in part.record.files if file.has_bytes)
    who = f" of {words.count(len(needed(record)), 'rank')}" if len(needed(record)) > 1 else ""
    when = f" of {words.moment(record.time)} ({words.age(record.time)})"
    return f"{label_of(found)}{when}: {words.count(files, 'file')}{who}, {words.size(found.size)},"


def _content(
    seen: Overview, there: There, chosen: Found | None, passed: list[tuple[Found, str]], sentence: str,
    error: DamagedError | None,
) -> dict[str, Any]:  # fmt: skip
    return {
        "directory": seen.work, "place": there.url, "outcome": "fetched" if chosen else "error", "text": sentence,
        "set": chosen.name.number if chosen else None, "step": chosen.step if chosen else None,
        "passed_over": [{"set": each.name.number, "step": each.step, "reason": why} for each, why in passed],
        "files": [], "error": error and {"code": error.code, "text": str(error)},
    }  # fmt: skip


def root_of(seen: Overview) -> Root:
    """Any of the directory, for its names."""
    if not seen.side:
        raise NothingSavedError(f"nothing was saved here: {seen.work} has no side directory")
    return seen.root(0)
