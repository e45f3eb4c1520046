"""The settings of a manifest that the core knows: their names, what they may be, and what they are if nobody says.

Whoever listens to a session may have settings of its own; `manifest.parse` is given a table of all that are meant.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from safepoint import retention

Setting = tuple[Callable[[str], Any], Any]  # what makes a value of the text, or raises ValueError; and the default
LEVELS = range(1, 23)  # of zstd


class Untold(ValueError):
    """A value that is refused, and that no message may repeat: it may hold a secret."""


_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def _count(text: str) -> int:
    if not re.fullmatch(r"[1-9]\d*", text):
        raise ValueError("takes a whole number from 1")
    return int(text)


def _threads(text: str) -> int:
    if not re.fullmatch(r"\d{1,3}", text):
        raise ValueError("takes a number of threads, or 0 for one on each core")
    return int(text)


def _bytes(text: str) -> int:
    match = re.fullmatch(r"(\d+)\s*([KMGT]?)(?:i?B)?", text)
    if not match:
        raise ValueError("takes a size, such as 64 MiB")
    return int(match[1]) * _UNITS[match[2]]


def _store(text: str) -> str:
    if text not in ("newest", "every"):
        raise ValueError("takes newest, or every")
    return text


ALOOF = "SAFEPOINT_ALOOF"  # in the environment: `hide` takes nothing, and the program runs as it would without it
SETTINGS: dict[str, Setting] = {
    "keep": (retention.parse, retention.Keep(2)),  # which committed sets stay; of all, and by rules, after finish too
    "store": (_store, "newest"),  # newest: a set that waits gives way to a newer one; every: hide waits for the saver
    "bundle_from": (_count, 100),  # so many small files of a set are kept in one tar
    "pack_threads": (_threads, 1),  # that compress at the same time; 0: one for each core
    "copy_open_below": (_bytes, 64 << 20),  # up to this size a file still open for writing is snapshotted
    "copy_append_below": (_bytes, 64 << 20),  # and the beginning of an append file copied that is given back
}
