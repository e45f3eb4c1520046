"""One life of the command: from its start until all of it have ended, whoever of it is left behind.

If we are killed the command's first process dies with us, and what is left of it keeps the lock: a second run is
refused as long as anything of it may still write.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import sys
import time
import warnings
from typing import TYPE_CHECKING, Any

from safepoint.errors import SaveError, UsageError
from safepoint.run.chances import Chances
from safepoint.run.options import Options
from safepoint.run.orders import Orders
from safepoint.run.proc import RUN_VARIABLE
from safepoint.run.processes import Family, die_with
from safepoint.run.sets import Sets
from safepoint.run.silence import Silence
from safepoint.run.speech import Once, say

if TYPE_CHECKING:
    from safepoint.run.closes import Closes  # needs Linux; segments do not
    from safepoint.run.looks import Looks

TICK_S = 0.5  # how often to look for what no event tells
SOON_S = 0.005  # the same while a set lies there and cannot be taken yet
LEFT_BEHIND_S = 5.0  # that the command has ended and others of it go on, before it is said


class Life:
    """`lock`: the descriptor of the lock, which all of the command keep open."""

    def __init__(
        self, options: Options, sets: Sets, orders: Orders, chances: Chances, silence: Silence, once: Once,
        lock: int | None,
    ) -> None:  # fmt: skip
        self._options, self._sets, self._orders, self._lock = options, sets, orders, lock
        self._chances, self._silence, self._once = chances, silence, once

    def segment(self, resumed: bool) -> int:
        """Run the command to its end, and take a set if that was good. The exit status."""
        family = Family(self._sets.work) if sys.platform == "linux" else None
        begin = time.monotonic()
        child = self._start(resumed)
        if family:
            family.begin(child.pid)
        try:
            self._until_all_ended(child, family)
            status = _status(child)
            # It has seen how those ended that it waited for; but not all kills are seen by everybody.
            troubles = family.troubles(self._options.tolerate or "status") if family and family.told else []
            if status == 0 and self._sets.good(troubles):
                return 0 if self._sets.take("segment", wait=True) else SaveError.code
            return status or 1
        finally:
            self._orders.ending.segment_took(time.monotonic() - begin)
            if family:
                family.close()

    def watched(self, resumed: bool) -> int:
        """Run the command to its end, and take a set whenever there is one. The exit status."""
        from safepoint.run.closes import Closes
        from safepoint.run.looks import Looks

        sets, tolerate = self._sets, self._options.tolerate
        family = Family(sets.work)
        closes = Closes(sets.manifest, sets.work, self._chances)
        child = self._start(resumed)
        family.begin(child.pid)
        looks = Looks(child, family, closes, sets, self._chances, self._silence, self._once, tolerate)
        try:
            try:
                self._until_all_ended(child, family, looks, closes.fileno())
            except Exception as error:  # of ours: no reason to kill a computation, nor to let go of the lock
                say(f"NOT PROTECTED any more, until the next start: {type(error).__name__}: {error}")
                self._until_all_ended(child, family)
                return _status(child)
            status = _status(child)
            closes.read()
            if not status:
                self._at_good_end(family, closes)
            return status
        finally:
            self._chances.miss("the command ended before the look")
            closes.close()
            family.close()

    def _start(self, resumed: bool) -> subprocess.Popen[bytes]:
        self._orders.told = False
        # Also of a set that was not given back: the first, of what was there, or that of the segment before.
        self._sets.session.keep_prefixes()
        words = self._options.resume if resumed and self._options.resume else self._options.command
        environment = {**self._sets.environment(resumed), RUN_VARIABLE: self._sets.work}
        me = os.getpid()
        more: dict[str, Any] = {}
        if sys.platform == "linux":
            more = {"preexec_fn": lambda: die_with(me), "pass_fds": [self._lock] * (self._lock is not None)}
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)  # what runs in the child there takes no lock
                return subprocess.Popen(words, cwd=self._sets.work, env=environment, start_new_session=True, **more)
        except OSError as error:
            raise UsageError(f"cannot start {words[0]}: {error.strerror}", error.errno) from error

    def _at_good_end(self, family: Family, closes: Closes) -> None:
        """Status 0: all is whole, unless something had died; but who was asked to stop may have stopped anywhere."""
        sets, stopped = self._sets, self._orders.stopped
        sets.wait()
        if closes.touched:
            if stopped and not closes.ready:
                say("stopped by a signal between two sets: what was written since the last one is not taken")
                return
            suspects = [f"{path} was not written again after a process had died" for path in closes.suspects()]
            if not sets.good([*family.troubles(self._options.tolerate, ended_well=True), *suspects]):
                return
            if sets.take("the end", wait=True):
                self._chances.take()
        if not stopped:
            sets.session.finish(sets.step)
        elif not self._orders.asked_to_stop:
            say("a signal was sent to the command before it ended, so this is not marked as finished")

    def _until_all_ended(
        self, child: subprocess.Popen[bytes], family: Family | None, looks: Looks | None = None,
        closed: int | None = None,
    ) -> None:  # fmt: skip
        """`closed`: a descriptor that can be read when a file was closed."""
        with selectors.DefaultSelector() as selector:
            for descriptor in (closed, family.fileno() if family else None):
                if descriptor is not None:
                    selector.register(descriptor, selectors.EVENT_READ)
            read, write = os.pipe()
            os.set_blocking(write, False)
            os.set_blocking(read, False)
            selector.register(read, selectors.EVENT_READ)
            before = signal.set_wakeup_fd(write, warn_on_full_buffer=False)
            sigchld = signal.signal(signal.SIGCHLD, lambda *_: None)  # so that it wakes us
            try:
                self._watch_over(child, family, looks, selector, read)
            finally:
                signal.signal(signal.SIGCHLD, sigchld)
                signal.set_wakeup_fd(before)
                os.close(read)
                os.close(write)

    def _watch_over(
        self, child: subprocess.Popen[bytes], family: Family | None, looks: Looks | None,
        selector: selectors.BaseSelector, wakes: int,
    ) -> None:  # fmt: skip
        ended = 0.0
        while True:
            self._orders.forward(child, family, self._sets.step)
            _reap(child)
            if family:
                family.update()
            if looks:
                looks.look_if_due()
            if child.returncode is not None:
                left = family.alive() if family else []
                if not family or not left:
                    return
                ended = ended or time.monotonic()
                if time.monotonic() - ended > LEFT_BEHIND_S:
                    self._once(
                        f"the command has ended, but what it left behind may still write, and is waited for: "
                        f"{family.names(left)} (if that need not be, let the command end it)"
                    )
            selector.select(SOON_S if ended or (looks and looks.waiting) else TICK_S)
            with contextlib.suppress(BlockingIOError):
                os.read(wakes, 4096)


def _status(child: subprocess.Popen[bytes]) -> int:
    status = child.wait()
    return 128 - status if status < 0 else status


def _reap(child: subprocess.Popen[bytes]) -> None:
    """Wait for what has ended, without blocking: the command's first process, and orphans that became ours."""
    while hasattr(os, "waitid"):
        try:
            found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            break
        if found is None:
            break
        if found.si_pid == child.pid:
            child.poll()
        else:
            os.waitpid(found.si_pid, 0)
    child.poll()
