"""Digests of watched values: what `safepoint.watch` notes of a number or an array, and nothing of its contents.

Equal values have equal digests wherever they lie in memory, in whatever byte order. numpy is never imported here: who
has an array has it already.
"""

from __future__ import annotations

import math
import struct
import sys
from collections.abc import Sequence
from typing import Any

from xxhash import xxh3_128

from safepoint.errors import UsageError

BLOCK_VALUES = 1 << 16  # that are taken at a time for their statistics: they stay in the processor's cache


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
        for start in range(0, flat.size, BLOCK_VALUES):
            block = flat[start : start + BLOCK_VALUES]
            block = numpy.abs(block) if array.dtype.kind == "c" else block
            block = block.astype(numpy.float64, copy=False)
            low, high = float(numpy.minimum(low, block.min())), float(numpy.maximum(high, block.max()))
            total += float(block.sum())
            squares += float(numpy.dot(block, block))
    return _finite([low, high, total / flat.size, math.sqrt(squares) if squares >= 0 else squares])
