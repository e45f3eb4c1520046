"""The record of a vertex as it is written: one JSON object, in a block of a journal or in `done/KEY/record.json`.

In `record.json` a second line has the xxh3-128 of the first. In a journal the block's own checksum covers it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from safepoint.disk.codec import checksum
from safepoint.tasks import names
from safepoint.tasks.jobs import FILE, NPY, PICKLE, Output, Place, Record

FORGOTTEN = "forgotten"  # the field of a block that takes records of journals back, by journal and offset
_text = json.encoder.encode_basestring_ascii
_KINDS = {NPY, PICKLE, FILE}


class Strange(Exception):
    """Whole, but no record as it is written here."""


def written(record: Record, outputs: tuple[Output, ...], versions: str) -> bytes:
    """As JSON, by hand: with a general encoder this would be the larger half of a small put. `versions`: as JSON."""
    kept = ", ".join(
        f"[{_text(o.name)}, {_text(o.kind)}, {_text(o.digest)}, {o.nbytes}, {_text(o.file)}]" for o in outputs
    )
    parts = ", ".join([f"{_text(name)}: {_text(part)}" for name, part in record.parts.items()])
    return (
        f'{{"vertex": {_text(record.vertex)}, "key": {_text(record.key)}, "outputs": [{kept}], '
        f'"named": {"true" if record.named else "false"}, "kept": {"true" if record.kept else "false"}, '
        f'"seconds": {float(record.seconds)!r}, "attempt": {record.attempt}, "host": {_text(record.host)}, '
        f'"worker": {_text(record.worker)}, "time": {float(record.time)!r}, "source": {_text(record.source)}, '
        f'"versions": {versions}, "parts": {{{parts}}}}}'
    ).encode()


def read(text: bytes, place: Place) -> Record:
    """`Strange` unless it is one; never another error, whoever wrote it."""
    return of(loaded(text), place)


def loaded(text: bytes) -> dict[str, Any]:
    try:
        content = json.loads(text.decode())
    except (ValueError, RecursionError) as error:
        raise Strange("no JSON") from error
    if type(content) is not dict:
        raise Strange("no JSON object")
    return content


def of(content: Mapping[str, Any], place: Place) -> Record:
    try:
        outputs = tuple([Output(*each) for each in content["outputs"]])
        record = Record(
            content["vertex"], content["key"], outputs, content["named"], place, content["kept"], content["seconds"],
            content["attempt"], content["host"], content["worker"], content["time"], content["versions"],
            content["parts"], content["source"],
        )  # fmt: skip
    except (KeyError, TypeError) as error:
        raise Strange(f"a field is missing or something else: {error}") from error
    if not _is_sound(record):
        raise Strange("a field is something else")
    return record


def _is_sound(record: Record) -> bool:
    texts = (record.vertex, record.key, record.host, record.worker, record.source)
    if not (all(type(text) is str for text in texts) and names.KEY.fullmatch(record.key) and record.outputs):
        return False
    if not (type(record.versions) is type(record.parts) is dict and type(record.named) is type(record.kept) is bool):
        return False
    if not (isinstance(record.seconds, (int, float)) and isinstance(record.time, (int, float))):
        return False
    for output in record.outputs:
        if type(output.name) is not str or output.kind not in _KINDS or type(output.nbytes) is not int:
            return False
        if type(output.digest) is not str or type(output.file) is not str or output.nbytes < 0:
            return False
        if output.file and (output.file.startswith("/") or ".." in output.file.split("/")):  # would lead elsewhere
            return False
    return type(record.attempt) is int


def sealed(text: bytes) -> bytes:
    """What `record.json` holds."""
    return text + b"\n" + checksum(text).encode() + b"\n"


def unsealed(data: bytes, key: str) -> Record:
    """The record of `done/KEY`. `Strange` unless a checksum holds, and it is the record of this key."""
    text, _, rest = data.partition(b"\n")
    if rest != checksum(text).encode() + b"\n":
        raise Strange("its checksum differs")
    record = read(text, Place())
    if record.key != key:
        raise Strange(f"it is the record of {record.key}")
    return record


def forgetting(places: Sequence[Place]) -> bytes:
    """A block that takes these records back."""
    return json.dumps({FORGOTTEN: [[place.journal, place.offset] for place in places]}).encode()


def taken_back(content: Mapping[str, Any]) -> list[tuple[str, int]]:
    """The records that a block takes back; none if it is the record of a vertex."""
    try:
        return [(str(journal), int(offset)) for journal, offset in content.get(FORGOTTEN, ())]
    except (TypeError, ValueError) as error:
        raise Strange("what it takes back is not named by journal and offset") from error
