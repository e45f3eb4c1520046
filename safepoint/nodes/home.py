"""How a program begins whose files are on disks of its nodes: the setting `local`.

Two directories take the place of W. S, where the program is started, has the manifest, the lock, the log, the finish
mark, and `nodes.json`; all ranks see it. W is one for each node, below `local`, and has the files and the sets of the
ranks that run there. It may be gone at the next start: what is missing then comes from elsewhere (`gathering`).
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import re
from collections import Counter
from collections.abc import Callable
from stat import S_IMODE, S_ISDIR
from typing import Any, NamedTuple, TypeVar

from safepoint import manifest
from safepoint.disk import kernel
from safepoint.disk.files import exists, listdir
from safepoint.errors import SaveError, UsageError
from safepoint.nodes.marker import Marker, Node, new_marker, read_marker, write_marker
from safepoint.opening import Opening, check_format, new_life
from safepoint.patterns import NAME
from safepoint.ranks import LARGEST
from safepoint.record import life_of, mark_key
from safepoint.restoring import survey
from safepoint.root import PRIVATE, Root
from safepoint.sealed import FORMAT, write_durably

T = TypeVar("T")
logger = logging.getLogger("safepoint")


class Disk(NamedTuple):
    """A directory of a node as one rank sees it: who sees the same is on that node."""

    host: str
    boot: str  # two machines may have one name
    device: int
    inode: int


class Home(Opening):
    """As `Opening`, of a manifest with the setting `local`. `root` is that of W."""

    start: Root  # of S
    marker: Marker
    nodes: list[Node]  # in the order of their first ranks
    here: int  # which of them is this rank's
    one_host: bool  # all nodes are of one machine

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        try:
            self._begin()
        except BaseException:
            self.release()
            raise

    def _enter(
        self, directory: str | os.PathLike[str], saver: int | None, on_error: contextlib.ExitStack
    ) -> tuple[str, int, str, int]:
        """S, as any directory. Only the first rank's."""
        if saver is None and self.ranks.size > 1:
            raise UsageError(
                "saver=None gives each rank a directory of its own, and so does the setting local: leave saver out, "
                "and list files of each rank with {rank}; nothing was changed"
            )
        found = super()._enter(directory, saver, on_error)
        disk, root = self.disk, self.root
        with self._reporting():
            self.marker = read_marker(root) or new_marker()
            if not exists(disk, root.nodes):  # now, as by this the others know that they see the same directory
                before = exists(disk, root.log) and not exists(disk, root.finished)
                if before and not root.numbers("set"):
                    text = "%s is gone, though an earlier run was here: if it had sets on nodes, they are not found"
                    logger.warning(text, root.nodes)
                write_marker(root, self.marker)
        return found

    def _join_all(self, *seen: Any) -> None:
        _, saver, keep, (work, _, text, _), on_error = seen
        ranks = self.ranks
        self.marker = Marker(*ranks.share(tuple(self.marker) if ranks.rank == self.lead else None, self.lead))
        ranks.together(lambda: self._see_start(work, text, saver, keep))
        told = ranks.together(self._make_work)
        self._meet(*told)
        for first in (True, False):  # one of each node makes what all of it have
            ranks.together(lambda first=first: self._open(on_error, first=first))  # type: ignore[misc]
        if ranks.rank == self.lead:  # what is one for all, and must outlive a node
            root, start = self.root, self.start
            root.finished, root.halt, root.log = start.finished, start.halt, start.log
            root.remote, root.remote_lock = start.remote, start.remote_lock

    def _see_start(self, work: str, text: str, saver: int, keep: Any) -> None:
        self.start = self.root = Root(work, saver, self.ranks.size, saver, self.disk)
        with self._reporting():
            seen = read_marker(self.start) if exists(self.disk, self.start.side) else None
        if seen is None or seen.run != self.marker.run:
            raise UsageError(
                f"{work} cannot be seen from rank {self.ranks.rank} ({kernel.host()}): with the setting local the "
                f"program is started in a directory that all nodes have, and its files are on their disks; nothing was "
                f"changed"
            )
        listed = manifest.parse(text, os.path.join(work, NAME), self._settings)
        self.manifest = listed.owned_by(self.ranks.rank, self.ranks.size, saver)
        self.keep = listed.setting("keep") if keep is None else keep

    def _make_work(self) -> tuple[Disk, Node]:
        """W, which is ours alone. Raises `UsageError`, `SaveError`."""
        disk, told = self.disk, self.manifest.setting("local")
        top, work = directory_of(told, self.marker.run, self.start.work)
        try:
            with contextlib.suppress(FileExistsError):  # another rank's, or of the life before
                disk.mkdir(work, PRIVATE)
            info = disk.stat(work)
            if S_ISDIR(info.st_mode) and info.st_uid == user() and S_IMODE(info.st_mode) & 0o077:
                disk.set_mode_and_time(work, 0o700, info.st_mtime_ns)
                info = disk.stat(work)
            disk.sync_dir(top)
        except OSError as error:
            raise SaveError(f"cannot set up {work}: {error.strerror}; nothing was changed", error.errno) from error
        if not S_ISDIR(info.st_mode) or info.st_uid != user() or S_IMODE(info.st_mode) & 0o077:
            why = "whoever made it could read and change the sets"
            raise UsageError(f"{work} is no directory of this user alone: {why}; nothing was changed")
        self.root = Root(work, self.ranks.rank, self.ranks.size, self.start.saver, disk)
        domain = expanded("domain", self.manifest.setting("domain") or "") or kernel.host()
        return Disk(kernel.host(), disk.page_cache(work).boot, info.st_dev, info.st_ino), Node(
            kernel.host(), work, domain, ()
        )

    def _meet(self, mine: Disk, told: Node) -> None:
        """Who is on which node. Collective: two agreements for each, and one of a number for each rank."""
        ranks, at = self.ranks, -1
        found: list[Node] = []
        hosts: set[tuple[str, str]] = set()
        while True:
            (first,) = ranks.least(ranks.rank if at < 0 else LARGEST)
            if first == LARGEST:
                break
            disk, *node = ranks.share((tuple(mine), *told) if ranks.rank == first else None, first)
            hosts.add(tuple(disk[:2]))
            if at < 0 and tuple(disk) == tuple(mine):
                at = len(found)
            found.append(Node(*node))
        which = ranks.least(*(at if rank == ranks.rank else LARGEST for rank in range(ranks.size)))
        of: list[list[int]] = [[] for _ in found]
        for rank, each in enumerate(which):
            of[each].append(rank)
        self.nodes, self.here = [node._replace(ranks=tuple(of[index])) for index, node in enumerate(found)], at
        self.one_host = len(hosts) == 1
        if len(found) > 1:
            self._refuse_shared()

    def _refuse_shared(self) -> None:
        """Raise `UsageError` if two nodes see one directory: then no set would be on two disks. Collective."""
        ranks, disk, work = self.ranks, self.disk, self.root.work
        token = ranks.share(os.urandom(8).hex() if ranks.rank == self.lead else None, self.lead)
        mine = f"node-{token}-{ranks.rank:05d}"
        self._each_node(lambda: disk.mkdir(f"{work}/{mine}"))
        there = self._each_node(lambda: [n for n in listdir(disk, work) if n.startswith("node-")]) or []
        ranks.least(0)  # all have looked
        for name in there:  # also what was left by a start that was killed here
            if re.fullmatch("node-[0-9a-f]{16}-[0-9]{5,}", name):
                with contextlib.suppress(OSError):
                    disk.rmdir(f"{work}/{name}")
        others = [name for name in there if name.startswith(f"node-{token}-") and name != mine]
        text = (
            f"{work} is one directory on several nodes, {kernel.host()} and another: local takes a disk of each node, "
            f"no shared file system; nothing was changed"
        )
        ranks.fail_together(UsageError(text) if others else None)

    def _each_node(self, work: Callable[[], T]) -> T | None:
        """What the rank that leads its node has of this; None on the others. Collective."""

        def mine() -> T | None:
            with self._reporting():
                return work() if self.leads else None

        return self.ranks.together(mine)

    @property
    def node(self) -> Node:
        return self.nodes[self.here]

    @property
    def leads(self) -> bool:
        """Whether this rank acts for its node."""
        return self.ranks.rank == self.node.ranks[0]

    def _open(self, on_error: contextlib.ExitStack, *, first: bool) -> None:
        """This rank's root, and its lock."""
        if self.leads != first:
            return
        disk, root, ranks = self.disk, self.root, self.ranks
        with self._reporting():
            self.active = bool(ranks.rank in (0, self.lead) or self.manifest.entries or exists(disk, root.path))
            if self.leads:
                check_format(root)
                root.make_side()
                if not exists(disk, root.format):
                    disk.sync_dir(root.work)
                    write_durably(disk, root.format, f"safepoint {FORMAT}\n".encode())
                if not exists(disk, root.nodes):  # for people who look there
                    write_marker(root, Marker(self.marker.run, start=self.start.work))
            if self.active:
                self._lock(on_error, 0)

    def _lock(self, on_error: contextlib.ExitStack, rooted: int) -> None:
        """Both locks of the first rank, that of S and that of W, are given back together."""
        other = self.release
        super()._lock(on_error, rooted)
        mine = self.release
        self.release = lambda: (mine(), other())

    def _begin(self) -> None:
        """After this no set that there was can be lost without a word. Collective."""
        ranks = self.ranks
        mark = ranks.together(self._mark)
        (ended,) = ranks.least(-life_of(mark_key(mark)))
        self.past = self.past or -ended < self.marker.saved
        self.life = new_life(ranks, self.lead, self.marker.life)
        ranks.together(lambda: self.tell(life=self.life.number))

    def _mark(self) -> dict[str, Any] | None:
        with self._reporting():
            return survey.finish_mark(self.root) if self.ranks.rank == self.lead else None

    def tell(self, **what: Any) -> None:
        """Write down what the next start must know; of the first rank. Raises `SaveError`."""
        marker = self.marker._replace(**what)
        if self.ranks.rank == self.lead and marker != self.marker:
            with self.start.reporting(SaveError, "cannot note where the sets are", "the listed files are untouched"):
                write_marker(self.start, marker)
        self.marker = marker


def directory_of(told: str, run: str, start: str) -> tuple[str, str]:
    """The directory of the setting `local` on this node, and W below it. Raises `UsageError`."""
    top = expanded("local", told)
    if not os.path.isabs(top) or not os.path.isdir(top):
        where = f"local = {told} is {top or 'empty'} on {kernel.host()}"
        raise UsageError(f"{where}: no directory; nothing was changed")
    which = hashlib.sha256(os.fsencode(f"{run} {start}")).hexdigest()[:16]  # another one for a copy of the start
    return os.path.realpath(top), os.path.join(os.path.realpath(top), f"safepoint-{user()}-{which}")


def user() -> int:
    """Whose directories are ours."""
    return os.getuid() if hasattr(os, "getuid") else 0


def expanded(name: str, text: str) -> str:
    """With the variables of this process. Raises `UsageError` for one that it does not have."""
    found = os.path.expandvars(os.path.expanduser(text))
    if "$" in found:
        raise UsageError(f"{name} = {text}: there is no such variable on {kernel.host()}; nothing was changed")
    return found


def partner_of(nodes: list[Node], here: int) -> int | None:
    """The node that keeps copies of the sets of this one: the next of another domain, in an order in which neighbours
    are of different domains as far as that can be; None if all are of one."""
    seen: dict[str, int] = {}
    places = []
    for index, node in enumerate(nodes):
        seen[node.domain] = seen.get(node.domain, 0) + 1
        places.append((seen[node.domain], node.domain, index))
    order = [index for *_, index in sorted(places)]
    at = order.index(here)
    ring = order[at + 1 :] + order[:at]
    return next((index for index in ring if nodes[index].domain != nodes[here].domain), None)


def groups_of(nodes: list[Node], most: int) -> list[list[int]]:
    """Groups of nodes for parity, of `most` at most, as equal as can be, and of two at least; no two nodes of one group
    are of one domain. None if that cannot be."""
    of = Counter(node.domain for node in nodes)
    count = max(-(-len(nodes) // most), max(of.values()))
    if len(nodes) < 2 * count:
        return []
    order = sorted(range(len(nodes)), key=lambda index: (-of[nodes[index].domain], nodes[index].domain, index))
    return [sorted(order[at::count]) for at in range(count)]  # those of one domain follow each other there


def doubled_at(others: list[Node], *, parity: bool) -> str:
    """Describe what protects the sets of a node, on these nodes."""
    if parity:
        return f"parity with {', '.join(node.host for node in others[:4])}{' and others' * (len(others) > 4)}"
    return f"copy on {others[0].host} ({others[0].directory})"
