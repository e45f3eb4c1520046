"""strace at a life of the solver: what system calls it makes, and what happens to it at one of them."""

from __future__ import annotations

import collections
import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from safepoint.run.proc import states_of_threads
from testbed.lives import Life, Running

FILE_CALLS = "trace=%file,%desc"
why_not = None if shutil.which("strace") else "needs strace"

Call = tuple[str, int]  # a system call of a thread: its name, and its index among those of that name, from 1 on


def hit_at_last(kill: Callable[[], bool], lives: int = 3) -> bool:
    """Whether one of some lives died of this kill: which calls a thread makes differs from life to life, and one that
    was not hit says nothing."""
    return any(kill() for _ in range(lives))


@contextmanager
def tracer(program: Running, gate: str, *how: str) -> Iterator[subprocess.Popen[str]]:
    """strace at threads of a life that waits at a gate: the main one at `start`, the saver and its helpers at
    `saver`."""
    threads = program.until(f"gate {gate} ").split()[2:]
    threads = threads[:1] if gate == "start" else threads[1:]
    arguments = ["strace", "--quiet=personality,exit", *(f"--attach={thread}" for thread in threads), *how]
    with subprocess.Popen(arguments, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as strace:
        try:
            for _ in threads:
                wait_until_attached(strace)
            with contextlib.suppress(BrokenPipeError):  # killed in the very read that waits for this byte
                program.go()
            yield strace
        finally:
            program.kill()  # then the tracer ends too


def wait_until_attached(strace: subprocess.Popen[str]) -> None:
    """Until it says so, or has ended. The kernel names the tracer a moment before: what is called then is not seen."""
    assert strace.stderr is not None
    for line in strace.stderr:
        if line.rstrip().endswith("attached"):
            return


def calls_of(directory: Path, gate: str, *arguments: object, end_after: str = "") -> list[Call]:
    """The file-system calls of some threads of a life, in order. `end_after`: killed when it says what begins so."""
    trace = directory.parent / f"{directory.name}.trace"
    how = "-e", FILE_CALLS, "-o", str(trace)
    with Running(directory, *arguments, f"gate-{gate}") as program, tracer(program, gate, *how):
        if end_after:
            program.until(end_after)
        else:
            program.end()
    calls = count_calls(trace)
    trace.unlink()
    assert len(calls) > 40, "hardly any call was traced: this tests nothing"
    return calls


def count_calls(trace: Path) -> list[Call]:
    """Each call of a traced life, in order; what two threads both do is there once, as strace would stop at either."""
    counts: collections.Counter[tuple[str, str]] = collections.Counter()
    calls = {}
    for line in trace.read_text().splitlines():
        *thread, name = line.split("(", 1)[0].split() or [""]
        if name.isidentifier():
            counts[" ".join(thread), name] += 1
            calls[name, counts[" ".join(thread), name]] = None
    return list(calls)


def at(call: Call, name_of_signal: str) -> list[str]:
    """What makes strace send this signal when the thread enters this call."""
    name, index = call
    return ["-e", f"inject={name}:signal={name_of_signal}:when={index}", "-e", f"trace={name}"]


def killed_at(directory: Path, gate: str, call: Call, *arguments: object) -> Life:
    """A life that ends by SIGKILL at this call, or by itself if it does not get there."""
    how = *at(call, "SIGKILL"), "-o", os.devnull
    with Running(directory, *arguments, f"gate-{gate}") as program, tracer(program, gate, *how):
        return program.end()


@contextmanager
def stopped_at(directory: Path, gate: str, call: Call, *arguments: object) -> Iterator[tuple[Running, bool]]:
    """A life that stands still, all its threads; whether after this call, else where it was as this thread ended."""
    how = at(call, "SIGSTOP")
    with Running(directory, *arguments, f"gate-{gate}") as program, tracer(program, gate, *how) as strace:
        assert strace.stderr is not None
        stopped = any("stopped by SIGSTOP" in line for line in strace.stderr)
        if stopped:
            wait_until_still(program)
        else:  # the thread has ended, and others may go on
            stop(program)
        yield program, stopped


def stop(program: Running) -> None:
    """Let it stand still now, if it has not ended."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(program.pid, signal.SIGSTOP)
        wait_until_still(program)


def wait_until_still(program: Running) -> None:
    """Until no thread of it runs. One that waits for the disk (D) will stop before it sees what it has waited for."""
    end = time.monotonic() + 30
    while any(state not in "TtZXD" for state in states_of_threads(program.pid)):
        assert time.monotonic() < end, f"it does not stop: {states_of_threads(program.pid)}"
        time.sleep(0.0005)
