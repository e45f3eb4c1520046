"""The few calls on a directory, or on a store, that another place needs: names and sizes, put, get, remove.

A name is seen with all of its bytes, or not at all. Names are relative, with `/`; sizes and bytes that come from a
store are checked by whoever asked, since nobody says whose they are.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
from collections.abc import Iterable
from stat import S_ISREG

from safepoint.disk import Disk
from safepoint.disk.files import entries, exists, listdir, read, write
from safepoint.disk.rights import ANYBODY, OURS
from safepoint.errors import UsageError
from safepoint.patterns import SIDE
from safepoint.root import PRIVATE, is_ours
from safepoint.tiers.url import Url, parse, refuse_secrets

SECRET = re.compile("SECRET|TOKEN|PASS|CREDENTIAL|KEY|CONNECTION", re.I)
USER = re.compile(r"(?<=://)[^/@\s]+(?=@)")  # and password
NEW = ".new"  # at the end of what is being put


class Unreachable(Exception):
    """A place did not do what it was asked for, or is not there; the text says which, and why."""


class Denied(Unreachable):
    """It was refused: who asks may not have it."""


class Vanished(Exception):
    """There is nothing of this name, or not so many bytes: somebody has removed it, or it never was whole."""


class Gone(Vanished):
    """There is nothing of this name, says the place itself."""


class Place:
    """What a directory and a store have in common. All raise `Unreachable`."""

    lanes = 1  # calls that are worth making at the same time

    def __init__(self, url: Url) -> None:
        self.url = url

    def names(self) -> dict[str, int]:
        """All that is there, two levels deep, with its size; also what is being put, or was when somebody died: its
        name ends with NEW. A name that ends with `/`: something is below it, and its listing does not show what.

        A listing that was not had, of all or of one directory, is `Unreachable`, and never an empty one: who takes a
        place for empty begins from zero, or puts over what is there."""
        raise NotImplementedError

    def put(self, name: str, data: bytes | bytearray) -> None:
        """On return the name is there with these bytes, as durable as the place makes it. Killed inside: the same, or
        nothing."""
        raise NotImplementedError

    def get(self, name: str, size: int) -> bytes:
        """So many bytes. Raises `Vanished` if there are not exactly as many, `Gone` if there is no such name."""
        raise NotImplementedError

    def remove(self, names: Iterable[str]) -> None:
        """What is gone already is no error."""
        raise NotImplementedError

    def secure(self, tops: Iterable[str]) -> None:
        """On return all that was seen below these names is as durable as what this process has put there itself."""

    def _failed(self, doing: str, error: BaseException) -> Unreachable:
        kind = Denied if isinstance(error, PermissionError) else Unreachable
        return kind(f"{self.url.text}: cannot {doing}: {told(error)}")


def code(error: BaseException) -> str:
    """What S3 calls the error from which this one was made."""
    response = getattr(error.__cause__, "response", None)
    said = response.get("Error") if isinstance(response, dict) else None
    return str(said.get("Code") or "") if isinstance(said, dict) else ""


def told(error: BaseException) -> str:
    """The cause in one line, without what is secret in the environment."""
    text = " ".join(str(getattr(error, "strerror", None) or error).split()) or type(error).__name__
    file = getattr(error, "filename", None)
    text = ": ".join(filter(None, [code(error), file if isinstance(file, str) else "", text]))
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
            for name, is_directory in entries(self._disk, self._top):
                for each in self._inner(name) if is_directory else [name]:
                    with contextlib.suppress(FileNotFoundError):  # a drain at work removes what is old
                        info = self._disk.stat(f"{self._top}/{each}")
                        if S_ISREG(info.st_mode):
                            found[each] = info.st_size
        except OSError as error:
            raise self._failed("list it", error) from error
        return found

    def _inner(self, name: str) -> list[str]:
        try:
            return [f"{name}/{each}" for each in listdir(self._disk, f"{self._top}/{name}")]
        except FileNotFoundError:  # a drain at work
            return []

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
            raise Gone(f"{name} is gone") from error
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


def place_at(text: str, disk: Disk, work: str, *, make: bool = False) -> Place:
    """The place of this name; a relative directory is below `work`. `make`: if there is no such directory.

    Raises `UsageError` if it names none, or needs a package that is not there, and `Unreachable`.
    """
    refuse_secrets(text)
    url = parse(text)
    if url.scheme:
        from safepoint.tiers.store import Store  # here: only who has such a place needs it

        return Store(url, make=make)
    if os.path.realpath(os.path.join(work, url.path)) == os.path.realpath(work):
        raise UsageError(f"{text} is the directory of the run itself; nothing was changed")
    return Directory(url._replace(path=os.path.join(work, url.path)), disk, make=make)
