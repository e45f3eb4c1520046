"""Each OpenMP construct alone: serial, with 1, 2 and 4 threads, static, dynamic and guided, all of it traced, is equal.
In a short run two constructs, other ones with each commit."""

from __future__ import annotations

from pathlib import Path

import pytest
from testbed.sweep import LONG, turn
from testbed.threads_chain import WAYS, built, traced
from testbed.threads_corpus import has
from testbed.threads_snippets import CONSTRUCTS, written

pytestmark = pytest.mark.skipif(not has("gfortran"), reason="no gfortran")
pytest.importorskip("fparser")
NAMES = list(CONSTRUCTS)
SOME = NAMES if LONG else [NAMES[turn() % len(NAMES)], NAMES[(turn() + 11) % len(NAMES)]]
NOT_INSIDE = {"workshare", "task", "number of a thread"}  # passed through, and said


@pytest.mark.parametrize("name", SOME, ids=lambda name: name.replace(" ", "-"))
def test_a_construct_alone_is_equal_to_the_serial_program(name: str, tmp_path: Path) -> None:
    from safepoint.threads.compare import Rules, compare
    from safepoint.threads.telling import lines
    from safepoint.threads.trace import Run

    made = built(written(name, tmp_path), tmp_path)
    a = Run(traced(tmp_path / made.serial, tmp_path / "a", 1, "static", "full"))
    for threads, schedule in WAYS:
        trace = traced(tmp_path / made.parallel, tmp_path / f"b-{threads}-{schedule}", threads, schedule, "full")
        found = compare(a, Run(trace), Rules())
        assert found.code == 0, (threads, schedule, lines(found))
    assert made.warnings == [] or name in NOT_INSIDE


@pytest.mark.parametrize("name", NAMES, ids=lambda name: name.replace(" ", "-"))
def test_each_construct_has_its_sites(name: str, tmp_path: Path) -> None:
    from safepoint.threads import fortran

    sites = fortran.instrument(written(name, tmp_path)).sites
    wanted = {
        "two loops": ["loop", "loop"], "collapse": ["loop"], "sections": ["section"] * 3, "ordered": ["ordered"],
        "single, copyprivate": ["single"], "master and barrier": ["master", "barrier"], "critical": ["critical"],
        "atomic": ["atomic", "atomic"], "nested": ["region", "region"],
    }.get(name, [])  # fmt: skip
    types = [site.type for site in sites]
    for type in set(wanted):
        assert types.count(type) == wanted.count(type), types
    assert "region" in types
    assert [site.number for site in sites] == list(range(1, len(sites) + 1))
