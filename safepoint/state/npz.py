"""What a program has in memory, as one file that numpy alone can read.

Each array is a member of the archive under its name, `u` or `model/weights/0`, as `np.savez` writes it. All else is in
the member `safepoint`: JSON in which an array is named. Nothing is pickled, so nothing is run when it is read, and what
cannot be kept is refused by its name. numpy is the program's own; it is imported when it is needed.
"""

from __future__ import annotations

import base64
import contextlib
import io
import json
import math
import os
import random
import re
import struct
import zipfile
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from safepoint.disk import Disk
from safepoint.errors import FormatError, UsageError

if TYPE_CHECKING:
    import numpy as np

LONGEST_NAME = 200  # characters of a member's name
BUFFER = 1 << 20  # bytes that are written at once; an array goes past it
SMALLEST = 1 << 20  # values without any bytes, empty texts say: so many may be in an array
INDEX, FORMAT = "safepoint", 1
POOL = 1 << 16  # words of a SeedSequence; numpy makes them of 4
BIT_GENERATORS = ("MT19937", "PCG64", "PCG64DXSM", "Philox", "SFC64")
KEPT = (
    "arrays of numpy, numbers, strings, bytes, None, lists, tuples and dicts of them, numpy.random.Generator and "
    "RandomState, and random.Random"
)


class Archive:
    """What is to be written; nothing is copied. Raises `UsageError`, naming the variable, for what cannot be kept."""

    def __init__(self, state: Mapping[str, Any]) -> None:
        import numpy as np

        names = _Names()
        try:
            rows = [[key, _encoded(value, key, names, ())] for key, value in state.items()]
            text = json.dumps({"format": FORMAT, "state": rows}).encode("ascii")
        except RecursionError:
            raise UsageError(f"save_state: lists or dicts are nested too deeply in one of {', '.join(state)}") from None
        self._members = {INDEX: np.frombuffer(text, np.uint8), **names.arrays}

    def write(self, disk: Disk, path: str) -> None:
        """Make a new file, or none: on error, and after Ctrl-C, what was written of it is gone."""
        from numpy.lib import format as npy

        try:
            with (
                disk.create(path) as raw,
                io.BufferedWriter(raw, BUFFER) as file,
                zipfile.ZipFile(file, "w", zipfile.ZIP_STORED, allowZip64=True) as archive,
            ):
                for name, array in self._members.items():
                    with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                        npy.write_array(member, array, allow_pickle=False)
        except BaseException:
            with contextlib.suppress(OSError):
                disk.remove(path)
            raise


# What reading a file raises that `Archive` has not written: a wrong value, a member that is packed or encrypted, lists
# in lists in lists, a number that fits nowhere.
OTHERS = (
    LookupError, ValueError, TypeError, AttributeError, EOFError, RuntimeError, ArithmeticError, MemoryError,
    struct.error, zipfile.BadZipFile,
)  # fmt: skip


def read(path: str) -> dict[str, Any]:
    """The state that an `Archive` was made of. Raises `FormatError` for another file, `OSError`. It takes no more
    memory than a few times the file, whatever that says of itself."""

    try:
        with open(path, "rb") as file, zipfile.ZipFile(file) as archive:
            members = _Members(archive, os.fstat(file.fileno()).st_size)
            index = json.loads(members[INDEX].tobytes())
            if index["format"] != FORMAT:
                raise FormatError(f"{path}: format {index['format']}, and this library knows {FORMAT}")
            return {key: _decoded(value, members) for key, value in index["state"]}
    except OTHERS as error:
        why = "lists in it are nested too deeply" if isinstance(error, RecursionError) else error
        raise FormatError(f"{path}: no state that save_state has written: {why}") from error


class _Members(dict[str, Any]):
    """The arrays of an archive, each read when it is asked for."""

    def __init__(self, archive: zipfile.ZipFile, size: int) -> None:
        """`size`: bytes of the file. Raises ValueError unless its members lie in it as they are, one beside the
        other: what is packed, or shares its bytes with another one, could fill all memory."""
        super().__init__()
        self._archive = archive
        if packed := next((each for each in archive.infolist() if each.compress_type != zipfile.ZIP_STORED), None):
            raise ValueError(f"its member {packed.filename!r:.200} is compressed")
        if sum(each.file_size for each in archive.infolist()) > size:
            raise ValueError(f"its members have more than its {size} bytes")

    def __missing__(self, name: str) -> Any:
        from numpy.lib import format as npy

        about = self._archive.getinfo(f"{name}.npy")
        with self._archive.open(about) as member:
            # What the head asks for is compared with what is there before it is made.
            old = npy.read_magic(member) == (1, 0)  # all later heads are as long as one another
            shape, _, dtype = (npy.read_array_header_1_0 if old else npy.read_array_header_2_0)(member)
            if math.prod(shape) * max(dtype.itemsize, 1) > max(about.file_size, SMALLEST):
                raise ValueError(f"its member {name!r:.200} has {about.file_size} bytes, and names an array of {shape}")
            member.seek(0)
            self[name] = npy.read_array(member, allow_pickle=False)
        return self[name]


class _Names:
    """The arrays, each under a name of its own."""

    def __init__(self) -> None:
        self.arrays: dict[str, np.ndarray[Any, Any]] = {}

    def add(self, array: np.ndarray[Any, Any], path: str) -> str:
        plain = re.sub(r"[^\w./-]+", "_", path).strip("/.")[:LONGEST_NAME] or "_"
        plain = re.sub(r"\.npy$", "_npy", plain)  # numpy takes the ends of names away
        name, count = plain, 1
        while name in self.arrays or name == INDEX:
            name, count = f"{plain}_{count}", count + 1
        self.arrays[name] = array
        return name


def _encoded(value: Any, path: str, names: _Names, inside: tuple[int, ...]) -> Any:
    """As JSON: a list is a list, and an object has one member, which tells what it is."""
    import numpy as np

    kind = type(value)
    if value is None or kind in (bool, str, float):
        return value
    if kind in (int, complex, bytes, bytearray, np.str_, np.bytes_):
        return _of_one(value, path)
    if kind in (list, tuple, dict):
        if id(value) in inside:
            raise UsageError(f"save_state: {path} contains itself")
        below = (*inside, id(value))
        if kind is dict:
            pairs = [
                [_encoded(key, f"{path}, a key", names, below), _encoded(each, f"{path}/{key}", names, below)]
                for key, each in value.items()
            ]
            return {"dict": pairs}
        found = [_encoded(each, f"{path}/{number}", names, below) for number, each in enumerate(value)]
        return found if kind is list else {"tuple": found}
    if kind is np.ndarray or (isinstance(value, np.generic) and kind.__module__ == "numpy"):
        array = np.asarray(value)
        if array.dtype.hasobject:
            raise UsageError(f"save_state: {path}: an array of Python objects; kept are {KEPT}")
        return {"array" if kind is np.ndarray else "scalar": names.add(array, path)}
    if kind is random.Random:
        return {"random.Random": _encoded(value.getstate(), path, names, inside)}
    if kind is np.random.RandomState:
        return {"RandomState": _encoded(value.get_state(legacy=False), path, names, inside)}
    if kind is np.random.Generator and type(value.bit_generator).__name__ in BIT_GENERATORS:
        bits = value.bit_generator
        seed = getattr(bits, "seed_seq", None)  # from which `spawn` makes others
        spawns = seed.state if type(seed) is np.random.SeedSequence else None
        return {"Generator": _encoded([bits.state, spawns], path, names, inside)}
    raise UsageError(f"save_state: {path}: {_described(value)} cannot be kept; kept are {KEPT}")


def _of_one(value: Any, path: str) -> Any:
    """A number, a text or bytes: what JSON has, or has no word for."""
    if isinstance(value, int):
        try:
            str(value)
        except ValueError as error:  # Python limits the digits
            raise UsageError(f"save_state: {path}: {error}") from error
        return value
    if isinstance(value, complex):
        return {"complex": [value.real, value.imag]}
    # Also of numpy: an array of such would forget the NULs at its end.
    text = str(value) if isinstance(value, str) else base64.b64encode(value).decode("ascii")
    return {type(value).__name__: text}


def _described(value: Any) -> str:
    kind = type(value)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    hint = " (its .numpy() can)" if hasattr(value, "numpy") else ""
    return f"a {name}{hint}"


def _decoded(value: Any, members: Mapping[str, Any]) -> Any:
    if isinstance(value, list):
        return [_decoded(each, members) for each in value]
    if not isinstance(value, dict):
        return value
    ((kind, content),) = value.items()
    return _READERS[kind](content, members)


def _dict(pairs: Any, members: Mapping[str, Any]) -> dict[Any, Any]:
    return {_decoded(key, members): _decoded(value, members) for key, value in pairs}


def _of_numpy(name: str, value: str | bytes) -> Any:
    import numpy as np

    return getattr(np, name)(value)


def _random(content: Any, members: Mapping[str, Any]) -> random.Random:
    found = random.Random()
    found.setstate(_decoded(content, members))
    return found


def _random_state(content: Any, members: Mapping[str, Any]) -> Any:
    import numpy as np

    found = np.random.RandomState()
    found.set_state(_decoded(content, members))
    return found


def _generator(content: Any, members: Mapping[str, Any]) -> Any:
    import numpy as np

    state, spawns = _decoded(content, members)
    if state["bit_generator"] not in BIT_GENERATORS:
        raise FormatError(f"an unknown bit generator {state['bit_generator']!r}")
    if spawns and not 0 < spawns["pool_size"] <= POOL:
        raise ValueError("a seed with so large a pool")
    seed = np.random.SeedSequence(**spawns) if spawns else None
    bits = getattr(np.random, state["bit_generator"])(seed)
    bits.state = state
    return np.random.Generator(bits)


_READERS: dict[str, Callable[[Any, Mapping[str, Any]], Any]] = {
    "complex": lambda parts, _: complex(*parts),
    "bytes": lambda text, _: base64.b64decode(text, validate=True),
    "bytearray": lambda text, _: bytearray(base64.b64decode(text, validate=True)),
    "tuple": lambda items, members: tuple(_decoded(each, members) for each in items),
    "dict": _dict,
    "array": lambda name, members: members[name],
    "scalar": lambda name, members: members[name][()],
    "str_": lambda text, _: _of_numpy("str_", text),
    "bytes_": lambda text, _: _of_numpy("bytes_", base64.b64decode(text, validate=True)),
    "random.Random": _random,
    "RandomState": _random_state,
    "Generator": _generator,
}
