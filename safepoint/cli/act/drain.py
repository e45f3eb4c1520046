"""`safepoint drain`: put the newest complete set to another place."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

import click

from safepoint import manifest, words
from safepoint.cli import terminal
from safepoint.cli.act.holding import within_errors
from safepoint.cli.look.completion import set_numbers
from safepoint.cli.look.overview import look
from safepoint.cli.look.state import Overview, SetState
from safepoint.disk.files import exists
from safepoint.errors import (
    DamagedError,
    ManifestError,
    NothingSavedError,
    SafepointError,
    SaveError,
    UsageError,
)  # fmt: skip
from safepoint.pace.times import duration
from safepoint.patterns import NAME
from safepoint.program import SETTINGS
from safepoint.root import Root
from safepoint.tiers import note
from safepoint.tiers.names import Claim
from safepoint.tiers.part import Changed
from safepoint.tiers.place import place_at
from safepoint.tiers.remote import Remote
from safepoint.tiers.sending import Parts, Rate, Sender, Sent, gone, place_of
from safepoint.tiers.settings import rate as rate_of
from safepoint.tiers.url import RANK, of_rank, refuse_secrets

DISK = terminal.DISK
PAUSE, LONGEST_PAUSE = 2.0, 60.0  # seconds between two looks of --follow; after a place did not answer
AFTER = 3600.0  # seconds that --follow tries to reach a place after the program has ended
AGAIN = 5  # times that a set is replaced by a newer one while it is opened


class _Late(Exception):
    """The time that was given has passed."""


class _Job(NamedTuple):
    """What was asked for."""

    directory: str
    number: int | None
    until: float | None
    rate: Rate
    follow: bool
    pid: int | None


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
@click.option("--take-over", is_flag=True, help="Even if another directory puts its sets there.")
@terminal.as_json
def drain(
    directory: str, to: str | None, number: int | None, rate: int | None, within: float | None, follow: bool,
    pid: int | None, take_over: bool, as_json: bool,
) -> None:  # fmt: skip
    """Put the newest complete set to another place: a directory, or a store.

    Stores are s3://, gs://, abfs:// and ssh://, each with a package of its own. Credentials come from where its tools
    look. Works beside a run, takes no lock of it, and changes nothing here. Killed, it goes on with what is missing
    there. It ends with 0 if the newest complete set is at the place.
    """
    if follow and (number is not None or as_json):
        raise click.UsageError("--follow takes whatever is newest, and tells it as it comes")
    if pid is not None and not follow:
        raise click.UsageError("--pid goes with --follow")
    seen = look(DISK, directory)
    if seen.manifest_error and (to is None or exists(DISK, os.path.join(seen.work, NAME))):
        raise seen.manifest_error
    told = seen.manifest.settings if seen.manifest else {name: default for name, (_, default) in SETTINGS.items()}
    url = _url(seen, to or told["remote"])
    if not follow:
        seen.raise_if_empty()
    until = None if within is None else time.monotonic() + within
    job = _Job(directory, number, until, Rate(rate or told["drain_rate"], partial(_sleep, until)), follow, pid)
    root = seen.root(0)
    if not seen.side:
        raise NothingSavedError(f"nothing is saved here yet: {seen.work} has no side directory")
    begin = partial(_sender, root, url, take_over, told["remote_keep"])
    with note.alone(root, "drain"):
        try:
            if follow:
                _Follower(begin, job, url).run()
                return
            chosen, sent = _once(within_errors(begin, url, "put to"), job, url)
        except _Late as error:
            raise SaveError(str(error)) from error
    if as_json:
        terminal.put({
            "directory": seen.work, "place": url, "set": chosen.number, "step": chosen.step, "size": sent.size,
            "sent": sent.went, "removed": [name.number for name in sent.removed],
        })  # fmt: skip
    else:
        _tell(chosen, sent, url)


def _url(seen: Overview, told: str | None) -> str:
    if told is None:
        raise UsageError("no place: give --to URL, or the setting `remote` in the manifest; nothing was changed")
    refuse_secrets(told)
    newest = next((what for s in seen.sets for what in s.descriptions), None)
    alone = newest is not None and newest.saver is None and newest.ranks > 1
    if alone and newest and RANK not in told:
        raise UsageError(
            f"each rank of this program has a directory of its own, so each needs a place of its own: write {RANK} "
            f"into {told}; nothing was changed"
        )
    return place_of(of_rank(told, newest.rank if newest else 0), seen.work)


def _sender(root: Root, url: str, take_over: bool, keep: int) -> tuple[Sender, Claim]:
    sender = Sender(root, Remote(place_at(url, DISK, root.work, make=True)), url, take_over=take_over, keep=keep)
    return sender, sender.claim()


def _newest(job: _Job) -> tuple[SetState, Parts]:
    """The set that is to be put, and its parts."""
    seen = look(DISK, job.directory)
    seen.raise_if_empty()
    if job.number is not None:
        chosen: SetState | None = seen.find(job.number)
    else:
        chosen = next((s for s in seen.sets if s.state == "complete"), None)
    if chosen is None or chosen.state not in ("complete", "ended", "foreign"):
        if seen.finished:
            raise NothingSavedError(
                f"the run in {seen.work} was finished: the files in place are the result, copy those"
            )
        why = f"{chosen.label} is {chosen.state}: {chosen.why}" if chosen else "no set is complete"
        raise NothingSavedError(f"nothing to put: in {seen.work} {why}")
    parts = {}
    for rank in chosen.needed:
        record = chosen.parts[rank].record
        assert record
        parts[record.rank] = (seen.root(rank, chosen), record)
    return chosen, parts


def _once(sender_and_claim: tuple[Sender, Claim], job: _Job, url: str) -> tuple[SetState, Sent]:
    sender, claim = sender_and_claim
    for turn in range(AGAIN + 1):
        chosen, parts = _newest(job)
        try:
            return chosen, within_errors(partial(_send, sender, claim, job, chosen, parts), url, "put to")
        except Changed as error:  # a newer one is there now
            if turn == AGAIN or job.number is not None:
                raise SaveError(f"{chosen.label} not put to {url}: {error} while it was read") from error
    raise AssertionError


def _send(sender: Sender, claim: Claim, job: _Job, chosen: SetState, parts: Parts) -> Sent:
    def tick(more: int) -> None:
        _sleep(job.until, 0)
        advance(more)

    total = sum(file.stored_size for _, record in parts.values() for file in record.files)
    with terminal.progress(f"putting {chosen.label}", total) as advance:
        try:
            return sender.send(parts, claim, job.rate, tick, _manifest(job.directory))
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE):
                raise
            raise SaveError(
                f"{chosen.label} not put: {error.filename}: {error.strerror}: all its files are open while it goes, "
                f"so raise the limit (`ulimit -n`), or let small files be one (the setting `bundle_from`)"
            ) from error


def _sleep(until: float | None, seconds: float) -> None:
    """So long, but not past the end of the time that was given. Raises `_Late`."""
    if until is not None and time.monotonic() + seconds > until:
        time.sleep(max(0.0, until - time.monotonic()))
        raise _Late("the set is not there whole: the time is over; a later drain goes on with the rest")
    time.sleep(seconds)


def _manifest(directory: str) -> str:
    """The text that goes along, if it is one, without its comments: what is no part of it may be a secret."""
    with suppress(ManifestError):
        manifest.parse(text := manifest.read(directory), settings=SETTINGS)
        return manifest.ASIDE.sub(lambda found: "" if found[0].startswith("#") else found[0], text)
    return ""


def _tell(chosen: SetState, sent: Sent, url: str) -> None:
    how = f"{words.size(sent.went)} put now" if sent.went else "it was there already"
    terminal.say(f"{chosen.label} is at {url}: {words.size(sent.size)}, {how}")
    if sent.removed:
        terminal.say(f"removed there: {', '.join(f'set {name.number}' for name in sent.removed)}")


class _Follower:
    """Puts each set that is the newest when the one before is there. A place that does not answer is told once, and
    tried again and again; after the end of the program for an hour."""

    def __init__(self, begin: Callable[[], tuple[Sender, Claim]], job: _Job, url: str) -> None:
        self._begin, self._job, self._url = begin, job, url
        self._begun: tuple[Sender, Claim] | None = None
        self._failed: tuple[int, DamagedError] | None = None  # a set that cannot be put
        self._away = False

    def run(self) -> None:
        """Until the newest set of a program that has ended is there, or the time is over."""
        pause, ended = PAUSE, None
        while True:
            if ended is None and self._job.pid is not None and gone(self._job.pid):
                ended = time.monotonic()  # before the look: its last set is seen after
            went, error = self._turn()
            if went:
                continue
            if ended is not None and error is None:
                return
            if ended is not None and error and (not isinstance(error, SaveError) or time.monotonic() > ended + AFTER):
                raise error  # nothing will change
            if self._job.until is not None and time.monotonic() > self._job.until:
                if error:
                    raise _Late(f"{self._url} does not have the newest set: the time is over; {error}")
                return
            pause = min(2 * pause, LONGEST_PAUSE) if isinstance(error, SaveError) else PAUSE
            time.sleep(pause)

    def _turn(self) -> tuple[bool, SafepointError | None]:
        """Whether a set was put; and, if the newest one is not there now, why."""
        chosen = None
        try:
            self._begun = self._begun or within_errors(self._begin, self._url, "put to")
            chosen, parts = _newest(self._job)
            if self._failed and self._failed[0] == chosen.number:
                return False, self._failed[1]
            if not self._begun[0].missing(parts):
                return False, None
            sent = within_errors(partial(_send, *self._begun, self._job, chosen, parts), self._url, "put to")
        except Changed:
            return True, None  # a newer one is there now
        except NothingSavedError as error:
            return False, None if look(DISK, self._job.directory).finished else error
        except (SaveError, DamagedError) as error:
            self._tell_why(chosen, error)
            return False, error
        if self._away:
            terminal.say(f"{self._url} answers again")
        self._away = False
        _tell(chosen, sent, self._url)
        return True, None

    def _tell_why(self, chosen: SetState | None, error: SafepointError) -> None:
        text = terminal.printable(str(error))
        if chosen and isinstance(error, DamagedError):
            self._failed = chosen.number, error  # the next set may be whole
            click.echo(f"safepoint: {text}", err=True)
        elif not self._away:
            self._away = True
            click.echo(f"safepoint: {text}; it is tried again", err=True)
