"""docs/tasks-deps.md: twenty functions whose dependences were written down by hand, beside their statements."""

from __future__ import annotations

from pathlib import Path

import pytest

from safepoint.tasks.deps import Analysis, analyses
from safepoint.tasks.deps.statements import LEAVING

FILES = Path(__file__).parents[1] / "testbed" / "deps"
MARKS = {".py": "#:", ".c": "//:"}


def needed(found: Analysis, number: int) -> set[str]:
    """f1: flow from the first statement. The order alone counts where nothing else binds."""
    those = [each for each in found.dependences if each.target == number]
    data = {each.source for each in those if each.label != LEAVING}
    named = {f"{each.kind[0]}{each.source + 1}" for each in those if each.label != LEAVING}
    return named | {f"l{each.source + 1}" for each in those if each.source not in data}


def expected(line: str, mark: str) -> set[str] | None:
    assert mark in line, line
    words = line.partition(mark)[2].split()
    return None if words == ["all"] else set(words)


@pytest.mark.parametrize("name", ["by_hand.py", "by_hand.c"])
def test_dependences_are_those_that_were_written_by_hand(name: str) -> None:
    """And levels respect them, and are as early as they allow."""
    if name.endswith(".c"):
        pytest.importorskip("tree_sitter_c", reason="no tree-sitter-c: pip install '.[deps]'")
    lines = (FILES / name).read_text("utf-8").splitlines()
    found = analyses(str(FILES / name))
    assert len(found) == 10
    for each in found:
        level = {number: n for n, numbers in enumerate(each.levels) for number in numbers}
        assert sorted(level) == list(range(len(each.statements)))
        for number, statement in enumerate(each.statements):
            hand = expected(lines[statement.line - 1], MARKS[Path(name).suffix])
            ours, where = needed(each, number), (each.function, statement.line, statement.text)
            if hand is None:
                assert {word[1:] for word in ours} == {str(n + 1) for n in range(number)}, where
            else:
                assert ours == hand, where
            sources = [level[one.source] for one in each.dependences if one.target == number]
            assert level[number] == max(sources, default=-1) + 1, where
