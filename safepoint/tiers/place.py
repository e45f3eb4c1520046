"""The few calls on a directory, or on a store, that another place needs: names and sizes, put, get, remove.

A name is seen with all of its bytes, or not at all. Names are relative, with `/`; sizes and bytes that come from a
store are checked by whoever asked, since nobody says whose they are.
"""

from __future__ import annotations

import contextlib
import errno
import importlib
import logging
import os
import re
import time
from collections.abc import Callable, Iterable
from stat import S_ISREG
from typing import Any, TypeVar

from safepoint.disk import Disk
from safepoint.disk.files import entries, exists, listdir, read, write
from safepoint.disk.rights import ANYBODY, OURS
from safepoint.disk.signals import look
from safepoint.errors import UsageError
from safepoint.patterns import SIDE
from safepoint.root import PRIVATE, is_ours
from safepoint.tiers.url import Url, parse, refuse_secrets

logger = logging.getLogger("safepoint")
Result = TypeVar("Result")
TRIES, FIRST_PAUSE = 5, 0.5  # of a call that fails; seconds, doubled each time
SECRET = re.compile("SECRET|TOKEN|PASS|CREDENTIAL|KEY|CONNECTION", re.I)
USER = re.compile(r"(?<=://)[^/@\s]+(?=@)")  # and password
NEW = ".new"  # at the end of what is being put
KEEPALIVE = 15  # seconds


class Unreachable(Exception):
    """A place did not do what it was asked for, or is not there; the text says which, and why."""


class Vanished(Exception):
    """There is nothing of this name, or not so many bytes: somebody has removed it, or it never was whole."""


class Place:
    """What a directory and a store have in common. All raise `Unreachable`."""

    lanes = 1  # calls that are worth making at the same time

    def __init__(self, url: Url) -> None:
        self.url = url

    def names(self) -> dict[str, int]:
        """All that is there, two levels deep, with its size; also what is being put, or was when somebody died: its
        name ends with NEW."""
        raise NotImplementedError

    def put(self, name: str, data: bytes | bytearray) -> None:
        """On return the name is there with these bytes, as durable as the place makes it. Killed inside: the same, or
        nothing."""
        raise NotImplementedError

    def get(self, name: str, size: int) -> bytes:
        """So many bytes. Raises `Vanished` if there are not exactly as many."""
        raise NotImplementedError

    def remove(self, names: Iterable[str]) -> None:
        """What is gone already is no error."""
        raise NotImplementedError

    def secure(self, tops: Iterable[str]) -> None:
        """On return all that was seen below these names is as durable as what this process has put there itself."""

    def _failed(self, doing: str, error: BaseException) -> Unreachable:
        return Unreachable(f"{self.url.text}: cannot {doing}: {_told(error)}")


def _told(error: BaseException) -> str:
    """The cause in one line, without what is secret in the environment."""
    text = " ".join(str(getattr(error, "strerror", None) or error).split()) or type(error).__name__
    for name, value in os.environ.items():
        if SECRET.search(name) and len(value) >= 8:
            text = text.replace(value, "***")
    return USER.sub("***", text)[:500]


class Directory(Place):
    """A directory, such as one of another file system. Through the disk, so that what is put survives a power cut."""

    lanes = 2  # one is written while another is flushed

    def __init__(self, url: Url, disk: Disk, *, make: bool) -> None:
        super().__init__(url)
        self._disk, self._top = disk, os.path.abspath(url.path)
        if SIDE in os.path.realpath(self._top).split(os.sep):
            raise UsageError(f"{url.text} lies in a side directory, where what is not known is removed")
        try:
            if not exists(disk, os.path.realpath(self._top)) and make:
                # Not the way to it: a file system that is not mounted must not pass for an empty place.
                disk.mkdir(self._top)
                disk.sync_dir(os.path.dirname(self._top))
            if not is_ours(disk, os.path.realpath(self._top)):
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        except OSError as error:
            raise self._failed("use this directory", error) from error
        self._top = os.path.realpath(self._top)

    def names(self) -> dict[str, int]:
        found: dict[str, int] = {}
        try:
            for name, is_directory in entries(self._disk, self._top) if exists(self._disk, self._top) else ():
                inner = (
                    [f"{name}/{each}" for each in listdir(self._disk, f"{self._top}/{name}")]
                    if is_directory
                    else [name]
                )
                for each in inner:
                    with contextlib.suppress(FileNotFoundError):  # a drain at work removes what is old
                        info = self._disk.stat(f"{self._top}/{each}")
                        if S_ISREG(info.st_mode):
                            found[each] = info.st_size
        except OSError as error:
            raise self._failed("list it", error) from error
        return found

    def put(self, name: str, data: bytes | bytearray) -> None:
        path, disk = f"{self._top}/{name}", self._disk
        above = os.path.dirname(path)
        try:
            if not is_ours(disk, above):
                with contextlib.suppress(FileExistsError):
                    disk.mkdir(above, PRIVATE)  # of a set: nobody may read more here than in W
                disk.sync_dir(os.path.dirname(above))  # else its name, and all in it, is lost with the power
            if exists(disk, new := f"{path}.{os.getpid()}{NEW}"):
                disk.remove(new)
            write(disk, new, data, OURS if above != self._top else ANYBODY)  # what is no set tells others who is here
            disk.sync_files([new])  # its bytes before its name
            disk.rename(new, path)
            disk.sync_dir(above)  # and its name before anything that relies on it
        except OSError as error:
            with contextlib.suppress(OSError):
                disk.remove(f"{path}.{os.getpid()}{NEW}")
            raise self._failed(f"put {name}", error) from error

    def secure(self, tops: Iterable[str]) -> None:
        # Who put it may have died, or be at work, between a rename and the flush of its directory.
        try:
            for top in tops:
                self._disk.sync_dir(f"{self._top}/{top}")
            self._disk.sync_dir(self._top)
            with contextlib.suppress(PermissionError):  # else it is not we who have made it
                self._disk.sync_dir(os.path.dirname(self._top))
        except OSError as error:
            raise self._failed("flush it", error) from error

    def get(self, name: str, size: int) -> bytes:
        try:
            is_ours(self._disk, os.path.dirname(f"{self._top}/{name}"))
            data = read(self._disk, f"{self._top}/{name}", size)
        except FileNotFoundError as error:
            raise Vanished(f"{name} is gone") from error
        except OSError as error:
            if error.errno == errno.EFBIG:
                raise Vanished(f"{name} has more than {size} bytes") from error
            raise self._failed(f"get {name}", error) from error
        if len(data) != size:
            raise Vanished(f"{name} has {len(data)} bytes instead of {size}")
        return data

    def remove(self, names: Iterable[str]) -> None:
        tops = set()
        try:
            for name in names:
                if is_ours(self._disk, os.path.dirname(f"{self._top}/{name}")):
                    with contextlib.suppress(FileNotFoundError):
                        self._disk.remove(f"{self._top}/{name}")
                    tops.add(os.path.dirname(name))
            for top in filter(None, tops):
                if not listdir(self._disk, path := f"{self._top}/{top}"):
                    self._disk.rmdir(path)
        except OSError as error:
            raise self._failed("remove what is old", error) from error


class Store(Place):
    """A store that fsspec knows. Each call is tried some times; after a lost connection with a new one."""

    lanes = 4

    def __init__(self, url: Url, connect: Callable[[Url], tuple[Any, str]] | None = None) -> None:
        super().__init__(url)
        self._connect, self._fs = connect or _connected, None
        self._top = ""
        self._writes_at_once = url.scheme not in ("ssh", "sftp")  # no reader meets half of a file

    def _tried(self, doing: str, call: Callable[[Any, str], Result]) -> Result:
        for turn in range(TRIES):
            look()
            try:
                if self._fs is None:
                    self._fs, self._top = self._connect(self.url)
                return call(self._fs, self._top)
            except (FileNotFoundError, Vanished):
                raise
            except (UsageError, KeyboardInterrupt):
                raise
            except Exception as error:
                if turn == TRIES - 1 or isinstance(error, PermissionError):
                    raise self._failed(doing, error) from None  # what lies beneath may repeat what is secret
                logger.debug("%s: %s: again", doing, _told(error))
                self._fs = None
                time.sleep(FIRST_PAUSE * 2**turn)
        raise AssertionError

    def names(self) -> dict[str, int]:
        def call(fs: Any, top: str) -> dict[str, int]:
            fs.invalidate_cache()
            try:
                found = fs.find(top, maxdepth=2, detail=True, withdirs=False)
            except FileNotFoundError:
                return {}
            names = {_below(top, path): info for path, info in found.items() if info.get("type", "file") == "file"}
            return {name: int(info["size"] or 0) for name, info in names.items() if name}

        return self._tried("list it", call)

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
            raise Vanished(f"{name} is gone") from error

    def remove(self, names: Iterable[str]) -> None:
        listed = list(names)

        def call(fs: Any, top: str) -> None:
            for start in range(0, len(listed), 1000):
                paths = [f"{top}/{name}" for name in listed[start : start + 1000]]
                if self._writes_at_once:
                    with contextlib.suppress(FileNotFoundError):
                        fs.rm(paths)
                    continue
                for path in paths:
                    with contextlib.suppress(FileNotFoundError):
                        fs.rm_file(path)
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
        raise UsageError(f"{url.scheme}:// needs the package {url.package}: pip install {url.package}") from error
    options: dict[str, Any] = {"skip_instance_cache": True}
    if url.package == "sshfs":
        # Its own default asks for no host key at all.
        options |= {"known_hosts": (), "keepalive_interval": KEEPALIVE, "login_timeout": 2 * KEEPALIVE}
    else:
        options["use_listings_cache"] = False
    fs, path = fsspec.core.url_to_fs(f"{url.scheme if url.scheme != 'sftp' else 'ssh'}://{url.path}", **options)
    return fs, str(path).rstrip("/")


def place_at(text: str, disk: Disk, work: str, *, make: bool = False) -> Place:
    """The place of this name; a relative directory is below `work`. `make`: if there is no such directory.

    Raises `UsageError` if it names none, or needs a package that is not there, and `Unreachable`.
    """
    refuse_secrets(text)
    url = parse(text)
    if url.scheme:
        return Store(url)
    if os.path.realpath(os.path.join(work, url.path)) == os.path.realpath(work):
        raise UsageError(f"{text} is the directory of the run itself; nothing was changed")
    return Directory(url._replace(path=os.path.join(work, url.path)), disk, make=make)
