"""`safepoint tasks get`: one result, as it is kept."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import sys
from collections.abc import Iterator
from functools import partial
from typing import BinaryIO

import click

from safepoint import words
from safepoint.cli import terminal
from safepoint.cli.tasks import places
from safepoint.cli.tasks.states import Past
from safepoint.disk.rights import ANYBODY, OURS
from safepoint.errors import NothingSavedError, UsageError
from safepoint.tasks.jobs import FILE, NPY, PICKLE, Record, Reference
from safepoint.tasks.saved import LostValue

SHOWN = 1 << 20  # bytes of a result that is shown on the screen


@click.command()
@click.argument("name", metavar="NAME[.OUTPUT]")
@places.directory
@click.option(
    "-o", "--output", "target", metavar="FILE", type=click.Path(dir_okay=False),
    help="Write it there as it is kept: .npy, pickle (protocol 5), or the file itself. An existing file is replaced.",
)  # fmt: skip
def get(name: str, directory: str, target: str | None) -> None:
    """A result, into a file or onto the screen.

    Without -o a small result is shown. To show a pickled one loads it, which can run code that the pickle holds: do so
    with results of your own only. With -o nothing is loaded. Every byte is compared with its checksum. Refused with -o
    are a vertex with several outputs, each of which is got by itself, and a directory, whose place is told.
    """
    past = Past(places.store_of(directory))
    record, output = _find(past, name)
    if not record.kept:
        raise NothingSavedError(f"of {record.vertex} only the digest is kept (keep=False)")
    reference = record.reference(output)
    if target is None and record.nbytes > SHOWN:
        raise UsageError(f"{name} has {words.size(record.nbytes)}: give a file with -o")
    try:
        if target is not None:
            _write(past, reference, target)
        else:
            terminal.say(_shown(past, reference))
    except LostValue as error:
        again = f"safepoint tasks forget {shlex.quote(record.vertex)}, and start again"
        raise LostValue(f"{error}: {again}", error.vertex, error.key) from error


def _find(past: Past, name: str) -> tuple[Record, str]:
    """The record of a vertex, and the output that was asked for. Names of vertices may have dots, too."""
    ends = [len(name), *(n for n in range(len(name) - 1, 0, -1) if name[n] == ".")]
    for vertex, output in [(name[:end], name[end + 1 :]) for end in ends]:
        state = past.states.get(vertex)
        records = past.by_name.get(vertex)
        record = state.record if state else records[-1] if records else None
        if record is None:
            if state is not None and not output:
                raise NothingSavedError(f"{vertex} has not finished: it is {state.state}")
            continue
        if output and output not in (each.name for each in record.outputs):
            if not record.named:
                raise UsageError(f"{vertex} has one result, without a name: safepoint tasks get {vertex}")
            raise UsageError(f"{vertex} has no output {output}, only {', '.join(each.name for each in record.outputs)}")
        return record, output
    raise NothingSavedError(f"nothing is kept of a vertex {name} in {past.store.directory}")


def _shown(past: Past, reference: Reference) -> str:
    value = past.store.value(reference)
    return str(value) if isinstance(value, (str, os.PathLike)) else repr(value)


@contextlib.contextmanager
def _replaced(target: str, mode: int = ANYBODY) -> Iterator[BinaryIO]:
    """A file of this name with what is written inside, with this mode from the first moment. On error the older one is
    as it was."""
    if os.path.exists(target) and not os.path.isfile(target):  # as /dev/stdout
        with open(target, "wb") as file:
            yield file
        return
    path = os.path.realpath(target)
    beside = f"{path}.{os.getpid()}.new"
    try:
        with open(beside, "wb", opener=partial(os.open, mode=mode)) as file:
            yield file
        os.replace(beside, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(beside)
        raise


def _write(past: Past, reference: Reference, target: str) -> None:
    if reference.named and not reference.output:
        outputs = ", ".join(f"{reference.vertex}.{each.name}" for each in reference.outputs)
        raise UsageError(f"{reference.vertex} has several outputs, each of which is got by itself: {outputs}")
    kind = next(each.kind for each in reference.outputs if each.name == reference.output)
    if kind == FILE:
        source = past.store.value(reference)  # its path; the bytes have been checked
        if os.path.isdir(source):
            name = f"{reference.vertex}{reference.output and '.'}{reference.output}"
            raise UsageError(f"{name} is a directory: copy it from {source}")
        with open(source, "rb") as original, _replaced(target, OURS | os.stat(source).st_mode & ANYBODY) as file:
            shutil.copyfileobj(original, file, 1 << 20)
    else:
        data = past.store.bytes(reference)  # before the file is touched: they may be damaged
        with _replaced(target) as file:
            file.write(data)
    what = {NPY: "an array (numpy.load)", PICKLE: "a pickle (pickle.load)", FILE: "a file"}[kind]
    click.echo(f"{terminal.printable(target)}: {what}, {words.size(os.path.getsize(target))}", file=sys.stderr)
