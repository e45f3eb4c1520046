"""One attempt of one vertex, in whatever process: load the inputs, call the function, hand its result to the store.

(1) Nothing that a body does leaves here as an exception, not even `SystemExit`: it would end a worker, or an engine.
(2) Each body has inputs of its own, or ones that cannot be written to: what it changes, no other sees.
(3) A result counts when the store has it. Before that an attempt leaves nothing but a directory that is removed.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any

from safepoint.errors import DamagedError
from safepoint.tasks import current, values
from safepoint.tasks.jobs import FILE, Ended, Failure, Job, Record, Reference, Slot

# The kind of a failure: the bytes of the input that its message names are not what was written. The driver makes that
# input again, and this attempt does not count.
DAMAGED = "DamagedInput"
MOST = 1 << 16  # characters of a message, or of a traceback
INPUTS, HEAD, BODY, SAVING = "inputs", "head", "body", "saving"


@dataclass
class _Clock:
    """What an attempt is doing, and how long each part of it took."""

    began: float
    part: str
    since: float
    took: dict[str, float]

    def enter(self, part: str) -> None:
        now = time.perf_counter()
        self.took[self.part] += now - self.since
        self.part, self.since = part, now


class _Damaged(Exception):
    """The bytes of this input cannot be read any more."""


def run(job: Job, store: Any, writer: Any, get: Callable[[Reference], Any] | None = None) -> Ended:
    """How the attempt ended, always. `get`: the value of an input, from an engine that has it or moves it; the value
    then belongs to this body alone. Without it inputs are read from the store."""
    clock = _Clock(time.time(), INPUTS, time.perf_counter(), dict.fromkeys((INPUTS, HEAD, BODY, SAVING), 0.0))
    record, failure = None, None
    try:
        with current.running(job.vertex, job.seed, writer.scratch) as now:
            try:
                record = _attempt(job, get or store.value, writer, now, clock)
            finally:
                if now.path:
                    _tidy(writer, now.path)
    except _Damaged as error:
        failure = Failure(DAMAGED, str(error), "", "")
    except BaseException as error:  # (1)
        failure = failure_of(error, job, clock.part)
    clock.enter(clock.part)
    return Ended(
        job.vertex, job.key, job.attempt, record, failure, "", socket.gethostname(), f"pid {os.getpid()}", clock.began,
        clock.took[INPUTS], clock.took[HEAD] + clock.took[BODY], clock.took[SAVING],
    )  # fmt: skip


def _attempt(job: Job, get: Callable[[Reference], Any], writer: Any, now: current.Current, clock: _Clock) -> Record:
    clock.enter(HEAD)
    head = {"head": job.head()} if job.head is not None else {}  # while inputs travel, with an engine that moves them
    clock.enter(INPUTS)
    arguments = _arguments(job, get) | head
    clock.enter(BODY)
    before = time.perf_counter()
    result = _called(job, arguments)
    seconds = time.perf_counter() - before
    del arguments
    clock.enter(SAVING)
    files = any(output.kind == FILE for reference in job.inputs for output in reference.outputs)
    encoded = values.encode(result, now.path, store=job.directory if files else "")
    made = Record(
        job.vertex, job.key, (), False, kept=job.keep, seconds=seconds, attempt=job.attempt, parts=job.parts,
        source=job.source,
    )  # fmt: skip
    record = writer.put(made, encoded)
    assert isinstance(record, Record)
    return record


def _called(job: Job, arguments: dict[str, Any]) -> Any:
    """The result of the function. A process that it forks ends where it would come back: it has the worker's
    connection, and would hand over a second result."""
    mine, status = os.getpid(), 0
    try:
        return job.function(**arguments)
    except BaseException as error:
        code = error.code if isinstance(error, SystemExit) else 1
        status = code if isinstance(code, int) else int(code is not None)
        raise
    finally:
        if os.getpid() != mine:
            with contextlib.suppress(Exception):
                sys.stdout.flush()
            os._exit(status & 0xFF)


def _arguments(job: Job, get: Callable[[Reference], Any]) -> dict[str, Any]:
    """The arguments with the values of the edges in their places; an edge that stands there twice is one object."""
    found: dict[tuple[str, str], Any] = {}
    for reference in job.inputs:
        name = reference.key, reference.output
        if name not in found:
            try:
                found[name] = get(reference)
            except DamagedError as error:
                raise _Damaged(reference.vertex) from error
    loaded = [found[reference.key, reference.output] for reference in job.inputs]
    return {name: _filled(value, loaded) for name, value in job.arguments.items()}


def _filled(value: Any, loaded: list[Any]) -> Any:
    kind = type(value)
    if kind is Slot:
        return loaded[value.number]
    if kind is list or kind is tuple:
        return kind([_filled(each, loaded) for each in value])
    if kind is dict:
        return {key: _filled(each, loaded) for key, each in value.items()}
    return value


def _tidy(writer: Any, path: str) -> None:
    with contextlib.suppress(OSError):  # the next driver removes it
        writer.drop(path)


def failure_of(error: BaseException, job: Job, part: str = BODY) -> Failure:
    """An exception as data. Its traceback begins where the function was called, and has none of its objects."""
    frames = _below_the_call(error.__traceback__)
    kind = type(error).__name__
    try:
        message = str.__str__(str(error))  # and none of a class made of it, that the driver could not unpickle
    except Exception:  # of a class whose __str__ is wrong
        message = "(it has no text)"
    if part == INPUTS:
        message = f"while its inputs were loaded: {message}"
    elif part == SAVING:
        message = f"its result was not kept: {message}"
    try:
        text = "".join(traceback.format_exception(type(error), error, frames))
    except Exception:
        text = f"{kind}: {message}\n"
    return Failure(kind, _cut(message), _cut(text), _where(frames, job) if part in (HEAD, BODY) else "")


def _cut(text: str) -> str:
    """Begin and end of a long one: an array in a message would be megabytes of the log, for each attempt twice."""
    left = len(text) - MOST
    return text if left <= 0 else f"{text[: MOST // 2]} … {left} more characters … {text[-(MOST // 2) :]}"


def _below_the_call(trace: TracebackType | None) -> TracebackType | None:
    """From the frame of the vertex's function on; all, if it was not reached."""
    at = trace
    while at is not None and at.tb_frame.f_code is not _called.__code__:
        at = at.tb_next
    return at.tb_next if at is not None and at.tb_next is not None else trace


def _where(trace: TracebackType | None, job: Job) -> str:
    """As "sky.py:31 in denoise": the deepest frame in the file of the vertex's function, else the deepest of all."""
    code = getattr(job.function, "__code__", None)
    frames = traceback.extract_tb(trace)
    if not frames or frames[-1].filename == __file__:  # called with other arguments than it takes
        return f"{job.source} in {getattr(job.function, '__name__', '')}" if job.source else ""
    mine = [frame for frame in frames if code is not None and frame.filename == code.co_filename]
    frame = (mine or frames)[-1]
    return f"{os.path.basename(frame.filename)}:{frame.lineno} in {frame.name}"


def moved(ended: Ended, nbytes: int) -> Ended:
    """With the bytes that came from other workers, which an engine counts."""
    return replace(ended, moved=nbytes)
