"""A place that is no directory of this machine: an object store, or a directory behind ssh, by way of fsspec."""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import time
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from safepoint.disk.signals import look
from safepoint.errors import UsageError
from safepoint.root import PRIVATE
from safepoint.tiers.place import NEW, Gone, Place, Unreachable, Vanished, code, told
from safepoint.tiers.url import Url, lacking

logger = logging.getLogger("safepoint")
Result = TypeVar("Result")
TRIES, FIRST_PAUSE = 5, 0.5  # of a call that fails; seconds, doubled each time
KEEPALIVE = 15  # seconds


class Store(Place):
    """A store that fsspec knows. Each call is tried some times; after a lost connection with a new one."""

    lanes = 4

    def __init__(
        self, url: Url, connect: Callable[[Url], tuple[Any, str]] | None = None, *, make: bool = True
    ) -> None:  # fmt: skip
        super().__init__(url)
        self._connect, self._fs, self._make = connect or _connected, None, make
        self._top = ""
        self._writes_at_once = url.scheme not in ("ssh", "sftp")  # no reader meets half of a file

    def _tried(self, doing: str, call: Callable[[Any, str], Result]) -> Result:
        for turn in range(TRIES):
            look()
            try:
                if self._fs is None:
                    self._fs, self._top = self._connect(self.url)
                return call(self._fs, self._top)
            except (Unreachable, Vanished, UsageError):
                raise
            except Exception as error:
                if self._is_absence(error):
                    raise
                if turn == TRIES - 1 or isinstance(error, PermissionError):
                    raise self._failed(doing, error) from None  # what lies beneath may repeat what is secret
                logger.debug("%s: %s: again", doing, told(error))
                self._fs = None
                time.sleep(FIRST_PAUSE * 2**turn)
        raise AssertionError

    def _is_absence(self, error: Exception) -> bool:
        """Whether it says that there is nothing of a name at the place. So does no file that is missing on this
        machine, as one with credentials, and no bucket that is not there."""
        if not isinstance(error, FileNotFoundError) or self._fs is None:
            return False
        file = error.filename
        at_place = not isinstance(file, str) or bool(_below(self._top, file)) or file.strip("/") == self._top.strip("/")
        return at_place and code(error) in ("", "NoSuchKey", "404")

    def names(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for name, info in self._listed("").items():
            if info.get("type", "file") == "file":
                found[name] = int(info["size"] or 0)
            elif info["type"] == "directory":
                inner = self._listed(name)
                if not inner and self._writes_at_once:  # such a store has no directory without anything in it
                    found[f"{name}/"] = 0
                for each, info in inner.items():
                    if info.get("type", "file") == "file":
                        found[each] = int(info["size"] or 0)
        return found

    def _listed(self, name: str) -> dict[str, Any]:
        """By its name below the top what lies in one directory. Not by `find`: that takes a listing which fails for an
        empty one."""

        def call(fs: Any, top: str) -> dict[str, Any]:
            fs.invalidate_cache()
            try:
                listed = fs.ls(f"{top}/{name}" if name else top, detail=True)
            except FileNotFoundError as error:
                if not self._is_absence(error):
                    raise
                # A store is asked for names that begin alike: what it answers to that is never that there is nothing.
                # And a directory of another machine may be one that is not mounted.
                if error.__cause__ is not None if self._writes_at_once else not (name or self._make):
                    raise self._failed(f"list {name or 'it'}", error) from None
                return {}
            found = {_below(top, str(info["name"]).rstrip("/")): info for info in listed}
            return {each: info for each, info in found.items() if each and each != name}

        return self._tried(f"list {name or 'it'}", call)

    def put(self, name: str, data: bytes | bytearray) -> None:
        def call(fs: Any, top: str) -> None:
            path = f"{top}/{name}"
            if self._writes_at_once:
                fs.pipe_file(path, bytes(data))  # some take any other kind for a list of numbers
                return
            fs.makedirs(top, exist_ok=True)
            if os.path.dirname(path) != top:
                fs.makedirs(os.path.dirname(path), exist_ok=True, permissions=PRIVATE)
            new = f"{path}.{os.getpid()}{NEW}"
            with fs.open(new, "wb") as file:
                file.write(data)
                with contextlib.suppress(Exception):  # an extension, which not every server has
                    file.fsync()
            fs.mv(new, path)

        try:
            self._tried(f"put {name}", call)
        except FileNotFoundError as error:  # there is no such bucket
            raise self._failed(f"put {name}", error) from None

    def get(self, name: str, size: int) -> bytes:
        def call(fs: Any, top: str) -> bytes:
            path = f"{top}/{name}"
            if self._writes_at_once:
                data: bytes = fs.cat_file(path, start=0, end=size + 1) if size else fs.cat_file(path)
            else:
                with fs.open(path, "rb") as file:
                    data = file.read(size + 1)
            if len(data) != size:
                raise Vanished(f"{name} has {'more' if len(data) > size else 'less'} than {size} bytes")
            return bytes(data)

        try:
            return self._tried(f"get {name}", call)
        except FileNotFoundError as error:
            raise Gone(f"{name} is gone") from error

    def remove(self, names: Iterable[str]) -> None:
        listed = list(names)

        def call(fs: Any, top: str) -> None:
            for start in range(0, len(listed), 1000):
                paths = [f"{top}/{name}" for name in listed[start : start + 1000]]
                for each in [paths] if self._writes_at_once else paths:
                    try:
                        fs.rm(each) if self._writes_at_once else fs.rm_file(each)
                    except FileNotFoundError as error:
                        if not self._is_absence(error):
                            raise
                if self._writes_at_once:
                    continue
                for above in {os.path.dirname(path) for path in paths} - {top}:
                    with contextlib.suppress(Exception):  # there is something else in it
                        fs.rmdir(above)

        if listed:
            self._tried("remove what is old", call)


def _below(top: str, path: str) -> str:
    rest = path.lstrip("/").removeprefix(top.strip("/") + "/")
    return "" if rest == path.lstrip("/") else rest


def _connected(url: Url) -> tuple[Any, str]:
    try:
        fsspec = importlib.import_module("fsspec")
        importlib.import_module(url.package)
    except ImportError as error:
        raise UsageError(f"{lacking(url, url.package)} ({error})") from error
    options: dict[str, Any] = {"skip_instance_cache": True}
    if url.package == "sshfs":
        # Its own default asks for no host key at all.
        options |= {"known_hosts": (), "keepalive_interval": KEEPALIVE, "login_timeout": 2 * KEEPALIVE}
    else:
        options["use_listings_cache"] = False
    fs, path = fsspec.core.url_to_fs(f"{url.scheme if url.scheme != 'sftp' else 'ssh'}://{url.path}", **options)
    return fs, str(path).rstrip("/")
