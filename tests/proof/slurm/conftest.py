"""One Slurm for all tests of it."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster import Cluster


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    top = Path(tempfile.mkdtemp(prefix="slurm"))
    cluster = Cluster(top)
    yield cluster
    cluster.end()
    shutil.rmtree(top, ignore_errors=True)
