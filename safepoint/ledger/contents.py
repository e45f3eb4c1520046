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
import zipfile
from dataclasses import dataclass, field
from typing import Any, BinaryIO

CHUNK = 1 << 20  # bytes that are compared, and values that are read, at a time
BLOCK_VALUES = 1 << 16  # values that are compared at a time: they stay in the processor's cache
NPY, HDF5, ZIP = b"\x93NUMPY", b"\x89HDF\r\n\x1a\n", b"PK\x03\x04"
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


@dataclass
class _Tally:
    """The differences of one pair of files so far. `notes`: what is not a difference of two values."""

    rtol: float = 0.0
    atol: float = 0.0
    values: int = 0
    differing: int = 0
    largest: float = 0.0
    relative: float = 0.0
    where: str = ""
    notes: list[str] = field(default_factory=list)

    def pair(self, a: float, b: float, where: str) -> None:
        """Two values that are not the same."""
        apart = abs(a - b)
        apart = math.inf if math.isnan(apart) else apart
        scale = max(abs(a), abs(b))
        if apart <= self.atol + self.rtol * scale < math.inf:
            return
        self.some(1, apart, math.inf if math.isinf(apart) else apart / scale if scale else 0.0, where)

    def some(self, number: int, largest: float, relative: float, where: str) -> None:
        """So many values that are not the same, and the largest differences among them."""
        self.differing += number
        self.relative = max(self.relative, relative)
        if largest > self.largest or not self.where:
            self.largest, self.where = largest, where

    def note(self, text: str) -> None:
        self.differing += 1
        self.notes.append(text)


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
        tally = _Tally(rtol, atol)
        try:
            {"npy": _npy, "npz": _npz, "hdf5": _hdf5, "text": _text}[kind](path_a, path_b, tally)
        except ModuleNotFoundError as error:
            return _bytes(path_a, path_b, offset, f" (values not compared: {error.name} is not installed)")
        except (ValueError, KeyError, EOFError, OSError, MemoryError, zipfile.BadZipFile):
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
        return _differ_at(a, b)


def _differ_at(a: BinaryIO, b: BinaryIO) -> int | None:
    at = 0
    while True:
        one, other = a.read(CHUNK), b.read(CHUNK)
        if one != other:
            pairs = enumerate(zip(one, other, strict=False))
            return at + next((n for n, (x, y) in pairs if x != y), min(len(one), len(other)))
        if not one:
            return None
        at += len(one)


def _bytes(path_a: str, path_b: str, offset: int, remark: str) -> Difference:
    sizes = os.path.getsize(path_a), os.path.getsize(path_b)
    text = f"byte {offset} is the first that differs"
    if sizes[0] != sizes[1]:
        text = f"{sizes[0]} and {sizes[1]} bytes; " + (
            "the shorter begins the longer" if offset == min(sizes) else text
        )
    return Difference(False, "bytes", text + remark, offset=offset)


def _told(kind: str, tally: _Tally, offset: int) -> Difference:
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


def _npy(path_a: str, path_b: str, tally: _Tally) -> None:
    import numpy

    _arrays(numpy.load(path_a, mmap_mode="r"), numpy.load(path_b, mmap_mode="r"), "", tally)


def _npz(path_a: str, path_b: str, tally: _Tally) -> None:
    import numpy

    # numpy leaves a file open that it opened and cannot read.
    with open(path_a, "rb") as one, open(path_b, "rb") as other, numpy.load(one) as a, numpy.load(other) as b:
        for name in _common(set(a), set(b), tally):
            _arrays(a[name], b[name], name, tally)


def _hdf5(path_a: str, path_b: str, tally: _Tally) -> None:
    import h5py

    def found(file: Any) -> dict[str, Any]:
        names: dict[str, Any] = {}
        file.visititems(lambda name, what: names.__setitem__(name, what))
        return names

    with h5py.File(path_a, "r") as a, h5py.File(path_b, "r") as b:
        one, other = found(a), found(b)
        for name in _common(set(one), set(other), tally):
            if isinstance(one[name], h5py.Dataset) and isinstance(other[name], h5py.Dataset):
                _datasets(one[name], other[name], name, tally)
            _attributes(one[name].attrs, other[name].attrs, name, tally)
        _attributes(a.attrs, b.attrs, "", tally)


def _datasets(a: Any, b: Any, name: str, tally: _Tally) -> None:
    """In blocks along the first axis: a dataset may be larger than the memory."""
    if a.shape != b.shape or a.dtype != b.dtype or not a.shape or a.dtype.names or not a.size:
        _arrays(a[()], b[()], name, tally)
        return
    rows = max(1, CHUNK * a.shape[0] // a.size)
    for start in range(0, a.shape[0], rows):
        _arrays(a[start : start + rows], b[start : start + rows], name, tally, start)


def _attributes(a: Any, b: Any, name: str, tally: _Tally) -> None:
    import numpy

    for key in _common(set(a), set(b), tally):
        if not numpy.array_equal(a[key], b[key]):
            tally.note(f"attribute {key}{f' of {name}' if name else ''} differs")


def _common(a: set[str], b: set[str], tally: _Tally) -> list[str]:
    for names, which in ((a - b, "first"), (b - a, "second")):
        for name in sorted(names):
            tally.note(f"{name} only in the {which}")
    return sorted(a & b)


def _arrays(a: Any, b: Any, name: str, tally: _Tally, first_row: int = 0) -> None:
    import numpy

    a, b, of = numpy.asanyarray(a), numpy.asanyarray(b), f"{name}: " if name else ""
    if a.shape != b.shape:
        tally.note(f"{of}shapes {a.shape} and {b.shape}")
    elif a.dtype != b.dtype:
        tally.note(f"{of}types {a.dtype} and {b.dtype}")
    elif a.dtype.names:
        for each in a.dtype.names:
            _arrays(a[each], b[each], f"{name}.{each}" if name else each, tally, first_row)
    else:
        tally.values += a.size
        flat_a, flat_b = a.reshape(-1), b.reshape(-1)
        for start in range(0, flat_a.size, BLOCK_VALUES):
            found = _differing(
                flat_a[start : start + BLOCK_VALUES], flat_b[start : start + BLOCK_VALUES], tally.rtol, tally.atol
            )
            if found:
                number, largest, relative, k = found
                index = list(map(int, numpy.unravel_index(start + k, a.shape)))
                index[:1] = [index[0] + first_row] if index else []
                tally.some(number, largest, relative, f"{name}{index}")


def _differing(a: Any, b: Any, rtol: float, atol: float) -> tuple[int, float, float, int] | None:
    """How many values differ, the largest absolute and relative difference, and where the former is."""
    import numpy

    if a.dtype.kind in "biufc" and (rtol or atol):
        with numpy.errstate(all="ignore"):
            # |a| is at most max(|a|, |b|): what is within this is within the tolerance, and mostly that is all.
            apart = numpy.abs(numpy.subtract(a, b, dtype=_wide(a)))
            limit = numpy.abs(a, dtype=None if a.dtype.kind in "fc" else _wide(a)) * rtol
            limit += atol
            if (apart <= limit).all() and math.isfinite(limit.max()):
                return None
    differ = a != b
    if a.dtype.kind in "fc":
        differ &= ~(numpy.isnan(a) & numpy.isnan(b))
    (places,) = numpy.nonzero(differ)
    if not places.size:
        return None
    if a.dtype.kind not in "biufc":  # texts, say: there is no distance between them
        return places.size, math.inf, math.inf, int(places[0])
    one, other = a[places].astype(_wide(a)), b[places].astype(_wide(b))
    with numpy.errstate(all="ignore"):
        apart = numpy.abs(one - other)
        apart[numpy.isnan(apart)] = numpy.inf
        scale = numpy.maximum(numpy.abs(one), numpy.abs(other))
        if a.dtype.kind in "iu":
            apart[apart == 0] = 1.0  # too large for a float to tell them apart
        beyond = ~(apart <= atol + rtol * scale) | numpy.isinf(apart) | (not (rtol or atol))
        if not beyond.any():
            return None
        places, apart, scale = places[beyond], apart[beyond], scale[beyond]
        relative = apart / scale
        relative[~numpy.isfinite(apart)] = numpy.inf
        relative[numpy.isnan(relative)] = 0.0
    worst = int(numpy.argmax(apart))
    return places.size, float(apart[worst]), float(relative.max()), int(places[worst])


def _wide(array: Any) -> str:
    return "c16" if array.dtype.kind == "c" else "f8"


def _text(path_a: str, path_b: str, tally: _Tally) -> None:
    """Line by line, cell by cell; what is a number in both is compared as one."""
    with open(path_a, encoding="utf-8") as a, open(path_b, encoding="utf-8") as b:
        lines = [0, 0]
        for number, (one, other) in enumerate(itertools.zip_longest(a, b), 1):
            lines[0] += one is not None
            lines[1] += other is not None
            if one is not None and other is not None:
                _cells(_CELLS.split(one.strip()), _CELLS.split(other.strip()), number, tally)
        if lines[0] != lines[1]:
            tally.note(f"{lines[0]} and {lines[1]} lines")


def _cells(one: list[str], other: list[str], line: int, tally: _Tally) -> None:
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
