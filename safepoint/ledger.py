"""The log of one root, and what makes it a ledger: checksums of what each set held, and digests of watched values.

One JSON object a line, added in one write. People, reports and `safepoint compare` read it; recovery never does, so
nothing here may fail a save. A kill leaves whole lines; what a power cut tore is closed by the next life's first line.
"""

from __future__ import annotations

import json
import logging
import math
import os
import struct
import sys
import threading
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from xxhash import xxh3_128

from safepoint.disk import Disk
from safepoint.errors import UsageError
from safepoint.manifest import LEDGER
from safepoint.record import Root, StoredFile

logger = logging.getLogger("safepoint")
OFF, MINIMAL, MODIFY, FULL = range(len(LEDGER))
PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep
COMMANDS = os.path.join(PACKAGE, "cli") + os.sep
LONGEST = 1000  # files of a set that have a row each; of more there is one row for each directory
BLOCK = 1 << 16  # values that are taken at a time for their statistics: they stay in the processor's cache


class Ledger:
    """The log of this rank. `level`: how much is noted; `edges`: of each life only the first and last so many steps."""

    def __init__(self, disk: Disk, root: Root, log: str, level: int, edges: int) -> None:
        self.level, self._edges = level, edges
        self._disk, self._root, self._log, self._pid = disk, root, log, os.getpid()
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
            self._disk.append(self._log, lines)
        except OSError as error:
            self._opened = False  # half of the line may be there
            logger.warning("cannot write to %s: %s", self._root.shown(error.filename), error.strerror)

    def _open(self) -> bytes:
        """What must come before the first line of this life."""
        if not self._disk.exists(self._log):
            self._disk.write(self._log, b"")
        return b"" if self._disk.tail(self._log, 1) in (b"", b"\n") else b"\n"

    def place(self) -> tuple[str, int]:
        """File and line of the program's call that this is part of; none for the command line."""
        frame = sys._getframe(1)
        while frame.f_code.co_filename.startswith(PACKAGE):
            if frame.f_code.co_filename.startswith(COMMANDS) or frame.f_back is None:
                return "", 0
            frame = frame.f_back
        return frame.f_code.co_filename, frame.f_lineno

    def shown(self, place: tuple[str, int]) -> str:
        """file:line, the file as seen from W if it is there."""
        file, line = place
        if not file:
            return ""
        if file not in self._shown:
            try:
                full = os.path.abspath(file)
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
        at = self.shown(self.place())
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


def sums(files: Iterable[StoredFile]) -> list[list[Any]]:
    """Path, size and checksum of each file of a set; of very many, one row for each directory."""
    rows: list[list[Any]] = [[file.path, file.size, file.checksum] for file in files if file.has_bytes]
    if len(rows) <= LONGEST:
        return rows
    together: dict[str, list[list[Any]]] = {}
    for row in sorted(rows):
        together.setdefault(row[0].rpartition("/")[0], []).append(row)
    return [
        [f"{where}/", sum(row[1] for row in some), xxh3_128(json.dumps(some).encode()).hexdigest()]
        for where, some in together.items()
    ]


def digest(name: str, value: Any, *, full: bool) -> list[Any]:
    """Type, shape and xxh3-128 of a value; `full`: and its smallest and largest value, mean, and root of the sum of
    squares (of complex ones: of their magnitudes; None: not finite). Raises `UsageError` for what is neither."""
    plain = _plain(value)
    if plain is not None:
        kind, data = plain
        row: list[Any] = [kind, [], xxh3_128(data).hexdigest()]
        return [*row, *_scalar(value)] if full else row
    numpy = sys.modules.get("numpy")  # whoever has arrays has it; nobody else needs it
    try:
        if numpy is None:
            view = memoryview(value)
            return [view.format, list(view.shape or ()), xxh3_128(view.tobytes()).hexdigest()]
        array = numpy.asanyarray(value)
    except (TypeError, ValueError) as error:
        raise UsageError(f"watch: {name} is neither a number nor an array, but {type(value).__name__}") from error
    if array.dtype.hasobject:
        raise UsageError(f"watch: {name} holds Python objects, not numbers ({type(value).__name__})")
    if isinstance(array, numpy.ma.MaskedArray):
        mask = _checksum(numpy, numpy.ma.getmaskarray(array))
        whole = digest(name, array.filled(0), full=full)
        return [f"masked {whole[0]}", whole[1], xxh3_128(f"{whole[2]} {mask}".encode()).hexdigest(), *whole[3:]]
    row = [str(array.dtype.newbyteorder("=")), list(array.shape), _checksum(numpy, array)]
    return [*row, *_statistics(numpy, array)] if full else row


def _plain(value: Any) -> tuple[str, bytes] | None:
    """A single value of Python, or of numpy where that is one too."""
    if isinstance(value, bool):
        return "bool", bytes([value])
    if isinstance(value, int):
        return "int", str(int(value)).encode()
    if isinstance(value, float):
        return "float64", struct.pack("<d", value)
    if isinstance(value, complex):
        return "complex128", struct.pack("<dd", value.real, value.imag)
    if isinstance(value, str):
        return "str", value.encode("utf-8", "surrogatepass")
    return ("bytes", bytes(value)) if isinstance(value, (bytes, bytearray)) else None


def _scalar(value: Any) -> list[float | None]:
    if isinstance(value, (str, bytes, bytearray)):
        return []
    try:
        size = float(abs(value)) if isinstance(value, complex) else float(value)
    except OverflowError:
        size = math.inf
    return _finite([size, size, size, abs(size)])


def _finite(numbers: Sequence[float]) -> list[float | None]:
    return [float(number) if math.isfinite(number) else None for number in numbers]


def _checksum(numpy: Any, array: Any) -> str:
    """Of the values in the order of their indices, wherever they lie in memory; in the byte order of this machine."""
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    if array.dtype.names:  # not the gaps between the fields
        return str(xxh3_128("".join(_checksum(numpy, array[name]) for name in array.dtype.names).encode()).hexdigest())
    if array.dtype.kind in "fc" and array.dtype.itemsize > (8 if array.dtype.kind == "f" else 16):
        # A long double has bytes that mean nothing: what a double holds of it, and the rest.
        short = array.astype("f8" if array.dtype.kind == "f" else "c16")
        rest = (array - short).astype(short.dtype)
        return str(xxh3_128((_checksum(numpy, short) + _checksum(numpy, rest)).encode()).hexdigest())
    if array.flags.c_contiguous:
        return str(xxh3_128(array.reshape(-1).view(numpy.uint8).data).hexdigest() if array.size else "")
    summed = xxh3_128()
    rows = max(1, (1 << 20) // max(1, array[:1].nbytes))
    for start in range(0, len(array), rows):
        summed.update(numpy.ascontiguousarray(array[start : start + rows]).reshape(-1).view(numpy.uint8).data)
    return str(summed.hexdigest()) if array.size else ""


def _statistics(numpy: Any, array: Any) -> list[float | None]:
    if array.dtype.kind not in "biufc" or not array.size:
        return []
    flat = array.reshape(-1) if array.flags.c_contiguous else array.ravel()
    low, high, total, squares = math.inf, -math.inf, 0.0, 0.0
    with numpy.errstate(all="ignore"):
        for start in range(0, flat.size, BLOCK):
            block = flat[start : start + BLOCK]
            block = numpy.abs(block) if array.dtype.kind == "c" else block
            block = block.astype(numpy.float64, copy=False)
            low, high = float(numpy.minimum(low, block.min())), float(numpy.maximum(high, block.max()))
            total += float(block.sum())
            squares += float(numpy.dot(block, block))
    return _finite([low, high, total / flat.size, math.sqrt(squares) if squares >= 0 else squares])
