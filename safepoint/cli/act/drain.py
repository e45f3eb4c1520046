"""`safepoint drain`: put the newest complete set to another place."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import partial
from typing import Any

import click

from safepoint.cli import terminal
from safepoint.cli.act.follow import EACH, Follower
from safepoint.cli.act.node import drain_node
from safepoint.cli.act.orders import Orders, Request
from safepoint.cli.act.putting import Job, Late, newest, send, tell, to_commit, wait
from safepoint.cli.look.completion import set_numbers
from safepoint.cli.look.elsewhere import root_of, url_of, within_errors
from safepoint.cli.look.overview import look
from safepoint.cli.look.state import Overview, SetState
from safepoint.disk import kernel
from safepoint.disk.files import exists
from safepoint.errors import (
    LockedError,
    NothingSavedError,
    SaveError,
    UsageError,
)  # fmt: skip
from safepoint.pace.times import duration
from safepoint.patterns import NAME
from safepoint.program import SETTINGS
from safepoint.record import key, mark_key
from safepoint.root import Root
from safepoint.tiers import note
from safepoint.tiers.names import Claim, identity
from safepoint.tiers.note import Known
from safepoint.tiers.part import Changed
from safepoint.tiers.place import Unreachable, place_at
from safepoint.tiers.remote import Remote
from safepoint.tiers.sending import Rate, Sender, Sent
from safepoint.tiers.settings import rate as rate_of
from safepoint.tiers.url import place_of, refuse_secrets

DISK = terminal.DISK
HELD_PAUSE = 0.5  # seconds between two looks whether another drain has ended
HELD_LONG, HELD_SHORT = 60.0, 5.0  # seconds for which it may go on; and if it puts the same sets to the same place
AGAIN = 5  # times that a set is replaced by a newer one while it is opened


def _parsed(parse: Callable[[str], Any]) -> Callable[..., Any]:
    def callback(ctx: click.Context, param: click.Parameter, value: str | None) -> Any:
        try:
            return None if value is None else parse(value)
        except ValueError as error:
            raise click.BadParameter(str(error)) from None

    return callback


@click.command()
@terminal.directory
@click.option("--to", metavar="URL", help="The place; by default that of the setting `remote`.")
@click.option(
    "--set", "number", type=int, metavar="N", shell_complete=set_numbers, help="This set, not the newest one."
)
@click.option(
    "--rate", metavar="BYTES", callback=_parsed(rate_of), help="At most so many bytes a second, such as 200M."
)
@click.option("--within", metavar="TIME", callback=_parsed(duration), help="Give up after this time, such as 90s.")
@click.option("--follow", is_flag=True, help="Go on with each newer set, until --pid has ended, or Ctrl-C.")
@click.option("--pid", type=click.IntRange(2), metavar="PID", help="With --follow: the program that saves here.")
@click.option("--anew", is_flag=True, help="Put all bytes, also those that are there: if they are damaged there.")
@click.option("--beside", is_flag=True, hidden=True)
@click.option("--take-over", is_flag=True, help="Even if another directory puts its sets there.")
@terminal.as_json
def drain(
    directory: str, to: str | None, number: int | None, rate: int | None, within: float | None, follow: bool,
    pid: int | None, anew: bool, take_over: bool, as_json: bool, beside: bool,
) -> None:  # fmt: skip
    """Put the newest complete set to another place: a directory, or a store.

    Stores are s3://, gs://, abfs:// and ssh://, each with a package of its own. Credentials come from where its tools
    look. Works beside a run, takes no lock of it, and changes nothing here. Killed, it goes on with what is missing
    there. It ends with 0 if the newest complete set is at the place.
    """
    _refuse_together(follow, number is not None or as_json, pid is not None)
    seen = look(DISK, directory)
    if seen.manifest_error and (to is None or exists(DISK, os.path.join(seen.work, NAME))):
        raise seen.manifest_error
    told = seen.manifest.settings if seen.manifest else {name: default for name, (_, default) in SETTINGS.items()}
    place = _place(to or told["remote"])
    until = None if within is None else time.monotonic() + within
    if _of_nodes(seen, place, rate, until, [follow, anew, as_json, number], beside=to is None):
        return
    orders = Orders() if beside else None
    rest = partial(wait, until, moves=partial(orders.moves, "place") if orders else None)
    began = pid and kernel.began(pid)
    job = Job(directory, number, until, Rate(rate or told["drain_rate"], rest), pid, began, anew, rest)
    try:
        if follow:
            _await_a_run(seen.root(0), job)
            seen = look(DISK, directory)
        url = place_of(place, os.getcwd()) if orders else url_of(seen, place, os.getcwd() if to else seen.work)
        if not follow:
            if number is None and _says_that_the_result_is_there(seen, url, as_json=as_json):
                return
            seen.raise_if_empty()
        with ExitStack() as stack:
            if _held(stack, root := root_of(seen), job, url, orders):
                begin = partial(_sender, root, url, take_over, told["remote_keep"])
                if follow:
                    Follower(begin, job, root, url, orders, told["drain"] if orders else EACH).run()
                    return
                chosen, sent = _once(within_errors(begin, url, "put to"), job, url)
                _say(seen, url, chosen, sent, as_json=as_json)
            elif not orders:
                _say(seen, url, newest(job)[0], None, as_json=as_json)
    except Late as error:
        raise SaveError(str(error)) from error


def _of_nodes(
    seen: Overview, place: str, rate: int | None, until: float | None, others: list[object], *, beside: bool
) -> bool:
    """Whether this run has the setting `local`. Then what this node has is put."""
    if seen.manifest is None or seen.manifest.settings["local"] is None:
        return False
    if any(other not in (False, None) for other in others):
        raise UsageError("of a run with the setting local drain takes --to, --rate and --within; nothing was done")
    start, told = Root(seen.work, disk=DISK), seen.manifest.settings
    url = place_of(place, seen.work if beside else os.getcwd())
    most, keep = Rate(rate or told["drain_rate"]), told["remote_keep"]
    within_errors(partial(drain_node, start, told["local"], url, keep, most, until), url, "put to")
    return True


def _place(told: str | None) -> str:
    if told is None:
        raise UsageError("no place: give --to URL, or the setting `remote` in the manifest; nothing was changed")
    refuse_secrets(told)
    return told


def _refuse_together(follow: bool, one: bool, pid: bool) -> None:
    if follow and one:
        raise click.UsageError("--follow takes whatever is newest, and tells it as it comes")
    if pid and not follow:
        raise click.UsageError("--pid goes with --follow")


def _held(stack: ExitStack, root: Root, job: Job, url: str, orders: Orders | None) -> bool:
    """Whether this process alone puts sets from here, until the end of `stack`: it waits for another one that does. Not
    if that has put the newest set meanwhile, nor for long after the end of the run that has started this one: who is at
    it puts the newest set. Raises `LockedError` if another works at another place."""
    said, ended = False, 0.0
    asked: Request | None = None
    while True:
        try:
            stack.enter_context(note.alone(root, "drain"))
        except LockedError as error:
            places = note.read_notes(root).places
            known = places[0] if places and places[0].url == url else None
            if orders:
                if orders.over or job.ended:
                    ended = ended or time.monotonic()
                    if orders.told_to_end or time.monotonic() > ended + (HELD_SHORT if known else HELD_LONG):
                        return False
                # Not by the note of that drain: the place may have changed since, and the run gone back.
                asked = orders.taken() or asked
                if asked and time.monotonic() > asked.since + HELD_LONG:
                    orders.answer(asked, str(error))
                    asked = asked._replace(since=math.inf)  # it is still to be put, and the run may have gone back
                orders.pause(HELD_PAUSE)
                continue
            if places and not known:
                raise
            if job.pid is None and known and _is_at(known, job):
                return False
            if job.pid is None and known and known.trouble:
                raise SaveError(f"not put to {url}, and {error}: {known.trouble}") from error
            if not said:
                said = True
                click.echo(f"safepoint: waiting for the drain that is at work in {root.work}", err=True)
            wait(job.until, HELD_PAUSE)
        else:
            if orders and asked:
                orders.again(asked._replace(since=time.monotonic()))
            return True


def _is_at(known: Known, job: Job) -> bool:
    with suppress(NothingSavedError):
        record = next(iter(newest(job)[1].values()))[1]
        return identity(record.life, record.number, record.history) in known.sets
    return False


def _say(seen: Overview, url: str, chosen: SetState, sent: Sent | None, *, as_json: bool) -> None:
    newer = to_commit(look(DISK, seen.work), chosen.number)
    if as_json:
        terminal.put({
            "directory": seen.work, "place": url, "set": chosen.number, "step": chosen.step,
            "size": sent.size if sent else None, "sent": sent.went if sent else 0,
            "removed": [name.number for name in sent.removed] if sent else [],
        })  # fmt: skip
    elif sent:
        tell(chosen, sent, url, newer)
    else:
        terminal.say(f"{chosen.label} is at {url}: the drain that is at work here has put it{newer}")


def _says_that_the_result_is_there(seen: Overview, url: str, *, as_json: bool) -> bool:
    """As far as was seen when it was put, before the run was finished."""
    if not (seen.side and seen.mark and seen.finished):
        return False
    found = [text.split("-") for text in note.read_notes(seen.root(0)).at(url).sets]
    if not any(key(int(life), int(number)) == mark_key(seen.mark) for life, number, _ in found):
        return False
    if as_json:
        terminal.put({"directory": seen.work, "place": url, "set": seen.mark["number"], "step": seen.mark["step"],
                      "size": None, "sent": 0, "removed": []})  # fmt: skip
    else:
        terminal.say(f"the run in {seen.work} was finished, and its result is at {url} as its last set")
    return True


def _await_a_run(root: Root, job: Job) -> None:
    """Until the program has begun to save here, or has ended: it may have been started a moment ago."""
    while not exists(DISK, root.side) and not job.ended:
        wait(job.until, 0.5)


def _sender(root: Root, url: str, take_over: bool, keep: int) -> tuple[Sender, Claim]:
    # Where something was put before, and there is no directory now, none is made: it may be a mount point.
    make = take_over or not note.read_notes(root).at(url).sets
    try:
        place = place_at(url, DISK, root.work, make=make)
    except Unreachable as error:
        if make:
            raise
        raise Unreachable(f"{error} (sets were put there before, so none is made: is it not mounted?)") from error
    sender = Sender(root, Remote(place), url, take_over=take_over, keep=keep)
    return sender, sender.claim()


def _once(sender_and_claim: tuple[Sender, Claim], job: Job, url: str) -> tuple[SetState, Sent]:
    sender, claim = sender_and_claim
    for turn in range(AGAIN + 1):
        chosen, parts = newest(job)
        try:
            return chosen, within_errors(partial(send, sender, claim, job, chosen, parts), url, "put to")
        except Changed as error:  # a newer one is there now
            if turn == AGAIN or job.number is not None:
                raise SaveError(f"{chosen.label} not put to {url}: {error} while it was read") from error
    raise AssertionError
