"""`safepoint drop`: remove one set."""

from __future__ import annotations

import sys

import click

from safepoint import words
from safepoint.cli import terminal
from safepoint.cli.act.holding import alone_in
from safepoint.cli.look import elsewhere
from safepoint.cli.look.completion import set_numbers
from safepoint.cli.look.overview import look
from safepoint.cli.look.state import Overview, SetState
from safepoint.cli.look.verify import read_all
from safepoint.errors import LockedError, SaveError, UsageError
from safepoint.restoring.grown import begun_anew, keep_prefixes
from safepoint.saving import prune
from safepoint.tiers import note
from safepoint.tiers.fetching import Found


@click.command()
@click.argument("number", metavar="N", type=int, shell_complete=set_numbers)
@terminal.directory
@click.option("--force", is_flag=True, help="Even if no whole set is left then.")
@elsewhere.level
@terminal.yes
@terminal.as_json
def drop(number: int, directory: str, force: bool, level: str, yes: bool, as_json: bool) -> None:
    """Remove one set.

    Of all ranks, while no run is at work. The last whole set is removed only with --force: its files may exist nowhere
    else, and a restart would have nothing to give back. With --level remote: that at the other place, while no drain is
    at work; nothing is changed here.
    """
    if level == "remote":
        _drop_there(look(terminal.DISK, directory), number, force=force, yes=yes, as_json=as_json)
        return
    with alone_in(directory) as seen:
        seen.raise_if_empty()
        chosen = seen.find(number)
        others = (s for s in seen.sets if s.usable and s.number != number)
        ended = chosen.state == "ended"
        takes = next((s for s in others if ended or _is_whole(seen, s)), None)
        if takes is None and not ended and not force:
            raise UsageError(f"{chosen.label} is not removed: no whole set would be left (--force removes it)")
        after = f"a restart then takes {takes.label}" if takes else "no whole set is left then, and its files are lost"
        _, _, stored = chosen.totals
        if not terminal.agreed(f"Remove {chosen.label}, {words.size(stored)}? ({after})", yes=yes):
            raise UsageError(f"{chosen.label} is not removed")
        lost = _copies_lost(seen, takes) if takes else ""
        if lost and not force:
            raise UsageError(f"{chosen.label} is not removed: {lost} (--force removes it)")
        for rank in seen.ranks:
            if number in rank.root.numbers("set"):
                with rank.root.reporting(SaveError, f"cannot remove {chosen.label}", "the other sets are as they were"):
                    prune.drop(rank.root, [number])
        if as_json:
            restart = takes.number if takes else None
            terminal.put({"directory": seen.work, "removed": number, "freed": stored, "restart": restart})
        else:
            terminal.say(f"removed {chosen.label}, {words.size(stored)}; {after}")


def _drop_there(seen: Overview, number: int, *, force: bool, yes: bool, as_json: bool) -> None:
    root = elsewhere.root_of(seen)
    with note.alone(root, "drop"):
        there = elsewhere.look_there(seen)
        known = note.read_notes(root).at(there.url)
        chosen = there.find(number, known.mine.id if known.mine else "")
        name, claims = elsewhere.label_of(chosen), there.listing.claims
        ours = known.home in ("", note.home(root)) and claims[-1:] == ((known.mine,) if known.mine else ())
        if claims and not ours and not force:
            raise LockedError(f"{name} is not removed: {there.url} has sets of another run (--force removes it)")
        # Not those of another run, which has nothing to do with this one.
        mine = (chosen.name.id, known.seen.id if known.seen else "")
        others = [e for e in there.sets() if e.name != chosen.name and not e.why and e.name.id in mine]
        left = next((each for each in others if force or _is_whole_there(there, each)), None)
        if left is None and not chosen.why and not force:
            raise UsageError(f"{name} is not removed: no whole set would be left there (--force removes it)")
        after = f"a fetch then brings {elsewhere.label_of(left)}" if left else "no whole set is left there then"
        if not terminal.agreed(f"Remove {name} at {there.url}, {words.size(chosen.size)}? ({after})", yes=yes):
            raise UsageError(f"{name} is not removed")
        keep = [each for each in there.listing.sets if each != chosen.name]
        elsewhere.within_errors(lambda: there.remote.prune(there.listing, keep), there.url, "removed at")
        note.tell(root, there.url, sets=tuple(text for text in known.sets if text != chosen.name.identity))
    if as_json:
        terminal.put({"directory": seen.work, "place": there.url, "removed": number, "freed": chosen.size,
                      "restart": left.name.number if left else None})  # fmt: skip
    else:
        terminal.say(f"removed {name} at {there.url}, {words.size(chosen.size)}; {after}")


def _is_whole_there(there: elsewhere.There, each: Found) -> bool:
    """By all of its bytes, as here."""
    states = elsewhere.read_there(there, [each])[each.name]
    return all(state == "ok" for state, _ in states.values())


def _copies_lost(seen: Overview, takes: SetState) -> str:
    """The set that goes may have the only copy of the append rows that the other one needs: that gets one of its own,
    of whatever size. Why it cannot have it, if it has no other."""
    for rank in seen.ranks:
        part = takes.parts.get(rank.rank)
        if part and part.record:
            reasons = keep_prefixes(rank.root, part.record, sys.maxsize)
            files = [file for file in part.record.files if file.kind == "append"]
            if reasons and any(begun_anew(rank.root, takes.number, file) for file in files):
                return "; ".join(reasons)
    return ""


def _is_whole(seen: Overview, kept: SetState) -> bool:
    """By its checksums: what may be all that is left is looked at before the other one goes."""
    return all(state != "damaged" for state, _ in read_all(seen, [kept]).values())
