"""The settings of a manifest for other places."""

from __future__ import annotations

import re
import time
from typing import NamedTuple

from safepoint.pace.times import duration
from safepoint.settings import SETTINGS as OF_SETS
from safepoint.settings import Setting
from safepoint.tiers.url import parse

_bytes = OF_SETS["copy_open_below"][0]


def _remote(text: str) -> str:
    parse(text)
    return text


def _kept(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) < 1 << 20:
        raise ValueError("takes a whole number from 1")
    return int(text)


def rate(text: str) -> int:
    """Bytes a second. Raises `ValueError`."""
    found = int(_bytes(text.removesuffix("/s")))
    if not found:
        raise ValueError("takes bytes a second, such as 200 MiB")
    return found


class When(NamedTuple):
    """When a run puts a set to its place: after so many sets, or seconds, since the last that it put; neither: as soon
    as that is there. `off`: it does not."""

    sets: int = 0
    seconds: float = 0.0
    off: bool = False

    def is_due(self, number: int, last: tuple[int, float] | None) -> bool:
        """Return whether this set is to go, after the last one that went, and the moment when that began."""
        return last is None or (number >= last[0] + self.sets and time.monotonic() >= last[1] + self.seconds)


def when(text: str) -> When:
    """Of `newest`, `off`, `10 sets`, `15min`. Raises `ValueError`."""
    if text in ("newest", "off"):
        return When(off=text == "off")
    if match := re.fullmatch(r"([1-9]\d{0,8})\s*sets?", text):
        return When(sets=int(match[1]))
    try:
        return When(seconds=duration(text))
    except ValueError:
        raise ValueError("takes newest, off, a number of sets, or a time, such as 10 sets or 15min") from None


COPIES = 1  # on one other node: `partner = on`
GROUPS = 3, 32  # nodes of a group that may be asked for


def _partner(text: str) -> int:
    """0: none; 1: a copy; more: parity over groups of so many nodes."""
    if text in ("on", "off"):
        return COPIES if text == "on" else 0
    match = re.fullmatch(r"xor\s+([1-9]\d?)", text)
    if not match or not GROUPS[0] <= int(match[1]) <= GROUPS[1]:
        raise ValueError(f"takes on, off, or xor and the nodes of a group, {GROUPS[0]} to {GROUPS[1]}, such as xor 8")
    return int(match[1])


def _directory(text: str) -> str:
    if not text.startswith(("/", "$", "~")):
        raise ValueError("takes a directory that each node has, such as $TMPDIR or /local/scratch")
    return text


SETTINGS: dict[str, Setting] = {
    "local": (_directory, None),  # a directory of each node: there the program writes, and its sets are
    "partner": (
        _partner,
        0,
    ),  # each node's sets on the disk of another node too, or parity on those of some
    "domain": (str, None),  # nodes of one are no partners: they may be lost together
    "remote": (_remote, None),  # where sets go beside the run: a directory, s3://…, ssh://…
    "drain": (when, When()),  # when the run puts them there
    "remote_keep": (_kept, 1),  # how many complete sets stay there
    "drain_rate": (rate, None),  # bytes a second at most
    "stall_timeout": (duration, 600.0),  # seconds without progress after which a wait for others is given up
}
