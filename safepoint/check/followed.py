"""One rank that is followed: its notes, where it stands by them, and its process."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

from safepoint.check.files import TraceError
from safepoint.check.processes import status_of
from safepoint.check.standing import Standing
from safepoint.check.tail import Noted, Tail
from safepoint.run import proc


class Process:
    """Of this host. Its id is looked at once: another one may have it later."""

    def __init__(self, pid: int) -> None:
        """`pid` 0: it is not known, as it is on another host."""
        process = proc.process_of(pid) if pid else None
        self.pid, self.started = pid, process.started if process else -1
        self.status: int | None = None  # as `os.wait` gives it, if somebody has seen it
        self.ended_at = 0  # ns, as it was seen; 0: it was not
        self.working = 0  # of this host `Ends` knows it by itself
        self.descriptor = -1
        with contextlib.suppress(OSError, AttributeError):
            if process:
                self.descriptor = os.pidfd_open(pid)

    def there(self) -> proc.Process | None:
        """If it is still there, and the same."""
        found = proc.process_of(self.pid) if self.pid else None
        return found if found is not None and found.started == self.started and proc.is_alive(self.pid) else None

    @property
    def gone(self) -> bool:
        """It is known to be there no more."""
        return bool(self.pid) and self.there() is None

    @property
    def stopped(self) -> bool:
        found = self.there()
        return found is not None and not proc.moves(found)

    def seen(self) -> None:
        """It has just ended: keep its status, as long as nobody has waited for it."""
        self.status, self.ended_at = status_of(self.pid), time.monotonic_ns()

    def forget(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


class Elsewhere:
    """The same of another node, as its follower has told. Nothing is known of it before that, and after its loss."""

    pid, descriptor = 0, -1

    def __init__(self) -> None:
        self.status: int | None = None
        self.ended_at = 0
        self.working = 0  # threads that have worked in the last second or so (`busy`)
        self.gone = self.stopped = False
        self.lives = True  # else it is gone, but not yet all that it has noted may have come

    def there(self) -> None:
        return None

    def seen(self) -> None:
        pass

    def forget(self) -> None:
        pass


class Followed:
    """One rank."""

    def __init__(
        self, directory: Path, rank: int, boot: str, now: int, elsewhere: Elsewhere | None = None, size: int = 0
    ) -> None:
        """`boot`: of this host. `elsewhere`: it is on another node, and its times are by our clock all the same.
        `size`: of the world, if it is known. Raises `TraceError`."""
        self.tail = Tail(directory, rank)
        if size and self.tail.about["size"] != size:
            self.tail.close()
            raise TraceError(f"{self.tail.name}: the trace is of {size} ranks, and this one is of another program")
        self.standing = Standing(rank, self.tail.named)
        same = bool(boot) and self.tail.about["boot"] == boot
        self.timed = same or elsewhere is not None  # its times are by our clock
        self.process: Process | Elsewhere = elsewhere or Process(self.tail.about["pid"] if same else 0)
        self.moved = now  # when it was last seen to enter or leave a call; ns of our clock
        self.gone = False  # it was seen that its process is
        self.ended = ""  # how: "" it runs; "exit", "exception ValueError", "died"
        self.lost = ""  # why it is followed no more, though it may run
        self.unreadable = False  # that is why: what it notes cannot be read

    @property
    def pid(self) -> int:
        return self.process.pid

    def look(self) -> None:
        """Read again what is said of it."""
        if not self.unreadable:
            try:
                self.tail.look()
            except TraceError as error:
                self._give_up(error)

    def read(self, most: int) -> list[Noted]:
        """The notes that have come."""
        if not self.unreadable:
            try:
                return self.tail.read(most)
            except TraceError as error:
                self._give_up(error)
        return []

    def _give_up(self, error: TraceError) -> None:
        self.unreadable, self.lost = True, f"rank {self.tail.rank} is followed no more: {error}"
