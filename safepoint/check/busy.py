"""Which processes have threads at work outside of MPI: a thread that has not called MPI yet is in no note.

A thread that waits in MPI may spin, so that work alone says nothing. But if more threads of a process have used a
processor than are inside of calls, one of them computes. Looked at for the last second before a verdict only.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable

LEAD = 10**9  # ns before the verdict
SHARE = 0.1, 0.25  # of a processor, or of the busiest thread on a machine that is busy with other things: work, and
# not what a thread of the MPI library does now and then


class Busy:
    """Of the processes of this host."""

    def __init__(self, hang_ns: int) -> None:
        self.lead = min(LEAD, hang_ns // 2)
        self.clear()

    def clear(self) -> None:
        """Something has happened: no verdict is near."""
        self._begun, self._before = 0, dict[int, dict[int, int]]()
        self._threads = dict[int, int]()
        self.looked = False  # for as long as it takes: before that nothing is known, and no verdict is due

    def look(self, pids: Iterable[int], now: int) -> None:
        """To be called often from `lead` before the verdict on."""
        if now - self._begun < 0.9 * self.lead:
            return
        after = {pid: ticks(pid) for pid in pids}
        if self._begun:
            used = {
                pid: [ticks - self._before.get(pid, {}).get(thread, ticks) for thread, ticks in of.items()]
                for pid, of in after.items()
            }
            most = max((max(of) for of in used.values() if of), default=0)
            of_one = (now - self._begun) / 1e9 * os.sysconf("SC_CLK_TCK")
            least = max(2.0, min(SHARE[0] * of_one, SHARE[1] * most))
            self._threads = {pid: sum(each >= least for each in of) for pid, of in used.items()}
        self.looked = bool(self._begun) or not after
        self._begun, self._before = now, after

    def working(self, pid: int) -> int:
        """How many of its threads have worked, as it was seen last."""
        return self._threads.get(pid, 0)

    def more_than(self, pid: int, inside: int) -> bool:
        """More of its threads have worked than are inside of calls."""
        return self.working(pid) > inside


def ticks(pid: int) -> dict[int, int]:
    """The time that each thread has used, in ticks; none if there is no such process."""
    found = {}
    with contextlib.suppress(OSError):
        for name in os.listdir(f"/proc/{pid}/task"):
            with (
                contextlib.suppress(OSError, ValueError, IndexError),
                open(f"/proc/{pid}/task/{name}/stat", errors="replace") as file,
            ):
                words = file.read().rpartition(")")[2].split()
                found[int(name)] = int(words[11]) + int(words[12])
    return found
