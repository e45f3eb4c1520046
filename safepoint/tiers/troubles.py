"""Record what keeps the sets of a run from another place, and decide which warnings are due.

A trouble of each kind begins and ends by itself, whatever the others are. When one begins there is one warning, and no
other one of this kind until it has ended:

event                                   PROCESS   PLACE    COPY     OVER
the process has ended, or cannot begin  begins    .        begins*  .
it says "trouble"                       .         begins   .        .
it says "over"                          .         .        .        begins
it says "uncopied"                      .         .        begins   .
it says "there", or "fine"              ends      ends     .        ends
it says "copied"                        ends      .        ends     .

* if this node has a set to copy, and no process begins at once

A process that begins ends nothing: only a set that has reached its end shows that all is well on its way.
"""

from __future__ import annotations

PROCESS, PLACE, COPY, OVER = "process", "place", "copy", "over"


class Troubles:
    """Those of one session."""

    def __init__(self) -> None:
        self._now: dict[str, str] = {}

    def begin(self, kind: str, why: str) -> bool:
        """Keep why; return whether a warning is due."""
        due = kind not in self._now
        self._now[kind] = why
        return due

    def end(self, *kinds: str) -> bool:
        """Return whether there was a trouble of one of these kinds."""
        ended = [self._now.pop(kind, None) for kind in kinds]
        return any(why is not None for why in ended)

    @property
    def why(self) -> str:
        """Return why sets do not reach the place, empty if they do."""
        return self._now.get(PLACE) or self._now.get(PROCESS, "")
