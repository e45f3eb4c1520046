"""Why no set comes: that may be right, but not if files are written all the time."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from safepoint.disk import Disk
from safepoint.run.chances import Chances
from safepoint.run.speech import Once
from safepoint.run.writers import holders

if TYPE_CHECKING:
    from safepoint.run.closes import Closes  # needs Linux

NEVER_CLOSED_S = 20.0  # that a file is written and not closed before it is said
AGAIN_S = 0.5  # between two explanations: many files may be looked at
OFTEN_MISSED = 5  # sets in a row, after which that is said


class Silence:
    def __init__(self, disk: Disk, work: str, chances: Chances, once: Once) -> None:
        self._disk, self._work, self._chances, self._once = disk, work, chances, once
        self._opened_since: dict[str, float] = {}
        self._next = 0.0

    def none_open(self) -> None:
        self._opened_since.clear()

    def open_now(self, paths: Sequence[str]) -> None:
        """A look found these open for writing."""
        now = time.monotonic()
        self._opened_since = {path: self._opened_since.get(path, now) for path in paths}
        for path in (path for path, when in self._opened_since.items() if now - when > NEVER_CLOSED_S):
            self._never_closed(path)

    def explain(self, since: float, closes: Closes) -> None:
        """No look has come to something `since` then."""
        if (now := time.monotonic()) - since <= NEVER_CLOSED_S or now < self._next:
            return
        self._next = now + AGAIN_S
        if closes.lost:
            self._once(f"{closes.why_lost}: no more sets until the next start; with a mark there would be")
        waiting = [os.path.join(self._work, path) for path in closes.unclosed()]
        there = [path for path in waiting if os.path.isfile(path)]
        recent = [path for path in there if time.time() - os.stat(path).st_mtime < NEVER_CLOSED_S]
        for path in self._disk.open_for_writing(recent):
            self._never_closed(path)
        if self._chances.missed_in_a_row >= OFTEN_MISSED:
            self._once(f"no set for a while: {self._chances}")
        if closes.uneven:
            self._once(
                f"no set is taken: {closes.uneven}. Without a mark each listed file must be written once for each set, "
                f"in the order of the list: give the one that is written last the attribute mark"
            )

    def _never_closed(self, path: str) -> None:
        name = os.path.relpath(path, self._work)
        self._once(
            f"{name} is never closed, but held open for writing by {holders(self._disk, [path])}: nobody outside "
            f"can tell when it is whole, so no set is taken while that lives. If it is whole at the end of a run: "
            f"--until, in segments; else list another file, one that the program closes"
        )
