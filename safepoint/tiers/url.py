"""The name of a place: a directory, or an address of a store. It never has credentials in it."""

from __future__ import annotations

import os
import re
from typing import NamedTuple

from safepoint.errors import UsageError
from safepoint.settings import Untold

# What fsspec calls it, and the package that it needs.
STORES = {
    "s3": "s3fs", "gs": "gcsfs", "gcs": "gcsfs", "abfs": "adlfs", "az": "adlfs", "ssh": "sshfs", "sftp": "sshfs",
}  # fmt: skip
RANK = "{rank}"


class Url(NamedTuple):
    """Where a place is. `scheme`: empty for a directory, whose path is `path`."""

    scheme: str
    path: str  # of a store: what follows the scheme
    text: str  # as the user wrote it

    @property
    def package(self) -> str:
        return STORES[self.scheme]


def parse(text: str) -> Url:
    """Raises `Untold`, with a text that repeats no secret."""
    if not text or "\0" in text:
        raise Untold("takes a directory, or an address such as s3://bucket/run-7")
    scheme, separator, rest = text.partition("://")
    if not separator:
        if re.match(r"[A-Za-z0-9]{2,}:/", text):
            raise Untold("takes two slashes after the colon, as in s3://bucket/run-7")
        if re.match(r"[\w.-]+@[\w.-]+:", text):
            raise Untold("takes ssh://USER@HOST/DIRECTORY for what is on another machine")
        return Url("", text, text)
    scheme = scheme.lower()
    if scheme == "file":
        if not rest.startswith("/"):
            raise Untold("file:// takes an absolute path: file:///…")
        return Url("", rest, text)
    if scheme not in STORES:
        raise Untold(
            f"knows no {scheme[:20]}://; it takes a directory, or {', '.join(f'{name}://' for name in STORES)}"
        )
    from urllib.parse import urlsplit  # here: only who has such a place needs it

    try:
        split = urlsplit(text)
        secret, host, _ = split.password is not None, split.hostname, split.port
    except ValueError as error:
        raise Untold("this is no address that can be read") from error
    if secret or ("@" in rest.partition("/")[0] and scheme not in ("ssh", "sftp")):
        raise Untold(
            "has a secret in it: credentials come from where the store's own tools look for them, never from here"
        )
    if split.query or split.fragment:
        raise Untold("has a ? or # in it, which may be a signature: an address and no more is needed")
    if not host or (scheme not in ("ssh", "sftp") and not split.path.strip("/")):
        raise Untold(
            f"takes a place of its own, such as {scheme}://{'HOST' if scheme in ('ssh', 'sftp') else 'BUCKET'}/run-7"
        )
    if scheme in ("ssh", "sftp") and not split.path.strip("/"):
        raise Untold(f"takes a directory of its own, such as {scheme}://HOST/scratch/run-7")
    if re.search(r"[][*?]", rest):
        raise Untold("has one of [ ] * ? in it, which would mean other names too")
    if ".." in split.path.split("/"):
        raise Untold("leads over ..; give the directory itself")
    return Url(scheme, rest.rstrip("/"), text.rstrip("/"))


def refuse_secrets(text: str) -> None:
    """Before anything repeats it. Raises `UsageError`."""
    try:
        parse(text)
    except Untold as error:
        raise UsageError(f"the remote place {error}; nothing was changed") from None


def of_rank(text: str, rank: int) -> str:
    """The place of one rank, if each has one."""
    return text.replace(RANK, f"{rank:05d}")


def place_of(url: str, directory: str) -> str:
    """How a place is known in the notes: a directory by its real path, wherever and however it was named."""
    path = url.removeprefix("file://")
    return path.rstrip("/") if "://" in path else os.path.realpath(os.path.join(directory, path))
