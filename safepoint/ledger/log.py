"""The log of one root as it is written, and what makes it a ledger: checksums of what each set held.

One JSON object a line, added in one write. People, reports and `safepoint compare` read it; recovery never does, so
nothing here may fail a save. A kill leaves whole lines; what a power cut tore is closed by the next life's first line.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any

from xxhash import xxh3_128

from safepoint.disk.files import tail, write
from safepoint.errors import UsageError
from safepoint.record import StoredFile
from safepoint.root import Root
from safepoint.settings import Setting

logger = logging.getLogger("safepoint")
LEVELS = ("off", "minimal", "modify", "full")
OFF, MINIMAL, MODIFY, FULL = range(len(LEVELS))
PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
COMMANDS = os.path.join(PACKAGE, "cli") + os.sep
MOST_ROWS = 1000  # files of a set that have a row each; of more there is one row for each directory


class Ledger:
    """The log of this rank. `level`: how much is noted; `edges`: of each life only the first and last so many steps."""

    def __init__(self, root: Root, log: str, level: int, edges: int) -> None:
        self.level, self._edges = level, edges
        self.caller: tuple[str, int] | None = None  # of the call, if it is made in another process
        self._root, self._log, self._pid = root, log, os.getpid()
        self._lock = threading.Lock()  # of several threads that watch
        self._opened = False
        self._steps, self._step = 0, object()  # how many steps this life has watched, and the newest
        self._last: deque[tuple[object, bytes]] = deque()  # the lines of the last steps, if these are edges
        self._shown: dict[str, str] = {}

    def note(self, event: str, **what: Any) -> None:
        """One line. What goes wrong is said, and is no error."""
        self._write(self._line(event, what))

    def _line(self, event: str, what: Mapping[str, Any]) -> bytes:
        return json.dumps({"time": time.time(), "event": event, "pid": self._pid, **what}).encode() + b"\n"

    def _write(self, lines: bytes) -> None:
        try:
            if not self._opened:
                lines = self._open() + lines
                self._opened = True
            self._root.disk.append(self._log, lines)
        except OSError as error:
            self._opened = False  # half of the line may be there
            logger.warning("cannot write to %s: %s", self._root.shown(error.filename), error.strerror)

    def _open(self) -> bytes:
        """What must come before the first line of this life."""
        try:
            return b"" if tail(self._root.disk, self._log, 1) in (b"", b"\n") else b"\n"
        except FileNotFoundError:
            write(self._root.disk, self._log, b"")
            return b""

    def call_site(self) -> tuple[str, int]:
        """File and line of the program's call that this is part of; none for the command line."""
        if self.caller is not None:
            return self.caller
        frame = sys._getframe(1)
        while frame.f_code.co_filename.startswith(PACKAGE):
            if frame.f_code.co_filename.startswith(COMMANDS) or frame.f_back is None:
                return "", 0
            frame = frame.f_back
        return frame.f_code.co_filename, frame.f_lineno

    def shown(self, caller: tuple[str, int]) -> str:
        """file:line, the file as seen from W if it is there."""
        file, line = caller
        if not file:
            return ""
        if file not in self._shown:
            try:
                full = os.path.abspath(file) if self.caller is None else file  # as its compiler was told
            except OSError:  # the directory where the program began is gone
                full = file
            inside = full.startswith(self._root.work + os.sep)
            self._shown[file] = os.path.relpath(full, self._root.work).replace(os.sep, "/") if inside else full
        return f"{self._shown[file]}:{line}"

    def begin(self) -> None:
        """A restore was made: the steps from here on are the first ones again."""
        self.end()
        self._steps = 0

    def watch(self, step: int, values: Mapping[str, Any]) -> None:
        """One line with the digests of these values."""
        from safepoint.ledger.digest import digest  # here: few programs watch values

        at = self.shown(self.call_site())
        found = {name: digest(name, value, full=self.level >= FULL) for name, value in values.items()}
        line = self._line("watch", {"step": step, "at": at, "values": found})
        with self._lock:
            if step != self._step:
                self._steps, self._step = self._steps + 1, step
                while self._last and len({number for number, _ in self._last} | {step}) > self._edges:
                    self._last.popleft()
            if not self._edges or self._steps <= self._edges:
                self._write(line)
            else:
                self._last.append((step, line))

    def end(self) -> None:
        """The life ends in order, or goes back: its last steps are edges."""
        with self._lock:
            lines = b"".join(line for _, line in self._last)
            self._last.clear()
            if lines:
                self._write(lines)


def level(text: str) -> int:
    """How much the ledger notes, by its name."""
    if text not in LEVELS:
        raise ValueError(f"takes one of {', '.join(LEVELS)}")
    return LEVELS.index(text)


def edges(text: str) -> int:
    if not text.isdecimal() or len(text) > 9:
        raise ValueError("takes a whole number from 0")
    return int(text)


# What log.jsonl tells of the contents of files and values; only so many first and last steps of watched values, 0: all.
SETTINGS: dict[str, Setting] = {"ledger": (level, MINIMAL), "edges": (edges, 0)}


def from_environment(environment: Mapping[str, str]) -> dict[str, int]:
    """The settings that a variable of the environment gives: it is above the manifest, so that a test run needs no
    other one. Raises `UsageError`."""
    found = {}
    for name, (parse, _) in SETTINGS.items():
        if text := environment.get(variable := f"SAFEPOINT_{name.upper()}", ""):
            try:
                found[name] = parse(text)
            except ValueError as error:
                raise UsageError(f"{variable}={text} in the environment: {error}") from error
    return found


def sums(files: Iterable[StoredFile]) -> list[list[Any]]:
    """Path, size and checksum of each file of a set; of very many, one row for each directory."""
    rows: list[list[Any]] = [[file.path, file.size, file.checksum] for file in files if file.has_bytes]
    if len(rows) <= MOST_ROWS:
        return rows
    together: dict[str, list[list[Any]]] = {}
    for row in sorted(rows):
        together.setdefault(row[0].rpartition("/")[0], []).append(row)
    return [
        [f"{where}/", sum(row[1] for row in some), xxh3_128(json.dumps(some).encode()).hexdigest()]
        for where, some in together.items()
    ]
