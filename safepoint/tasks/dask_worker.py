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
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace as Has
from typing import TYPE_CHECKING, Any, BinaryIO

from safepoint.tasks import body, identity, values
from safepoint.tasks.jobs import FILE, Ended, Failure, Job, Record, Reference
from safepoint.tasks.worker import check_source, close_writers, writer_of

if TYPE_CHECKING:
    from safepoint.tasks.saved import Store

BY_CODE = "<dynamic-code>"  # the file of a function of `__main__`, as cloudpickle makes it
TOPIC = "safepoint-tasks"  # under which workers tell the driver what has ended
GATHER_S = 0.01  # from the first to the last that is told in one message

_lock = threading.Lock()  # of all that the threads of this process share


@dataclass
class Parcel:
    """A vertex on its way. Dask's scheduler unpickles it, so all that is the program's own is bytes here."""

    run: str  # of which run it is
    ticket: str  # Dask's key: one for each time that the vertex is submitted
    number: int  # of the vertex, in the file of marks
    marks: str  # the path of that file
    functions: bytes  # the function and its head: the same bytes for many vertices
    arguments: bytes
    job: Job  # without these, and without key and inputs
    edges: tuple[tuple[int | Record, str | None], ...]  # which of the inputs from Dask, or the record; and the output
    earlier: tuple[Record, ...]  # of this vertex, with other inputs perhaps

    def __dask_tokenize__(self) -> str:
        return self.ticket


class Held:
    """What Dask holds of a vertex that has ended: its record and the bytes of its outputs. `ended` None: it did not
    run, since an input failed or the run was stopped."""

    def __init__(self, ended: Ended | None, pieces: dict[str, bytes], came: bool = False) -> None:
        self.ended, self.pieces = ended, pieces
        self.came = came  # from another worker

    @property
    def record(self) -> Record | None:
        return self.ended.record if self.ended else None

    def __sizeof__(self) -> int:
        """Dask places vertices, and keeps its memory in bounds, by this."""
        return 1000 + self.nbytes

    @property
    def nbytes(self) -> int:
        return sum(len(piece) for piece in self.pieces.values())

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


def work(parcel: Parcel, *held: Held) -> Held:
    """The result of a vertex. The driver hears of it from here, not from Dask, which would send it the value."""
    if any(each.record is None for each in held) or not _begin(parcel):
        return Held(None, {})
    result = _result(parcel, held)
    assert result.ended is not None
    _tell(parcel, result.ended)
    return result


def order(held: Held) -> Held:
    """That it has ended, without its value: for vertices that only come after it."""
    return Held(held.ended, {})


def _result(parcel: Parcel, held: Sequence[Held]) -> Held:
    try:
        job = _job(parcel, held)
        store, writer = writer_of(job.directory)
    except BaseException as error:  # such as a module that this worker cannot import
        failure = replace(body.failure_of(error, parcel.job), message=f"not begun: {error}{_cure(error)}", where="")
        return Held(_without_record(parcel, failure), {})
    begun_before = _mark(parcel.marks, parcel.number)
    for record in parcel.earlier:
        if record.key == job.key and record.kept:
            return Held(again(job, record), {})
    if begun_before and (found := _found(store, job.key)) is not None:
        return Held(again(job, found), {})
    keeping = _Keeping(writer)
    own = {each.record.key: each for each in held if each.record is not None}
    moved = sum(each.nbytes for each in held if each.came)
    ended = body.run(job, store, keeping, functools.partial(_value, own, store))
    return Held(replace(ended, moved=moved, failure=_where(ended.failure, job.source)), keeping.pieces)


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


def _record(held: Held) -> Record:
    assert held.record is not None
    return held.record


def _job(parcel: Parcel, held: Sequence[Held]) -> Job:
    """With what only a worker knows: function, inputs, identity."""
    records = [_record(held[of]) if isinstance(of, int) else of for of, _ in parcel.edges]
    outputs = [output for _, output in parcel.edges]
    digests = [record.digest(output) for record, output in zip(records, outputs, strict=True)]
    inputs = tuple(
        record.reference(output) for record, output in zip(records, outputs, strict=True) if output is not None
    )
    function, head = _functions(parcel.functions)
    parts = parcel.job.parts
    edges = [
        Has(vertex=Has(name=record.vertex), output=output) for record, output in zip(records, outputs, strict=True)
    ]
    vertex: Any = Has(edges=edges)  # as much of it as `noted` asks for
    if getattr(function, "__module__", "") != "__main__":  # that came with its code
        check_source(replace(parcel.job, function=function, head=head))
    return replace(
        parcel.job, key=identity.key(parts, parcel.job.vertex, digests), function=function, head=head,
        arguments=pickle.loads(parcel.arguments), inputs=inputs, parts=identity.noted(parts, vertex, digests),
    )  # fmt: skip


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


def _without_record(parcel: Parcel, failure: Failure) -> Ended:
    import socket

    return Ended(parcel.job.vertex, parcel.job.key, parcel.job.attempt, failure=failure, host=socket.gethostname(),
                 worker=f"pid {os.getpid()}")  # fmt: skip


_untold: dict[str, list[tuple[str, bytes]]] = {}  # by run


def _tell(parcel: Parcel, ended: Ended) -> None:
    """The driver, with what else ends in these milliseconds: a message for each would cost more than a small body. If
    this worker dies before, Dask runs the vertex again, and finds its result in the store."""
    from distributed import get_worker

    with _lock:
        waiting = _untold.setdefault(parcel.run, [])
        waiting.append((parcel.ticket, pickle.dumps(ended, 5)))
        if len(waiting) > 1:
            return
    worker = get_worker()
    worker.loop.add_callback(lambda: worker.loop.call_later(GATHER_S, _tell_all, worker, parcel.run))


def _tell_all(worker: Any, run: str) -> None:
    with _lock:
        waiting = _untold.pop(run, [])
    if waiting:
        worker.log_event(TOPIC, [run, waiting])


def told(packed: bytes) -> Ended:
    ended = pickle.loads(packed)
    assert isinstance(ended, Ended)
    return ended


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
            file.seek(number)
            before = file.read(1)
            if before != b"\1":
                file.seek(number)
                file.write(b"\1")
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
