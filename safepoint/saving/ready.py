"""What a rank brings to the agreement of `hide`."""

from __future__ import annotations

from typing import Any

from safepoint.record import Taken
from safepoint.saving import find


class Ready:
    """Before it: what this rank has found and taken, or why it could not."""

    there = find.Found()
    step: int | None = None
    extra: dict[str, Any] | None = None
    asked = wait = 0  # until when the caller wants to wait, and all ranks do
    busy = False  # the saver is at work
    taken: Taken | None = None
    time = 0.0  # the same on all ranks, after the agreement
    failure: BaseException | None = None
