"""`pytest --touched`: a first look at a change within a minute; a plugin that `conftest.py` brings.

Changed is what differs from the merge base with origin/main, else main (`--touched=REV`: from REV), what is not
committed, and what git does not track yet. A test file of the fast ring is selected if it changed, or if it imports
what changed, at first or at second hand. The files with the fewest import steps come first.

(1) Imports are read from the text, also those in functions and in strings, because many tests run programs that stand
    there. `safepoint.check.{name}` may be any module below `safepoint.check`. A test that has the name of a command
    in quotes imports the module of that command, because the command line finds its modules by their names.
(2) A test imports the conftest of its folder. The one of all tests counts as a file without imports, because otherwise
    each test would import the core. The `__init__` of a package counts only for who names it, for the same reason.
(3) A changed file of `safepoint/` or `tests/` that is no module (C, JavaScript, rules), or is gone, stands for all
    modules of its folder, or of the nearest folder above that has some.
(4) After FIRST_LOOK_S no further test is started. The last lines say how many were left out.
"""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

FIRST_LOOK_S = 50.0
TREES = {"safepoint": "", "tests": "tests", "docs": "docs", "examples": "examples"}  # folder: where its imports begin
OF_ALL = "tests/conftest.py"
IMPORTS = re.compile(
    r"\bfrom (?P<package>\w[\w.]*) import (?:\((?P<lines>[^)]*)\)|(?P<line>[\w, ]+))|\bimport (?P<modules>[\w., ]+)"
    r"|(?<![\w.])(?P<below>safepoint[\w.]*)\.\{|(?<![\w.])(?P<name>safepoint(?:\.\w+)+)|[\"'](?P<command>[a-z-]+)[\"']"
)


# The graph of imports.


class Modules:
    """The Python files of a repository, by path, and what each imports."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.paths = {path.relative_to(root).as_posix() for tree in TREES for path in (root / tree).rglob("*.py")}
        self._named = {_name(path): path for path in sorted(self.paths)}
        commands = [path for path in self.paths if path.startswith("safepoint/cli/")]
        self._commands = {PurePosixPath(path).stem.replace("_", "-"): path for path in commands}

    def steps_from(self, changed: Iterable[str]) -> dict[str, int]:
        """Return for each test file that imports one of these paths the number of import steps; 0 is itself."""
        importers: dict[str, list[str]] = {}
        for path in sorted(self.paths):
            for found in self._imports(path):
                importers.setdefault(found, []).append(path)
        steps = dict.fromkeys((module for path in changed for module in self._standing_for(path)), 0)
        queue = list(steps)
        for path in queue:  # which grows
            for importer in importers.get(path, ()):
                if importer not in steps:
                    steps[importer] = steps[path] + 1
                    queue.append(importer)
        return {path: count for path, count in steps.items() if PurePosixPath(path).name.startswith("test_")}

    def _standing_for(self, path: str) -> set[str]:
        """Return the modules that a changed file stands for (3)."""
        if path in self.paths or not path.startswith(("safepoint/", "tests/")):
            return {path} & self.paths
        for folder in map(str, PurePosixPath(path).parents):
            if beside := {module for module in self.paths if str(PurePosixPath(module).parent) == folder}:
                return beside
        return set()

    def _imports(self, path: str) -> set[str]:
        if path == OF_ALL:
            return set()
        found = set[str]()
        for match in IMPORTS.finditer((self.root / path).read_text("utf-8")):
            found.update(self._meant(match.groupdict(), path.startswith("tests/")))
        if PurePosixPath(path).name.startswith("test_"):
            found.update(f"{folder}/conftest.py" for folder in PurePosixPath(path).parents)
        return found & self.paths

    def _meant(self, match: dict[str, str | None], by_a_test: bool) -> Iterator[str]:
        if package := match["package"]:
            for name in re.findall(r"(\w+)(?: as \w+)?", match["lines"] or match["line"] or ""):
                yield self._named.get(f"{package}.{name}") or self._named.get(package, "")
        elif match["modules"]:
            yield from (self._named.get(name.split()[0], "") for name in match["modules"].split(",") if name.strip())
        elif name := match["name"]:
            while name.count(".") and name not in self._named:
                name = name.rpartition(".")[0]
            yield self._named[name] if name.count(".") else ""  # `safepoint.d` is no import of the package
        elif (below := match["below"]) and not below.startswith("safepoint.cli"):
            yield from (path for name, path in self._named.items() if name.startswith(f"{below}."))
        elif by_a_test:
            yield self._commands.get(match["command"] or "", "")


def _name(path: str) -> str:
    words = PurePosixPath(path).relative_to(TREES[path.partition("/")[0]]).with_suffix("").parts
    return ".".join(words[:-1] if words[-1] == "__init__" else words)


# What changed.


def changed_files(root: Path, revision: str) -> tuple[str, list[str]]:
    """Return the revision that the change is compared with, and the paths that differ."""
    base = revision
    for main in ("origin/main", "main"):
        base = base or "".join(_git(root, "merge-base", "HEAD", main, missing=True))
    base = base or "HEAD"
    differ = ("diff", "--name-only", "--no-renames", "--relative", "-z")
    found = [*_git(root, *differ, base, "--"), *_git(root, *differ, "HEAD", "--")]
    return base, sorted({*found, *_git(root, "ls-files", "--others", "--exclude-standard", "-z")})


def _git(root: Path, *words: str, missing: bool = False) -> list[str]:
    done = subprocess.run(["git", "-C", str(root), *words], capture_output=True, text=True)
    if done.returncode and not missing:
        raise pytest.UsageError(f"--touched: git {' '.join(words)}: {done.stderr.strip()}")
    return [name for name in done.stdout.strip().split("\0") if name] if done.returncode == 0 else []


# The plugin.


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--touched", nargs="?", const="", metavar="REV",
        help=f"for {FIRST_LOOK_S:.0f} s, the tests of the fast ring that import what differs from REV, the nearest "
        "first (default: the merge base with origin/main or main)",
    )  # fmt: skip


def pytest_configure(config: pytest.Config) -> None:
    revision = config.getoption("--touched")
    if revision is None:
        return
    config.option.markexpr = config.option.markexpr or "not proof"
    if hasattr(config, "workerinput"):  # a worker of xdist
        look = FirstLook(config.rootpath, **config.workerinput["touched"])
    else:
        end = time.time() + FIRST_LOOK_S
        base, changed = changed_files(config.rootpath, revision)
        look = FirstLook(config.rootpath, base, len(changed), Modules(config.rootpath).steps_from(changed), end)
    config.pluginmanager.register(look, "first look")


class FirstLook:
    """Select, sort, and stop in time."""

    def __init__(self, root: Path, base: str, changed: int, steps: dict[str, int], end: float) -> None:
        self.root, self.base, self.changed, self.steps, self.end = root, base, changed, steps, end
        self.left_out = 0  # tests, of all workers

    def pytest_report_header(self) -> str:
        return f"touched: {self.changed} files differ from {self.base[:12]}, {len(self.steps)} test files import them"

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        node.workerinput["touched"] = {
            "base": self.base, "changed": self.changed, "steps": self.steps, "end": self.end,
        }  # fmt: skip

    def pytest_ignore_collect(self, collection_path: Path) -> bool | None:
        """Unselected files are not even imported."""
        return True if collection_path.is_file() and self._path(collection_path) not in self.steps else None

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items.sort(key=lambda item: self.steps[self._path(item.path)])

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self) -> bool | None:
        if time.time() <= self.end:
            return None
        self.left_out += 1
        return True

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        self.left_out += getattr(node, "workeroutput", {}).get("left_out", 0)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if hasattr(session.config, "workeroutput"):
            session.config.workeroutput["left_out"] = self.left_out
        elif session.exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED:  # nothing is touched: no failure
            session.exitstatus = pytest.ExitCode.OK

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        rest = f"{self.left_out} tests were left out after {FIRST_LOOK_S:.0f} s" if self.left_out else "all of them ran"
        terminalreporter.write_line(f"first look at {len(self.steps)} test files: {rest}; `make test` runs all")

    def _path(self, path: Path) -> str:
        return path.relative_to(self.root).as_posix() if path.is_relative_to(self.root) else ""
