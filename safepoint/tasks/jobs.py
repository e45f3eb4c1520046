"""What passes between the driver of a graph, its engine and its workers. Only plain data: all of it is pickled.

The driver has the graph and decides what runs; an engine starts bodies somewhere; a worker loads the inputs, calls the
function and hands its result to the store. A value never passes here, only a `Reference` to it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from xxhash import xxh3_128_hexdigest

from safepoint.errors import GraphError

NPY, PICKLE, FILE = "npy", "pkl", "file"  # the kinds in which an output is kept


@dataclass(frozen=True)
class Output:
    """One output of a vertex, as it is kept. `name` is "" if the result is no dict."""

    name: str
    kind: str  # NPY, PICKLE or FILE
    digest: str  # xxh3-128 of its bytes, in hexadecimal
    nbytes: int
    file: str = ""  # below `done/KEY` or `loose/KEY`; "" where the bytes are in a journal

    @property
    def said(self) -> str:
        """The digest, as another value than that of an array or pickle with the same bytes: a body gets a path."""
        return f"file {self.digest}" if self.kind == FILE else self.digest


@dataclass(frozen=True)
class Place:
    """Where a result is: a block from `offset` of a journal, or `done/KEY` if there is no journal.

    An output with a `file` whose record is in a journal is one that is not kept: its bytes are in `loose/KEY`, perhaps.
    """

    journal: str = ""
    offset: int = 0


@dataclass(frozen=True)
class Record:
    """A finished vertex: what a restart reads. Nothing but this tells that it has finished."""

    vertex: str
    key: str  # its identity, 32 hexadecimal digits
    outputs: tuple[Output, ...]  # in the order of the dict; of journals their bytes follow each other in this order
    named: bool  # the result is a dict of named outputs
    place: Place = Place()
    kept: bool = True  # False: `keep=False`, only the digests are here
    seconds: float = 0.0  # of the body alone
    attempt: int = 1
    host: str = ""
    worker: str = ""  # "pid 4711" or "rank 3"
    time: float = 0.0  # when it was made, in seconds since 1970
    versions: Mapping[str, str] = field(default_factory=dict)  # of Python and of packages: no part of the identity
    parts: Mapping[str, str] = field(
        default_factory=dict
    )  # what the identity was made of, each by its digest, for `why`
    source: str = ""  # "sky.py:28", where the function is

    @property
    def nbytes(self) -> int:
        return sum(output.nbytes for output in self.outputs)

    def digest(self, output: str | None = "") -> str:
        """What an identity holds of one output; of the whole result (`""`) of named outputs: of all of them, with their
        names. None, of what comes after it without a value: of the result and the identity, as files that it wrote show
        in no result. `GraphError` if there is no output of this name."""
        if output is None:
            return xxh3_128_hexdigest(f"{self.key} {self.digest()}".encode())
        if output == "" and self.named:
            named = "".join(f"{each.said} {len(each.name)} {each.name}\n" for each in self.outputs)
            return xxh3_128_hexdigest(named.encode("utf-8", "surrogatepass"))
        return self.output(output).said

    def output(self, name: str) -> Output:
        for each in self.outputs:
            if each.name == name:
                return each
        has = (
            ", ".join(each.name for each in self.outputs)
            if self.named
            else "only its result, no dict of texts or one of many"
        )
        raise GraphError(f"vertex {self.vertex} has no output {name!r}: it has {has}")

    def reference(self, output: str = "") -> Reference:
        """The value of an edge from this vertex. `GraphError` if there is no output of this name."""
        if output or not self.named:
            self.output(output)
        return Reference(self.vertex, self.key, output, self.named, self.outputs, self.place)


@dataclass(frozen=True)
class Reference:
    """The value of an edge, as it travels: whose output, and where its bytes are. `output` "": the whole result."""

    vertex: str
    key: str
    output: str
    named: bool
    outputs: tuple[Output, ...]  # of the whole record, as it needs their lengths to find one of them
    place: Place


@dataclass(frozen=True)
class Job:
    """One attempt of one vertex. `arguments` has a `Slot` where the value of the n-th reference belongs."""

    vertex: str
    key: str
    function: Callable[..., Any]
    head: Callable[[], Any] | None
    arguments: Mapping[str, Any]
    inputs: tuple[Reference, ...]
    attempt: int
    seed: int  # of the graph; `tasks.seed()` mixes it with the name
    keep: bool
    parts: Mapping[str, str]
    source: str
    directory: str  # of the store: W/.safepoint.d/tasks


@dataclass(frozen=True)
class Slot:
    """The place of an edge in the arguments of a job: the n-th of its inputs."""

    number: int


@dataclass(frozen=True)
class Failure:
    """An exception of a body as data: exceptions themselves may not be picklable."""

    kind: str  # "ValueError"
    message: str
    traceback: str
    where: str  # "sky.py:31 in denoise"


@dataclass(frozen=True)
class Ended:
    """How an attempt ended: with a record, with a failure of the body, or with the death of its worker."""

    vertex: str
    key: str
    attempt: int
    record: Record | None = None
    failure: Failure | None = None
    died: str = ""  # the worker that died with it: no attempt of the body is counted for it
    host: str = ""
    worker: str = ""
    began: float = 0.0  # seconds since 1970
    inputs_s: float = 0.0
    body_s: float = 0.0
    saving_s: float = 0.0
    moved: int = 0  # bytes that came from other workers


class Engine(Protocol):
    """Where jobs run. One thread drives it; it calls `start` and `ended` in turn."""

    name: str  # "pool", "dask", "mpi", "futures"

    def workers(self) -> int:
        """How many work now: for messages."""

    def room(self) -> int:
        """How many more jobs may be given now. An engine that queues by itself says a large number."""

    def start(self, job: Job) -> None:
        """Give it away; returns at once."""

    def ended(self, patience_s: float) -> list[Ended]:
        """What has ended since; waits up to `patience_s` for the first. Raises if the engine itself is lost."""

    def stop(self) -> None:
        """No more will be given: jobs that are queued and not begun are taken back, and come as ended with neither
        record nor failure nor death."""

    def close(self, *, abandon: bool = False) -> None:
        """Workers flush what they saved and leave; with `abandon` they are ended at once (Ctrl-C twice, an error)."""
