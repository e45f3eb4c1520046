"""A directory may have both, sets of files and vertices of a graph: neither takes the other for something strange."""

from __future__ import annotations

from pathlib import Path

import pytest

import safepoint
from safepoint.disk import Disk
from safepoint.root import roots
from safepoint.tasks import Graph


def doubled(number: int) -> int:
    return 2 * number


def graph() -> Graph:
    made = Graph("both")
    made.add("last", doubled, number=made.add("first", doubled, number=1))
    return made


def saves(directory: Path) -> safepoint.SavePoint | None:
    with safepoint.init(directory) as session:
        saved = session.restore()
        (directory / "u.dat").write_text("1")
        session.hide(step=1)
        session.wait()
    return saved


@pytest.mark.parametrize("first", ["sets", "vertices"])
def test_sets_and_vertices_are_kept_in_one_directory(first: str, tmp_path: Path) -> None:
    (tmp_path / ".safepoint").write_text("u.dat\n")
    for life in range(2):
        if first == "sets":
            assert (saves(tmp_path) is not None) == (life > 0)
        found = graph().run(1, directory=tmp_path)
        assert (found["last"], len(found.ran)) == (4, 0 if life else 2)
        if first == "vertices":
            assert (saves(tmp_path) is not None) == (life > 0)
    assert roots(Disk(), str(tmp_path))[1] == []  # nothing that is none of ours
