"""What the pages of the site show: programs that are there, all of the interface, and links that lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from testbed.paths import EXAMPLES, HOUSE

import safepoint

pytestmark = pytest.mark.house
RECIPES = [HOUSE / "docs/notebooks.md", *sorted((HOUSE / "docs/recipes").glob("*.md"))]
PROGRAM = re.compile(r"^\[`(examples/[^`]+)`\]\((?:\.\./)+\1\):\n\n```python\n(.*?)^```$", re.M | re.S)
SHOWN = {page: PROGRAM.findall(page.read_text("utf-8")) for page in RECIPES}


@pytest.mark.parametrize("page", RECIPES, ids=lambda page: str(page.stem))
def test_the_program_on_the_page_of_a_recipe_is_that_of_the_examples(page: Path) -> None:
    ((name, code),) = SHOWN[page]
    assert code == (HOUSE / name).read_text("utf-8")


def test_every_program_of_a_recipe_is_on_a_page() -> None:
    assert set((EXAMPLES / "recipes").glob("*.py")) <= {HOUSE / name for shown in SHOWN.values() for name, _ in shown}


def test_the_page_of_the_functions_has_all_that_the_package_brings() -> None:
    text = (HOUSE / "docs/reference.md").read_text("utf-8")
    assert sorted(re.findall(r"^::: safepoint\.(\w+)$", text, re.M)) == sorted({*safepoint.__all__} - {"__version__"})


@pytest.mark.parametrize(
    ("page", "link", "in_the_site"),
    [
        ("design.md", "[a](../benchmarks/notes.md#b)", "[a](benchmarks/notes.md#b)"),
        ("scaling.md", "![a](../benchmarks/results/2026-11-23-blocked.png)",
         "![a](benchmarks/results/2026-11-23-blocked.png)"),
        ("recipes/h5py.md", "[a](../tutorial.md)", "[a](../tutorial.md)"),
        ("recipes/h5py.md", "[`a.py`](../../examples/walk.py)", "`a.py`"),
        ("benchmarks/notes.md", "[a](../docs/design.md)", "[a](../design.md)"),
        ("report.md", "[a](../build/site/report-example.html)", "[a](report-example.html)"),
        ("terms.md", "[a](../README.md), [b](write_cli.py), [c](nowhere.md)", "[a](index.md), b, [c](nowhere.md)"),
        ("terms.md", "`[a](../README.md)`, [a](https://b.org)", "`[a](../README.md)`, [a](https://b.org)"),
    ],
)  # fmt: skip
def test_links_of_the_repository_lead_somewhere_in_the_site(page: str, link: str, in_the_site: str) -> None:
    pytest.importorskip("mkdocs")
    from site_links import for_site

    assert for_site(link, page) == in_the_site
