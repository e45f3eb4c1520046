"""Compare while the programs run: one or both traces grow, and at the first difference both programs are stopped.

(1) Only whole region visits are compared; what one side has more of waits for the other.
(2) A difference stops the programs (SIGSTOP) before it is told, so that a debugger finds them as near as can be.
(3) What was compared can be discarded: the file is punched out behind the comparison, and its program, which counts
    segments in the head of the file (SP_AHEAD), waits for that. A region that is larger is let through.
"""

from __future__ import annotations

import os
import signal
import socket
import struct
import time
from dataclasses import replace
from pathlib import Path

from safepoint.errors import SafepointError, UsageError
from safepoint.threads import kinds
from safepoint.threads.compare import Comparing, Found
from safepoint.threads.endings import whole
from safepoint.threads.holes import punched
from safepoint.threads.trace import Run
from safepoint.threads.values import Rules
from safepoint.threads.walk import Log, Side

PAUSE_S = 0.02
AHEAD = 64  # segments, for SP_AHEAD
_DONE, _READER = 24, 32  # bytes in the head of a file: segments that the reader has done with, and its process


def follow(
    a: Path, b: Path, rules: Rules | None = None, *, discard: bool = False, stop: bool = True, by_name: bool = False
) -> Found:
    """Compare two traces as they come; waits for each to begin. Returns at the first difference, or when both have
    ended. With `discard` what is equal is gone from the files of both. Raises `UnlikeTraces`, and what `Run` raises."""
    sides = Source(a, "A"), Source(b, "B")
    if discard:
        for source in sides:
            source.attach()
    rules = replace(rules or Rules(), rounding=whole(sides[0].side.run))
    comparing = Comparing(sides[0].side, sides[1].side, rules, by_name)
    while not comparing.found.difference:
        fresh = [source.look() for source in sides]
        if any(source.changed for source in sides):
            comparing.meet()
        while comparing.step():
            if discard:
                for source in sides:
                    source.discard()
        if comparing.found.difference or _over(sides):
            break
        for source in sides if discard else ():
            source.let()
        if not any(fresh):
            time.sleep(PAUSE_S)
    comparing.rest()
    if comparing.found.difference and stop:
        comparing.found.stopped_pids = [pid for source in sides if (pid := source.stop())]
    return comparing.end()


def _over(sides: tuple[Source, Source]) -> bool:
    """Whether nothing can come that would be compared: both have ended, or one, and the other has more."""
    if not any(source.side.goes_on for source in sides):
        return True
    return any(
        not one.side.goes_on and not one.side.whole() and other.side.whole() > 0
        for one, other in (sides, (sides[1], sides[0]))
    )


class Source:
    """A trace that may grow."""

    def __init__(self, directory: Path, name: str) -> None:
        self.directory = directory
        run = _begun(directory)
        self.side = Side(run, name, goes_on=run.about.get("ended") is None)
        self.changed = False
        self._files = 0, 0  # what was there when `run` was read, perhaps before the records
        self._done: dict[Path, int] = {}  # segments, as said in the file; more than are gone if a region is large
        self._gone: dict[Path, int] = {}
        self._discards = False

    def look(self) -> bool:
        """Look for what came; True if there is anything. Whether the program runs is asked before, so that a last look
        follows its end."""
        side, goes_on = self.side, _runs(self.side.run)
        self.changed = False
        if not side.goes_on:
            return False
        known = len(side.logs)
        more = side.look()
        if (seen := self._seen()) != self._files:  # after the records: a site is written before the first of its own
            fresh = Run(self.directory)
            self.changed = len(fresh.sites.by_number) != len(side.run.sites.by_number)
            side.run.about, side.run.sites, self._files = fresh.about, fresh.sites, seen
        if self._discards and len(side.logs) > known:
            self.attach()
        side.goes_on = goes_on
        return more or not goes_on

    def _seen(self) -> tuple[int, int]:
        """What changes when run.json or the sites are written anew."""
        status = [os.stat(self.directory / name) for name in ("run.json", "sites.jsonl")]
        return status[0].st_ino, status[1].st_size

    def attach(self) -> None:
        """Say in each file that this process reads it, and will say how far."""
        self._discards = True
        for log in self.side.logs:
            if log.thread.path not in self._done:
                self._done[log.thread.path] = 0
                self._put(log, _READER, struct.pack("<I", os.getpid()))

    def discard(self) -> None:
        """Give back the room of what was compared, and let the writers go on by as much."""
        for log in self.side.logs:
            record = self.side.done(log)
            segments = (kinds.HEAD + record * kinds.RECORD) // kinds.SEGMENT
            if segments > self._gone.get(log.thread.path, 0):
                self._gone[log.thread.path] = segments
                log.counted(record)
                self._advance(log, segments)
                punched(log.thread.path, segments * kinds.SEGMENT)

    def let(self) -> None:
        """A region that is larger than what its program may be ahead cannot end unless it goes on."""
        if not self.side.goes_on or self.side.whole():
            return
        for log in self.side.logs:
            segments = os.stat(log.thread.path).st_size // kinds.SEGMENT
            if segments >= self._done.get(log.thread.path, 0) + AHEAD:
                self._advance(log, segments)

    def _advance(self, log: Log, segments: int) -> None:
        self._done[log.thread.path] = max(segments, self._done.get(log.thread.path, 0))
        self._put(log, _DONE, struct.pack("<Q", self._done[log.thread.path]))

    @staticmethod
    def _put(log: Log, at: int, raw: bytes) -> None:
        file = os.open(log.thread.path, os.O_RDWR)
        try:
            os.pwrite(file, raw, at)
        finally:
            os.close(file)

    def stop(self) -> int:
        """Stop the program, if it runs here; returns its process, or 0."""
        pid = int(self.side.run.about.get("pid") or 0)
        if not pid or not self.side.goes_on or not _here(self.side.run):
            return 0
        try:
            os.kill(pid, signal.SIGSTOP)
        except ProcessLookupError:
            return 0
        except PermissionError as error:
            raise UsageError(f"cannot stop process {pid} of {self.directory}: {error.strerror}", error.errno) from error
        return pid


def _begun(directory: Path) -> Run:
    """A run, as soon as it has begun."""
    while True:
        there = all((directory / name).exists() for name in ("run.json", "sites.jsonl"))
        try:
            run = Run(directory)
        except SafepointError:
            if there:
                raise
        else:
            if run.threads or run.about.get("ended"):
                return run
        time.sleep(PAUSE_S)


def _here(run: Run) -> bool:
    return run.about.get("host") in (None, socket.gethostname())


def _runs(run: Run) -> bool:
    """Whether a program still writes. Of another machine only its own word is known."""
    if run.about.get("ended") is not None:
        return False
    pid = int(run.about.get("pid") or 0)
    if not _here(run) or not pid:
        return True
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return _alive(pid)
    return state not in "ZX"


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
