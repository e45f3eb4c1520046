"""Read all bytes of the sets below a root, and say of each set what it is: `survey` judges by names and sizes alone."""

from __future__ import annotations

from collections.abc import Collection

from safepoint.disk import codec
from safepoint.disk.files import exists
from safepoint.restoring.grown import read_wherever
from safepoint.restoring.read import Damaged
from safepoint.restoring.survey import survey
from safepoint.root import Root


def verify(root: Root, tick: codec.Tick | None = None, numbers: Collection[int] | None = None) -> dict[int, str]:
    """What each set is, or of these `numbers`: "committed", "uncommitted", or why it is damaged. Reads all, changes
    nothing."""
    states = {}
    for candidate in survey(root):
        number, record = candidate.number, candidate.record
        if numbers is not None and number not in numbers:
            continue
        states[number] = candidate.reason if exists(root.disk, root.record(number)) else "uncommitted"
        if record is None:
            continue
        try:
            files = [file for file in record.files if file.has_bytes]
            root.disk.helpers.each(lambda file, n=number: read_wherever(root, n, file, "", tick), files)  # type: ignore[misc]
            states[number] = "committed"
        except Damaged as error:
            states[number] = str(error)
    return states
