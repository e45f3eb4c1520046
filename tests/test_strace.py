"""SIGKILL at every file-system call of a real run, injected from outside by `strace -e inject`."""

from __future__ import annotations

import collections
import contextlib
import os
import shutil
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from lives import LONG, Life, Running, Violation, directory_for_lives, goes_on

pytestmark = pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace")
STEPS = 5
CALLS = "trace=%file,%desc"


def traced(directory: Path, gate: str, *how: str, end_after: str = "") -> Life:
    """A life with strace at one of its threads: the main one from the start on, or the saver from its first set on."""
    tracer = None
    with Running(directory, STEPS, f"gate-{gate}", *(["inline"] if "inline" in how else [])) as program:
        for line in program.lines():
            if line.startswith(f"gate {gate} "):
                pid, *threads = line.split()[2:]
                options = [option for option in how if option != "inline"]
                tracer = subprocess.Popen(
                    ["strace", "-qq", "-p", threads[0] if gate == "saver" else pid, *options],
                    stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True,
                )  # fmt: skip
                wait_until_attached(int(threads[0] if gate == "saver" else pid), int(pid), tracer)
                with contextlib.suppress(BrokenPipeError):  # killed in the very read that waits for this byte
                    program.go()
            if end_after and line.startswith(end_after):
                program.kill()
        life = program.end()
    if tracer is not None:
        tracer.communicate(timeout=60)
    return life


def wait_until_attached(thread: int, pid: int, tracer: subprocess.Popen[str]) -> None:
    """Until the thread has a tracer, or was killed by it."""
    status = Path(f"/proc/{pid}/task/{thread}/status")
    while tracer.poll() is None:
        text = status.read_text()
        if "TracerPid:\t0\n" not in text or "State:\tZ" in text:
            return
        time.sleep(0.001)


def count_calls(trace: Path) -> list[tuple[str, int]]:
    """Each file-system call of a traced life, as its name and its index among the calls of that name, in order."""
    counts: collections.Counter[str] = collections.Counter()
    calls = []
    for line in trace.read_text().splitlines():
        name = line.split("(", 1)[0].split()[-1]
        if name.isidentifier():
            counts[name] += 1
            calls.append((name, counts[name]))
    return calls


def kill_at_each(gate: str, *how: str, prepare: bool = False, only_start: bool = False) -> dict[str, int]:
    """Kill at every call of a thread, each time in a new directory, and start again. How many kills hit, and calls."""
    with directory_for_lives() as directory:
        if prepare:
            traced(directory, "nothing", end_after="hid 3")
        trace = directory.parent / f"{directory.name}.trace"
        traced(directory, gate, *how, "-e", CALLS, "-o", str(trace), end_after="hiding" if only_start else "")
        calls = count_calls(trace)
        trace.unlink()
    assert len(calls) > 40, "hardly any call was traced: this tests nothing"

    def one(call: tuple[str, int]) -> int:
        name, index = call
        with directory_for_lives() as directory:
            first = traced(directory, "nothing", end_after="hid 3") if prepare else None
            life = traced(
                directory,
                gate,
                *how,
                "-e",
                f"inject={name}:signal=SIGKILL:when={index}",
                "-e",
                f"trace={name}",
                "-o",
                os.devnull,
            )
            if first is not None:
                life.said[:0] = first.said
            try:
                goes_on(directory, life, STEPS)
            except Violation as violation:
                raise Violation(f"killed at {name} number {index} of the {gate} thread: {violation}") from violation
            return int(life.status == -9)

    sample = calls if LONG else calls[::7]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        hits = sum(pool.map(one, sample))
    print(f"{gate}: {len(calls)} calls, {len(sample)} tried, {hits} kills hit")
    return {"calls": len(calls), "tried": len(sample), "hit": hits}


def test_killed_at_each_call_of_the_main_thread() -> None:
    """G1, G2, G2k: a run of five iterations, with the saver in the background."""
    result = kill_at_each("start")
    assert result["hit"] > 0.9 * result["tried"], result


def test_killed_at_each_call_of_the_saver_thread() -> None:
    """G1, G2, G2k: the background part of three saves."""
    result = kill_at_each("saver")
    assert result["hit"] > 0.7 * result["tried"], result  # how many there are depends on who is faster


def test_killed_at_each_call_when_every_hide_waits() -> None:
    """G1, G2, G2k: take, store, commit and prune in one thread, each call in turn."""
    result = kill_at_each("start", "inline")
    assert result["hit"] > 0.9 * result["tried"], result


def test_killed_at_each_call_while_it_restores() -> None:
    """G3: a run was killed just after a hide; the next one is killed at each call of its own start; then it goes on."""
    result = kill_at_each("start", prepare=True, only_start=True)
    assert result["hit"] > 0.7 * result["tried"], result
