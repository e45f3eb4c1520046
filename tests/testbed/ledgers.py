"""Ledgers that no run has written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from safepoint.ledger.sides import Side


# Comparing.
def written(path: Path, rows: list[dict[str, Any]]) -> Side:
    path.mkdir()
    (path / "log.jsonl").write_text("".join(json.dumps({"time": n + 1.0, **row}) + "\n" for n, row in enumerate(rows)))
    return Side(str(path))


def saved(number: int, step: int | None, **files: object) -> dict[str, Any]:
    sums = [[name, 8, f"{hash((name, value)) & (1 << 128) - 1:032x}"] for name, value in files.items()]
    return {"event": "saved", "set": number, "step": step, "seconds": 0.0, "at": "s.py:3", "sums": sums}
