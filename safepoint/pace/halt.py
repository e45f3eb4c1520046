"""The wish of an operator that the run at work ends: `safepoint halt` writes it, the run reads it.

A request names the runs that it is for, by host, process and start. So it never stops a later start.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

from safepoint.root import Root
from safepoint.sealed import read_note, write_durably


def halt(root: Root, runs: list[dict[str, Any]], *, until: float | None, steps: int | None) -> None:
    """Ask the runs with these owners to stop; at once, at `until`, seconds since the epoch, or after `steps`."""
    content = {"time": time.time(), "runs": [run_of(run) for run in runs], "until": until, "steps": steps}
    write_durably(root.disk, root.halt, json.dumps(content).encode() + b"\n")


class Asked(NamedTuple):
    """What halt.json holds."""

    time: float
    runs: tuple[Any, ...]
    until: float | None
    steps: int | None


def halted(root: Root) -> dict[str, Any] | None:
    """What was asked; None: nothing, or nothing that can be read."""
    return read_note(root.disk, root.halt, Asked)


def run_of(owner: Mapping[str, Any]) -> list[Any]:
    """What tells this run from every other."""
    return [owner["host"], owner["pid"], owner["since"]]
