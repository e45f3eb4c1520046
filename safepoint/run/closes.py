"""When is there a complete set of files that a program writes in place? Told by inotify; nothing here stops anybody.

With a `mark`, the file written last: when it was closed after writing and no other listed file was touched since. It
may be a glob, for programs that make a new file, or a directory, each time: then it is the match that was closed last.
Older ones may be removed at any time: while one is only half gone no set is complete.
Without one: when every listed file was closed after writing equally often since the last set, at least once, and the
one that is listed last was the last of them. So they are to be listed in the order in which they are written, each once
for a set. What is written otherwise is never taken for a set: if counting has once gone wrong it stays wrong.

Files that only grow have no say, nor have excluded ones. Optional ones, globs and directories need a mark. Whether
something is still open is asked of the kernel, by `writers`.
"""

from __future__ import annotations

import contextlib
import errno
import fnmatch
import os
from collections.abc import Sequence

from inotify_simple import INotify, flags

from safepoint.errors import UsageError
from safepoint.manifest import Manifest
from safepoint.patterns import NAME, SIDE, above, excluded, expand, matches
from safepoint.run.chances import Chances
from safepoint.run.proc import limits_named

OFTEN_WRITTEN = 5  # times that a file was written, and still no set
WRITTEN = flags.CLOSE_WRITE | flags.MOVED_TO
TOUCHED = WRITTEN | flags.CREATE | flags.DELETE | flags.MOVED_FROM
GOES = flags.DELETE | flags.MOVED_FROM
GONE = flags.IGNORED | flags.UNMOUNT


def check(manifest: Manifest) -> None:
    """Raise `UsageError` if nobody could tell from outside when a set is complete."""
    mark = next((entry for entry in manifest.entries if entry.mark), None)
    for entry in manifest.entries:
        where = f"{manifest.path}:{entry.line}: {entry.text}"
        if entry.per_rank:
            raise UsageError(f"{where}: safepoint run does not know the ranks of the command: list a glob instead")
        many = entry.tree or entry.literal(0, 1) is None
        if (many or entry.optional) and not mark and not entry.grows:
            what = "can be any number of files" if many else "may or may not be written"
            raise UsageError(
                f"{where} {what}, so nobody can tell when all are written: give the file that is written last the "
                f"attribute mark, or run the command in segments (--until)"
            )
    if mark and mark.tree:
        raise UsageError(
            f"{manifest.path}:{mark.line}: {mark.text}: a mark is a file, the one that is written last, such as "
            f"{mark.text}done; if none is that in each set, run the command in segments (--until)"
        )
    if not mark and not _required(manifest):
        raise UsageError(f"{manifest.path}: no file is rewritten for each set: list one, or name a mark")


def _required(manifest: Manifest) -> list[str]:
    found = (e.literal(0, 1) for e in manifest.entries if not (e.grows or e.optional or e.tree))
    return [path for path in found if path]


class Closes:
    """What was written and closed since the last set."""

    def __init__(self, manifest: Manifest, work: str, chances: Chances) -> None:
        check(manifest)
        self._chances = chances
        self._manifest, self._work = manifest, work
        self._mark_entry = next((entry for entry in manifest.entries if entry.mark), None)
        self._mark = self._mark_entry and self._mark_entry.filled(0, 1)  # under this name all that match are counted
        self._each_time = self._mark_entry is not None and self._mark_entry.literal(0, 1) is None
        self._newest = ""  # of the files that match the mark the one that was closed last
        self._going: set[str] = set()  # older ones, or their directories, that are half removed
        self._caught: dict[str, os.stat_result] = {}  # found before anybody told of it: nothing of that is to be told
        self._without = manifest.without(0, 1)
        self._required = _required(manifest)
        self._directories: dict[int, str] = {}  # by watch: the path relative to W
        with limits_named(work):
            self._inotify = INotify(nonblocking=True)
        self._counts: dict[str, int] = {}
        self._floor: dict[str, int] = {}  # what was written before something died counts for nothing
        self._refused: dict[str, int] = {}  # nor what was no set, as somebody said
        self._gone: set[str] = set()  # removed, and not yet written anew
        self._last = ""  # of the required files, the one written last
        self._marked = self._lost = False
        self._miscounted = False
        self.touched = False  # anything at all since the last set
        try:
            self._cover()
        except BaseException:
            self.close()
            raise

    def fileno(self) -> int:
        return int(self._inotify.fileno())

    def close(self) -> None:
        self._inotify.close()

    def begin_anew(self) -> None:
        """A set was taken, with all that is there."""
        self._counts, self._floor, self._refused, self._caught = {}, {}, {}, {}
        self._marked = self.touched = False

    def refuse(self) -> None:
        """Somebody says that this is no set: wait for the next one."""
        self._refused, self._marked = {path: self._counts.get(path, 0) for path in self._required}, False

    def distrust(self) -> None:
        """What was written since the last set may be torn, and what is being written too: each of these files must be
        written anew twice, since the first time may have begun before. Counting several files is of no use any more."""
        waiting = [self._mark] if self._mark else self._required
        self._floor = {path: self._counts.get(path, 0) + 1 for path in {*self._counts, *waiting}}
        self._marked = False
        self._miscounted = self._miscounted or (not self._mark and len(self._required) > 1)

    @property
    def ready(self) -> bool:
        """Whether all of a set is written, as far as one can tell from what was closed."""
        if self._mark:
            return self._marked and not self._going and not self.suspects()
        counts = {self._counts.get(path, 0) for path in self._required}
        anew = all(self._counts.get(path, 0) > self._old(path) for path in self._required)
        in_order = self._last == self._required[-1] and not self._gone.intersection(self._required)
        return anew and len(counts) == 1 and in_order and not self.lost

    def _old(self, path: str) -> int:
        """So many times a file was written for nothing."""
        return max(self._floor.get(path, 0), self._refused.get(path, 0))

    def suspects(self) -> list[str]:
        """The files that may be torn: written before something had died, and not twice since."""
        old = [path for path, count in self._floor.items() if self._counts.get(path, 0) <= count]
        return [path for path in old if path == self._mark or os.path.lexists(os.path.join(self._work, path))]

    @property
    def lost(self) -> bool:
        """Without a mark nothing can be told any more: the kernel has dropped events, or something has died."""
        return (self._lost or self._miscounted) and not self._mark

    @property
    def why_lost(self) -> str:
        if self._lost:
            return "the kernel has dropped events, so much was written"
        return "something of the command has died, so that nobody can tell which files are of one set"

    @property
    def uneven(self) -> str:
        """How often each file was written, if that will not become a set by waiting; else empty."""
        often = {path: self._counts.get(path, 0) for path in self._required}
        if self._mark or max(often.values()) < OFTEN_WRITTEN:
            return ""
        return ", ".join(f"{path} was written {count} times" for path, count in often.items())

    def unclosed(self) -> list[str]:
        """The files that a set still waits for."""
        if self._mark_entry:
            found = expand(self._mark_entry, self._work, os.lstat, os.listdir, 0, 1)
            return list(found) * (self._counts.get(str(self._mark), 0) <= self._old(str(self._mark)))
        return [path for path in self._required if self._counts.get(path, 0) <= self._old(path)]

    def read(self, at_most: int = 1000) -> None:
        """Take up all that has happened; `at_most`: in so many portions, as others may write faster than this reads."""
        while at_most and self._read():
            at_most -= 1

    def _read(self) -> bool:
        made = False
        events = self._inotify.read(timeout=0)
        for watch, mask, _, name in events:
            if mask & flags.Q_OVERFLOW:
                self._lost, self._marked, self.touched, made = True, False, True, True
                self._chances.miss("the kernel has dropped events, so much was written")
            elif mask & GONE:
                self._directories.pop(watch, None)
            elif watch in self._directories and name:
                path = os.path.join(self._directories[watch], name)
                if mask & flags.ISDIR:
                    made = True
                    if mask & GOES:
                        self._forget(path)
                self._note(path, mask, again=self._told(path, mask))
        if made:
            self._cover()
        return bool(events)

    def _told(self, path: str, mask: int) -> bool:
        """Whether this is the beginning, or the close, of a file that was caught, and is as it was then."""
        if path not in self._caught or not mask & (flags.CREATE | flags.CLOSE_WRITE):
            return False
        caught = self._caught.pop(path) if mask & flags.CLOSE_WRITE else self._caught[path]
        with contextlib.suppress(OSError):
            now = os.lstat(os.path.join(self._work, path))
            return (now.st_ino, now.st_size, now.st_mtime_ns) == (caught.st_ino, caught.st_size, caught.st_mtime_ns)
        return False

    def _forget(self, path: str) -> None:
        """A directory is gone, or has another name: what happens in it is nothing of ours."""
        for watch, name in list(self._directories.items()):
            if name == path or name.startswith(path + "/"):
                del self._directories[watch]
                with contextlib.suppress(OSError):  # it went with its directory
                    self._inotify.rm_watch(watch)

    def _note(self, path: str, mask: int, *, again: bool = False) -> None:
        """`again`: it was caught before it was told, so it is no set and no miss of its own."""
        kind = self._kind(path)
        if kind is None or not mask & TOUCHED:
            return
        before = self.ready
        self._count(path, mask, kind, again=again)
        after = self.ready
        if again and (self._chances.there or not after):
            return
        anew = bool(mask & WRITTEN) and not mask & flags.ISDIR and kind != "append"
        if before and not after and self._marked and self._going:
            self._chances.hinder(f"{min(self._going)} was being removed")
        elif before and (anew or not after):
            hint = f"make {path} the mark, if it is written last in each set: else sets may be mixed"
            hint *= path in self._required and not after
            self._chances.miss(f"{path} was {'written again' if after else 'touched'} before the look", hint)
        if after and not before and self._chances.there:  # what was in its way has gone
            self._chances.hinder("")
        elif after and (anew or not before):
            self._chances.come()
        elif anew and self._marked and self._is_mark(path) and self._going:
            self._chances.miss(f"{path} was written again before the look")
            self._chances.come()
            self._chances.hinder(f"{min(self._going)} was being removed")
        elif anew and self._is_mark(path) and (torn := self.suspects()):
            self._chances.come()
            self._chances.miss(f"{torn[0]} was not written again after a process had died")

    def _count(self, path: str, mask: int, kind: str, *, again: bool) -> None:
        self.touched = True
        if mask & WRITTEN and not mask & flags.ISDIR and kind != "append" and not again:
            counted = str(self._mark) if self._is_mark(path) else path
            self._counts[counted] = self._counts.get(counted, 0) + 1
            self._last = path if path in self._required else self._last
            self._gone.discard(path)
        elif mask & GOES:
            self._gone.add(path)
        if self._is_mark(path) and mask & WRITTEN:
            self._marked, self._newest = True, path
            self._going.discard(self._top(path))  # made anew under its old name
        elif mask & GOES and (older := self._older(path)):
            (self._going.discard if older == path else self._going.add)(older)
        elif kind != "append" or self._is_mark(path):
            self._marked = False  # the next iteration has begun

    def _kind(self, path: str) -> str | None:
        """How a file, or what lies in a listed directory, is listed; None if it is not."""
        entry = self._manifest.decides(path)
        return entry and ("append" if entry.grows else entry.kind)

    def _older(self, path: str) -> str:
        """Of a mark that is another each time the older match, or its directory, that this is or lies in."""
        top = self._top(path)
        parts, pattern = top.split("/"), str(self._mark).split("/")
        of_a_mark = self._each_time and len(parts) <= len(pattern) and matches(parts, pattern[: len(parts)])
        return top if of_a_mark and top != self._top(self._newest) else ""

    def _top(self, path: str) -> str:
        """The listed file or directory that this is, or that holds it."""
        ways = [*reversed([*above(path)]), path]
        return next((way for way in ways if any(e.means(way, 0, 1) for e in self._manifest.entries)), path)

    def _is_mark(self, path: str) -> bool:
        is_one = self._mark_entry is not None and self._mark_entry.means(path, 0, 1)
        return is_one and not excluded(self._without, path)

    def _cover(self) -> None:
        """Watch every directory in which a listed file is, or may be."""
        first, anew = not self._directories, []
        for path in sorted(self._wanted("", [e.filled(0, 1).split("/") for e in self._manifest.entries])):
            full = os.path.join(self._work, path) if path else self._work
            try:
                with limits_named(full):  # a watch has the same number for the same directory
                    watch = self._inotify.add_watch(full, TOUCHED | flags.ONLYDIR)
            except OSError as error:
                if error.errno in (errno.ENOENT, errno.ENOTDIR):
                    continue
                raise
            if self._directories.get(watch) != path:
                self._directories[watch] = path
                if not first:
                    self._marked, self.touched = False, True
                    self._chances.miss(f"{path} was made anew before the look")
                    anew.append(path)
        if self._mark:
            self._catch_up(anew)

    def _catch_up(self, directories: Sequence[str]) -> None:
        """What was written into these before they were watched nobody has told. A mark among it says that all is there:
        whether it is closed the look will tell. Without one the next mark will say that."""
        paths = []
        for directory in directories:
            with contextlib.suppress(OSError):  # gone
                found = [f"{directory}/{name}" for name in os.listdir(os.path.join(self._work, directory))]
                paths += [path for path in found if os.path.isfile(os.path.join(self._work, path))]
        for path in sorted(paths, key=self._is_mark):
            with contextlib.suppress(OSError):
                self._caught[path] = os.lstat(os.path.join(self._work, path))
                self._note(path, flags.CLOSE_WRITE)

    def _wanted(self, path: str, patterns: list[list[str]], whole: bool = False) -> set[str]:
        """The directories from `path` down in which a file of these patterns may be. `whole`: any file below."""
        found = {path}
        trees = [entry for entry in self._manifest.entries if entry.tree]
        try:
            names = os.listdir(os.path.join(self._work, path))
        except OSError:
            return found
        for name in names:
            if not path and name in (SIDE, NAME):
                continue
            below = f"{path}/{name}" if path else name
            full = os.path.join(self._work, below)
            if excluded(self._without, below):
                continue
            inside = whole or any(entry.means(below, 0, 1) for entry in trees)
            rest = [p[1:] for p in patterns if len(p) > 1 and p[0] != "**" and fnmatch.fnmatchcase(name, p[0])]
            rest += [p for p in patterns if p[0] == "**"] + [p[2:] for p in patterns if p[0] == "**" and len(p) > 2]
            named = any(len(p) > 1 and p[0] == name for p in patterns)
            if os.path.islink(full) and not (named and not inside):
                continue  # as the library does: only a link that is named on the way to a file is followed
            if (inside or rest) and os.path.isdir(full):
                found |= self._wanted(below, [p for p in rest if p], inside)
        return found
