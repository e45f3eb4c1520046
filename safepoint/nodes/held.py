"""The copies that a node holds of sets of other nodes.

A copy is an ordinary set below `held/rank-00017/`, so what is killed on the way leaves nothing that counts:

killed after            there is                                            the next copy; the next start
some bytes              `fetched/`, which nobody reads                      begins anew; the same
all bytes, durable      the same                                            the same
the rename              the copy, of which nobody was told                  finds it, flushes its name; may use it
the flush of its name   the same, and it survives a power cut               the same
half of the older ones  the copy, and some that nobody needs                removes them; may use it
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterable

from safepoint.disk.files import read, remove_tree
from safepoint.disk.kernel import SyncFailed
from safepoint.nodes.transfer import digest
from safepoint.ranks import LARGEST
from safepoint.record import Record
from safepoint.restoring.read import Damaged
from safepoint.root import PRIVATE, Root
from safepoint.saving import prune
from safepoint.tiers.fetching import bring, check, put_in_place
from safepoint.tiers.part import LARGEST_RECORD, parsed

logger = logging.getLogger("safepoint")
HELD = 30.0  # seconds for which another copy of a rank is waited for; longer than for a sender that is gone


def keys_of(root: Root) -> dict[int, int]:
    """Of the sets there, as far as their records can be read."""
    found = {}
    for number in root.numbers("set"):
        with contextlib.suppress(Damaged, FileNotFoundError):
            found[number] = parsed(read(root.disk, root.record(number), LARGEST_RECORD)).key
    return found


def has(root: Root, sum_: str) -> int:
    """The number of the set there that has this record, whole; 0: none has."""
    for number in root.numbers("set"):
        with contextlib.suppress(Damaged, FileNotFoundError):
            content = read(root.disk, root.record(number), LARGEST_RECORD)
            if digest(content) == sum_:
                check(root, parsed(content))
                return number
    return 0


def flush(root: Root) -> None:
    """The way to the copies of a rank, and their names."""
    for directory in (root.path, f"{root.side}/held", root.side):
        root.disk.sync_dir(directory)


def drop_between(root: Root, floor: int, newest: Record) -> None:
    """Remove copies that never came to be on two nodes everywhere, and that a newer one follows: else they would gather
    as long as one of the nodes cannot copy."""
    with contextlib.suppress(OSError):
        prune.drop(root, [number for number, key in keys_of(root).items() if floor < key < newest.key])


def hold(
    root: Root, bundle: int, content: bytes, blocks: Iterable[bytes], floor: Callable[[], int] = lambda: LARGEST
) -> None:
    """On return these bytes are a set of `root`, durably; killed inside, as the table says. Copies between it and the
    key `floor` are gone. Raises `Damaged` if they are none of that rank, and then, and on any error, nothing of them is
    left."""
    record = parsed(content)
    if record.rank != root.rank or record.ranks != root.ranks:
        raise Damaged(f"it is of rank {record.rank} of {record.ranks}")
    disk = root.disk
    for directory in (f"{root.side}/held", root.path):
        with contextlib.suppress(FileExistsError):
            disk.mkdir(directory, PRIVATE)
        # Or a power cut would take the copy with the way to it; also if who has made that died before this.
        disk.sync_dir(directory.rpartition("/")[0])
    # The process of the life before may be at it still, or a copy that its sender has given up.
    until = time.monotonic() + HELD
    while (release := disk.lock(root.lock)) is None:
        if time.monotonic() > until:
            raise Damaged("another copy of this rank is being taken in")
        time.sleep(0.05)
    try:
        bring(root, record, bundle, content, blocks)
        try:
            put_in_place(root, record.number)
        except SyncFailed:  # the next try would find it, and be told by the kernel that all is well
            with contextlib.suppress(OSError):
                prune.drop(root, [record.number])
            raise
        drop_between(root, floor(), record)
    finally:
        release()


def drop_older(root: Root, floor: int) -> bool:
    """Remove the sets of a root with a key below this: nobody needs them. What cannot be removed, or read, stays: it is
    space, and the next time may be better. Whether there was nothing in the way."""
    # A copy may be taken in just now, under a number that an older one has, whose record was read before.
    release: Callable[[], object] | None = None
    try:
        if (release := root.disk.lock(root.lock)) is None:
            return False
        for number in root.numbers("gone"):
            remove_tree(root.disk, root.state("gone", number))
        old = []
        for number in root.numbers("set"):
            with contextlib.suppress(Damaged, FileNotFoundError):
                if parsed(read(root.disk, root.record(number), LARGEST_RECORD)).key < floor:
                    old.append(number)
        prune.drop(root, old)
    except OSError as error:
        logger.debug("old sets not removed: %s", error)
        return False
    finally:
        if release is not None:
            release()
    return True
