"""What looks wrong before any run, with its line."""

from __future__ import annotations

from safepoint.threads.lines import Source
from safepoint.threads.structure import Unit
from safepoint.threads.symbols import Scope


def warnings(unit: Unit, scope: Scope, source: Source) -> list[tuple[int, str]]:
    return []
