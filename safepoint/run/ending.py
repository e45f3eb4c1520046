"""When and how the command is told to end: before a time limit, by a signal to us, or for `safepoint halt`."""

from __future__ import annotations

import math
import os
import re
import signal
import time

from safepoint.errors import UsageError
from safepoint.owner import read_owner
from safepoint.pace.limits import Limit, time_limits
from safepoint.pace.signals import Signals, name_of, signal_numbers
from safepoint.pace.stopping import REQUEUE, Stop
from safepoint.pace.times import duration
from safepoint.root import Root
from safepoint.run.options import Options
from safepoint.run.speech import say
from safepoint.words import about

AHEAD_S, AHEAD_SHARE = 60.0, 0.1  # the command is told to end so long before the limit; at most this share of it


class Ending:
    """Over all lives of a command. `begin` it when the lock is held."""

    def __init__(self, options: Options) -> None:
        """Raises `UsageError`."""
        name, _, seconds = options.signal.partition("@")
        try:
            (self._signal,) = signal_numbers([name or "TERM"])
        except UsageError as error:
            raise UsageError(f"--signal {options.signal}: {error}") from error
        self._translates = bool(options.signal)
        if seconds and not re.fullmatch(r"\d+", seconds):
            raise UsageError(f"--signal {options.signal}: takes a name, and after an @ a number of seconds")
        self._ahead = float(seconds) if seconds else None
        self._bounds: list[Limit] = []
        if options.limit or options.signal:
            try:
                after = duration(options.limit) if options.limit not in ("", "auto") else None
            except ValueError as error:
                raise UsageError(f"--time-limit {error}, or auto, not {options.limit}") from error
            self._bounds = time_limits(None, after, time.time(), os.environ)
            if options.limit == "auto" and not self._bounds:
                raise UsageError("--time-limit auto: no job scheduler started this, and SAFEPOINT_STOP_AT is not set")
        self._longest = 0.0  # seconds, of a segment
        self._step = 0
        self._done = False

    def begin(self, root: Root) -> None:
        self._stop = Stop(root, read_owner(root), self._bounds, Signals(()))

    @property
    def status(self) -> int:
        """The exit status that says why; 0: nothing was told."""
        return self._stop.status

    @property
    def _notice(self) -> float:
        """Seconds that the command has from the signal to the limit."""
        if self._ahead is None:
            for bound in self._bounds:
                bound.ask(again=False)
            first = min((bound.end for bound in self._bounds), default=math.inf)
            self._ahead = min(AHEAD_S, AHEAD_SHARE * max(0.0, first - time.time()))
        return self._ahead

    def told(self, number: int) -> bool:
        """Whether this signal to us is one that `--signal` stands for."""
        if not self._translates or name_of(number) not in ("SIGTERM", "SIGUSR1", "SIGUSR2"):
            return False
        if self._done and number == signal.SIGTERM:
            return False  # it was told, and goes on: the second is passed on as it is
        if not self._stop.why:
            self._stop.agreed(f"{name_of(number)} came", REQUEUE)
        return True

    def now(self, step: int) -> int:
        """The signal to send at this moment; 0: none. Once."""
        steps, self._step = max(0, step - self._step), step
        why = self._stop.why or self._stop.look(steps, self._notice, exact=True)
        if not why or self._done:
            return 0
        self._done = True
        say(f"{why}: {name_of(self._signal)} to the command")
        return self._signal

    def before_segment(self, step: int) -> bool:
        """Whether no further segment should begin."""
        steps, self._step = max(0, step - self._step), step
        if not self._longest:
            return False
        why = self._stop.look(steps, self._longest + self._notice)
        if why:
            say(f"{why}: no further segment is begun, of which the longest took {about(self._longest)}")
        return bool(why)

    def end(self) -> None:
        self._stop.end(shared=False)

    def segment_took(self, seconds: float) -> None:
        self._longest = max(self._longest, seconds)
