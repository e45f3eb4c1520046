"""One `safepoint run`, over all lives of its command, which writes restart files and knows nothing of this.

The program's files stay where they are. Whenever a complete set of them lies there, the whole command is held still for
the moment of a look and a snapshot. What a death may have torn is never taken:

(1) A set is taken only by the rule in `looks`, or at a good end of the command.
(2) Before the command starts, and starts again, the last set is given back; with no set yet, and all files there, these
    are the first.
(3) If we are killed the command's first process dies with us, and what is left of it keeps the lock: a second run is
    refused as long as anything of it may still write.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time

from safepoint.disk import kernel
from safepoint.errors import LockedError, SaveError, UsageError
from safepoint.pace.stopping import REQUEUE
from safepoint.program import Session
from safepoint.run.attempts import Attempts
from safepoint.run.chances import Chances
from safepoint.run.ending import Ending
from safepoint.run.heirs import heirs_in
from safepoint.run.life import Life
from safepoint.run.options import Options, shell_words
from safepoint.run.orders import Orders
from safepoint.run.sets import Sets, not_saved
from safepoint.run.silence import Silence
from safepoint.run.speech import Once, say

FAILED_AT_ONCE_S = 60.0  # a command that fails so soon, and saves nothing, may have been given a bad set
SLOWEST_START_S = 60.0  # between two starts, at most


class Supervisor:
    def __init__(self, options: Options) -> None:
        self._options = options
        ending = Ending(options)  # its errors before anything is done
        self.session = Session(options.directory, keep=options.keep, in_place=True)
        once, self._chances = Once(), Chances()
        self._sets = Sets(self.session, options.check, once)
        lock = kernel.share_lock(self._sets.root.lock)  # rule (3)
        self._refuse_heirs()
        self._orders = Orders(ending)
        ending.begin(self._sets.root)
        silence = Silence(self._sets.disk, self._sets.work, self._chances, once)
        self._life = Life(options, self._sets, self._orders, self._chances, silence, once, lock)

    def _refuse_heirs(self) -> None:
        """Rule (3), for what has closed the lock's descriptor: it still has the name of this run in its environment."""
        try:
            heirs_in(self._sets.work)
        except LockedError:
            self.session.close()
            raise

    def run(self) -> int:
        """The exit status of the command."""
        ending = self._orders.ending
        try:
            if not self._options.until:
                if sys.platform != "linux":
                    raise UsageError("to watch a running program needs Linux; --until, in segments, works everywhere")
                from safepoint.run.closes import check

                check(self._sets.manifest)
            with self._orders.listening():
                status = self._lives()
            finished = self.session.finished
            return status if finished else ending.status or status
        finally:
            ending.end()
            if self._chances.seen:
                say(str(self._chances))
            try:
                self.session.close()
            except SaveError as error:
                not_saved(error)

    def _lives(self) -> int:
        options, sets, orders = self._options, self._sets, self._orders
        failures, wait = 0, 1.0
        resumed = sets.give_back(again=options.again)  # rule (2)
        while resumed is not None:
            last, begin = sets.newest(), time.monotonic()
            if options.until and sets.step and self._done():
                self.session.finish(sets.step)
                return 0
            if orders.ending.before_segment(sets.step):
                return REQUEUE
            status = self._life.segment(resumed) if options.until else self._life.watched(resumed)
            if status == 0 and options.until and not orders.asked_to_stop:
                failures, resumed = 0, True
                continue
            if status == 0:
                return 0
            sets.wait()
            anew = sets.newest() != last
            at_once = not anew and time.monotonic() - begin < FAILED_AT_ONCE_S and not orders.asked_to_stop
            Attempts(sets.root).note(sets.newest(), failed_at_once=at_once)
            failures, wait = (1, 1.0) if anew else (failures + 1, wait)
            if orders.asked_to_stop or failures > options.retries:
                return status
            say(f"the command ended with status {status}; try {failures} of {options.retries} in {wait:.0f} s")
            if orders.sleep(wait):
                return status
            wait = min(2 * wait, SLOWEST_START_S)
            resumed = sets.give_back(again=options.again)
        return 0

    def _done(self) -> bool:
        """Whether the segments have come to their end."""
        until, step = self._options.until, self._sets.step
        if until.isdecimal():
            return step >= int(until)
        if " " in until or shutil.which(until):
            environment = {**os.environ, "SAFEPOINT_STEP": str(step)}
            done = subprocess.run(shell_words(until), cwd=self._sets.work, env=environment, stdin=subprocess.DEVNULL)
            return done.returncode == 0
        return os.path.exists(os.path.join(self._sets.work, until))
