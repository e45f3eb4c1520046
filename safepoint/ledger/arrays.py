"""How the values of two files differ: of `.npy`, `.npz` and HDF5. In blocks, as a small file may hold more than all
memory; what would have to be read whole, and is too large, raises ValueError."""

from __future__ import annotations

import math
import zipfile
from dataclasses import dataclass, field
from typing import Any, BinaryIO

CHUNK = 1 << 20  # bytes that are compared, and values that are read, at a time
BLOCK_VALUES = 1 << 16  # values that are compared at a time: they stay in the processor's cache
WHOLE = 256 << 20  # bytes that are read at a time of what cannot be read in blocks; a member of an archive may be more
NPY = b"\x93NUMPY"


@dataclass
class Tally:
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


def differ_at(a: BinaryIO, b: BinaryIO) -> int | None:
    at = 0
    while True:
        one, other = a.read(CHUNK), b.read(CHUNK)
        if one != other:
            pairs = enumerate(zip(one, other, strict=False))
            return at + next((n for n, (x, y) in pairs if x != y), min(len(one), len(other)))
        if not one:
            return None
        at += len(one)


def npy(path_a: str, path_b: str, tally: Tally) -> None:
    import numpy

    _arrays(numpy.load(path_a, mmap_mode="r"), numpy.load(path_b, mmap_mode="r"), "", tally)


def npz(path_a: str, path_b: str, tally: Tally) -> None:
    with zipfile.ZipFile(path_a) as a, zipfile.ZipFile(path_b) as b:
        known = [{name.removesuffix(".npy"): name for name in archive.namelist()} for archive in (a, b)]
        for name in _common(set(known[0]), set(known[1]), tally):
            with a.open(known[0][name]) as one, b.open(known[1][name]) as other:
                _members(one, other, name, tally)


def _members(a: Any, b: Any, name: str, tally: Tally) -> None:
    """Two members of archives, in blocks: a small archive may hold more than all memory. Raises ValueError for what
    would have to be read whole and is too large."""
    import numpy
    from numpy.lib import format as npy

    if not all(member.peek(len(NPY)).startswith(NPY) for member in (a, b)):
        if differ_at(a, b) is not None:
            tally.note(f"{name} differs")
        return
    heads = []
    for member in (a, b):
        old = npy.read_magic(member) == (1, 0)
        heads.append((npy.read_array_header_1_0 if old else npy.read_array_header_2_0)(member))
    (shape, fortran, dtype), other = heads
    if heads[0] != other or not shape or dtype.names or dtype.hasobject or not dtype.itemsize:
        if any(math.prod(each[0]) * max(each[2].itemsize, 1) > WHOLE for each in heads):
            raise ValueError(f"{name} is too large to be compared")
        for member in (a, b):
            member.seek(0)
        _arrays(npy.read_array(a), npy.read_array(b), name, tally)
        return
    order: Any = "F" if fortran else "C"
    size, start = math.prod(shape), 0
    while start < size:
        wanted = min(BLOCK_VALUES, size - start) * dtype.itemsize
        parts = [member.read(wanted) for member in (a, b)]
        if min(map(len, parts)) < wanted:
            raise ValueError(f"{name} ends before its last value")
        one, two = (numpy.frombuffer(part, dtype) for part in parts)
        _values(one, two, start, shape, name, tally, order=order)
        start += wanted // dtype.itemsize
    tally.values += size


def hdf5(path_a: str, path_b: str, tally: Tally) -> None:
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


def _datasets(a: Any, b: Any, name: str, tally: Tally) -> None:
    """In blocks along the first axis: a dataset may be larger than the memory."""
    row = a.size * a.dtype.itemsize // max(1, a.shape[0] if a.shape else 1)
    blocks = a.shape == b.shape and a.dtype == b.dtype and a.shape and not a.dtype.names and a.size
    if (row if blocks else max(each.size * each.dtype.itemsize for each in (a, b))) > WHOLE:
        raise ValueError(f"{name} is too large to be compared")
    if not blocks:
        _arrays(a[()], b[()], name, tally)
        return
    rows = max(1, CHUNK * a.shape[0] // a.size)
    for start in range(0, a.shape[0], rows):
        _arrays(a[start : start + rows], b[start : start + rows], name, tally, start)


def _attributes(a: Any, b: Any, name: str, tally: Tally) -> None:
    import numpy

    for key in _common(set(a), set(b), tally):
        if not numpy.array_equal(a[key], b[key]):
            tally.note(f"attribute {key}{f' of {name}' if name else ''} differs")


def _common(a: set[str], b: set[str], tally: Tally) -> list[str]:
    for names, which in ((a - b, "first"), (b - a, "second")):
        for name in sorted(names):
            tally.note(f"{name} only in the {which}")
    return sorted(a & b)


def _arrays(a: Any, b: Any, name: str, tally: Tally, first_row: int = 0) -> None:
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
            one, other = (flat[start : start + BLOCK_VALUES] for flat in (flat_a, flat_b))
            _values(one, other, start, a.shape, name, tally, first_row)


def _values(
    a: Any, b: Any, start: int, shape: tuple[int, ...], name: str, tally: Tally, first_row: int = 0, order: Any = "C"
) -> None:
    """Some values of two arrays of this shape, one after the other from `start` on."""
    import numpy

    if found := _differing(a, b, tally.rtol, tally.atol):
        number, largest, relative, k = found
        index = list(map(int, numpy.unravel_index(start + k, shape, order)))
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
