"""Every name below the side directory, for one rank, and whether what is there is ours."""

from __future__ import annotations

import errno
import functools
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from stat import S_IMODE, S_ISDIR, S_ISLNK, S_IWGRP
from typing import Literal, cast

from safepoint.disk import Disk, kernel
from safepoint.disk.files import ancestors, cause, exists, listdir, stat_or_none
from safepoint.disk.rights import OURS, SHARED, without_acl
from safepoint.disk.rights import PRIVATE as PRIVATE
from safepoint.errors import FormatError, RefusedFileError, RestoreError, SaveError
from safepoint.patterns import SIDE
from safepoint.record import StoredFile
from safepoint.sealed import LAST

_ROOT = re.compile(r"rank-(\d{5,})")


_APART = re.compile(r"log-(\d{5,})\.jsonl")


_AWAY = {errno.ENOENT, errno.ENOTDIR, getattr(errno, "ESTALE", errno.ENOENT)}


_STATES = re.compile(r"(set|failed|gone)-(\d{8,12})")

State = Literal["set", "failed", "gone"]  # as the name of a set's directory begins
REAL = Disk()


# In the order of the attributes of `Root`.
NAMES = (
    "lock", "owner.json", "baseline.json", "log.jsonl", "stage", "discarded", "attempts.json", "lost.json", "probe",
    "fetched",
)  # fmt: skip


REMOTE = ("remote.json", "remote.lock", "drain.log")  # beside the roots, of whoever puts sets to another place
NODES, HELD = "nodes.json", "held"  # of a run whose sets are on disks of nodes; sets that are copies of other nodes'


class Root:
    """The names below W/.safepoint.d for one rank of `ranks`. `work` is absolute and free of symbolic links.

    `saver`: the rank that owns what is not of each rank. None: this rank is alone in W; then its root has the name of
    rank 0, whatever its number, so that a second program in W, of one process or many, meets its lock.
    """

    def __init__(self, work: str, rank: int = 0, ranks: int = 1, saver: int | None = 0, disk: Disk = REAL) -> None:
        self.work, self.rank, self.ranks, self.saver, self.disk = work, rank, ranks, saver, disk
        self.locked: tuple[int, int] | None = None  # device and inode of the lock that this run holds
        self.descriptor: int | None = None  # by which it does; None: that cannot be known here
        self.side = os.path.join(self.work, SIDE)
        self.format = os.path.join(self.side, "FORMAT")
        self.finished = os.path.join(self.side, "finished.json")
        self.halt = os.path.join(self.side, "halt.json")
        self.remote, self.remote_lock, self.drain_log = (os.path.join(self.side, name) for name in REMOTE)
        self.nodes = os.path.join(self.side, NODES)
        self._lie_in(os.path.join(self.side, f"rank-{0 if self.saver is None else self.rank:05d}"))
        self.apart = os.path.join(self.side, f"log-{self.rank:05d}.jsonl")  # of a rank that has nothing to save

    def _lie_in(self, path: str) -> None:
        self.path = path
        self.lock, self.owner, self.baseline, self.log, self.stage, self.discarded, *others = (
            os.path.join(self.path, name) for name in NAMES
        )
        self.attempts, self.lost, self.probe, self.fetched = others

    @functools.cached_property
    def mode(self) -> int:
        """Of each directory that is made here. What is in W behind a directory of mode 0700 may be 0644 itself, so what
        is here is its owner's alone; in a W where a group may write, it is that group's too."""
        try:
            return SHARED if self.disk.stat(self.work).st_mode & S_IWGRP else PRIVATE
        except OSError:
            return PRIVATE

    def mode_of(self, path: str) -> int:
        """Of the directory here that stands for this one of W."""
        if self.mode == PRIVATE or not path:
            return self.mode
        info = stat_or_none(self.disk, os.path.join(self.work, path))
        return PRIVATE | (S_IMODE(info.st_mode) & SHARED if info else 0)

    def mode_in(self, name: str) -> int:
        """Of a directory in a set, by its name there: `packed/a` stands for `a` of W."""
        return self.mode_of(name.partition("/")[2])

    def parents(self, paths: Iterable[str]) -> dict[str, list[int]] | None:
        """Mode and group of each directory of W that leads to these: what is behind one of mode 0700 must not be
        readable when it is given back where that is not any more."""
        found = {}
        for name in ancestors({os.path.dirname(path) for path in paths}):
            if info := stat_or_none(self.disk, full := os.path.join(self.work, name)):
                found[name] = [without_acl(full, S_IMODE(info.st_mode)), info.st_gid]
        return found or None

    def open_to_group(self, path: str, files: Iterable[StoredFile]) -> None:
        """Let the group of W read what was made of these files, and is our user's alone until now, as far as it may
        read each of them: by its own mode, and by those of the directories that lead to it."""
        if self.mode == PRIVATE:
            return
        info, mode = self.disk.stat(path), SHARED
        for file in files:
            closed = any(not self.mode_of(way) & 0o010 for way in ancestors([os.path.dirname(file.path)]))
            mode &= 0 if closed or file.group != info.st_gid else file.mode
        self.disk.set_mode_and_time(path, mode & 0o660 | OURS, info.st_mtime_ns)

    def make_side(self) -> None:
        """Make the side directory if there is none; on return nobody else can look into it, but for whom `mode` names.
        Of an older version it is closed now, if it is ours."""
        with suppress(FileExistsError):
            self.disk.mkdir(self.side, self.mode)
        info = self.disk.stat(self.side)
        if S_ISDIR(info.st_mode) and S_IMODE(info.st_mode) & ~self.mode & 0o77:
            with suppress(PermissionError):
                self.disk.set_mode_and_time(self.side, S_IMODE(info.st_mode) & self.mode, info.st_mtime_ns)

    def held(self, rank: int) -> Root:
        """Copies of the sets of another rank, that this node keeps for it."""
        other = self.of(rank)
        other._lie_in(os.path.join(self.side, HELD, f"rank-{rank:05d}"))
        return other

    def of(self, rank: int) -> Root:
        """The root of another rank of the same program."""
        return Root(self.work, rank, self.ranks, self.saver, self.disk)

    def state(self, state: State, number: int) -> str:
        if number > LAST:
            raise FormatError(f"{self.path} cannot have a set with number {number}: no later start would find it")
        return f"{self.path}/{state}-{number:08d}"

    def set(self, number: int) -> str:
        return self.state("set", number)

    def taken(self, number: int) -> str:
        return os.path.join(self.set(number), "taken.json")

    def record(self, number: int) -> str:
        return os.path.join(self.set(number), "record.json")

    def stored(self, number: int, path: str) -> str:
        """Where a set has the file with this path as it was taken; without one, all of them."""
        return f"{self.set(number)}/files/{path}" if path else f"{self.set(number)}/files"

    def packed(self, number: int, path: str) -> str:
        return f"{self.packed_in(number)}/{path}.zst"

    def packed_in(self, number: int) -> str:
        return f"{self.set(number)}/packed"

    def bundle(self, number: int) -> str:
        return os.path.join(self.set(number), "bundle.tar")

    def prefix(self, number: int, path: str, state: State = "set") -> str:
        """The copy of the beginning of an append file that a set has if it was given back."""
        return f"{self.state(state, number)}/append/{path}"

    def where(self, number: int, file: StoredFile) -> str:
        """What holds the bytes of a file of this set; of an append file as long as the program only adds to it."""
        if file.kind == "append":
            return os.path.join(self.work, file.path)
        if file.kept == "tar":
            return self.bundle(number)
        return self.packed(number, file.path) if file.kept == "zst" else self.stored(number, file.path)

    def numbers(self, state: State) -> list[int]:
        """The numbers of the sets in this state, ascending."""
        return self.standing()[state]

    def standing(self) -> dict[State, list[int]]:
        """The numbers of the sets in each state, ascending."""
        found: dict[State, list[int]] = {"set": [], "failed": [], "gone": []}
        for name in listdir(self.disk, self.path) if is_ours(self.disk, self.path) else ():
            if match := _STATES.fullmatch(name):
                found[cast(State, match[1])].append(int(match[2]))
        return {state: sorted(numbers) for state, numbers in found.items()}

    def unknown(self) -> list[str]:
        """The names in this root that are none of the library's."""
        known = {f"{name}{end}" for name in NAMES for end in ("", ".new")}
        return [name for name in listdir(self.disk, self.path) if name not in known and not _STATES.fullmatch(name)]

    def beyond(self) -> list[Root]:
        """The roots in W of ranks that a program of so many ranks does not have."""
        matches = map(_ROOT.fullmatch, listdir(self.disk, self.side))
        return [self.of(int(m[1])) for m in matches if m and int(m[1]) >= self.ranks]

    def shown(self, path: object) -> str:
        """A path as the user knows it: relative to W, and by its own name if a set keeps it."""
        name = os.path.relpath(os.fsdecode(path), self.work) if isinstance(path, (str, bytes)) else str(path)
        name = name.replace(os.sep, "/")
        return re.sub(rf"^{re.escape(SIDE)}/rank-\d+/(set-\d+/(?:files|packed|append)|stage)/", "", name)

    def has_lock(self) -> bool:
        """Whether this run holds its lock still, by the descriptor that it took it with."""
        return self.locked is None or self.descriptor is None or kernel.has_open(self.descriptor, self.locked)

    def is_ours(self) -> bool:
        """Whether the lock that this run holds is the one that another run would meet; or that cannot be seen now."""
        if self.locked is None:
            return True
        if not self.has_lock():
            return False
        try:
            info = self.disk.stat(self.lock)
        except OSError as error:
            return error.errno not in _AWAY
        return self.locked == (info.st_dev, info.st_ino)

    def refuse_other(self, kind: type[SaveError] | type[RestoreError], what: str, holds: str) -> None:
        """Raise if the side directory is no longer the one that this run has locked, or no longer locked: what has its
        name now may belong to another run, which nothing would keep apart from this one."""
        if not self.has_lock():
            raise kind(
                f"{what}: {self.lock} is no longer locked by this run, as the program has closed its descriptor "
                f"{self.descriptor} (daemons close all that they find open), so another run may have begun here; "
                f"{holds}. Call init() after such closing; or close() this session and call init() again",
                errno.EBADF,
            )
        if not self.is_ours():
            if exists(self.disk, self.path) and not exists(self.disk, self.lock):
                raise kind(
                    f"{what}: {self.lock} was removed while this run was at work, so nothing keeps another run apart "
                    f"from it; the sets are where they were; {holds}. close() this session and call init() again",
                    errno.ENOENT,
                )
            raise kind(
                f"{what}: {self.side} is not there any more, or another one is: it, or a directory above it, was "
                f"removed, moved, replaced or unmounted while this run was at work, and all sets are gone with it; "
                f"{holds}. Move it back; or close() this session and call init() again, which makes a new one",
                errno.ENOENT,
            )

    @contextmanager
    def reporting(self, kind: type[SaveError] | type[RestoreError], what: str, holds: str) -> Iterator[None]:
        """Turn the system's error into ours: cannot what, which file, the cause, what still holds."""
        try:
            yield
        except OSError as error:
            raise kind(f"{what}: {self.said(error)}; {holds}", error.errno) from error

    def said(self, error: OSError) -> str:
        """File and cause, as messages say them. Who has but a descriptor names the file (`names_file`); of an error
        without any it is known only in which directory it came."""
        return f"{self.work if error.filename is None else self.shown(error.filename)}: {cause(error)}"

    def guard(self, paths: Iterable[str]) -> None:
        """Refuse paths whose directories are, by symbolic links, outside of W."""
        for parent in {os.path.dirname(path) for path in paths} - {""}:
            real = os.path.realpath(os.path.join(self.work, parent))
            if os.path.commonpath((real, self.work)) != self.work:
                raise RefusedFileError(f"{parent}/ leads outside the working directory, to {real}")


def roots(disk: Disk, work: str) -> tuple[list[Root], list[str]]:
    """The roots in W by their names, each as that of a rank with a saver, and the names that are none of ours."""
    ours = "FORMAT", "finished.json", "halt.json", "tasks", NODES, HELD, *REMOTE
    known = {name + new for name in ours for new in ("", ".new")}
    refuse_link(disk, side := os.path.join(work, SIDE))
    names = listdir(disk, side)
    matches = {name: _ROOT.fullmatch(name) for name in names}
    for name in filter(matches.get, names):
        refuse_link(disk, os.path.join(side, name))
    found = sorted(int(match[1]) for match in matches.values() if match)
    unknown = [name for name in names if name not in known and not matches[name] and not _APART.fullmatch(name)]
    return [Root(work, rank, disk=disk) for rank in found], unknown


def logs(disk: Disk, side: str) -> dict[int, str]:
    """The log of each rank below a side directory."""
    found = {}
    for name in listdir(disk, side):
        if match := _APART.fullmatch(name):
            found[int(match[1])] = os.path.join(side, name)
        elif match := _ROOT.fullmatch(name):
            refuse_link(disk, os.path.join(side, name))
            if exists(disk, path := os.path.join(side, name, "log.jsonl")):
                found[int(match[1])] = path
    return found


def is_ours(disk: Disk, *ways: str) -> bool:
    """Whether these are there, one below the other, and directories. Raises `OSError` for anything else under such a
    name: through a symbolic link files would be read, moved and deleted that are none of ours."""
    for way in ways:
        try:
            mode = disk.stat(way).st_mode
        except (FileNotFoundError, NotADirectoryError):
            return False
        if S_ISLNK(mode):
            raise OSError(errno.ELOOP, "a symbolic link, which is not followed here", way)
        if not S_ISDIR(mode):
            raise OSError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), way)
    return True


def refuse_link(disk: Disk, path: str) -> None:
    """Raise `FormatError` if the side directory, or a root in it, is something else."""
    try:
        is_ours(disk, path)
    except OSError as error:
        text = f"{path}: {error.strerror}: safepoint needs a directory of its own there; nothing was changed"
        raise FormatError(text, error.errno) from error
