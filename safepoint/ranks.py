"""Agreement among the ranks of a program.

`Serial` is a program of one rank: it agrees with itself. Whoever speaks for several answers the same calls.
"""

from __future__ import annotations

from collections.abc import Sequence

from safepoint.errors import SafepointError


class Serial:
    """One rank, alone."""

    rank = 0
    size = 1

    def agree(self, failure: SafepointError | None, committed: int) -> int:
        """The newest set that every rank has committed, given that this one has. If any rank failed, all raise."""
        if failure is not None:
            raise failure
        return committed

    def newest_common(self, offers: Sequence[int]) -> int | None:
        """The newest set number that every rank offers, or None."""
        return max(offers, default=None)
