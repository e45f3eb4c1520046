"""A result as bytes, and back: arrays as .npy, files as they are, all the rest pickled.

(1) An array comes back with its type, shape and order; one that .npy cannot keep exactly (objects, subclasses, types
    of other packages) is pickled.
(2) What is given back is a copy of its own, or cannot be written to: a body that changes an input changes no other's.
(3) The digest is xxh3-128 of the bytes that are kept; of a file of its contents, of a directory of paths and contents.
"""

from __future__ import annotations

import io
import os
import pickle
import stat
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from xxhash import xxh3_128, xxh3_128_hexdigest

from safepoint.disk import Disk, codec
from safepoint.disk.files import entries
from safepoint.errors import UsageError
from safepoint.root import REAL
from safepoint.tasks.jobs import FILE, NPY, PICKLE, Output

MAPPED = 64 << 20  # bytes of an array above which it is mapped when it is given back, not read
MOST = 1000  # outputs of a dict: each may be a file of its own, with a flush of its own
SIMPLE = (float, int, str, bytes, bool, type(None))


@dataclass(frozen=True)
class Encoded:
    """One output on its way to the disk. `name` is "" if the result is no dict of outputs."""

    name: str
    kind: str
    digest: str
    nbytes: int
    pieces: tuple[bytes | memoryview, ...]  # none of a file
    path: str = ""  # of a file: where it lies in the scratch directory
    below: str = ""  # that, from the scratch directory


def encode(result: Any, scratch: str = "", disk: Disk = REAL, store: str = "") -> list[Encoded]:
    """The outputs of a result. A dict with texts as keys makes one of each value, anything else is one; so is a
    dict with more than `MOST` of them.

    `scratch`: the directory of this vertex, if it asked for one. `store`: that of the store, if an input is a file
    there. `UsageError` if the result cannot be kept.
    """
    if type(result) is dict and 0 < len(result) <= MOST and all(type(name) is str and name for name in result):
        return [_encode(name, value, scratch, disk, store) for name, value in result.items()]
    return [_encode("", result, scratch, disk, store)]


def _encode(name: str, value: Any, scratch: str, disk: Disk, store: str) -> Encoded:
    kind = type(value)
    if kind in SIMPLE:
        return _pickled(name, value, "", "")
    if scratch and isinstance(value, Path) and (below := _below(value, scratch)) not in ("", "."):
        return _file(name, below, scratch, disk)
    if "numpy" in sys.modules and kind is sys.modules["numpy"].ndarray:
        header = _npy_header(value)
        if header is not None:
            return _array(name, value, header)
    return _pickled(name, value, scratch, store)


def _pickled(name: str, value: Any, scratch: str, store: str) -> Encoded:
    try:
        if scratch or store:
            file = io.BytesIO()
            _Pickler(file, scratch, store).dump(value)
            data = file.getvalue()
        else:
            data = pickle.dumps(value, 5)
    except UsageError:
        raise
    except Exception as error:
        what = f"the output {name}" if name else "the result"
        text = f"{what}, {type(value).__name__}, cannot be pickled: {type(error).__name__}: {error}"
        raise UsageError(text) from error
    return Encoded(name, PICKLE, xxh3_128_hexdigest(data), len(data), (data,))


class _Pickler(pickle.Pickler):
    """Refuses a path to what will not be there any more, or may be there with other contents: a vertex below would
    take the path for the same input."""

    def __init__(self, file: io.BytesIO, scratch: str, store: str) -> None:
        super().__init__(file, 5)
        self._scratch, self._store = scratch, store

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, Path):
            below = _below(value, self._scratch)
            if below == ".":
                raise UsageError(f"{value} is the scratch directory: return a file or a directory below it")
            if below:
                raise UsageError(
                    f"{value} lies in the scratch directory, and is inside of a result: return it by itself, or as a "
                    "value of a dict with texts as keys"
                )
            if _below(value, self._store):
                raise UsageError(
                    f"{value} is the result of another vertex: give that vertex to whoever needs it, or return a copy "
                    "below scratch()"
                )
        return NotImplemented


# Arrays.


def _npy_header(array: Any) -> bytes | None:
    """The head of its .npy; None if that would not give back the same type."""
    import numpy as np

    dtype = array.dtype
    if dtype.hasobject or dtype.metadata or dtype.kind not in "biufcSUMmV":
        return None
    described = np.lib.format.dtype_to_descr(dtype) if dtype.names or dtype.subdtype is None else None
    if described is None or np.lib.format.descr_to_dtype(described) != dtype:
        return None
    file = io.BytesIO()
    about = np.lib.format.header_data_from_array_1_0(array)
    try:
        np.lib.format.write_array_header_1_0(file, about)
    except ValueError:  # too long for that version, or names that are not latin-1
        return None
    return file.getvalue()


def _array(name: str, array: Any, header: bytes) -> Encoded:
    import numpy as np

    if array.dtype.names and _packed(array.dtype) < array.itemsize:
        order: Any = "F" if array.flags.f_contiguous and not array.flags.c_contiguous else "C"
        clear = np.zeros(array.nbytes, np.uint8).view(array.dtype).reshape(array.shape, order=order)
        _copy_fields(array, clear)  # and not what lies between them by chance, which would be another digest each time
        array = clear
    if array.flags.f_contiguous and not array.flags.c_contiguous:
        array = array.T
    array = np.ascontiguousarray(array).reshape(-1) if array.size else array
    if not array.size or not array.itemsize:
        data: bytes | memoryview = b""
    elif array.nbytes <= 4096:
        data = array.view(np.uint8).tobytes()
    else:
        data = array.view(np.uint8).data
    digest = xxh3_128(header)
    digest.update(data)
    return Encoded(name, NPY, digest.hexdigest(), len(header) + len(data), (header, data))


def _packed(dtype: Any) -> int:
    """Bytes of the fields alone."""
    if dtype.subdtype is not None:
        return _packed(dtype.subdtype[0]) * int(dtype.itemsize // (dtype.subdtype[0].itemsize or 1))
    if dtype.names:
        return sum(_packed(dtype[name]) for name in dtype.names)
    return int(dtype.itemsize)


def _copy_fields(source: Any, target: Any) -> None:
    for name in source.dtype.names:
        if source[name].dtype.names:
            _copy_fields(source[name], target[name])
        else:
            target[name] = source[name]


def load(output: Output, data: bytes | bytearray) -> Any:
    """The value of these bytes; an array lies in them if they are a bytearray, which then belongs to it alone."""
    if output.kind == PICKLE:
        return pickle.loads(data)
    import numpy as np

    file = io.BytesIO(data)
    if np.lib.format.read_magic(file) != (1, 0):
        raise ValueError("another version of .npy than is written here")
    shape, fortran, dtype = np.lib.format.read_array_header_1_0(file, max_header_size=1 << 20)
    own = data if isinstance(data, bytearray) else bytearray(data)
    return np.ndarray(shape, dtype, own, file.tell(), order="F" if fortran else "C")


def mapped(path: str) -> Any:
    """The array of a .npy file, read-only, out of the file as it is used."""
    import numpy as np

    return np.lib.format.open_memmap(path, mode="r").view(np.ndarray)


# Files.


def _below(path: Path, directory: str) -> str:
    """The way from this directory to the path: "." if it is that itself, "" if it is not below it."""
    full = os.path.abspath(path)
    for top in (directory, os.path.realpath(directory)) if directory else ():
        if full == top:
            return "."
        if full.startswith(top + os.sep):
            return full[len(top) + 1 :].replace(os.sep, "/")
    return ""


def _file(name: str, below: str, scratch: str, disk: Disk) -> Encoded:
    path = f"{scratch}/{below}"
    try:
        for depth in range(below.count("/") + 1):  # a link on the way leads to what is not in the directory
            way = "/".join(below.split("/")[: depth + 1])
            if stat.S_ISLNK(disk.stat(f"{scratch}/{way}").st_mode):
                raise UsageError(f"{way}, below the scratch directory, is a symbolic link: return what it points to")
        digest, nbytes = digest_file(disk, path)
    except FileNotFoundError as error:
        raise UsageError(f"the result is the file {below} in the scratch directory, which is not there") from error
    return Encoded(name, FILE, digest, nbytes, (), path, below)


def digest_file(disk: Disk, path: str) -> tuple[str, int]:
    """Digest and bytes of a file, or of all files of a directory with their paths. `UsageError` if something else."""
    if not stat.S_ISDIR(disk.stat(path).st_mode):
        return _digest_one(disk, path)
    digest, nbytes = xxh3_128(), 0
    for below, is_directory in walk(disk, path):
        one, size = ("", 0) if is_directory else _digest_one(disk, f"{path}/{below}")
        digest.update(f"{one} {below}\n".encode("utf-8", "surrogateescape"))
        nbytes += size
    return digest.hexdigest(), nbytes


def _digest_one(disk: Disk, path: str) -> tuple[str, int]:
    info = disk.stat(path)
    if not stat.S_ISREG(info.st_mode):
        raise UsageError(f"{path} is neither a file nor a directory, so it cannot be kept")
    with disk.open(path) as file:
        size, digest = codec.copy(file, limit=info.st_size)
    return digest, size


def walk(disk: Disk, path: str) -> Iterator[tuple[str, bool]]:
    """All names below a directory, as ways from it, and whether each is a directory; in their order."""
    ahead = [""]
    while ahead:
        top = ahead.pop()
        found = [(f"{top}{name}", is_directory) for name, is_directory in entries(disk, f"{path}/{top}")]
        yield from found
        ahead += [f"{below}/" for below, is_directory in reversed(found) if is_directory]


def digest_bytes(data: bytes | bytearray | memoryview) -> str:
    return xxh3_128_hexdigest(data)
