"""The second implementation of `disk`: it records every operation and can fail, kill or cut the power at each.

It works on a real directory, so what it tests is the real code. Beside that it keeps a model of what is durable:

* an *effect* is one change of one file's contents or of one name in one directory;
* an effect is *guaranteed* once an fsync of that file, or of that directory, has returned;
* after a power cut all guaranteed effects are there, and each other one may be there or not, in any combination
  (`keep` decides), except that a rename leaves the old name, the new one or both, never neither. The contents of a file
  whose last writes were lost may be the earlier ones, nothing, or the first half of the new ones (torn).

`images` makes from the effects of a run the states that a power cut could leave, as new directories.
The program's own writes go through `overwrite` and `append`, or the reorderings that matter would never be tried.
"""

from __future__ import annotations

import contextlib
import copy
import errno
import io
import os
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from stat import S_ISDIR, S_ISLNK, S_ISREG
from typing import Any, BinaryIO

from safepoint.disk import NONE, Disk, PageCache, SyncFailed
from safepoint.disk.handles import Handle
from safepoint.root import Root


def on(root: Root, disk: Any) -> Root:
    """The same root, seen through another disk."""
    other = copy.copy(root)
    other.disk = disk
    return other


class Killed(BaseException):
    """The process died here. No `except Exception` may catch it, and no clean-up code can act: the disk is gone."""


@dataclass
class Effect:
    """One change: of a name (`target` None: removed) or of a file's contents."""

    op: int
    inode: int  # of the directory, or of the file
    name: str | None = None
    target: int | None = None
    content: bytes = b""
    mode: int = 0
    mtime_ns: int = 0
    needs: Effect | None = None  # the new name of a rename, without which the old one cannot go
    guaranteed: int | None = None  # the operation that made it durable

    def durable(self, ops: int) -> bool:
        return self.guaranteed is not None and self.guaranteed < ops

    def __str__(self) -> str:
        what = f"contents of {self.inode}" if self.name is None else f"{'-' if self.target is None else '+'}{self.name}"
        return f"{self.op}:{what}"


@dataclass
class Recorder:
    """Shared by a disk and its copies: the operations so far, and their effects."""

    ops: list[str] = field(default_factory=list)
    changing: list[int] = field(default_factory=list)  # the indices of operations that change something
    effects: list[Effect] = field(default_factory=list)
    start: dict[int, dict[str, int] | Effect] = field(default_factory=dict)  # what was durable at the beginning
    root: int = 0


class InOrder:
    """Instead of helper threads: one thing after the other, by default in the order that hopes for least."""

    def __init__(self, *, last_first: bool = True) -> None:
        self._order = -1 if last_first else 1

    def each(self, work: Callable[[Any], Any], items: Sequence[Any], at_once: int = 1) -> list[Any]:
        return [work(item) for item in items[:: self._order]][:: self._order]

    @contextlib.contextmanager
    def beside(self, work: Callable[[], object]) -> Iterator[None]:
        if self._order > 0:
            work()
        yield
        if self._order < 0:
            work()

    def dismiss(self, *, wait: bool = False) -> None:
        pass


class FaultDisk(Disk):
    """`kill_at`: die before this operation, half way through it if it writes. `fail_at`: it fails with `error`, once,
    or, with `from_then_on`, it and every later one that changes something, as on a full disk."""

    exchanges = True  # False: a file system without RENAME_EXCHANGE
    hard_links = True  # False: one without these

    def __init__(
        self, directory: str | os.PathLike[str], *, kill_at: int = -1, fail_at: int = -1, error: int = errno.EIO,
        from_then_on: bool = False, boot: str = "boot", mount: str | None = "mount",
        inodes: dict[int, int] | None = None, before: FaultDisk | None = None,
    ) -> None:  # fmt: skip
        self.directory = os.path.realpath(directory)
        self._below = self.directory + "/"
        self.kill_at, self.fail_at, self.error = kill_at, fail_at, error
        self.from_then_on = from_then_on
        self.boot, self.mount = boot, mount
        self.inodes = inodes or {}  # real inode numbers -> those that the recorded run saw
        self.dead = False
        self.failed = ""  # the operation that was made to fail
        self._next = max([10**12, *self.inodes.values()])  # of new inodes: real numbers are used again, ours are not
        self.record = Recorder()
        self._releases: list[Callable[[], object]] = []
        if before is None:
            self._snapshot()
        else:  # after a kill the machine is still up: what that life did not sync is still not durable
            self.record, self.inodes, self._next = before.record, before.inodes, before._next

    # Recording.

    def _snapshot(self) -> None:
        self.record.root = self._inode(self.directory)
        for directory, names, files in os.walk(self.directory):
            entries: dict[str, int] = {}
            for name in (*names, *files):
                path = os.path.join(directory, name)
                with contextlib.suppress(FileNotFoundError):  # another rank, with a disk of its own, is at work already
                    if name in files:
                        effect = self._contents(-1, path)
                        self.record.start[effect.inode] = effect
                    entries[name] = self._inode(path)
            with contextlib.suppress(FileNotFoundError):
                self.record.start[self._inode(directory)] = entries

    def _new(self, op: int, path: str) -> None:
        """A file or directory was made: its number, its name, and what it holds."""
        self._next += 1
        self.inodes[os.lstat(path).st_ino] = self._next
        self._name(op, path, self._next)
        if os.path.isdir(path) and not os.path.islink(path):
            self.record.start[self._next] = {}
        else:
            self._changed(op, path)

    def _inode(self, path: str) -> int:
        return self.stat_quietly(path).st_ino

    def stat_quietly(self, path: str) -> os.stat_result:
        return self._as_recorded(os.lstat(path))

    def _as_recorded(self, real: os.stat_result) -> os.stat_result:
        fields = list(real)[:10]
        fields[1] = self.inodes.get(real.st_ino, real.st_ino)
        return os.stat_result(fields, {"st_mtime_ns": real.st_mtime_ns})

    def _contents(self, op: int, path: str) -> Effect:
        info = os.lstat(path)
        if S_ISREG(info.st_mode):
            with open(path, "rb") as file:
                content = file.read()
        else:
            content = os.fsencode(os.readlink(path))
        return Effect(op, self._inode(path), content=content, mode=info.st_mode, mtime_ns=info.st_mtime_ns)

    def step(self, what: str, path: str, *, changes: bool = True) -> int:
        """Count one operation; die or fail if it is the one to do so. Its index."""
        if self.dead:
            raise Killed
        op = len(self.record.ops)
        self.record.ops.append(f"{what} {self._relative(path)}")
        if changes:
            self.record.changing.append(op)
        if op == self.kill_at:
            self.dead = True
            raise Killed(self.record.ops[-1])
        if op == self.fail_at or (self.from_then_on and changes and 0 <= self.fail_at < op):
            self.failed = self.failed or self.record.ops[-1]
            kind = SyncFailed if what == "sync" else OSError
            raise kind(self.error, os.strerror(self.error), path)
        return op

    def _relative(self, path: str) -> str:
        """As os.path.relpath says it, which would be a third of the time of all sweeps."""
        plain = "//" not in path and "/./" not in path and "/../" not in path and path[-1] != "/"
        if plain and path.startswith(self._below):
            return path[len(self._below) :]
        return os.path.relpath(path, self.directory)

    def _name(self, op: int, path: str, target: int | None, needs: Effect | None = None) -> Effect:
        directory, name = os.path.split(path)
        effect = Effect(op, self._inode(directory), name, target, needs=needs)
        self.record.effects.append(effect)
        return effect

    def _changed(self, op: int, path: str) -> None:
        self.record.effects.append(self._contents(op, path))

    def _guarantee(self, op: int, path: str, *, names: bool, among: int | None = None) -> None:
        """An fsync has returned: of those effects, the first so many or all, that it covers."""
        self._guarantee_inode(op, self._inode(path), names=names, among=among)

    def _guarantee_inode(self, op: int, inode: int, *, names: bool, among: int | None = None) -> None:
        for effect in self.record.effects[:among]:
            if effect.inode == inode and (effect.name is not None) == names and effect.guaranteed is None:
                effect.guaranteed = op
                if effect.needs is not None and effect.needs.guaranteed is None:
                    effect.needs.guaranteed = op  # the old name is gone for good, so the new one is there for good

    # Looking.

    def stat(self, file: str | BinaryIO) -> os.stat_result:
        if not isinstance(file, str):
            return self._as_recorded(super().stat(file))
        self.step("stat", file, changes=False)
        return self.stat_quietly(file)

    def scan(self, path: str) -> list[os.DirEntry[str]]:
        self.step("list", path, changes=False)
        return super().scan(path)

    def read_into(self, buffer: memoryview, path: str) -> tuple[int, os.stat_result]:
        self.step("open", path, changes=False)
        count, info = super().read_into(buffer, path)
        return count, self._as_recorded(info)

    def open(self, path: str) -> BinaryIO:
        self.step("open", path, changes=False)
        return _Reader(self, path)

    # Changing.

    def mkdir(self, path: str, mode: int = 0o777) -> None:
        op = self.step("mkdir", path)
        super().mkdir(path, mode)
        self._new(op, path)

    def create(self, path: str, mode: int = 0o666) -> _Writer:  # type: ignore[override]
        op = self.step("create", path)
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode))
        self._new(op, path)
        return _Writer(self, path)

    def append(self, path: str, data: bytes) -> None:
        if not os.path.exists(path):
            self.step("append", path, changes=False)
        self._add("append", path, data)

    def _add(self, what: str, path: str, data: bytes, at: int | None = None) -> None:
        """`at` a position, or else at the end."""
        try:
            op = self.step(what, path)
        except Killed:
            if self.kill_at == len(self.record.ops) - 1 and os.path.exists(path):
                self.kill_at = -1
                with open(path, "r+b") as file:  # the kill came half way
                    file.seek(0, os.SEEK_END) if at is None else file.seek(at)
                    file.write(data[: len(data) // 2])
                self._changed(len(self.record.ops) - 1, path)
            raise
        with open(path, "r+b") as file:
            file.seek(0, os.SEEK_END) if at is None else file.seek(at)
            file.write(data)
        self._changed(op, path)

    def rename(self, source: str, target: str) -> None:
        op = self.step("rename", target)
        inode = self._inode(source)
        super().rename(source, target)
        appears = self._name(op, target, inode)
        self._name(op, source, None, needs=appears)

    def exchange(self, one: str, other: str) -> bool:
        try:
            op = self.step("exchange", other)
        except OSError:  # as on a file system that has none: it is a rename that tells what is wrong
            return False
        inodes = self._inode(one), self._inode(other)
        if not self.exchanges or not super().exchange(one, other):
            return False
        for path, inode in ((one, inodes[1]), (other, inodes[0])):
            self._name(op, path, inode)
        return True

    def link(self, points_to: str, path: str) -> None:
        op = self.step("link", path)
        super().link(points_to, path)
        self._new(op, path)
        self.record.effects[-1].guaranteed = op  # a link is made with its contents

    def hard_link(self, source: str, path: str) -> bool:
        op = self.step("hard link", path)
        if not self.hard_links or not super().hard_link(source, path):
            return False
        self._name(op, path, self._inode(source))
        return True

    def truncate(self, path: str, length: int) -> None:
        op = self.step("truncate", path)
        super().truncate(path, length)
        self._changed(op, path)

    def set_mode_and_time(self, path: str, mode: int, mtime_ns: int, group: int = -1) -> None:
        op = self.step("mode and time", path)
        super().set_mode_and_time(path, mode, mtime_ns, group)
        if not os.path.isdir(path):
            self._changed(op, path)

    def remove(self, path: str) -> None:
        op = self.step("remove", path)
        super().remove(path)
        self._name(op, path, None)

    def rmdir(self, path: str) -> None:
        op = self.step("rmdir", path)
        super().rmdir(path)
        self._name(op, path, None)

    def duplicate(
        self, source: BinaryIO, target: BinaryIO, length: int | None = None, *, only_shared: bool = False
    ) -> bool:
        while not only_shared and (data := source.read(1 << 20)):
            target.write(data)
        return not only_shared

    # One after the other, so that a run can be repeated; the last one first. The data of a set is then the last to be
    # durable, after what vouches for it, where it would be most dangerous.

    helpers: Any = InOrder()

    # Making durable: only in the model, which is what counts here.

    def start_writeback(self, file: str | BinaryIO, length: int = 0) -> None:
        pass

    def sync_files(self, paths: Any, opened: Any = NONE) -> None:
        for path in paths:
            op = self.step("sync", path)
            if path in opened:  # that file, whatever has its name by now
                self._guarantee_inode(op, self.stat(opened[path]).st_ino, names=False)
            else:
                self._guarantee(op, path, names=False)

    def sync_dir(self, path: str) -> None:
        self._guarantee(self.step("sync", path), path, names=True)

    # Asking the system.

    def lock(self, path: str) -> Callable[[], object] | None:
        op = self.step("lock", path)
        fresh = not os.path.exists(path)
        release = super().lock(path)
        if fresh:
            self._new(op, path)
        if release is not None:
            self._releases.append(release)
        return release

    def open_for_writing(self, paths: Sequence[str]) -> list[str]:
        for path in paths:
            self.step("lease", path, changes=False)
        return super().open_for_writing(paths)

    def handles_into(self, work: str, device: int, besides: str) -> list[Handle]:
        return []  # no operation of a life: who has files open is looked for in tests of its own

    def page_cache(self, path: str) -> PageCache:
        return PageCache("host", self.boot, self.mount)

    # For the test's program, and its end.

    def overwrite(self, path: str, data: bytes) -> None:
        """What open(path, "w").write(data) does, as the system calls of the program."""
        if os.path.lexists(path):
            self.truncate(path, 0)
        else:
            self.create(path).close()
        middle = len(data) // 2
        self._add("write", path, data[:middle])
        self._add("write", path, data[middle:])

    # For a run that was recorded elsewhere.

    def write_at(self, path: str, position: int, data: bytes) -> None:
        op = self.step("write", path)
        descriptor = os.open(path, os.O_WRONLY)
        os.pwrite(descriptor, data, position)
        os.close(descriptor)
        self._changed(op, path)

    def synced(self, path: str, effects: int) -> None:
        """An fsync that began when there were so many effects has returned."""
        self._guarantee(self.step("sync", path), path, names=os.path.isdir(path), among=effects)

    def end(self) -> None:
        """The process is gone, and its locks with it."""
        self.dead = True
        for release in self._releases:
            release()


class _Reader(io.FileIO):
    def __init__(self, disk: FaultDisk, path: str) -> None:
        super().__init__(path, "rb")
        self._disk = disk

    def readinto(self, buffer: Any, /) -> int:
        self._disk.step("read", str(self.name), changes=False)
        return super().readinto(buffer) or 0

    def read(self, size: int | None = -1, /) -> bytes:
        self._disk.step("read", str(self.name), changes=False)
        return super().read(size) or b""

    def readall(self) -> bytes:
        return super().readall() or b""


class _Writer(io.FileIO):
    def __init__(self, disk: FaultDisk, path: str) -> None:
        super().__init__(path, "r+b")
        self._disk = disk

    def write(self, data: Any, /) -> int:
        size = memoryview(data).nbytes
        self._disk._add("write", str(self.name), bytes(data), self.tell())
        self.seek(size, os.SEEK_CUR)
        return size


# Power cuts.

Keep = Callable[[Effect], bool]


@dataclass
class Image:
    """One state that a power cut before operation `ops` could leave."""

    ops: int
    policy: str
    directory: str
    inodes: dict[int, int]

    def __str__(self) -> str:
        return f"power cut before operation {self.ops}, {self.policy}"


def policies(
    effects: list[Effect], since: int, ops: int, rng: random.Random, singles: int, most: int
) -> Iterator[tuple[str, Keep, str]]:
    """Which effects that are not guaranteed a cut keeps: the name of the choice, the choice, and what is torn.

    Single ones are, if `singles` is not 0, each that is there since operation `since` (or `most` of them, by chance),
    and so many others by chance.
    """
    open_effects = [effect for effect in effects if effect.op < ops and not effect.durable(ops)]
    yield "all kept", lambda effect: True, ""
    yield "only what is guaranteed", lambda effect: False, ""
    yield "names kept, contents empty", lambda effect: effect.name is not None, "empty"
    yield "names kept, contents torn", lambda effect: effect.name is not None, "half"
    yield "names and sizes kept, contents zeros", lambda effect: effect.name is not None, "zeros"
    yield "names kept, contents as before", lambda effect: effect.name is not None, ""
    yield "contents kept, names gone", lambda effect: effect.name is None, ""
    yield "new names kept, old ones too", lambda effect: effect.name is None or effect.target is not None, ""
    older, newer = ([e for e in open_effects if (e.op < since) is old] for old in (True, False))
    newer = rng.sample(newer, most) if len(newer) > most else newer
    for one in [*rng.sample(older, min(singles, len(older))), *newer * bool(singles)]:
        yield f"all but {one}", lambda effect, one=one: effect is not one, ""  # type: ignore[misc]
        yield f"only {one}", lambda effect, one=one: effect is one, ""  # type: ignore[misc]
        if one.name is None:
            yield f"all, but zeros in {one}", lambda effect, one=one: effect is not one, "zeros"  # type: ignore[misc]
    for number in range(min(singles, len(open_effects))):
        some = {id(effect) for effect in open_effects if rng.random() < 0.5}
        yield f"random choice {number}", lambda effect, some=some: id(effect) in some, ""  # type: ignore[misc]


def images(
    record: Recorder, into: str, *, seed: int = 0, singles: int = 3, most: int = 10_000, at: list[int] | None = None,
    promised: Callable[[int], int] = lambda ops: 0,
) -> Iterator[Image]:  # fmt: skip
    """The states that cuts of a recorded run could leave, each as a new directory below `into`, without repetitions.

    `promised`: what must survive a cut before an operation; the same state is another one when that is more.
    """
    rng = random.Random(seed)
    seen: set[int] = set()
    points = at if at is not None else [*record.changing, len(record.ops)]
    for since, ops in zip([0, *points], points, strict=False):
        for policy, keep, torn in policies(record.effects, since, ops, rng, singles, most):
            tree = _replay(record, ops, keep, torn)
            key = hash(
                (
                    promised(ops),
                    _promise_point(record, ops),
                    *sorted(hash((inode, _hashable(v))) for inode, v in tree.items()),
                )
            )
            if key in seen:
                continue
            seen.add(key)
            directory = os.path.join(into, f"image-{len(seen)}")
            inodes: dict[int, int] = {}
            _materialise(tree, record.root, directory, inodes)
            yield Image(ops, policy, directory, inodes)


def _hashable(what: Any) -> Any:
    return tuple(sorted(what.items())) if isinstance(what, dict) else what


def _promise_point(record: Recorder, ops: int) -> int:
    """Equal states before and after an fsync are not equal."""
    return sum(1 for op in record.ops[:ops] if op.startswith("sync"))


def _replay(record: Recorder, ops: int, keep: Keep, torn: str) -> dict[int, Any]:
    tree: dict[int, Any] = {
        inode: dict(what) if isinstance(what, dict) else (what.content, what.mode, what.mtime_ns)
        for inode, what in record.start.items()
    }
    applied: set[int] = set()
    for effect in record.effects:
        if effect.op >= ops:
            break
        lives = effect.durable(ops) or keep(effect)
        if effect.name is not None:
            if not lives or (effect.needs is not None and id(effect.needs) not in applied):
                continue
            applied.add(id(effect))
            names = tree.setdefault(effect.inode, {})
            if effect.target is None:
                names.pop(effect.name, None)
            else:
                names[effect.name] = effect.target
        elif lives:
            tree[effect.inode] = (effect.content, effect.mode, effect.mtime_ns)
        elif torn:
            old = tree[effect.inode][0] if effect.inode in tree else b""
            # What an append adds to is not lost with it.
            start = next((n for n, (a, b) in enumerate(zip(old, effect.content, strict=False)) if a != b), len(old))
            start = min(start, len(effect.content))
            end = (start + len(effect.content)) // 2 if torn == "half" else start
            zeros = b"\0" * (len(effect.content) - start) if torn == "zeros" else b""  # size and time, not the data
            tree[effect.inode] = (effect.content[:end] + zeros, effect.mode, effect.mtime_ns)
    return tree


def _materialise(tree: dict[int, Any], inode: int, path: str, inodes: dict[int, int]) -> None:
    what = tree.get(inode, {})
    if isinstance(what, dict):
        os.mkdir(path)
        inodes[os.lstat(path).st_ino] = inode
        for name, target in what.items():
            # A name of which nothing else survived is an empty file.
            known = tree if target in tree else {target: (b"", 0o100644, 0)}
            _materialise(known, target, os.path.join(path, name), inodes)
        return
    content, mode, mtime_ns = what
    if S_ISLNK(mode):
        os.symlink(content, path)
        return
    assert not S_ISDIR(mode)
    with open(path, "wb") as file:
        file.write(content)
    os.chmod(path, mode & 0o7777)
    os.utime(path, ns=(mtime_ns, mtime_ns))
    inodes[os.lstat(path).st_ino] = inode


class FromImage(FaultDisk):
    """As in a container: what is there already no rename moves, if it is a directory; `files`: nor any other that would
    leave its directory."""

    def __init__(self, directory: str | os.PathLike[str], *, files: bool = False, **options: Any) -> None:
        super().__init__(directory, **options)
        self.fixed = {os.lstat(below).st_ino for below, _, _ in os.walk(self.directory)}
        self.files = files

    def _check(self, source: str, target: str) -> bool:
        leaves = self.files and len({".safepoint.d" in path.split(os.sep) for path in (source, target)}) > 1
        return leaves or (os.path.isdir(source) and os.lstat(source).st_ino in self.fixed)

    def rename(self, source: str, target: str) -> None:
        if self._check(source, target):
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), source, None, target)
        super().rename(source, target)

    def exchange(self, one: str, other: str) -> bool:
        return not self._check(one, other) and super().exchange(one, other)
