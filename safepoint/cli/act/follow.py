"""`safepoint drain --follow`: each set that is the newest when the one before is there."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import click

from safepoint.cli import terminal
from safepoint.cli.act.putting import Job, Late, newest, send, tell, to_commit, wait
from safepoint.cli.look.elsewhere import within_errors
from safepoint.cli.look.overview import look
from safepoint.cli.look.state import SetState
from safepoint.errors import (
    DamagedError,
    LockedError,
    NothingSavedError,
    SafepointError,
    SaveError,
)  # fmt: skip
from safepoint.root import Root
from safepoint.tiers import note
from safepoint.tiers.names import Claim
from safepoint.tiers.part import Changed
from safepoint.tiers.sending import Sender
from safepoint.tiers.settings import When

DISK = terminal.DISK
PAUSE, LONGEST_PAUSE = 2.0, 60.0  # seconds between two looks of --follow; after a place did not answer
FENCED = 3  # looks at a claim that is another's, before it is believed
NICE = 10
EACH = When()
AFTER = 3600.0  # seconds that --follow tries to reach a place after the program has ended


class Orders:
    """What the run says by the pipe, if it has started this drain beside itself: a line is a request for the newest
    set, which is answered in the note; the end of the pipe is that of the session."""

    def __init__(self) -> None:
        self.over = self.told_to_end = False
        self._asked, self._came = 0, threading.Event()
        with contextlib.suppress(AttributeError, OSError):  # the solver goes first
            os.nice(NICE)
        for name in ("SIGINT", "SIGHUP"):  # they are meant for the program
            if hasattr(signal, name):
                signal.signal(getattr(signal, name), signal.SIG_IGN)
        signal.signal(signal.SIGTERM, self._end)
        threading.Thread(target=self._read, name="safepoint-orders", daemon=True).start()

    def _end(self, number: int, frame: object) -> None:
        """A job is told so as a whole; the program may save once more. But nothing is tried again after its end."""
        self.told_to_end = True

    def _read(self) -> None:
        rest = b""
        # Not by `sys.stdin`: a thread that waits in there lets no interpreter end.
        while data := os.read(0, 4096):
            *lines, rest = (rest + data).split(b"\n")
            if lines:
                self._asked = int(lines[-1])
                self._came.set()
        self.over = True
        self._came.set()

    def pause(self, seconds: float) -> None:
        """So long, or until there is something new."""
        self._came.wait(seconds)
        self._came.clear()

    def taken(self) -> int:
        """The last request, once; 0: there is none."""
        asked, self._asked = self._asked, 0
        return asked


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

    def run(self) -> None:
        """Until the newest set of a program that has ended is there, or the time is over."""
        try:
            self._run()
        except SafepointError as error:
            if self._orders:
                self._tell(trouble=terminal.printable(str(error)))
            raise

    def _run(self) -> None:
        pause, ended, fenced, asked = PAUSE, None, 0, 0
        while True:
            if ended is None and (self._job.ended or (self._orders and self._orders.over)):
                ended = time.monotonic()  # before the look: its last set is seen after
            asked = (self._orders and self._orders.taken()) or asked
            try:
                went, error = self._turn(last=ended is not None or bool(asked))
                fenced = 0
            except LockedError:  # of a claim that is taken back, perhaps
                if (fenced := fenced + 1) > FENCED:
                    raise
                self._begun, went, error = None, False, None
            if went:
                continue
            if asked and not fenced:
                self._tell(answered=asked, trouble=terminal.printable(str(error)) if error else "")
                asked = 0
            if ended is not None and error is None and not fenced:
                self._say_what_is_not_there()
                return
            if ended is not None and error and self._gives_up(error, ended):
                raise error  # nothing will change
            pause = min(2 * pause, LONGEST_PAUSE) if isinstance(error, SaveError) else PAUSE
            try:
                self._orders.pause(pause) if self._orders else wait(self._job.until, pause)
            except Late as late:
                if error or fenced:
                    raise Late(f"{self._url} does not have the newest set: the time is over; {error or ''}") from late
                return

    def _gives_up(self, error: SafepointError, ended: float) -> bool:
        told = self._orders is not None and self._orders.told_to_end
        return told or not isinstance(error, SaveError) or time.monotonic() > ended + AFTER

    def _tell(self, **what: Any) -> None:
        """The run, by the note."""
        if self._begun:
            self._begun[0].tell(**what)
        else:
            note.tell(self._root, self._url, **what)

    def _is_time(self, number: int) -> bool:
        if self._put is None:
            return True
        last, begun = self._put
        return number >= last + self._when.sets and time.monotonic() >= begun + self._when.seconds

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
            if not last and not self._is_time(chosen.number):
                return False, None
            if self._failed and self._failed[0] == chosen.number:
                return False, self._failed[1]
            if last:
                within_errors(partial(sender.refresh, claim), self._url, "put to")
            if not sender.missing(parts):
                return False, None
            begun = time.monotonic()
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
        self._away, self._put = False, (chosen.number, begun)
        tell(chosen, sent, self._url, "")
        return True, None

    def _tell_why(self, chosen: SetState | None, error: SafepointError) -> None:
        text = terminal.printable(str(error))
        if chosen and isinstance(error, DamagedError):
            self._failed = chosen.number, error  # the next set may be whole
            click.echo(f"safepoint: {text}", err=True)
            if self._orders:
                self._tell(trouble=text)
            return
        self._begun = None  # a claim may be lost, or another's by now
        if not self._away:
            self._away = True
            click.echo(f"safepoint: {text}; it is tried again", err=True)
            if self._orders:
                self._tell(trouble=f"{text}; it is tried again")
