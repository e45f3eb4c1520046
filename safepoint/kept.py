"""The sets that are kept, for a program that wants to look at them while it runs. Nothing is changed here."""

from __future__ import annotations

import contextlib
import logging
import operator
import os
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from safepoint.disk.files import exists
from safepoint.errors import DamagedError, NothingSavedError, UsageError
from safepoint.listener import CLOCK
from safepoint.record import Record, StoredFile, Taken, mark_key
from safepoint.restoring import stage, survey
from safepoint.restoring.read import Damaged
from safepoint.root import Root

if TYPE_CHECKING:
    from pathlib import Path

logger = logging.getLogger("safepoint")
READ_ONLY = 0o555  # what stays of a mode


class StoredSet(NamedTuple):
    """A set that is there. `time`: when it was taken, seconds since the epoch; `files`: relative to the working
    directory; `bytes`: of these files; `durable`: it survives a power cut, and not only the death of the program."""

    number: int
    step: int | None
    time: float
    files: tuple[str, ...]
    bytes: int
    durable: bool
    extra: Mapping[str, Any] = {}

    def __hash__(self) -> int:
        return hash(self[:6])

    @classmethod
    def of(cls, what: Record | Taken) -> StoredSet:
        """As its record says, or the list of what `hide` took."""
        own = [file for file in what.files if not isinstance(file, StoredFile) or file.has_bytes]
        files, size = tuple(file.path for file in own), sum(file.size for file in own)
        return cls(what.number, what.step, what.time, files, size, isinstance(what, Record), what.extra or {})

    def __repr__(self) -> str:
        step = "" if self.step is None else f", step {self.step}"
        safe = "durable" if self.durable else "safe from a kill, not yet from a power cut"
        when = time.strftime(CLOCK, time.localtime(self.time))
        more = f", extra {dict(self.extra)}" if self.extra else ""
        return f"<set {self.number}{step}, {len(self.files)} files, {self.bytes} bytes, {when}, {safe}{more}>"


def stored_sets(root: Root) -> list[StoredSet]:
    """Newest first; of a damaged one it is said in the log."""
    found = []
    for candidate in survey.survey(root, mark_key(survey.finish_mark(root))):
        if candidate.committed and candidate.record is None:
            if exists(root.disk, root.set(candidate.number)):  # else it was removed meanwhile
                logger.warning("set %d is damaged: %s", candidate.number, candidate.reason)
        elif (what := candidate.whose) is not None:
            found.append(StoredSet.of(what))
    return found


@contextlib.contextmanager
def extracted(root: Root, which: Any, directory: str | os.PathLike[str] | None) -> Iterator[Path]:
    """The files of this set, read-only, in a temporary directory that is gone afterwards."""
    import tempfile
    from pathlib import Path

    number, there = _number(which), stored_sets(root)
    known = next((each for each in there if each.number == number), None)
    if known is None:
        listed = ", ".join(str(each.number) for each in there) or "none"
        raise NothingSavedError(f"there is no set {number} in {root.work}; there are: {listed}")
    if not known.durable:
        raise UsageError(f"set {number} is not stored yet: wait() until it is")
    with tempfile.TemporaryDirectory(prefix=f"safepoint-set-{number}-", dir=directory) as top:
        try:
            record = survey.read_record(root, number)
            stage.extract(root, record, top)
        except Damaged as error:
            if not exists(root.disk, root.set(number)):
                raise NothingSavedError(f"set {number} was removed while it was read: keep more of them") from error
            raise DamagedError(f"set {number} is damaged: {error}") from error
        for file in record.files:
            if file.has_bytes:
                root.disk.set_mode_and_time(os.path.join(top, file.path), file.mode & READ_ONLY, file.mtime_ns)
        yield Path(top)


def _number(which: Any) -> int:
    try:
        return operator.index(getattr(which, "number", which))
    except TypeError:
        raise UsageError(f"reading takes the number of a set, or one of sets(), not {which!r:.100}") from None
