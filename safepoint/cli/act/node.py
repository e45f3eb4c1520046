"""`safepoint drain` of a run with the setting `local`: on each node that lives, what it has goes to the place."""

from __future__ import annotations

import contextlib
import time

from safepoint.cli import terminal
from safepoint.cli.act.putting import manifest_text
from safepoint.disk import kernel
from safepoint.disk.files import exists
from safepoint.errors import LockedError, NothingSavedError, SaveError, UsageError
from safepoint.nodes.copying import AtRemote, Superseded
from safepoint.nodes.home import directory_of
from safepoint.nodes.local import is_finished
from safepoint.nodes.marker import Marker, read_marker
from safepoint.nodes.nearby import held_ranks
from safepoint.record import Record
from safepoint.restoring.read import Damaged
from safepoint.restoring.survey import read_record
from safepoint.root import Root, roots
from safepoint.tiers import note
from safepoint.tiers.place import place_at
from safepoint.tiers.sending import Rate

DISK = terminal.DISK
OTHERS = 600.0  # seconds that the parts of other nodes are waited for, without --within


def work_here(start: Root, told: str) -> tuple[str, Marker]:
    """The directory on this node of a run that was started there. Raises `NothingSavedError`."""
    marker = read_marker(start)
    if marker is None:
        raise NothingSavedError(f"no run with the setting local was started in {start.work}")
    host = kernel.host()  # $TMPDIR of this step may be another one than that of the run
    had = [node.directory for node in marker.nodes if node.host == host and exists(DISK, node.directory)]
    mine = [work for work in had if (of := _start_of(work)) and of == start.work]
    try:
        named = directory_of(told, marker.run, start.work)[1]
    except UsageError:
        if not mine:
            raise
        named = mine[0]
    return named if named in mine or not mine else mine[0], marker


def _start_of(work: str) -> str:
    root = Root(work, disk=DISK)
    marker = read_marker(root) if exists(DISK, root.side) else None
    return marker.start if marker else ""


def roots_here(work: str, size: int) -> list[Root]:
    """Of each rank what it has here, and what is held for it."""
    one = Root(work, 0, size, 0, DISK)
    if not exists(DISK, one.side):
        return []
    found = [one.of(root.rank) for root in roots(DISK, work)[0] if root.rank < size]
    return found + [one.held(rank) for rank in held_ranks(one)]


def drain_node(start: Root, told: str, url: str, keep: int, rate: Rate, until: float | None) -> None:
    """On return the newest set that the nodes have together, as far as each of them runs this, is at the place. Says
    which. Raises `NothingSavedError`, `SaveError`, `Unreachable`, `Damaged`, `LockedError`."""
    if is_finished(start):
        terminal.say(f"the run in {start.work} was finished, and its result is at {url} as its last set")
        return
    work, marker = work_here(start, told)
    size = sum(len(node.ranks) for node in marker.nodes)
    if not (found := [root for root in roots_here(work, size) if root.numbers("set")]):
        raise NothingSavedError(f"this node has no set of {start.work}: there is none in {work}")
    until = time.monotonic() + OTHERS if until is None else until
    with contextlib.ExitStack() as stack:
        lead = _leads(stack, start)
        place = AtRemote(
            start, url, lambda: place_at(url, DISK, start.work, make=lead), rate, lambda: manifest_text(start.work),
            lead=lead, keep=keep, locked=lead,
        )  # fmt: skip
        total = sum(file.stored_size for record in _records(found) for file in record.files)
        try:
            with terminal.progress("putting what this node has", total) as advance:
                record = place.put_last(found, lambda: time.monotonic() < until, advance)
        except Superseded as error:
            why = str(error) or "the time was over before the first node had claimed it, or a set was put"
            raise SaveError(f"{url}: {why}") from error
    if record is None:
        terminal.say(f"{url} has the newest set of this node already")
        return
    newer = [other for other in _records(found) if other.key > record.key]
    more = f"; {newer[-1].label} is newer, and not all nodes have it" if newer else ""
    terminal.say(f"{record.label} is at {url}{more}")


def _records(found: list[Root]) -> list[Record]:
    """Of all that these roots have; the newest last."""
    records = []
    for root in found:
        for number in root.numbers("set"):
            with contextlib.suppress(Damaged, FileNotFoundError):
                records.append(read_record(root, number))
    return sorted(records, key=lambda record: record.key)


def _leads(stack: contextlib.ExitStack, start: Root) -> bool:
    """Whether this is the process that tells that a set is whole; of several nodes it is one."""
    try:
        stack.enter_context(note.alone(start, "drain"))
    except LockedError:
        return False
    return True
