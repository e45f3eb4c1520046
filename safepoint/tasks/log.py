"""What people and views read of a run: log.jsonl, graph.json and schedule.json. No restart depends on them.

The driver alone writes here. A full disk costs rows of the log, never the run. A kill may leave half a row, and the
next run begins on a line of its own. Readers pass over what is no row, whoever wrote it.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Iterator, Mapping
from typing import Any

from safepoint.disk import Disk
from safepoint.disk.files import exists, write

logger = logging.getLogger("safepoint")
LOG, GRAPH, SCHEDULE = "log.jsonl", "graph.json", "schedule.json"
_encode = json.JSONEncoder(default=str).encode  # made once: that takes longer than to encode a row
FLUSH_S = 0.2  # rows are written together, at most this late


class Log:
    """Rows to be appended. `add` keeps them, `flush` writes them in one piece."""

    def __init__(self, directory: str, disk: Disk | None = None) -> None:
        self._path, self._disk = os.path.join(directory, LOG), disk or Disk()
        self._rows: list[str] = []
        self._due = 0.0
        self._said = False
        self._open = False

    def add(self, event: str, **what: Any) -> None:
        now = time.time()
        self._rows.append(_encode({"time": round(now, 6), "event": event, **what}) + "\n")
        if len(self._rows) == 1:
            self._due = now + FLUSH_S

    def flush(self, *, wait: bool = True) -> None:
        """Write all rows; without `wait` only if the first of them is old enough."""
        if not self._rows or (not wait and time.time() < self._due):
            return
        rows, self._rows = self._rows, []
        try:
            if not self._open:
                self._begin()
            self._disk.append(self._path, "".join(rows).encode("utf-8", "backslashreplace"))
        except OSError as error:
            if not self._said:
                logger.warning("%s not written: %s; the run goes on without it", self._path, error)
            self._said = True

    def _begin(self) -> None:
        if not exists(self._disk, self._path):
            write(self._disk, self._path, b"")
        else:
            with self._disk.open(self._path) as file:
                length = file.seek(0, os.SEEK_END)
                file.seek(max(0, length - 1))
                if length and file.read(1) != b"\n":  # a kill left half a row
                    self._disk.append(self._path, b"\n")
        self._open = True


def put(directory: str, name: str, content: Mapping[str, Any], disk: Disk | None = None) -> None:
    """Replace graph.json or schedule.json. A failure is said, and costs a view only."""
    disk, path = disk or Disk(), os.path.join(directory, name)
    new = f"{path}.new"
    try:
        if exists(disk, new):
            disk.remove(new)  # of a driver that was killed between these lines
        write(disk, new, json.dumps(content, default=str, separators=(",", ":")).encode("utf-8", "backslashreplace"))
        # A reader that looks now sees the old content or the new, never half of it, even if the driver is killed here.
        disk.rename(new, path)
    except OSError as error:
        logger.warning("%s not written: %s; the run goes on without it", path, error)


def remove(directory: str, name: str, disk: Disk | None = None) -> None:
    """So that no view shows it with a run that it is not of."""
    disk, path = disk or Disk(), os.path.join(directory, name)
    try:
        disk.remove(path)
    except FileNotFoundError:
        pass
    except OSError as error:
        logger.warning("%s not removed: %s", path, error)


# Reading. Each function gives plain data of the right types, whatever the file holds.

NUMBERS = (
    "attempt", "attempts", "began", "inputs_s", "body_s", "saving_s", "nbytes", "moved", "seconds", "workers", "to_run",
    "pid", "expected_s",
)  # fmt: skip
TEXTS = (
    "run", "graph", "engine", "schedule", "driver_host", "vertex", "key", "worker", "host", "error", "where", "needs",
    "why",
)  # fmt: skip
OF_VERTEX = ("function", "source", "state", "key", "file")  # texts of graph.json
COUNTS = ("vertices", "finished", "failed", "skipped")  # of `start` and `end`


def rows(directory: str) -> Iterator[dict[str, Any]]:
    """All rows of the log that are rows, oldest first."""
    try:
        with open(os.path.join(directory, LOG), "rb") as file:
            for line in file:
                row = _object(line)
                if row is not None and _good(row):
                    yield row
    except OSError:
        return


def last_run(directory: str) -> list[dict[str, Any]]:
    """The rows of the last run, from its `start` on; nothing if there was none."""
    found: list[dict[str, Any]] = []
    for row in rows(directory):
        if row["event"] == "start":
            found = []
        found.append(row)
    return found if found and found[0]["event"] == "start" else []


def _object(line: bytes) -> dict[str, Any] | None:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return row if isinstance(row, dict) else None


def _number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1 << 62  # no NaN


def _good(row: dict[str, Any]) -> bool:
    if not (_number(row.get("time")) and isinstance(row.get("event"), str)):
        return False
    counts = COUNTS if row["event"] in ("start", "end") else ()
    if not all(row.get(name) is None or _number(row[name]) for name in (*NUMBERS, *counts)):
        return False
    if row["event"] in VERTEX and not isinstance(row.get("vertex"), str):
        return False
    return all(row.get(name) is None or isinstance(row[name], str) for name in TEXTS)


VERTEX = ("begin", "finished", "failed", "died", "skipped")


def graph(directory: str) -> dict[str, Any] | None:
    """The last graph that ran here: as it was written, without vertices that are none. None: there is none."""
    content = _read(os.path.join(directory, GRAPH))
    if content is None or not isinstance(content.get("vertices"), list):
        return None
    for name in ("graph", "code", "run"):
        content[name] = content[name] if isinstance(content.get(name), str) else ""
    content["vertices"] = [vertex for each in content["vertices"] if (vertex := _vertex(each))]
    return content


def _vertex(row: Any) -> dict[str, Any] | None:
    if not isinstance(row, dict) or not isinstance(row.get("name"), str):
        return None
    inputs = row.get("inputs")
    pairs = inputs if isinstance(inputs, list) else []
    return {
        "name": row["name"],
        **{name: row[name] if isinstance(row.get(name), str) else "" for name in OF_VERTEX},
        "inputs": [pair for pair in pairs if isinstance(pair, list) and len(pair) == 2
                   and isinstance(pair[0], str) and (pair[1] is None or isinstance(pair[1], str))],
        **{name: row[name] if _number(row.get(name)) else default for name, default in (("weight", 1.0), ("size", 0))},
        "parts": _texts(row.get("parts")),
    }  # fmt: skip


def _texts(value: Any) -> dict[str, str]:
    return {k: v for k, v in value.items() if isinstance(v, str)} if isinstance(value, dict) else {}


def schedule(directory: str) -> dict[str, Any] | None:
    """The schedule of the last run, without rows that are none. None: it had none."""
    return schedule_file(os.path.join(directory, SCHEDULE))


def schedule_file(path: str) -> dict[str, Any] | None:
    """One in a file of its own. None: there is none in it."""
    content = _read(path)
    if content is None or not isinstance(content.get("vertices"), list):
        return None
    content["vertices"] = [
        row for row in content["vertices"]
        if isinstance(row, dict) and isinstance(row.get("vertex"), str) and type(row.get("worker")) is int
        and _number(row.get("begin_s")) and _number(row.get("end_s"))
    ]  # fmt: skip
    return content


def _read(path: str) -> dict[str, Any] | None:
    try:
        with open(path, "rb") as file:
            return _object(file.read())
    except OSError:
        return None
