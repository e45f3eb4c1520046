"""What this directory knows of other places: `.safepoint.d/remote.json`. Only who holds the lock beside it writes it.

It says what was seen, for `status`, and who we are at a place. What is there is told by the place alone: if our own
claim is not there any more it was emptied, or is another one under the same name.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from safepoint.disk import Disk, handles, kernel
from safepoint.disk.disk import NO_LOCKS
from safepoint.disk.files import exists, read
from safepoint.errors import FormatError, LockedError
from safepoint.root import Root
from safepoint.sealed import NOTE, Unsealed, checked, seal, unseal, write_durably
from safepoint.tiers.names import Claim, Name, claim_of, name_of

logger = logging.getLogger("safepoint")
IDENTITY = re.compile(r"\d{5,7}-\d{8,12}-[0-3][0-9a-f]{15}")


class Known(NamedTuple):
    """One place, as it was seen last. `fetched`: the newest set that was there when one was brought from it. `home`:
    the side directory that has claimed it: a copy has not. `coming`: a set whose parts are being put in place here.
    `trouble`: why nothing goes there now."""

    url: str
    claim: str = ""  # ours
    fetched: str = ""
    sets: tuple[str, ...] = ()  # identities of those that were whole there
    time: float = 0.0
    home: str = ""
    coming: str = ""
    trouble: str = ""

    @property
    def mine(self) -> Claim | None:
        return claim_of(self.claim)

    @property
    def related(self) -> bool:
        """Whether what is here has to do with what is there."""
        return bool(self.claim or self.fetched or self.coming)

    @property
    def seen(self) -> Name | None:
        return name_of(self.fetched)


class Notes(NamedTuple):
    """All places, the last one first."""

    places: tuple[Known, ...] = ()

    def at(self, url: str) -> Known:
        return next((known for known in self.places if known.url == url), Known(url))

    def told(self, known: Known) -> Notes:
        return Notes((known, *(other for other in self.places if other.url != known.url)))


def read_notes(root: Root) -> Notes:
    """What cannot be read is as if there were nothing; then the place is claimed anew."""
    try:
        if not exists(root.disk, root.remote):
            return Notes()
        content = unseal(read(root.disk, root.remote, NOTE))
        rows = content.get("places")
        if type(rows) is not list or not all(type(row) is dict for row in rows):
            raise Unsealed("it has no places")
        places = tuple(_checked(row) for row in rows)
        return Notes(places)
    except (Unsealed, FormatError, OSError) as error:
        logger.warning("%s: %s: what was known of other places is not known any more", root.shown(root.remote), error)
        return Notes()


def _checked(row: dict[str, Any]) -> Known:
    known: Known = checked(Known, row)
    sets = tuple(text for text in known.sets if type(text) is str and IDENTITY.fullmatch(text))
    return known._replace(sets=sets)


def tell(root: Root, url: str, **what: Any) -> None:
    """What others are to know, by the names of `Known`. Within `alone`."""
    notes = read_notes(root)
    write_notes(root, notes.told(notes.at(url)._replace(**what)))


def home(root: Root) -> str:
    """What a copy of this directory does not have. A network file system is the same one on many hosts."""
    host = kernel.host() if kernel.file_system(root.side) in kernel.LOCAL_FILE_SYSTEMS else ""
    return f"{root.disk.stat(root.side).st_ino} {host}:{os.path.realpath(root.side)}"


def write_notes(root: Root, notes: Notes) -> None:
    """Durably: a claim that is not remembered would be another's."""
    write_durably(root.disk, root.remote, seal({"places": [known._asdict() for known in notes.places]}))


@contextlib.contextmanager
def alone(root: Root, doing: str) -> Iterator[None]:
    """One drain or fetch at a time in this directory. Raises `LockedError`."""
    disk: Disk = root.disk
    try:
        release = disk.lock(root.remote_lock)
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise
        logger.warning("no kernel locks in %s: another drain at the same time would not be noticed", root.work)
        release = contextlib.ExitStack().close
    if release is None:
        who = ", ".join(handles.holders(root.remote_lock))
        raise LockedError(
            f"another drain or fetch is at work in {root.work}{f' ({who})' if who else ''}; {doing} did nothing"
        )
    try:
        yield
    finally:
        release()


def at_places(root: Root) -> dict[str, list[str]]:
    """By identity of a set the places where it was whole when they were seen last."""
    found: dict[str, list[str]] = {}
    for known in read_notes(root).places:
        for text in known.sets:
            found.setdefault(text, []).append(known.url)
    return found


def new_id() -> str:
    return os.urandom(8).hex()
