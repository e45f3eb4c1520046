"""SIGKILL at the file-system calls of a real run, injected from outside by `strace -e inject`."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

import pytest
from testbed import tally
from testbed.lives import Life, Running, directory_for_lives, goes_on
from testbed.sweep import LONG, sample, told
from testbed.tracing import Call, calls_of, hit_at_last, killed_at, why_not

pytestmark = [
    pytest.mark.skipif(why_not is not None, reason=str(why_not)),
    pytest.mark.timeout(3600 if LONG else 600),  # against a hang: beside other work the long form takes an hour
]
STEPS = 5


def killed_after_a_hide(directory: os.PathLike[str]) -> Life:
    with Running(directory, STEPS) as program:
        program.until("hid 3")
        program.kill()
        return program.end()


def kill_at_each(gate: str, *options: str, prepare: bool = False) -> dict[str, int]:
    """Kill at every call of a thread, each time in a new directory, and start again. How many kills hit, and calls.
    `prepare`: only at those of the start of a second life, up to its first hide."""
    with directory_for_lives() as directory:
        if prepare:
            killed_after_a_hide(directory)
        calls = calls_of(directory, gate, STEPS, *options, end_after="hiding" if prepare else "")

    points = sample(range(len(calls)), 17, 4)

    def killed_once(call: Call) -> bool:
        with directory_for_lives() as directory:
            said = killed_after_a_hide(directory).said if prepare else []
            life = killed_at(directory, gate, call, STEPS, *options)
            life.said[:0] = said
            with told(f"killed at {call} of the {gate} thread", points):
                goes_on(directory, life, STEPS)
            return life.status == -9

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        hits = sum(pool.map(lambda at: hit_at_last(lambda: killed_once(calls[at])), points))
    what = "every hide waits" if "inline" in options else f"{gate}, sets wait" if "slow" in options else gate
    where = "restart" if prepare else what
    tally.count("kills at a system call", where, hits)
    print(f"{where}: {len(calls)} calls, {len(points)} tried, {hits} kills hit")
    return {"calls": len(calls), "tried": len(points), "hit": hits}


def test_killed_at_each_call_of_the_main_thread() -> None:
    """G1, G2, G2k: a run of five iterations, with the saver in the background."""
    result = kill_at_each("start")
    assert result["hit"] > 0.9 * result["tried"], result


def test_killed_at_each_call_of_the_saver_thread() -> None:
    """G1, G2, G2k: the background part of three saves, by the saver and its helpers."""
    result = kill_at_each("saver")
    assert result["hit"] > 0.2 * result["tried"], result  # who does what depends on who is faster


def test_killed_at_each_call_when_every_hide_waits() -> None:
    """G1, G2, G2k: take, store, commit and prune in one thread, all fsyncs too."""
    result = kill_at_each("start", "inline", "serial")
    assert result["hit"] > 0.9 * result["tried"], result


@pytest.mark.parametrize("gate", ["start", "saver"])
def test_killed_at_each_call_of_a_program_that_hides_faster_than_its_disk(gate: str) -> None:
    """G1, G2, G2k: while a set is in flight another one waits, and newer ones take its place."""
    result = kill_at_each(gate, "slow")
    assert result["hit"] > (0.5 if gate == "start" else 0.2) * result["tried"], result  # and which sets wait, too


def test_killed_at_each_call_while_it_restores() -> None:
    """G3: a run was killed just after a hide; the next one is killed at each call of its own start; then it goes on."""
    result = kill_at_each("start", prepare=True)
    assert result["hit"] > 0.7 * result["tried"], result
