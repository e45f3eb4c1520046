"""`safepoint drain --follow`: each set that is the newest when the one before is there."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import click

from safepoint import words
from safepoint.cli import terminal
from safepoint.cli.act.orders import Orders, Request
from safepoint.cli.act.putting import Job, Late, newest, send, tell, to_commit, wait
from safepoint.cli.look.elsewhere import within_errors
from safepoint.cli.look.overview import look
from safepoint.cli.look.state import SetState
from safepoint.disk.files import cause
from safepoint.errors import (
    DamagedError,
    LockedError,
    NothingSavedError,
    SafepointError,
    SaveError,
)  # fmt: skip
from safepoint.root import Root
from safepoint.tiers import note
from safepoint.tiers.names import Claim, identity
from safepoint.tiers.part import Changed
from safepoint.tiers.sending import Parts, Sender
from safepoint.tiers.settings import When

DISK = terminal.DISK
PAUSE, LONGEST_PAUSE = 2.0, 60.0  # seconds between two looks of --follow; after a place did not answer
FENCED = 3  # looks at a claim that is another's, before it is believed
EACH = When()
UNSEEN = 60.0  # seconds that a set which the run has is looked for: other nodes may see it later
AFTER = 3600.0  # seconds that --follow tries to reach a place after the program has ended


class Follower:
    """Puts each set that is the newest when the one before is there, or, by the run's setting `drain`, is old enough. A
    place that does not answer is told once, and tried again and again; after the end of the program for an hour."""

    def __init__(
        self, begin: Callable[[], tuple[Sender, Claim]], job: Job, root: Root, url: str, orders: Orders | None = None,
        when: When = EACH,
    ) -> None:  # fmt: skip
        self._begin, self._job, self._root, self._url = begin, job, root, url
        self._orders, self._when = orders, when
        self._begun: tuple[Sender, Claim] | None = None
        self._failed: tuple[int, DamagedError] | None = None  # a set that cannot be put
        self._away = False
        self._put: tuple[int, float] | None = None  # the last one, and when that was begun
        self._owner = _owner(job) if orders else None

    def run(self) -> None:
        """Until the newest set of a program that has ended is there, or the time is over."""
        try:
            self._run()
        except SafepointError as error:
            if self._orders:
                self._tell_trouble(text := _text(error))
                self._orders.say("over", text)
            raise

    def _run(self) -> None:
        pause, ended, fenced = PAUSE, None, 0
        asked: Request | None = None
        while True:
            if ended is None and (self._job.ended or (self._orders and self._orders.over)):
                ended = time.monotonic()  # before the look: its last set is seen after
            asked = (self._orders and self._orders.taken()) or asked
            if self._orders:
                self._orders.awaits("place", self._url)
            try:
                went, error = self._turn(last=ended is not None or asked is not None)
                fenced = 0
            except LockedError:  # of a claim that is taken back, perhaps
                if (fenced := fenced + 1) > FENCED:
                    raise
                self._begun, went, error = None, False, None
            if went:
                continue
            if asked and not fenced and self._answered(asked, error):
                asked = None
            if ended is not None and error is None and not fenced:
                self._say_what_is_not_there()
                return
            if ended is not None and error and self._gives_up(error, ended):
                raise error  # nothing will change
            pause = min(2 * pause, LONGEST_PAUSE) if isinstance(error, SaveError) else PAUSE
            try:
                self._pause(pause, ended=ended is not None)
            except Late as late:
                if error or fenced:
                    raise Late(f"{self._url} does not have the newest set: the time is over; {error or ''}") from late
                return

    def _gives_up(self, error: SafepointError, ended: float) -> bool:
        if not isinstance(error, SaveError) or time.monotonic() > ended + AFTER:
            return True
        return self._orders is not None and (self._orders.told_to_end or self._is_next_at_work())

    def _is_next_at_work(self) -> bool:
        """The next run has started a drain of its own, which waits for this one. Not the run of this one, which may be
        about to end."""
        owner = _owner(self._job)
        return owner is not None and owner != self._owner

    def _pause(self, seconds: float, *, ended: bool) -> None:
        if not self._orders:
            wait(self._job.until, seconds)
            return
        self._orders.awaits("place", "")
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0 and not self._orders.pause(min(left, PAUSE)):
            if ended and self._is_next_at_work():
                return

    def _answered(self, asked: Request, error: SafepointError | None) -> bool:
        """Tell the run whether its newest set is there, and the newest one, as the place itself says."""
        assert self._orders
        why: str | None = _text(error) if error else ""
        if isinstance(error, NothingSavedError):  # a set of this run: other nodes see it later
            why = None
        try:
            if not error and self._begun:
                sender, claim = self._begun
                why = self._not_newest(asked)
                if why == "":
                    call = partial(sender.confirm, claim, asked.identity, back=asked.back)
                    why = within_errors(call, self._url, "put to")
                if why == "":
                    self._orders.say("there", asked.identity)
        except LockedError:  # the next turn tells how it is meant
            return False
        except NothingSavedError:
            why = None
        except (SafepointError, OSError) as failure:
            self._begun, why = None, _text(failure)
        if why is None and time.monotonic() < asked.since + UNSEEN:
            return False
        self._orders.answer(asked, "its parts cannot all be seen from where the drain is" if why is None else why)
        return True

    def _not_newest(self, asked: Request) -> str | None:
        """A request may be an old one, which nobody waits for any more. None: the set cannot be seen here yet."""
        record = next(iter(newest(self._job)[1].values()))[1]
        if (there := identity(record.life, record.number, record.history)) == asked.identity:
            return ""
        return f"{record.label} is newer" if _order(there) > _order(asked.identity) else None

    def _tell_trouble(self, why: str) -> None:
        """To whoever asks for the state of the directory; empty: there is none any more."""
        with contextlib.suppress(OSError):  # this disk may be full
            if self._begun:
                self._begun[0].tell(trouble=why)
            elif why:
                note.tell(self._root, self._url, trouble=why)

    def _say_what_is_not_there(self) -> None:
        seen = look(DISK, self._job.directory)
        if seen.finished:
            terminal.say(f"the run was finished: the files in {seen.work} are the result, which is not at {self._url}")
        elif newer := to_commit(seen, max((s.number for s in seen.sets if s.state == "complete"), default=0)):
            terminal.say(newer.removeprefix("; "))

    def _turn(self, *, last: bool) -> tuple[bool, SafepointError | None]:
        """Whether a set was put; and, if the newest one is not there now, why. `last`: what the note says of the place
        is not enough."""
        chosen, sent, begun = None, None, time.monotonic()
        try:
            chosen, parts = newest(self._job)  # before the place is claimed: there may be nothing to put
            self._begun = self._begun or within_errors(self._begin, self._url, "put to")
            sender, claim = self._begun
            if not last and not self._when.is_due(chosen.number, self._put):
                return False, None
            if self._failed and self._failed[0] == chosen.number:
                return False, self._failed[1]
            if last:
                within_errors(partial(sender.refresh, claim), self._url, "put to")
            if sender.missing(parts):
                sent = within_errors(partial(send, sender, claim, self._job, chosen, parts), self._url, "put to")
        except Changed:
            return True, None  # a newer one is there now
        except NothingSavedError as error:
            return False, None if look(DISK, self._job.directory).finished else error
        except (SaveError, DamagedError) as error:
            self._tell_why(chosen, error)
            return False, error
        except OSError as error:  # of this disk, for a moment perhaps
            failure = SaveError(f"{error.filename or self._job.directory}: {cause(error)}", error.errno)
            self._tell_why(chosen, failure)
            return False, failure
        self._fine(chosen, parts)
        if sent is None:
            return False, None
        self._put = chosen.number, begun
        tell(chosen, sent, self._url, "")
        return True, None

    def _fine(self, chosen: SetState, parts: Parts) -> None:
        """The newest set is there."""
        if self._away:
            self._log(f"{self._url} answers again")
        self._away = False
        if self._orders:
            self._tell_trouble("")
            self._orders.say("fine")
            record = next(iter(parts.values()))[1]
            self._orders.say("there", identity(record.life, record.number, record.history))

    def _log(self, text: str) -> None:
        """Beside a run with the time, as nobody reads it at once."""
        when = f"{words.moment(time.time())} " if self._orders else ""
        click.echo(f"safepoint: {when}{text}", err=True)

    def _tell_why(self, chosen: SetState | None, error: SafepointError) -> None:
        text = _text(error)
        if chosen and isinstance(error, DamagedError):
            self._failed = chosen.number, error  # the next set may be whole
        else:
            self._begun = None  # a claim may be lost, or another's by now
            if self._away:
                return
            self._away = True
            text = f"{text}; it is tried again"
        self._log(text)
        if self._orders:
            self._tell_trouble(text)
            self._orders.say("trouble", text)


def _owner(job: Job) -> dict[str, Any] | None:
    """Who is at work there."""
    running = look(DISK, job.directory).running
    return running.owner if running else None


def _text(error: BaseException) -> str:
    return terminal.printable(str(error) or type(error).__name__)


def _order(text: str) -> tuple[int, int]:
    life, number, _ = text.split("-")
    return int(life), int(number)
