"""The settings of a manifest for other places."""

from __future__ import annotations

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


SETTINGS: dict[str, Setting] = {
    "remote": (_remote, None),  # where `safepoint drain` puts sets: a directory, s3://…, ssh://…
    "remote_keep": (_kept, 1),  # how many complete sets stay there
    "drain_rate": (rate, None),  # bytes a second at most
}
