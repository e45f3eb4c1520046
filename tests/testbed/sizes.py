"""A session in a directory of many files, or of large ones."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from safepoint import Session
from safepoint.record import parse_record

needs_linux = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux: leases, holes and /proc")


def session_of(work: Path, manifest: str, **options: Any) -> Session:
    (work / ".safepoint").write_text(manifest)
    session = Session(work, **options)
    session.restore()
    return session


def kept(work: Path, number: int) -> dict[str, str]:
    """How the newest set keeps each of its files."""
    record = parse_record((work / f".safepoint.d/rank-00000/set-{number:08}/record.json").read_bytes())
    return {file.path: file.kept for file in record.files if file.has_bytes}
