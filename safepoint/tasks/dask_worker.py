"""What a worker of Dask does for one vertex: the inputs come from Dask or from the store, the result goes to both.

(1) The identity is made here, of the digests of what really came in: the driver does not know them beforehand (T4).
(2) Dask runs a vertex again when the worker that held its result died. The store may have that result: then the body is
    not called. A byte for each vertex tells whether some worker has begun it in this run, so only then the store is
    searched.
(3) A failure goes to the driver as data, never to Dask as an exception: vertices below it end without their bodies.
(4) What children get are the bytes that are kept, and each makes a value of its own of them: what a body changes, no
    other sees, and the values are those that a restart would read.
"""

from __future__ import annotations

import functools
import os
import pickle
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

from safepoint.tasks import body, identity, values
from safepoint.tasks import dask_telling as telling
from safepoint.tasks.jobs import FILE, Ended, Failure, Job, Record, Reference
from safepoint.tasks.worker import check_source, close_writers, writer_of

if TYPE_CHECKING:
    from safepoint.tasks.saved import Store

BY_CODE = "<dynamic-code>"  # the file of a function of `__main__`, as cloudpickle makes it
_lock = threading.Lock()  # of all that the threads of this process share


class Parcel(NamedTuple):
    """A vertex on its way."""

    run: str  # of which run it is
    ticket: str  # Dask's key: one for each time that the vertex is submitted
    number: int  # of the vertex, in the file of marks
    marks: str  # the path of that file
    directory: str  # of the store
    arguments: bytes
    vertex: str
    attempt: int
    seed: int
    keep: bool
    parts: Mapping[str, str]
    source: str
    edges: tuple[tuple[int | Record, str | None], ...]  # which of the inputs from Dask, or the record; and the output
    earlier: tuple[Record, ...]  # of this vertex, with other inputs perhaps
    last: bool  # no other vertex needs it


class Sealed:
    """A parcel as Dask has it, which calls it with the inputs. Only bytes: Dask's scheduler takes apart what it gets
    and puts it together again, and need not be able to import what is the program's."""

    def __init__(self, functions: bytes, packed: bytes, ticket: str = "") -> None:
        """`functions`: the function and its head. They stay apart, as one object for many vertices, which goes to the
        scheduler once."""
        self.functions, self.packed, self.ticket = functions, packed, ticket

    def __call__(self, *held: Held) -> Held:
        return work(self.functions, Parcel._make(pickle.loads(self.packed)), held)

    def __reduce__(self) -> Any:
        return Sealed, (self.functions, self.packed)

    def __dask_tokenize__(self) -> str:
        return self.ticket


def sealed(functions: bytes, parcel: Parcel) -> Sealed:
    return Sealed(functions, pickle.dumps(tuple(parcel), 5), parcel.ticket)


class Held:
    """What Dask holds of a vertex that has ended: its record and the bytes of its outputs. `ended` None: it did not
    run, since an input failed or the run was stopped."""

    def __init__(self, ended: Ended | None, pieces: dict[str, bytes], came: bool = False) -> None:
        self.ended, self.pieces = ended, pieces
        self.record = ended.record if ended else None
        self.came = came  # from another worker

    def __sizeof__(self) -> int:
        """Dask places vertices, and keeps its memory in bounds, by this."""
        return 1000 + self.nbytes

    @property
    def nbytes(self) -> int:
        return sum([len(piece) for piece in self.pieces.values()])

    def __reduce_ex__(self, protocol: Any) -> Any:
        large = protocol >= 5  # then Dask moves the bytes as they lie
        return _came, (
            self.ended,
            {name: pickle.PickleBuffer(each) if large else each for name, each in self.pieces.items()},
        )


def _came(ended: Ended | None, pieces: dict[str, Any]) -> Held:
    return Held(ended, {name: bytes(each) for name, each in pieces.items()}, came=True)


class _Keeping:
    """A writer that remembers the bytes of what was put."""

    def __init__(self, writer: Any) -> None:
        self.scratch, self.drop, self._writer = writer.scratch, writer.drop, writer
        self.pieces: dict[str, bytes] = {}

    def put(self, record: Record, encoded: Sequence[values.Encoded]) -> Record:
        found: Record = self._writer.put(record, encoded)
        if [each.digest for each in encoded] == [output.digest for output in found.outputs]:  # else it was there before
            self.pieces = {each.name: b"".join(each.pieces) for each in encoded if each.kind != FILE}
        return found


# One vertex.


def work(functions: bytes, parcel: Parcel, held: Sequence[Held]) -> Held:
    """The result of a vertex. The driver hears of it from here, not from Dask, which would send it the value."""
    records = [each.record for each in held if each.record is not None]
    if len(records) < len(held) or not _begin(parcel):
        return Held(None, {})
    result = _result(functions, parcel, held, records)
    assert result.ended is not None
    # If this worker dies before that is told, Dask runs the vertex again, and finds its result in the store.
    telling.tell(parcel.run, parcel.ticket, result.ended, soon=parcel.last)
    return result


def order(held: Held) -> Held:
    """That it has ended, without its value: for vertices that only come after it."""
    return Held(held.ended, {})


def _result(functions: bytes, parcel: Parcel, held: Sequence[Held], records: Sequence[Record]) -> Held:
    try:
        job = _job(functions, parcel, records)
        store, writer = writer_of(job.directory)
    except BaseException as error:  # such as a module that this worker cannot import
        return Held(_not_begun(parcel, error), {})
    begun_before = _mark(parcel.marks, parcel.number)
    for record in parcel.earlier:
        if record.key == job.key and record.kept:
            return Held(again(job, record), {})
    if begun_before and (found := _found(store, job.key)) is not None:
        return Held(again(job, found), {})
    keeping = _Keeping(writer)
    own = {record.key: each for record, each in zip(records, held, strict=True)}
    ended = body.run(job, store, keeping, functools.partial(_value, own, store))
    moved = sum([each.nbytes for each in held if each.came])
    if moved or ended.failure is not None:
        ended = replace(ended, moved=moved, failure=_where(ended.failure, job.source))
    return Held(ended, keeping.pieces)


def _not_begun(parcel: Parcel, error: BaseException) -> Ended:
    import socket

    job = Job(
        parcel.vertex, "", unknown, None, {}, (), parcel.attempt, parcel.seed, parcel.keep, parcel.parts,
        parcel.source, parcel.directory,
    )  # fmt: skip
    failure = replace(body.failure_of(error, job), message=f"not begun: {error}{_cure(error)}", where="")
    return Ended(
        parcel.vertex, "", parcel.attempt, failure=failure, host=socket.gethostname(), worker=f"pid {os.getpid()}"
    )


def unknown() -> None:
    """Stands for a function that could not be unpacked."""


def _cure(error: BaseException) -> str:
    if not isinstance(error, ModuleNotFoundError):
        return ""
    return (
        f". Workers of Dask cannot import {error.name}, as they do not look beside the program: start them with "
        "PYTHONPATH=DIR, or install it there"
    )


def _where(failure: Failure | None, source: str) -> Failure | None:
    """Code that came by itself does not tell its file."""
    if failure is None or not failure.where.startswith(BY_CODE):
        return failure
    return replace(failure, where=source.rpartition(":")[0] + failure.where[len(BY_CODE) :])


def _job(functions: bytes, parcel: Parcel, came: Sequence[Record]) -> Job:
    """With what only a worker knows: function, inputs, identity. `came`: the records of what Dask brought."""
    inputs, digests, edges = [], [], []
    for of, output in parcel.edges:
        record = came[of] if isinstance(of, int) else of
        digests.append(record.digest(output))
        edges.append((record.vertex, output))
        if output is not None:
            inputs.append(record.reference(output))
    function, head = _functions(functions)
    job = Job(
        parcel.vertex, identity.key(parcel.parts, parcel.vertex, digests), function, head,
        pickle.loads(parcel.arguments), tuple(inputs), parcel.attempt, parcel.seed, parcel.keep,
        identity.noted_of(parcel.parts, edges, digests), parcel.source, parcel.directory,
    )  # fmt: skip
    if getattr(function, "__module__", "") != "__main__":  # that came with its code
        check_source(job)
    return job


@functools.lru_cache(1024)
def _functions(packed: bytes) -> tuple[Callable[..., Any], Callable[[], Any] | None]:
    """One of `__main__` comes with its code: it is made once in a worker."""
    function, head = pickle.loads(packed)
    return function, head


def _value(own: dict[str, Held], store: Store, reference: Reference) -> Any:
    """Of an input: from the bytes that Dask brought, else from the store."""
    held = own.get(reference.key)
    names = [output.name for output in reference.outputs] if reference.named and not reference.output else None
    wanted = names if names is not None else [reference.output]
    if held is None or not all(name in held.pieces for name in wanted):
        return store.value(reference)
    outputs = {output.name: output for output in reference.outputs}
    found = {name: values.load(outputs[name], held.pieces[name]) for name in wanted}  # a copy of its own, see (4)
    return found if names is not None else found[reference.output]


def again(job: Job, record: Record) -> Ended:
    """It has this result already."""
    return Ended(job.vertex, job.key, record.attempt, record=record, host=record.host, worker=record.worker,
                 began=record.time - record.seconds, body_s=record.seconds)  # fmt: skip


# What was begun in this run, by any worker.

_files: dict[str, BinaryIO | None] = {}


def _mark(path: str, number: int) -> bool:
    """Whether this vertex was begun before; from now on it was. It is a hint: without the file every vertex counts as
    begun, which costs a search."""
    with _lock:
        try:
            if path not in _files:
                _files[path] = open(path, "r+b", buffering=0)  # noqa: SIM115 - until the run ends
            file = _files[path]
            if file is None:
                return True
            before = os.pread(file.fileno(), 1, number)
            if before != b"\1":
                os.pwrite(file.fileno(), b"\1", number)
            return before != b"\0"
        except OSError:
            _files[path] = None
            return True


_records: dict[str, dict[str, Record]] = {}  # by directory, as far as they were read


def _found(store: Store, key: str) -> Record | None:
    """A result in the store, of whichever worker. What a dead worker wrote does not change any more, so the records are
    read again only for a key that is not among them."""
    directory = store.directory
    for again in (False, True):
        if again or directory not in _records:
            _records[directory] = dict(store.records())
        if (record := _records[directory].get(key)) is not None:
            return record if record.kept else None
    return None


# What this process is at, for a stop.


class _Run:
    def __init__(self) -> None:
        self.halted = False
        self.tickets: set[str] = set()  # begun here, ended or not: what was told may still be on its way


_runs: dict[str, _Run] = {}


def _begin(parcel: Parcel) -> bool:
    with _lock:
        run = _runs.setdefault(parcel.run, _Run())
        if not run.halted:
            run.tickets.add(parcel.ticket)
        return not run.halted


def halt(run: str) -> list[str]:
    """From now on no vertex of this run begins here. Which have begun, ended or not."""
    with _lock:
        mine = _runs.setdefault(run, _Run())
        mine.halted = True
        return sorted(mine.tickets)


def sees(path: str, text: str) -> str:
    """ "" if this worker reads this text there, else what it finds."""
    try:
        with open(path, "rb") as file:
            return "" if file.read().endswith(text.encode()) else "another file of this name"
    except OSError as error:
        return str(error)


def leave(run: str, directory: str, marks: str) -> None:
    """All that this process wrote survives a power cut; then it forgets the run. `SaveError`, `OSError` if not."""
    try:
        close_writers(directory)
    finally:
        with _lock:
            _runs.setdefault(run, _Run()).halted = True  # for what Dask may still give out of it
            _runs[run].tickets.clear()
            _records.pop(directory, None)
            if file := _files.pop(marks, None):
                file.close()
