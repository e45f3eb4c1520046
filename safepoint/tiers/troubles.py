"""Record what keeps the sets of a run from another place, and decide which warnings are due.

A trouble of each kind begins and ends by itself, whatever the others are. When one begins there is one warning, and no
other one of this kind until it has ended:

event                                   PROCESS   PLACE    COPY     OVER     DEAF     QUIET    WAIT
the process has ended, or cannot begin  begins    .        begins*  .        .        .        .
it says "trouble"                       .         begins   .        .        .        ends     .
it says "over"                          .         .        .        begins   .        ends     .
it says "uncopied"                      .         .        begins   .        .        ends     .
it says "deaf"                          .         .        .        .        begins   ends     .
it says "waits"                         .         .        .        .        .        ends     begins
it says nothing, and is waited for      .         .        .        .        .        begins   .
it says "ready"                         .         .        .        .        ends     ends     .
it says "there", or "fine"              ends      ends     .        ends     .        ends     ends**
it says "copied"                        ends      .        ends     .        .        ends     ends**

* if this node has a set to copy, and no process begins at once
** that for the place, or that for a copy: these are two kinds

A process that begins ends nothing: only a set that has reached its end shows that all is well on its way.
"""

from __future__ import annotations

import logging

logger = logging.getLogger("safepoint")
PROCESS, PLACE, COPY, OVER, DEAF, QUIET = "process", "place", "copy", "over", "deaf", "quiet"
WAITS_PLACE, WAITS_COPY = "waits place", "waits copy"
SILENT = 60.0  # seconds after which who is waited for is named


class Troubles:
    """Those of one session."""

    def __init__(self) -> None:
        self._now: dict[str, str] = {}

    def begin(self, kind: str, why: str) -> bool:
        """Keep why; return whether a warning is due."""
        due = kind not in self._now
        self._now[kind] = why
        return due

    def warn(self, kind: str, why: str) -> None:
        if self.begin(kind, why):
            logger.warning("%s", why)

    def quiet(self, who: str, since: float, now: float) -> None:
        """It is waited for, and has said nothing since then."""
        if now > since + SILENT:
            self.warn(QUIET, f"{who} has said nothing for {now - since:.0f} s: was it stopped? The run goes on")

    def end(self, *kinds: str) -> bool:
        """Return whether there was a trouble of one of these kinds."""
        ended = [self._now.pop(kind, None) for kind in kinds]
        return any(why is not None for why in ended)

    def stalled(self, kind: str, who: str, seconds: float) -> str:
        """Return why a wait is given up after so long."""
        why = self._now.get(kind) or f"{who} has said nothing"
        return f"{why}; given up after {seconds:.0f} s without progress (the setting stall_timeout)"

    @property
    def why(self) -> str:
        """Return why sets do not reach the place, empty if they do."""
        return self._now.get(PLACE) or self._now.get(PROCESS, "")
