"""What was done, counted over all processes of a test run, for docs/evidence.md."""

from __future__ import annotations

import json
import os

FILE = os.environ.get("SAFEPOINT_TALLY", "")  # `make crash` sets it


def count(what: str, where: str, number: int = 1, **more: int | str) -> None:
    """`number` cases of this kind were tried and held, at this place; `more` says what they were made of."""
    if FILE:
        line = json.dumps({"what": what, "where": where, "number": number, **more}) + "\n"
        descriptor = os.open(FILE, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(descriptor, line.encode())  # in one piece, as others append too
        finally:
            os.close(descriptor)
