"""`safepoint bench-net`: measure the machine that a schedule is made for."""

from __future__ import annotations

import errno
import os
import sys
import time
from typing import Any

import click

from safepoint.cli import terminal
from safepoint.disk.files import cause
from safepoint.errors import SafepointError, UsageError


@click.command()
@click.option("-o", "--output", required=True, metavar="NET.json", help="Where the measurement goes.")
@click.option("--rounds", type=click.IntRange(1), default=20, show_default=True, help="Each number is their median.")
@terminal.as_json
@click.pass_context
def bench_net(ctx: click.Context, output: str, rounds: int, as_json: bool) -> None:
    """Measure the links between the ranks of mpiexec, and their speeds, for schedules of tasks.

    Started on all ranks: mpiexec -n N safepoint bench-net -o net.json. It takes the speed of each rank, latency and
    bandwidth of each pair, one pair at a time, and of all ranks at once. `safepoint tasks plan --machine net.json`
    makes a schedule of it. Progress is told on stderr.
    """
    try:
        from mpi4py import MPI
    except ImportError as error:
        raise UsageError(f"bench-net needs mpi4py and an MPI library ({error}): pip install '.[mpich]'") from error
    comm = MPI.COMM_WORLD
    try:
        content = _measured(comm, output, rounds)
    except SafepointError as error:  # the same on all ranks, so one tells it
        if comm.Get_rank():
            ctx.exit(error.code)
        raise
    except BaseException as error:
        _end_all(comm, error)
        raise
    if comm.Get_rank() == 0:
        _say(content, output, as_json)


def _measured(comm: Any, output: str, rounds: int) -> dict[str, Any]:
    from safepoint.ranks import join
    from safepoint.tasks import netbench
    from safepoint.tasks.machine import Machine

    ranks = join(comm)
    first = comm.Get_rank() == 0
    ranks.together(lambda: _check_place(output) if first else None)  # not after minutes
    began = time.monotonic()

    def say(text: str) -> None:
        click.echo(f"{time.monotonic() - began:6.1f} s  {text}", err=True)

    content = netbench.measure(comm, rounds, say)
    ranks.together(lambda: Machine.parse(content, output).write(output) if first else None)
    return content


def _check_place(output: str) -> None:
    place = os.path.dirname(os.path.abspath(output))
    try:
        if os.path.isdir(output):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), output)
        if not os.access(place, os.W_OK):
            code = errno.EACCES if os.path.isdir(place) else errno.ENOENT
            raise OSError(code, os.strerror(code), place)
    except OSError as error:
        raise UsageError(f"cannot write {output}: {cause(error)}; nothing was measured", error.errno) from error


def _end_all(comm: Any, error: BaseException) -> None:
    """What is no error of ours was not agreed on: the other ranks would wait for this one for ever."""
    if comm.Get_size() > 1:
        import traceback

        if not isinstance(error, KeyboardInterrupt):
            traceback.print_exception(error)
        sys.stderr.flush()
        comm.Abort(130 if isinstance(error, KeyboardInterrupt) else 1)


def _say(content: dict[str, Any], output: str, as_json: bool) -> None:
    from safepoint import words

    size = len(content["speed"])
    pairs = [(p, q) for p in range(size) for q in range(size) if p != q]
    if as_json:
        terminal.put({"file": os.path.abspath(output), **content})
        return
    heads = ("", "least", "median", "most")
    rows = [("speed", *_three(content["speed"], "{:.2f}".format))]
    for name, key, shown in (
        ("latency", "latency_s", words.precise),
        ("bandwidth", "bandwidth", lambda value: f"{words.size(value)}/s"),
        ("latency, all at once", "all_latency_s", words.precise),
        ("bandwidth, all at once", "all_bandwidth", lambda value: f"{words.size(value)}/s"),
    ):
        rows.append((name, *_three([content[key][p][q] for p, q in pairs], shown)))
    hosts = len(set(content["hosts"]))
    terminal.say(f"{words.ranks(range(size))}: {size} ranks on {words.count(hosts, 'host')}")
    terminal.table(heads, rows, right=heads[1:])
    terminal.say(f"written: {output}")


def _three(values: list[float], shown: Any) -> tuple[str, str, str]:
    import statistics

    return shown(min(values)), shown(statistics.median(values)), shown(max(values))
