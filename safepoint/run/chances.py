"""How many complete sets a run has seen, how many of them it has saved, and why not the others.

A chance comes when a complete set lies there, and goes when the set is saved or something touches it. Between the two
the reason may be known why it cannot be used yet; else the file that was touched is the reason.
"""

from __future__ import annotations

import re
from collections import Counter

SHOWN_REASONS = 3  # reasons, the most frequent ones


class Chances:
    """Over all lives of a command."""

    def __init__(self) -> None:
        self.seen = self.taken = self.missed_in_a_row = 0
        self._there = False
        self._hindrance = ""
        self._missed: Counter[str] = Counter()
        self._hints: dict[str, str] = {}
        self._texts: dict[str, str] = {}

    @property
    def there(self) -> bool:
        """A complete set lies there, though perhaps it cannot be used yet."""
        return self._there

    def come(self) -> None:
        """A complete set lies there, another than before."""
        self.seen += 1
        self._there, self._hindrance = True, ""

    def hinder(self, why: str) -> None:
        """It cannot be taken now; perhaps it can in a moment."""
        self._hindrance = why

    def take(self) -> None:
        """A set was saved, be it one that only the good end of the command has shown."""
        self.seen += not self._there
        self.taken, self.missed_in_a_row, self._there = self.taken + 1, 0, False

    def miss(self, why: str, hint: str = "") -> None:
        """It has gone, if there was one: for the reason that was known, else for this one. `hint`: what to do then."""
        if self._there:
            why = self._hindrance or why
            alike = re.sub(r"\d+", "*", why)  # with another number each time
            before = self._texts.setdefault(alike, why)
            self._texts[alike] = why if before == why else alike
            self._missed[alike] += 1
            self._hints[alike] = self._hints.get(alike) or hint
            self.missed_in_a_row, self._there = self.missed_in_a_row + 1, False

    def __str__(self) -> str:
        text = f"of {self.seen} complete sets seen, {self.taken} taken and {self._missed.total()} missed"
        reasons = [
            f"{times} because {self._texts[alike]}{f' ({hint})' if (hint := self._hints[alike]) else ''}"
            for alike, times in self._missed.most_common(SHOWN_REASONS)
        ]
        if len(self._missed) > SHOWN_REASONS:
            reasons.append("others for other reasons")
        return f"{text}: {'; '.join(reasons)}" if reasons else text
