"""The directory and the place of tests that drain and fetch."""

from __future__ import annotations

from pathlib import Path

import pytest
from testbed.places import MANIFEST, run


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "place"


@pytest.fixture
def a(tmp_path: Path, place: Path) -> Path:
    """A directory with two sets, and a place for them in its manifest."""
    (work := tmp_path / "a").mkdir()
    (work / ".safepoint").write_text(f"{MANIFEST}remote = {place}\ndrain = off\n")
    run(work)
    return work
