"""The listener that says, once, that `hide` keeps the program too long, and what would mend it."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence

from safepoint.listener import Listener
from safepoint.opening import Opening
from safepoint.record import Item
from safepoint.words import percent, size

logger = logging.getLogger("safepoint")
TOO_MUCH = 0.1  # of the time between the first hide and the last
ENOUGH_S, ENOUGH_HIDES = 10.0, 20  # before that is judged


class Blocking(Listener):
    """Of one session. A set that the caller waits for, and the first one, are not counted: that is meant."""

    def __init__(self, home: Opening, *, every: bool) -> None:
        """`every`: all sets are stored."""
        self._home, self._every, self._said = home, every, False
        self._began: float | None = None
        self._blocked, self._hides = 0.0, 0
        self._copied: Counter[str] = Counter()  # bytes by entry, or name, of what was copied

    def hidden(
        self, number: int, begin: float, end: float, *, taken: bool, waited: int, files: Sequence[Item]
    ) -> None:  # fmt: skip
        if self._began is None or self._said:
            self._began = end
            return
        if waited or not taken:
            self._began += end - begin
            return
        self._blocked, self._hides = self._blocked + end - begin, self._hides + 1
        for item in files:
            if item.kind == "copy":
                self._copied[self._entry(item.path)] += item.size
        share = self._blocked / max(end - self._began, 1e-9)
        if share > TOO_MUCH and self._hides >= ENOUGH_HIDES and end - self._began >= ENOUGH_S:
            self._said = True
            logger.warning("hide keeps the program for %s of its time: %s", percent(share), self._why())

    def _entry(self, path: str) -> str:
        root = self._home.root
        entries = (e.text for e in self._home.manifest.entries if e.means(path, root.rank, root.ranks))
        return next(entries, path)

    def _why(self) -> str:
        if self._copied:
            ((name, count),) = self._copied.most_common(1)
            each = size(count // self._hides)
            return f"{name} is copied each time, {each}: if the program wrote it anew it could be moved; or ask due()"
        if self._every:
            return (
                "as every set is stored it waits for the one before; store = newest does not, or ask due() when to save"
            )
        return "its steps are very short; ask due() when to save"
