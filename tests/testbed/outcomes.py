"""What became of each test, in a file that grows as they end: a run that is cut off keeps what it has.

A plugin of pytest, which `conftest.py` brings: `--outcomes FILE` writes the file, and prints the names of failures as
they come. `read` is for whoever started that run, at any time.
"""

from __future__ import annotations

import collections
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--outcomes", metavar="FILE", help="append what became of each test, and name failures at once")


def pytest_configure(config: pytest.Config) -> None:
    path = config.getoption("--outcomes")
    if path and not hasattr(config, "workerinput"):  # the workers of xdist report to the process that started them
        config.pluginmanager.register(Writer(config, path))


class Writer:
    def __init__(self, config: pytest.Config, path: str) -> None:
        self.config, self.path = config, path

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: list[str]) -> None:
        self._write(collected=len(ids))

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._write(test=nodeid, outcome="under way")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._failed(report)
        elif report.skipped:
            reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longreprtext
            self._write(test=report.nodeid, outcome="left out", why=str(reason).removeprefix("Skipped: "))
        elif report.when == "call":
            self._write(test=report.nodeid, outcome="passed")

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._failed(report)

    def _failed(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        self._write(test=report.nodeid, outcome="failed", why=report.longreprtext)
        terminal = self.config.pluginmanager.get_plugin("terminalreporter")
        terminal.write(f"\nFAILED {report.nodeid}\n", flush=True, red=True)  # after the row of dots

    def _write(self, **row: Any) -> None:
        with open(self.path, "a", encoding="utf-8") as file:  # in one piece, and closed: nothing waits in a buffer
            file.write(json.dumps(row) + "\n")


@dataclass
class Outcomes:
    passed: int = 0
    failed: list[str] = field(default_factory=list)
    left_out: collections.Counter[str] = field(default_factory=collections.Counter)  # by reason
    under_way: list[str] = field(default_factory=list)
    collected: int = 0


def read(path: Path) -> Outcomes:
    found, last, whys = Outcomes(), dict[str, str](), dict[str, str]()
    lines = path.read_text(encoding="utf-8").split("\n")[:-1] if path.exists() else []
    for row in map(json.loads, lines):
        found.collected = row.get("collected", found.collected)
        if "test" in row:  # the last word counts: one that passed may fail when its fixtures end
            last[row["test"]], whys[row["test"]] = row["outcome"], row.get("why", "")
    outcomes = collections.Counter(last.values())
    found.passed = outcomes["passed"]
    found.failed = [test for test, outcome in last.items() if outcome == "failed"]
    found.under_way = [test for test, outcome in last.items() if outcome == "under way"]
    found.left_out = collections.Counter(whys[test] for test, outcome in last.items() if outcome == "left out")
    return found
