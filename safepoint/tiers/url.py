"""The name of a place: a directory, or an address of a store. It never has credentials in it."""

from __future__ import annotations

import os
import re
from importlib.util import find_spec
from typing import NamedTuple

from safepoint.errors import UsageError
from safepoint.settings import Untold

# What fsspec calls it, and the package that it needs.
STORES = {
    "s3": "s3fs", "gs": "gcsfs", "gcs": "gcsfs", "abfs": "adlfs", "az": "adlfs", "ssh": "sshfs", "sftp": "sshfs",
}  # fmt: skip
RANK = "{rank}"
# What none of the names of a place looks like: a key of AWS, a setting whose value is a secret, user and password.
SECRETS = re.compile(
    r"\b(?:AKIA|ASIA)[A-Z0-9]{12,}|(?:access|account|api|shared|secret)[\w-]*(?:key|signature)[\w-]*=|[;&?]sig="
    r"|(?:token|secret|passw(?:or)?d|signature|credential)s?=",
    re.I,
)
CREDENTIALS = "credentials come from where the store's own tools look for them, never from here"


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
    if SECRETS.search(text):
        raise Untold(f"has what looks like a key or a password in it: {CREDENTIALS}")
    scheme, separator, rest = text.partition("://")
    if not separator:
        _refuse_no_directory(text)
        return Url("", text, text)
    scheme = scheme.lower()
    if not re.fullmatch(r"[a-z][a-z0-9+-]{,19}", scheme):
        raise Untold("is no address that can be read: what is before :// is no name of a kind of store")
    if scheme == "file":
        if not rest.startswith("/"):
            raise Untold("file:// takes an absolute path: file:///…")
        return Url("", rest, text)
    if scheme not in STORES:
        raise Untold(f"knows no {scheme}://; it takes a directory, or {', '.join(f'{name}://' for name in STORES)}")
    from urllib.parse import urlsplit  # here: only who has such a place needs it

    try:
        split = urlsplit(text)
        secret, host, _ = split.password is not None, split.hostname, split.port
    except ValueError as error:
        raise Untold("this is no address that can be read") from error
    user = rest.partition("/")[0].rpartition("@")[0]
    # `%3a` is a colon; and a second @ is of a password with a slash in it, which ends the host for whoever reads on.
    hidden = "%3a" in user.lower() or "@" in user or re.match(r"[^/]*:(?!\d+/)[^/@]*/.*@", rest)
    if secret or hidden or (user and scheme not in ("ssh", "sftp")):
        raise Untold(f"has a secret in it: {CREDENTIALS}")
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


def _refuse_no_directory(text: str) -> None:
    """What has no `://`, and is not meant as a directory. Raises `Untold`."""
    if re.match(r"[A-Za-z0-9]{2,}:/", text) and "@" not in text:
        raise Untold("takes two slashes after the colon, as in s3://bucket/run-7")
    # Also `user:password@host`, whatever is in the password: as a directory it would be shown, and written down.
    if not text.startswith(("/", "./", "../")) or text.startswith("//"):
        if re.search(r":.*@", text):
            raise Untold(f"has what looks like a user and a password in it: {CREDENTIALS}")
        if re.match(r"[^/]+@[^/]+:", text):
            raise Untold("takes ssh://USER@HOST/DIRECTORY for what is on another machine")
    if re.match(r"~|\$\w|\$\{", text):
        raise Untold("begins with a ~ or a variable, which nobody expands here: write the whole path")


def refuse_lacking(text: str) -> None:
    """Raise `UsageError` if this place needs a package that is not there. Nothing is imported for that."""
    url = parse(text)
    for package in ("fsspec", url.package) if url.scheme else ():
        if find_spec(package) is None:
            raise UsageError(lacking(url, package))


def lacking(url: Url, package: str) -> str:
    return f"{url.scheme}:// needs the package {package}: pip install {url.package}"


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
