"""`safepoint drain --follow`: each set that is the newest when the one before is there."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import click

from safepoint.cli import terminal
from safepoint.cli.act.holding import within_errors
from safepoint.cli.act.putting import Job, Late, newest, send, tell, to_commit, wait
from safepoint.cli.look.overview import look
from safepoint.cli.look.state import SetState
from safepoint.errors import (
    DamagedError,
    LockedError,
    NothingSavedError,
    SafepointError,
    SaveError,
)  # fmt: skip
from safepoint.tiers.names import Claim
from safepoint.tiers.part import Changed
from safepoint.tiers.sending import Sender

DISK = terminal.DISK
PAUSE, LONGEST_PAUSE = 2.0, 60.0  # seconds between two looks of --follow; after a place did not answer
FENCED = 3  # looks at a claim that is another's, before it is believed
AFTER = 3600.0  # seconds that --follow tries to reach a place after the program has ended


class Follower:
    """Puts each set that is the newest when the one before is there. A place that does not answer is told once, and
    tried again and again; after the end of the program for an hour."""

    def __init__(self, begin: Callable[[], tuple[Sender, Claim]], job: Job, url: str) -> None:
        self._begin, self._job, self._url = begin, job, url
        self._begun: tuple[Sender, Claim] | None = None
        self._failed: tuple[int, DamagedError] | None = None  # a set that cannot be put
        self._away = False

    def run(self) -> None:
        """Until the newest set of a program that has ended is there, or the time is over."""
        pause, ended, fenced = PAUSE, None, 0
        while True:
            if ended is None and self._job.ended:
                ended = time.monotonic()  # before the look: its last set is seen after
            try:
                went, error = self._turn(last=ended is not None)
                fenced = 0
            except LockedError:  # of a claim that is taken back, perhaps
                if (fenced := fenced + 1) > FENCED:
                    raise
                self._begun, went, error = None, False, None
            if went:
                continue
            if ended is not None and error is None and not fenced:
                self._say_what_is_not_there()
                return
            if ended is not None and error and (not isinstance(error, SaveError) or time.monotonic() > ended + AFTER):
                raise error  # nothing will change
            pause = min(2 * pause, LONGEST_PAUSE) if isinstance(error, SaveError) else PAUSE
            try:
                wait(self._job.until, pause)
            except Late as late:
                if error or fenced:
                    raise Late(f"{self._url} does not have the newest set: the time is over; {error or ''}") from late
                return

    def _say_what_is_not_there(self) -> None:
        seen = look(DISK, self._job.directory)
        if seen.finished:
            terminal.say(f"the run was finished: the files in {seen.work} are the result, which is not at {self._url}")
        elif newer := to_commit(seen, max((s.number for s in seen.sets if s.state == "complete"), default=0)):
            terminal.say(newer.removeprefix("; "))

    def _turn(self, *, last: bool) -> tuple[bool, SafepointError | None]:
        """Whether a set was put; and, if the newest one is not there now, why. `last`: what the note says of the place
        is not enough."""
        chosen = None
        try:
            self._begun = self._begun or within_errors(self._begin, self._url, "put to")
            sender, claim = self._begun
            chosen, parts = newest(self._job)
            if self._failed and self._failed[0] == chosen.number:
                return False, self._failed[1]
            if last:
                within_errors(partial(sender.refresh, claim), self._url, "put to")
            if not sender.missing(parts):
                return False, None
            sent = within_errors(partial(send, sender, claim, self._job, chosen, parts), self._url, "put to")
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
        tell(chosen, sent, self._url, "")
        return True, None

    def _tell_why(self, chosen: SetState | None, error: SafepointError) -> None:
        text = terminal.printable(str(error))
        if chosen and isinstance(error, DamagedError):
            self._failed = chosen.number, error  # the next set may be whole
            click.echo(f"safepoint: {text}", err=True)
            return
        self._begun = None  # a claim may be lost, or another's by now
        if not self._away:
            self._away = True
            click.echo(f"safepoint: {text}; it is tried again", err=True)
