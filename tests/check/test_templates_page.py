"""docs/templates.md: what it shows is read, and what it says of mistakes is what is told."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from safepoint.check import language, vocabulary
from safepoint.check.language import parse
from safepoint.check.template import ATTRIBUTES

PAGE = (Path(__file__).parents[2] / "docs/templates.md").read_text("utf-8")
SHOWN = re.findall(r"^```\n(Name=.*?)^```$", PAGE, re.M | re.S)
BASE = next(text for text in SHOWN if "never completed" in text)
WHERE = Path("t.tpl")


def tables(head: str) -> list[list[list[str]]]:
    """The rows of each table whose first column has this head."""
    found = re.findall(rf"^\| {re.escape(head)} \|.*\n\|[-|]+\|\n((?:\|.*\n)+)", PAGE, re.M)
    return [[re.split(r"(?<!\\) \| ", row.strip("| ")) for row in text.splitlines()] for text in found]


def names(cells: list[str]) -> list[str]:
    return [name for cell in cells for name in re.findall("`([^`]+)`", cell)]


MACROS, OWN = tables("name")
(MISTAKES,) = tables("written")


@pytest.mark.parametrize("text", SHOWN, ids=lambda text: text.partition("\n")[0])
def test_each_template_that_the_page_shows_is_right(text: str) -> None:
    found, wrong = parse(text, WHERE)
    assert found is not None, "\n".join(map(str, wrong))


def test_the_page_shows_templates() -> None:
    assert len(SHOWN) >= 7


def changed(line: str) -> str:
    """The template of the page with this line instead of its own."""
    lines = BASE.splitlines()
    at = next((at for at, one in enumerate(lines) if one.split("=")[0] == line.split("=")[0]), len(lines) - 1)
    return "\n".join([*lines[:at], line, *lines[at + 1 :]])


@pytest.mark.parametrize(("written", "message"), MISTAKES)
def test_each_mistake_of_the_page_is_told_as_it_says(written: str, message: str) -> None:
    _, wrong = parse(changed(written.strip("`")), WHERE)
    assert message in [one.text for one in wrong]


def test_the_page_has_all_names_that_stand_for_several_functions() -> None:
    assert {*names([cells[0] for cells in MACROS])} == {*vocabulary.MACROS, *vocabulary.MESSAGES}
    for word in ("Send_any", "Isend_any"):
        (row,) = [cells for cells in MACROS if cells[0] == f"`{word}`"]
        assert {*names(row[1:])} == vocabulary.functions(word)


def test_the_page_has_all_attributes() -> None:
    assert names([cells[0] for cells in OWN]) == [*ATTRIBUTES]


@pytest.mark.parametrize("path", language.shipped().values(), ids=lambda path: path.stem)
def test_each_template_that_is_shipped_is_right(path: Path) -> None:
    assert language.faults(path) == []
