"""A look at the files while all of the command stand still: the moment at which a set is taken.

(1) A set is taken only if all of it was written and closed (`closes`), nothing of it is open for writing (`writers`),
    and no process of the command has died badly since the look before (`processes`): a killed writer closes its file
    too. Each is asked while nobody can write, and the deaths once more after the open files.

Whatever fails in a look, the command goes on.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import time

from safepoint.disk import handles
from safepoint.errors import SafepointError
from safepoint.run.chances import Chances
from safepoint.run.closes import Closes
from safepoint.run.processes import Family
from safepoint.run.sets import Sets
from safepoint.run.silence import Silence
from safepoint.run.speech import Once

ENOUGH_SETS = 3  # after which what is not listed, and changed all the same, is named
LONGEST_REST_S = 0.2  # that the command is left alone after a look that came to nothing
REST = 10  # times as long as that look it is left alone; once as long, if a new set is there


class Looks:
    """Of one life of a command."""

    def __init__(
        self, child: subprocess.Popen[bytes], family: Family, closes: Closes, sets: Sets, chances: Chances,
        silence: Silence, once: Once, tolerate: str,
    ) -> None:  # fmt: skip
        self._child, self._family, self._closes, self._sets = child, family, closes, sets
        self._chances, self._silence, self._once, self._tolerate = chances, silence, once, tolerate
        self._looked_at = 0  # which of the chances
        self._from = self._anew_from = 0.0  # when to look again, and when if a new set is there
        self._quiet_since = time.monotonic()
        self._opened = ""  # a file that the last look found open
        self._holders: dict[str, str] = {}  # who had it open, by its path

    @property
    def waiting(self) -> bool:
        """Whether a set lies there and cannot be taken yet."""
        return self._closes.ready

    def look_if_due(self) -> None:
        self._closes.read(1)
        chances, begin = self._chances, time.monotonic()
        anew = chances.seen != self._looked_at
        if self._closes.ready and self._sets.session.saving:
            chances.hinder("the set before was still being saved")
        elif self._closes.ready and begin < (self._anew_from if anew else self._from):
            if anew:
                chances.hinder("the look before had come to nothing, and the command was left alone for a moment")
        elif self._closes.ready:
            self._looked_at = chances.seen
            chances.hinder("")
            if self._look():
                self._quiet_since = begin
                if chances.taken == ENOUGH_SETS:
                    self._sets.name_unlisted()
            else:
                end = time.monotonic()
                self._anew_from = end + min(end - begin, LONGEST_REST_S)
                self._from = end + min(REST * (end - begin), LONGEST_REST_S)
        with contextlib.suppress(OSError):  # a file that comes and goes
            self._silence.explain(self._quiet_since, self._closes)

    def _look(self) -> bool:
        """Rule (1). Whether a set was taken."""
        self._sets.wait()
        try:
            hindrance = self._family.stop()
            if hindrance:
                self._chances.hinder(f"the command {_anybody(hindrance)}")
                self._once(f"no set can be taken: {hindrance}")
                return False
            return self._look_at_still()
        except (SafepointError, OSError) as error:
            self._chances.hinder("no set could be taken, as said above")
            self._once(f"no set can be taken: {error}")
            return False
        finally:
            self._family.go()
            self._name_holder()

    def _name_holder(self) -> None:
        """Who had a file open, once for each: all processes are read for that, so the command does not wait for it."""
        path, self._opened = self._opened, ""
        if path and path not in self._holders and (who := handles.holders(path)):
            self._holders[path] = ", ".join(sorted({_anybody(each.partition(" of ")[2]) for each in who}))
        if path in self._holders:
            name = os.path.relpath(path, self._sets.work)
            self._chances.hinder(f"{name} was open for writing by {self._holders[path]}")

    def _look_at_still(self) -> bool:
        """While all of the command stand still."""
        self._closes.read()
        if self._died() or not self._closes.ready:
            return False
        opened = self._sets.opened()
        if self._died():  # in that moment: and so what it had open was closed
            return False
        if opened:
            self._opened = opened[0]
            self._chances.hinder(f"{os.path.relpath(opened[0], self._sets.work)} was open for writing")
            self._silence.open_now(opened)
            return False
        if not self._sets.checked():
            self._chances.miss("of --check")
            self._closes.refuse()
            return False
        self._silence.none_open()
        taken = self._sets.take("")
        if taken:
            self._chances.take()
        self._chances.miss("no set could be taken, as said above")
        self._closes.begin_anew()
        return taken

    def _died(self) -> bool:
        troubles = self._family.troubles(self._tolerate, ended_well=self._child.poll() == 0)
        if troubles:
            self._chances.miss(_anybody(troubles[0]))
            self._closes.distrust()
            self._once(f"what lies there is not taken, as it may be torn: {'; '.join(troubles[:3])} (see --tolerate)")
        return bool(troubles)


def _anybody(text: str) -> str:
    """The same for all processes of a name, so that it can be counted."""
    return re.sub(r"process \d+", "a process", text)
