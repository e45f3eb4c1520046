"""How two files differ: value by value where the format is known, else the first byte that is not the same.

Known are `.npy` and `.npz` (with numpy), HDF5 (with h5py), and text with numbers in it: tables, CSV, single values.
numpy and h5py are imported only for files that need them; where one is missing the bytes are compared, and it is said.
"""

from __future__ import annotations

import codecs
import itertools
import math
import os
import re
import struct
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TextIO

from safepoint.ledger import arrays
from safepoint.ledger.arrays import NPY, Tally, differ_at

HDF5, ZIP = b"\x89HDF\r\n\x1a\n", b"PK\x03\x04"
LONGEST_LINE = 64 << 20  # characters
# What numpy, zipfile and h5py raise for a file that is not what it seems to be.
UNREADABLE = (
    ValueError, LookupError, EOFError, OSError, MemoryError, RuntimeError, TypeError, AttributeError, ArithmeticError,
    struct.error, zlib.error, zipfile.BadZipFile,
)  # fmt: skip
_CELLS = re.compile(r"[\s,;]+")


@dataclass(frozen=True)
class Difference:
    """What the comparison of two files found; `text` says it in one sentence.

    `kind`: npy, npz, hdf5, text or bytes. If values were compared: how many, how many of them differ by more than was
    tolerated, the largest absolute and relative difference (|a-b| / max(|a|, |b|); infinite if one is not a number)
    of those, and where the largest absolute one is. `offset`: the first differing byte, if bytes were compared.
    """

    same_bytes: bool
    kind: str
    text: str
    values: int | None = None
    differing: int | None = None
    largest: float | None = None
    relative: float | None = None
    where: str = ""
    offset: int | None = None

    @property
    def equal(self) -> bool:
        """The same bytes, or the same values in a format that has more than these, such as times."""
        return self.same_bytes or self.differing == 0


def compare(path_a: str, path_b: str, name: str, rtol: float = 0.0, atol: float = 0.0) -> Difference:
    """How the files differ. `name`: the one the user knows, whose ending may tell the format. Values are the same if
    |a-b| <= atol + rtol * max(|a|, |b|); not-a-number is the same as itself.

    Raises `OSError` if one cannot be read. A file that is not what it seems is compared byte by byte.
    """
    offset = _first_difference(path_a, path_b)
    kind = _kind(path_a, path_b, name)
    if offset is None:
        return Difference(True, kind, "equal")
    if kind != "bytes":
        tally = Tally(rtol, atol)
        try:
            {"npy": arrays.npy, "npz": arrays.npz, "hdf5": arrays.hdf5, "text": _text}[kind](path_a, path_b, tally)
        except ModuleNotFoundError as error:
            return _bytes(path_a, path_b, offset, f" (values not compared: {error.name} is not installed)")
        except UNREADABLE:
            return _bytes(path_a, path_b, offset, " (values not compared: it cannot be read as what it seems to be)")
        if tally.values or tally.notes:
            return _told(kind, tally, offset)
    return _bytes(path_a, path_b, offset, "")


def _kind(path_a: str, path_b: str, name: str) -> str:
    heads = []
    for path in (path_a, path_b):
        with open(path, "rb") as file:
            heads.append(file.read(8192))
    if all(head.startswith(NPY) for head in heads):
        return "npy"
    if all(head.startswith(HDF5) for head in heads):
        return "hdf5"
    if name.lower().endswith(".npz") and all(head.startswith(ZIP) for head in heads):
        return "npz"
    return "text" if all(map(_is_text, heads)) else "bytes"


def _is_text(head: bytes) -> bool:
    try:
        return bool(head) and "\0" not in codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        return False


def _first_difference(path_a: str, path_b: str) -> int | None:
    with open(path_a, "rb") as a, open(path_b, "rb") as b:
        return differ_at(a, b)


def _bytes(path_a: str, path_b: str, offset: int, remark: str) -> Difference:
    sizes = os.path.getsize(path_a), os.path.getsize(path_b)
    text = f"byte {offset} is the first that differs"
    if sizes[0] != sizes[1]:
        text = f"{sizes[0]} and {sizes[1]} bytes; " + (
            "the shorter begins the longer" if offset == min(sizes) else text
        )
    return Difference(False, "bytes", text + remark, offset=offset)


def _told(kind: str, tally: Tally, offset: int) -> Difference:
    values = tally.differing - len(tally.notes)
    parts = list(dict.fromkeys(tally.notes))
    if len(parts) > 3:
        parts = [*parts[:3], f"and {len(parts) - 3} more"]
    if values:
        most = f"at most by {tally.largest:.3g} (relative {tally.relative:.3g})"
        parts.insert(0, f"{values} of {tally.values} values differ, {most}, at {tally.where}")
    if not parts:
        same = "within the tolerance" if tally.rtol or tally.atol else "equal"
        parts = [f"all {tally.values} values are {same}; the bytes are not"]
    numbers = {"largest": tally.largest, "relative": tally.relative} if tally.values else {}
    return Difference(
        False, kind, "; ".join(parts), tally.values, tally.differing, where=tally.where, offset=offset, **numbers
    )


def _text(path_a: str, path_b: str, tally: Tally) -> None:
    """Line by line, cell by cell; what is a number in both is compared as one."""
    with open(path_a, encoding="utf-8") as a, open(path_b, encoding="utf-8") as b:
        lines = [0, 0]
        for number, (one, other) in enumerate(itertools.zip_longest(_lines(a), _lines(b)), 1):
            lines[0] += one is not None
            lines[1] += other is not None
            if one is not None and other is not None:
                _cells(_CELLS.split(one.strip()), _CELLS.split(other.strip()), number, tally)
        if lines[0] != lines[1]:
            tally.note(f"{lines[0]} and {lines[1]} lines")


def _lines(file: TextIO) -> Iterator[str]:
    """Raises ValueError for one that would fill the memory."""
    while line := file.readline(LONGEST_LINE):
        if len(line) == LONGEST_LINE:
            raise ValueError("it has a line that is too long")
        yield line


def _cells(one: list[str], other: list[str], line: int, tally: Tally) -> None:
    if len(one) != len(other):
        tally.note(f"line {line} has {len(one)} and {len(other)} columns")
        return
    for column, (x, y) in enumerate(zip(one, other, strict=True), 1):
        a, b = _number(x), _number(y)
        tally.values += a is not None
        if x == y:
            continue
        if a is None or b is None:
            tally.note(f"line {line}: text differs")
        elif a != b and not (math.isnan(a) and math.isnan(b)):
            tally.pair(a, b, f"line {line}, column {column}")
        elif _other_number(x, y, a):
            tally.note(f"line {line}: text differs")


def _other_number(x: str, y: str, value: float) -> bool:
    """Whether two texts that are one float are not one number: large integers, and what is beyond all floats."""
    if x.lstrip("+-").isdecimal() and y.lstrip("+-").isdecimal():
        return int(x) != int(y)
    return math.isinf(value) and not ("inf" in x.lower() and "inf" in y.lower())


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        pass
    try:
        return float(text.lower().replace("d", "e"))  # as Fortran writes it
    except ValueError:
        return None
