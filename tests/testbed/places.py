"""Places that fail, and what stands at one."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

from safepoint import Session
from safepoint.disk import Disk
from safepoint.record import Record, parse_record
from safepoint.root import Root
from safepoint.tiers import note
from safepoint.tiers.fetching import Fetch, Found, chosen, make_ready, roots_for, sets_at
from safepoint.tiers.part import Part
from safepoint.tiers.place import Directory, Gone, Place, Vanished, place_at
from safepoint.tiers.remote import Remote, needed
from safepoint.tiers.sending import Rate, Sender, Sent
from safepoint.tiers.url import Url

NO_RATE = Rate(None)
MANIFEST = "u.dat\nbig.dat compress\nlog.csv append\nsmall-*.txt\ntree/\nbundle_from = 3\n"


class Kept(Place):
    """In memory. `before` is called with each operation, and may raise: then nothing was done."""

    def __init__(self) -> None:
        super().__init__(Url("", "", "memory"))
        self.objects: dict[str, bytes] = {}
        self.calls: list[str] = []

    def before(self, call: str) -> None:
        self.calls.append(call)

    def names(self) -> dict[str, int]:
        self.before("names")
        return {name: len(data) for name, data in self.objects.items()}

    def put(self, name: str, data: bytes) -> None:
        self.before(f"put {name}")
        self.objects[name] = bytes(data)

    def get(self, name: str, size: int) -> bytes:
        self.before(f"get {name}")
        if len(self.objects.get(name, b"")) != size or name not in self.objects:
            raise (Vanished if name in self.objects else Gone)(name)
        return self.objects[name]

    def remove(self, names: Iterable[str]) -> None:
        for name in names:
            self.before(f"remove {name}")
            self.objects.pop(name, None)


class Dead(BaseException):
    """The process that called died here."""


class Dying(Kept):
    """Dies at the n-th operation, and leaves half of what it put under no name."""

    def __init__(self, objects: dict[str, bytes], at: int) -> None:
        super().__init__()
        self.objects, self.at = objects, at

    def before(self, call: str) -> None:
        super().before(call)
        if len(self.calls) > self.at:
            raise Dead(call)


class Refused(Exception):
    """What botocore raises for an answer of S3 that is an error."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.response = {"Error": {"Code": code}}


def of_s3(error: OSError, code: str) -> Callable[[Any], Any]:
    """As s3fs raises it."""

    def fail(result: Callable[[], Any]) -> Any:
        raise error from Refused(code)

    return fail


def raising(error: Exception) -> Callable[[Any], Any]:
    def fail(result: Callable[[], Any]) -> Any:
        raise error

    return fail


def of_bytes(change: Callable[[bytes], bytes]) -> Callable[[Any], Any]:
    """Of what is read or put, not of a listing: one that is cut short is no XML any more."""

    def fail(result: Callable[..., Any]) -> Any:
        data = result(change)
        return change(data) if isinstance(data, bytes) else data

    return fail


# What a call of a store may come to that does not do what it was asked for.
FAULTS: dict[str, Callable[[Callable[[], Any]], Any]] = {
    "403": of_s3(PermissionError("Access Denied"), "AccessDenied"),
    "expired": of_s3(PermissionError("The provided token has expired."), "ExpiredToken"),
    "key": of_s3(PermissionError("No such key id."), "InvalidAccessKeyId"),
    "500": of_s3(OSError(121, "We encountered an internal error."), "InternalError"),
    "404": of_s3(FileNotFoundError("not found"), "404"),
    "bucket": of_s3(FileNotFoundError("The specified bucket does not exist"), "NoSuchBucket"),
    "exception": raising(ValueError("not well-formed (invalid token)")),
    "timeout": raising(TimeoutError("no answer in 60 seconds")),
    "local file": raising(FileNotFoundError(2, "No such file or directory", "/opt/credentials")),
    "nothing": lambda result: type(result(lambda data: None) or [])(),
    "half": of_bytes(lambda data: data[: len(data) // 2]),
    "wrong": of_bytes(lambda data: bytes([data[0] ^ 1, *data[1:]])),
}  # fmt: skip


class Broken:
    """A file system of fsspec one of whose calls fails, each time: `call` and the end of the name that it is for."""

    def __init__(self, fs: Any, call: str, of: str, fault: Callable[[Callable[[], Any]], Any]) -> None:
        self._fs, self._call, self._of, self._fault, self.met = fs, call, of, fault, 0

    def __getattr__(self, name: str) -> Any:
        if name in ("find", "walk"):  # made of the other calls, as in file systems that are no memory
            return partial(getattr(type(self._fs).__base__, name), self)
        real = getattr(self._fs, name)
        if name != self._call:
            return real

        def call(path: Any, *arguments: Any, **named: Any) -> Any:
            if not re.search(self._of, path if isinstance(path, str) else path[0]):
                return real(path, *arguments, **named)

            def result(change: Callable[[bytes], bytes | None]) -> Any:
                """`change`: what becomes of data that are put; None: nothing is done."""
                if name == "pipe_file":
                    return None if (data := change(arguments[0])) is None else real(path, data)
                return real(path, *arguments, **named)

            self.met += 1
            return self._fault(result)

        return call


def parts_of(work: Path | str, disk: Disk | None = None) -> dict[int, tuple[Root, Record]]:
    """The parts of the newest set that every needed rank has, of a directory that nobody works in."""
    disk = disk or Disk()
    found: dict[int, dict[int, tuple[Root, Record]]] = {}
    for root in sorted(Path(work, ".safepoint.d").glob("rank-*")):
        rank = int(root.name[5:])
        for number in Root(str(work), rank).numbers("set"):
            with contextlib.suppress(FileNotFoundError):
                record = parse_record(Path(root, f"set-{number:08d}", "record.json").read_bytes())
                of = Root(str(work), rank, record.ranks, record.saver, disk)
                found.setdefault(number, {})[record.rank] = of, record
    for number in sorted(found, reverse=True):
        one = next(iter(found[number].values()))[1]
        if set(needed(one)) <= set(found[number]):
            return {rank: found[number][rank] for rank in needed(one)}
    raise AssertionError("no set is complete")


def drained(
    work: Path | str, place: Place, *, disk: Disk | None = None, take_over: bool = False, keep: int = 1
) -> Sent:
    """What `safepoint drain` does, with this place."""
    parts = parts_of(work, disk)
    root = next(iter(parts.values()))[0]
    with note.alone(root, "drain"):
        sender = Sender(root, Remote(place), place.url.text, take_over=take_over, keep=keep)
        return sender.send(parts, sender.claim(), NO_RATE, lambda more: None)


def fetched(place: Place, work: Path | str, *, disk: Disk | None = None, number: int | None = None) -> Found:
    """What `safepoint fetch` does, with this place, into a directory without a run."""
    remote, disk = Remote(place), disk or Disk()
    found = chosen(sets_at(remote, remote.look()), number, None, place.url.text)
    one = make_ready(str(work), disk)
    with note.alone(one, "fetch"):
        parts = {rank: found.parts[rank] for rank in needed(next(iter(found.parts.values())).record)}
        roots = roots_for(str(work), parts, disk)
        lacking = []
        for rank, root in roots.items():
            with contextlib.suppress(FileExistsError):
                disk.mkdir(root.path)
            if found.name.number not in root.numbers("set"):
                lacking.append(rank)
        Fetch(remote, found, roots, lacking).run(lambda more: None, place.url.text)
    return found


def directory(path: Path | str, disk: Disk | None = None) -> Directory:
    place = place_at(str(path), disk or Disk(), "/", make=True)
    assert isinstance(place, Directory)
    if disk:
        place.lanes = 1  # a disk that counts its operations has one order of them
    return place


def opened(work: Path | str, stack: contextlib.ExitStack, rank: int = 0) -> Part:
    root, record = parts_of(work)[rank]
    return Part(root, record.number, stack)


def files_below(work: Path | str) -> dict[str, Any]:
    """What the program sees, as far as it is the program's."""
    found: dict[str, Any] = {}
    for path in sorted(Path(work).rglob("*")):
        name = str(path.relative_to(work))
        if not name.startswith(".safepoint"):
            found[name] = str(path.readlink()) if path.is_symlink() else path.read_bytes() if path.is_file() else None
    return found


def run(work: Path, steps: int = 2, *, first: int = 1) -> None:
    """A program with files of every kind; each step another content."""
    work.mkdir(exist_ok=True)
    if not (work / ".safepoint").exists():
        (work / ".safepoint").write_text(MANIFEST)
    with Session(work) as session:
        session.restore()
        for step in range(first, first + steps):
            (work / "u.dat").write_bytes(os.urandom(70000))
            (work / "big.dat").write_text(f"{step} " * 40000)
            with (work / "log.csv").open("a") as log:
                log.write(f"row {step}\n" * 300)
            for name in range(5):
                (work / f"small-{name}.txt").write_text(f"{step} {name}")
            (work / "tree/a/empty").mkdir(parents=True, exist_ok=True)
            (work / "tree/a/f \udcff").write_text(str(step))
            (work / "tree/a/f \udcff").chmod(0o640)
            if not (work / "tree/link").is_symlink():
                (work / "tree/link").symlink_to("a")
            session.hide(step, wait=True)
        session.close()


def newest(place: Place) -> int | None:
    """The number of the newest whole set there, and that it can be brought and given back."""
    remote = Remote(place)
    found = [each for each in sets_at(remote, remote.look()) if not each.why]
    return found[0].name.number if found else None


def given_back(place: Place, work: Path) -> int | None:
    """The step that a machine gets that has nothing of its own."""
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    fetched(place, work)
    (work / ".safepoint").write_text(MANIFEST)
    with Session(work) as session:
        point = session.restore()
        session.close()
    assert point and (work / "small-1.txt").read_text() == f"{point.step} 1"
    assert (work / "log.csv").read_text() == "".join(f"row {n}\n" * 300 for n in range(1, (point.step or 0) + 1))
    return point.step


def flip(path: Path, at: int | None = None) -> None:
    """Change one bit of a file, in the middle, or of this byte."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2 if at is None else at] ^= 1
    path.chmod(0o600)
    path.write_bytes(data)


def saved(work: Path, *, mode: int = 0o644, manifest: str = "u.dat\n", steps: int = 1, **how: Any) -> Path:
    """A program with one file, which has saved so many sets and ended."""
    work.mkdir(exist_ok=True)
    (work / ".safepoint").write_text(manifest)
    with Session(work, **how) as session:
        session.restore()
        for step in range(1, steps + 1):
            (work / "u.dat").write_text(str(step))
            (work / "u.dat").chmod(mode)
            session.hide(step, wait=True)
        session.close()
    return work
