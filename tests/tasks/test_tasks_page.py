"""docs/tasks.md: its first program runs, and says what the page shows."""

from __future__ import annotations

import re
from pathlib import Path

from testbed import task_graphs
from testbed.paths import HOUSE

PAGE = (HOUSE / "docs/tasks.md").read_text("utf-8")


def test_the_first_program_of_the_page_says_what_the_page_shows(tmp_path: Path) -> None:
    """Twice, and a third time after the correction that the page makes. Digits beyond the tenth may differ."""
    program = re.search(r"```python\n(# sky\.py\n.*?)```", PAGE, re.S)
    assert program
    shown = re.findall(r"^\$ python sky\.py\n(.*\n.*\n)", PAGE, re.M)
    assert len(shown) == 3
    text = program[1]
    for number, expected in enumerate(shown):
        if number == 2:
            text = text.replace("return sum(images) / len(images)", "return sum(images) / (len(images) + 1)")
        (tmp_path / "sky.py").write_text(text)
        first, second = task_graphs.python("sky.py", cwd=tmp_path).splitlines()
        assert first == expected.splitlines()[0]
        mean, said = (float(line.rpartition(" ")[2]) for line in (second, expected.splitlines()[1]))
        assert abs(mean - said) < 1e-10 * abs(said)


def test_every_verb_and_option_of_add_and_run_is_on_the_page() -> None:
    import inspect

    from safepoint.cli.tasks.tasks import VERBS
    from safepoint.tasks import Graph
    from safepoint.tasks.running import run

    assert [verb for verb in VERBS if f"`safepoint tasks {verb}" not in PAGE] == []
    options = {*inspect.signature(Graph.add).parameters, *inspect.signature(run).parameters}
    missing = options - {"self", "name", "function", "named", "graph", "options", "engine"}
    assert [option for option in sorted(missing) if f"`{option}=" not in PAGE] == []


def test_every_link_of_the_page_leads_to_a_page() -> None:
    pages = set(re.findall(r"\]\(([\w-]+\.md)", PAGE))
    assert pages >= {"tasks-store.md", "tasks-dask.md", "tasks-mpi.md", "tasks-schedules.md", "tasks-view.md"}
    assert [name for name in sorted(pages) if not (HOUSE / "docs" / name).exists()] == []
