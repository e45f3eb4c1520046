"""`pytest --touched`: the tests that a change touches, by the graph of imports, the nearest first, and no longer than a
minute."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from testbed.paths import TESTS
from testbed.touched import Modules, changed_files

FILES = {
    ".gitignore": "__pycache__\n.pytest_cache",
    "safepoint/__init__.py": "from safepoint.low import f",
    "safepoint/low.py": "f = 0",
    "safepoint/mid.py": "def f():\n    from safepoint import low",
    "safepoint/cli/__init__.py": "",
    "safepoint/cli/group.py": "import importlib\nload = lambda name: importlib.import_module(f'safepoint.cli.{name}')",
    "safepoint/cli/run.py": "import safepoint.mid as mid\nNAME = f'safepoint.c.{NAME}'",
    "safepoint/c/__init__.py": "",
    "safepoint/c/build.py": "",
    "safepoint/c/all.c": "",
    "docs/page.md": "",
    "tests/conftest.py": "from safepoint import low",
    "tests/bed.py": "from safepoint.mid import (\n    f,\n)\nfrom safepoint.c import build\n",
    "tests/a/conftest.py": "import bed",
    "tests/a/test_by_conftest.py": "",
    "tests/b/test_by_name.py": "import bed",
    "tests/b/test_by_string.py": "CODE = 'from safepoint.low import f'",
    "tests/b/test_command.py": "COMMAND = ['python', '-m', 'safepoint', 'run']",
    "tests/b/test_none.py": "",
}


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"{text}\n")
    git(tmp_path, "init", "-q", "-b", "main")
    commit(tmp_path)
    return tmp_path


def git(where: Path, *words: str) -> None:
    subprocess.run(["git", "-C", str(where), "-c", "user.name=A", "-c", "user.email=a@b.c", *words], check=True)


def commit(where: Path) -> None:
    git(where, "add", ".")
    git(where, "commit", "-qm", "Change it")


@pytest.mark.parametrize(("changed", "steps"), [
    ("safepoint/low.py", {"by_string": 1, "by_name": 3, "by_conftest": 4, "command": 3}),
    ("safepoint/mid.py", {"by_name": 2, "by_conftest": 3, "command": 2}),
    ("safepoint/c/all.c", {"by_name": 2, "by_conftest": 3, "command": 2}),  # stands for `safepoint/c/build.py`
    ("safepoint/gone.py", {"by_string": 1, "by_name": 2, "by_conftest": 3, "command": 2}),
    ("tests/b/test_none.py", {"none": 0}),
    ("tests/conftest.py", {"by_conftest": 1, "by_name": 1, "by_string": 1, "command": 1, "none": 1}),
    ("docs/page.md", {}),
])  # fmt: skip
def test_what_a_change_touches_and_how_near_it_is(repository: Path, changed: str, steps: dict[str, int]) -> None:
    found = Modules(repository).steps_from([changed])
    assert {Path(path).stem.removeprefix("test_"): count for path, count in found.items()} == steps


def test_what_differs_from_main_what_is_not_committed_and_what_is_new_is_changed(repository: Path) -> None:
    git(repository, "checkout", "-qb", "work")
    (repository / "safepoint/low.py").write_text("x = 1\n")
    commit(repository)
    (repository / "safepoint/mid.py").unlink()
    (repository / "two words.py").write_text("")
    assert changed_files(repository, "")[1] == ["safepoint/low.py", "safepoint/mid.py", "two words.py"]
    assert changed_files(repository, "HEAD") == ("HEAD", ["safepoint/mid.py", "two words.py"])
    with pytest.raises(pytest.UsageError, match="tests/b"):
        changed_files(repository, "tests/b")


@pytest.mark.proof
def test_the_nearest_run_first_and_what_there_is_no_time_for_is_counted(repository: Path) -> None:
    """The first test ends the time. What is not selected is not imported: it would fail."""
    tests = {
        "b/test_by_string.py": "'from safepoint.low import f'\ndef test(pytestconfig):\n"
        "    pytestconfig.pluginmanager.get_plugin('first look').end = 0",
        "b/test_by_name.py": "import bed\ndef test_1(): pass\ndef test_2(): pass",
        "a/test_by_conftest.py": "import pytest\n@pytest.mark.proof\ndef test(): pass",
        "b/test_none.py": "raise SystemExit('imported')",
    }
    for name, text in tests.items():
        (repository / "tests" / name).write_text(text)
    commit(repository)
    assert "0 test files import them" in looked(repository)
    (repository / "safepoint/low.py").write_text("f = 1\n")
    said = looked(repository, "-n", "1")
    assert re.findall(r"(?m)^.*PASSED.*/(test_\w+)\.py|FAILED", said) == ["test_by_string"], said
    assert "2 tests were left out" in said


def looked(where: Path, *workers: str) -> str:
    words = [sys.executable, "-m", "pytest", "-p", "testbed.touched", "-v", "-o", "pythonpath=. tests", "-o",
             "markers=proof", "--touched", *workers]  # fmt: skip
    done = subprocess.run(words, cwd=where, env={"PYTHONPATH": str(TESTS)}, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
