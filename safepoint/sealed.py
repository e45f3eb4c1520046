"""Small files under a seal: JSON whose first line carries the xxh3-128 of the lines between it and the last.

What is under a good seal may be written by anybody, so `rows_of` looks at every value before it is used.
"""

from __future__ import annotations

import functools
import json
import math
import os
from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args, get_origin, get_type_hints

from safepoint.disk import Disk
from safepoint.disk.codec import checksum
from safepoint.disk.files import exists, read, write
from safepoint.errors import FormatError
from safepoint.settings import LEVELS

FORMAT = 2  # 1 knew no lives: two sets of the same number were taken for one


LIVES = 1 << 22  # more than can be; what says so is none of ours


NOTE = 16 << 20  # bytes of a small file that does not grow with the number of files: a command line may have 2 MB


LAST, RANKS, AGES = 10**12 - 1, 1 << 22, 1 << 40  # the highest number of a set, and of ranks; seconds since the epoch


PATH = 4096  # bytes of a path, as Linux has them at most


# What a number may be, by the name of its field: else it could not be a time, a mode or a name. All others: 63 bits.
WHOLE = 0, (1 << 63) - 1


RANGES: dict[str, tuple[float, float]] = {
    "number": (0, LAST), "set": (0, LAST), "step": (-math.inf, math.inf), "rank": (0, RANKS), "ranks": (1, RANKS),
    "saver": (0, RANKS), "time": (-AGES, AGES), "committed": (-AGES, AGES), "since": (-AGES, AGES),
    "until": (-AGES, AGES), "mode": (0, 0o177777), "mtime_ns": (-(1 << 63), (1 << 63) - 1), "inode": (0, (1 << 64) - 1),
    "compress": (LEVELS[0], LEVELS[-1]), "group": (-1, (1 << 32) - 1), "life": (0, LIVES - 1),
}  # fmt: skip


TEXTS = {"patterns", "without"}  # fields that are several texts


class Unsealed(Exception):
    """The file is not what was written: cut short, changed since, or of another content than it should have."""


def seal(content: dict[str, Any]) -> bytes:
    """The content as JSON in one line, after a line with the checksum of that line."""
    body = json.dumps({"format": FORMAT, **content}).encode() + b"\n"
    return f'{{"xxh3_128": "{checksum(body)}", "content":\n'.encode() + body + b"}\n"


def unseal(data: bytes) -> dict[str, Any]:
    """The content of a sealed file. Raises `Unsealed` if a single bit of it is not what was written."""
    first, _, rest = data.partition(b"\n")
    body = rest[:-2]
    if rest[-2:] != b"}\n" or first != f'{{"xxh3_128": "{checksum(body)}", "content":'.encode():
        raise Unsealed("its own checksum differs")
    content = loaded(body)
    if type(content.get("format")) is not int or content["format"] < 1:
        raise Unsealed("it does not name its format")
    if content["format"] > FORMAT:
        raise FormatError(f"written by a newer safepoint, in format {content['format']}; this one knows {FORMAT}")
    return content


def loaded(data: bytes) -> dict[str, Any]:
    """A JSON object. Raises `Unsealed` if these bytes are none."""
    try:
        content = json.loads(data)
    except (ValueError, RecursionError) as error:  # a number of thousands of digits too, and lists in lists in lists
        raise Unsealed("it is no JSON that can be read") from error
    if not isinstance(content, dict):
        raise Unsealed("it has no fields")
    return content


def write_durably(disk: Disk, path: str, data: bytes) -> None:
    """Replace a small file: on return the new content survives a power cut. Killed inside: the old or the new."""
    new = path + ".new"
    if exists(disk, new):
        disk.remove(new)  # of a process that died here
    write(disk, new, data)
    # The content before the name: otherwise a power cut could leave the name with nothing under it.
    disk.sync_files([new])
    disk.rename(new, path)
    disk.sync_dir(os.path.dirname(path))


def read_note(disk: Disk, path: str, kind: type[Any]) -> dict[str, Any] | None:
    """The fields of a small file without a seal, that nothing depends on; None if it cannot be read."""
    try:
        return checked(kind, loaded(read(disk, path, NOTE)))._asdict()  # type: ignore[no-any-return]
    except (OSError, Unsealed):
        return None


def checked(kind: type[Any], content: Mapping[str, Any]) -> Any:
    """A NamedTuple of this kind from its fields by name; as `rows_of`."""
    return rows_of(kind, list(content), [list(content.values())])[0]


def rows_of(kind: type[Any], names: Sequence[Any], rows: Any) -> list[Any]:
    """NamedTuples of this kind, from rows with these columns; a column that is not known is left out, and one that is
    missing has its default. Raises `Unsealed` unless every value is one that its field may have."""
    if not all(type(name) is str for name in names) or len(set(names)) < len(names):
        raise Unsealed("its columns are not names")
    if type(rows) is not list or not all(type(row) is list and len(row) == len(names) for row in rows):
        raise Unsealed("its rows are not as long as its columns say")
    columns = []
    for name, types in types_of(kind).items():  # type: ignore[arg-type]
        if name in names:
            at = names.index(name)
            column = [row[at] for row in rows]
            if not _may_be(name, types, words_of(kind).get(name), column):  # type: ignore[arg-type]
                raise Unsealed(f"{name} is something else")
            if name in TEXTS:
                column = list(map(tuple, column))
        elif name in kind._field_defaults:
            column = [kind._field_defaults[name]] * len(rows)
        else:
            raise Unsealed(f"it lacks {name}")
        columns.append(column)
    return list(map(kind._make, zip(*columns, strict=True)))


_TYPES: dict[Any, type] = {tuple: list, dict: dict, Literal: str}


@functools.cache
def types_of(kind: type[Any]) -> dict[str, set[type]]:
    """Which types JSON gives to each field of a NamedTuple."""
    found = {}
    for name, hint in get_type_hints(kind).items():
        options = get_args(hint) if get_origin(hint) not in (None, tuple, Literal) else (hint,)
        types = {_TYPES.get(get_origin(each), each) for each in options}
        found[name] = types | {int} if float in types else types
    return found


@functools.cache
def words_of(kind: type[Any]) -> dict[str, set[str]]:
    """The words that each field of a NamedTuple may have that has one of a few."""
    return {name: {*get_args(hint)} for name, hint in get_type_hints(kind).items() if get_origin(hint) is Literal}


def _may_be(name: str, types: set[type], words: set[str] | None, values: list[Any]) -> bool:
    """Whether a field of this name and of these types may have each of these values."""
    low, high = RANGES.get(name, WHOLE)
    texts = [value for value in values if type(value) is str]
    texts += [text for value in values if name in TEXTS and type(value) is list for text in value]
    numbers = [value for value in values if type(value) in (int, float)]
    if not ({*map(type, values)} <= types and {*map(type, texts)} <= {str}):
        return False
    if [n for n in numbers if not low <= n <= high]:  # also what is no number at all
        return False
    try:  # what has no bytes names no file, and is shown nowhere
        return b"\0" not in os.fsencode("".join(texts)) and (words is None or words.issuperset(texts))
    except UnicodeEncodeError:
        return False
