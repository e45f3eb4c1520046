"""The store: results of finished vertices, in W/.safepoint.d/tasks. `docs/tasks-store.md` tells how they lie there.

A vertex has *finished* when its record is a whole block of a journal, or in `done/KEY`. What holds then:

T1  after a kill of any or all processes no vertex runs again whose result `Writer.put` had returned for (same mount);
T2  after a power cut none whose result had been flushed: all but those of the last 0.2 seconds, and none after `flush`;
T3  a result is given whole and with the digest of its record, or `LostValue` is raised and its vertex runs again;
T4  a result is found by its identity only, which holds the digests of its inputs: see `identity`;
T6  one driver at a time, by a kernel lock that dies with it; workers only write, each to names of its own.

(1) Nothing is changed in place. What a record says is never told anywhere else, so no two places must agree.
(2) Of two records of one key the one that was made first counts, whichever is found first: its digest was told to
    others. One that is kept goes before one that is not.
(3) What is removed first gets a name that nobody looks for, or is named by a block that takes it back; its bytes go
    only when that is durable.
"""

from __future__ import annotations

import contextlib
import errno
import fnmatch
import logging
import os
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, NamedTuple

from xxhash import xxh3_128_hexdigest

from safepoint.disk import Disk
from safepoint.disk.files import cause, exists, listdir, read
from safepoint.disk.kernel import names_file
from safepoint.errors import DamagedError, RestoreError, SaveError, UsageError
from safepoint.root import REAL
from safepoint.tasks import holding, journal, kept, names, values
from safepoint.tasks.jobs import FILE, NPY, Output, Place, Record, Reference
from safepoint.tasks.put import EVERY_S, Writer

logger = logging.getLogger("safepoint")


class LostValue(DamagedError):
    """A result is not there, or not what was kept. Its vertex has to run again: `Store.drop` makes it."""

    def __init__(self, message: str, vertex: str = "", key: str = "") -> None:
        super().__init__(message)
        self.vertex, self.key = vertex, key

    def __reduce__(self) -> Any:
        return type(self), (str(self), self.vertex, self.key)


class Damage(NamedTuple):
    """What `verify` has found in a file."""

    file: str  # below the store
    offset: int
    vertex: str  # "" where the record itself cannot be read
    key: str
    what: str
    torn: bool = False  # the end of a journal: so does it look after a kill, too


class Kept(NamedTuple):
    """A record, and where the record itself is: a block of a journal, or `done/KEY`."""

    record: Record
    at: Place


class Store:
    """`directory`: W/.safepoint.d/tasks. It need not exist before `held`."""

    def __init__(self, directory: str | os.PathLike[str], disk: Disk = REAL) -> None:
        self.directory, self.disk = os.path.abspath(directory), disk
        self._own: Writer | None = None  # of the driver, for what it takes back

    @contextlib.contextmanager
    def held(self) -> Iterator[Store]:
        """Be the driver: the store is made if it is not there, and what dead runs left is removed.

        `LockedError` names the holder, `FormatError` what is no store of ours; nothing was changed then. On leaving
        what was not to be kept is removed.
        """
        with holding.held(self.directory, self.disk):
            try:
                yield self
            finally:
                self.end_own()

    def writer(self, worker: str = "", *, every: float = EVERY_S) -> Writer:
        """One for each process. The store must be held by its driver, which may be another process."""
        return Writer(self.directory, self.disk, worker, every=every)

    # Records.

    def records(self) -> dict[str, Record]:
        """All finished vertices by key. Reads records only, and needs no lock."""
        return {key: each.record for key, each in self.kept().items()}

    def kept(self, *, strict: bool = False) -> dict[str, Kept]:
        found: dict[str, Kept] = {}
        for each in self.all(strict=strict):
            _add(found, each)
        return found

    def all(self, *, strict: bool = False) -> Iterator[Kept]:
        """Every record that counts, of one key perhaps several. What the disk cannot read (EIO) is as what is damaged:
        it costs its vertices, and is said; with `strict` it is an error, as any other one is."""
        back: set[tuple[str, int]] = set()
        of_journals: list[Kept] = []
        for name in self.journals():
            with self._reading(strict):
                for each in self._in_journal(name):
                    if isinstance(each, Kept):
                        of_journals.append(each)
                    else:
                        back.update(each)
        yield from (each for each in of_journals if (each.at.journal, each.at.offset) not in back)
        for key in self.done():
            record = None
            with self._reading(strict), contextlib.suppress(kept.Strange):  # `verify` tells of it
                record = kept.unsealed(read(self.disk, f"{self.directory}/{names.DONE}/{key}/{names.RECORD}"), key)
            if record is not None:
                yield Kept(record, Place())

    @contextlib.contextmanager
    def _reading(self, strict: bool) -> Iterator[None]:
        try:
            yield
        except (FileNotFoundError, NotADirectoryError):  # rewritten or taken away meanwhile, or damage
            pass
        except OSError as error:
            if strict or error.errno != errno.EIO:
                text = f"records not read: {error.filename}: {cause(error)}; what is kept there is as it was"
                raise RestoreError(text, error.errno) from error
            logger.warning("%s: %s; what it holds will be made again", error.filename, cause(error))

    def _in_journal(self, name: str) -> Iterator[Kept | list[tuple[str, int]]]:
        for block in journal.blocks(self.disk, f"{self.directory}/{name}"):
            if block.record is not None:
                with contextlib.suppress(kept.Strange):
                    yield read_block(block.record, Place(name, block.offset))

    def find(self, key: str) -> Record | None:
        found = self.kept().get(key)
        return found.record if found else None

    def journals(self) -> list[str]:
        return [name for name in self._names("") if name.startswith(names.JOURNAL)]

    def done(self) -> list[str]:
        return [name for name in self._names(names.DONE) if names.KEY.fullmatch(name)]

    def _names(self, below: str) -> list[str]:
        try:
            return listdir(self.disk, f"{self.directory}/{below}" if below else self.directory)
        except (FileNotFoundError, NotADirectoryError):
            return []

    # Values.

    def value(self, reference: Reference) -> Any:
        """The value of an edge, with the digest that its record tells. An array above 64 MB is mapped, read-only; of
        what is a file, its path, to be read only; all else is a copy of its own. `LostValue` names the vertex."""
        if reference.named and not reference.output:
            return {each.name: self._value(reference, each) for each in reference.outputs}
        return self._value(reference, self._output(reference))

    def bytes(self, reference: Reference) -> bytearray:
        """The bytes of one output, checked; of a file, its contents."""
        return self._bytes(reference, self._output(reference))

    def path(self, reference: Reference) -> str:
        """Where an output that has a file of its own has it; "" for one in a journal. Nothing was checked."""
        output = self._output(reference)
        return self._file(reference, output) if output.file else ""

    def _output(self, reference: Reference) -> Output:
        for each in reference.outputs:
            if each.name == reference.output:
                return each
        raise UsageError(f"vertex {reference.vertex} has no single output {reference.output!r}")

    def _value(self, reference: Reference, output: Output) -> Any:
        if output.kind == FILE:
            from pathlib import Path

            return Path(self._checked_file(reference, output))
        if output.kind == NPY and output.nbytes > values.MAPPED:
            return values.mapped(self._checked_file(reference, output))
        return values.load(output, self._bytes(reference, output))

    def _file(self, reference: Reference, output: Output) -> str:
        where = names.LOOSE if reference.place.journal else names.DONE
        return f"{self.directory}/{where}/{reference.key}/{output.file}"

    def _checked_file(self, reference: Reference, output: Output) -> str:
        path = self._file(reference, output)
        try:
            digest, _ = values.digest_file(self.disk, path)
        except (OSError, UsageError) as error:
            raise _lost(reference, output, path, error) from error
        if digest != output.digest:
            raise _lost(reference, output, path)
        return path

    def _bytes(self, reference: Reference, output: Output) -> bytearray:
        path = self._file(reference, output) if output.file else f"{self.directory}/{reference.place.journal}"
        failed: OSError | None = None
        try:
            data = self._read(path, 0, output) if output.file else self._read_block(reference, path, output)
        except OSError as error:
            data, failed = None, error
        if data is not None and xxh3_128_hexdigest(data) == output.digest:
            return data
        moved = None if output.file else self.find(reference.key)  # to another journal, by a failed flush or by `clean`
        if moved is not None and moved.place != reference.place and moved.outputs == reference.outputs:
            again = Reference(
                reference.vertex, reference.key, reference.output, reference.named, moved.outputs, moved.place
            )
            return self._bytes(again, output)
        raise _lost(reference, output, path, failed) from failed

    def _read(self, path: str, start: int, output: Output) -> bytearray:
        """So many bytes from there, or those that there are."""
        data = bytearray(output.nbytes)
        with self.disk.open(path) as file, names_file(path):
            _fill(file, start, data)
        return data

    def _read_block(self, reference: Reference, path: str, output: Output) -> bytearray | None:
        data = bytearray(output.nbytes)
        with self.disk.open(path) as file, names_file(path):
            found = journal.bytes_at(file, reference.place.offset)
            if found is None:
                return None
            before = 0
            for each in reference.outputs:
                if each.name == output.name:
                    break
                before += each.nbytes
            if before + output.nbytes <= found.nbytes:
                _fill(file, found.start + before, data)
        return data

    # Keeping order, by the driver. What these do is in `tending`.

    def verify(self) -> Iterator[Damage]:
        """Read everything, and compare each byte with its checksum. Changes nothing."""
        from safepoint.tasks.tending import verify

        return verify(self)

    def forget(self, pattern: str, among: Collection[str] | None = None) -> list[str]:
        """Make the vertices of this name (as of files: *, ?, [a-z]) run again; their names. Durable on return; killed
        inside, some of them are forgotten, each wholly. `among`: only vertices with these names."""
        with self._telling(f"vertices {pattern} not forgotten"):
            found = self._forget(lambda record: (
                (among is None or record.vertex in among) and fnmatch.fnmatchcase(record.vertex, pattern)
            ))  # fmt: skip
        return sorted({each.record.vertex for each in found})

    def drop(self, keys: Collection[str]) -> None:
        """As `forget`, by key: of results that are lost."""
        with self._telling("results that are lost were not taken out"):
            self._forget(lambda record: record.key in keys, strict=False)

    def _forget(self, which: Callable[[Record], bool], strict: bool = True) -> list[Kept]:
        from safepoint.tasks.tending import forget

        return forget(self, [each for each in self.all(strict=strict) if which(each.record)])

    def clean(self, before: float | None = None, used: Collection[str] | None = None) -> list[Record]:
        """Remove the results that the last graph does not use, with `before` only those made before that time (seconds
        since 1970); they are returned. Damaged ones and what was taken back goes too. `used`: the keys in use, if not
        those of graph.json. Durable on return; killed inside, each other result is there."""
        from safepoint.tasks.tending import clean

        with self._telling("not cleaned"):
            return clean(self, before, used)

    @contextlib.contextmanager
    def _telling(self, what: str) -> Iterator[None]:
        """The system's error as ours."""
        try:
            yield
        except OSError as error:
            text = f"{what}, or not wholly: {error.filename}: {cause(error)}; all other results are intact"
            raise SaveError(text, error.errno) from error

    def own(self) -> Writer:
        """The driver's writer, for what it takes back or writes again; it flushes when it is told to."""
        if self._own is None:
            self._own = self.writer("driver", every=0)
        return self._own

    def end_own(self) -> None:
        own, self._own = self._own, None
        if own is not None:
            own.close()

    def is_there(self) -> bool:
        return exists(self.disk, f"{self.directory}/{names.FORMAT}")


def read_block(text: bytes, place: Place) -> Kept | list[tuple[str, int]]:
    """The record in a block, or which ones it takes back. `Strange` if it is neither."""
    content: Mapping[str, Any] = kept.loaded(text)
    if kept.FORGOTTEN in content:
        return kept.taken_back(content)
    return Kept(kept.of(content, place), place)


def _add(found: dict[str, Kept], each: Kept) -> None:
    """See (2)."""
    other = found.get(each.record.key)
    if other is None or (not each.record.kept, each.record.time) < (not other.record.kept, other.record.time):
        found[each.record.key] = each


def _fill(file: Any, start: int, data: bytearray) -> None:
    file.seek(start)
    rest = memoryview(data)
    while rest and (count := file.readinto(rest)):
        rest = rest[count:]


def _lost(reference: Reference, output: Output, path: str, error: Exception | None = None) -> LostValue:
    what = f"output {output.name} of vertex {reference.vertex}" if output.name else f"the result of {reference.vertex}"
    cause = "its bytes are not those that were kept" if error is None else getattr(error, "strerror", "") or str(error)
    return LostValue(
        f"{what} cannot be given: {path}: {cause}; its vertex must run again", reference.vertex, reference.key
    )
