"""G7 for real: disks that are full, quotas that are used up, a file system that makes itself read-only in mid-run. The
program gets an error that names the cause; then there is room again, or a repaired disk, and it goes on."""

from __future__ import annotations

import os
import re
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from testbed import mounts, tally
from testbed.lives import Life, Running, directory_for_lives, goes_on
from testbed.mounts import Volume
from testbed.powercut import durable
from testbed.sweep import LONG
from testbed.tracing import tracer
from testbed.tracing import why_not as no_strace

STEPS = 4
KIB_LEFT = (0, 4, 16, 40, 64, 100, 180, 300, 500, 900, 1500, 2600, 4000, 5400, 6800, 8200)
ext4_only = pytest.mark.skipif(mounts.why_not("ext4") is not None, reason=f"ext4: {mounts.why_not('ext4')}")


def checked(life: Life, *causes: str) -> None:
    """It ended well, or with an error of ours that names a file and the cause, or one of the program's own write."""
    if life.status == 1:
        before = r"(its fsync failed before \()?"
        cause = r"(?P<file>[^ :]+): " + before + r"(?P<cause>[A-Z][A-Za-z/ -]+)[;)]"
        ours = re.match(r"(Save|Restore)Error: (.*?[:(] ?)?" + cause, life.error)
        own = re.match(r"the program's own: .*(?P<cause>" + "|".join(causes) + ")", life.error)
        found = ours or own
        assert found and found["cause"] in causes and "None" not in life.error, life.error


@ext4_only
@pytest.mark.parametrize("shape", ["solver", "large", "many"])
def test_with_any_amount_of_room_it_ends_or_fails_clearly_and_goes_on_when_there_is_more(shape: str) -> None:
    failed = 0
    with Volume.made("ext4 ordered") as volume:
        for room in KIB_LEFT if LONG else KIB_LEFT[::3]:
            for how in ("background", "inline"):
                with directory_for_lives(volume.path, shape) as directory:
                    ballast = volume.fill(room=room << 10)
                    with Running(directory, STEPS, shape, how) as program:
                        life = program.end(may_fail=True)
                    checked(life, "No space left on device")
                    failed += life.status == 1
                    ballast.unlink()
                    goes_on(directory, life, STEPS, shape, cut=True)
                    tally.count("full disks", f"ext4, {shape}", int(life.status == 1))
    assert failed >= 4, "hardly any life met a full disk: this tests nothing"


@pytest.mark.skipif(no_strace is not None, reason=str(no_strace))
@pytest.mark.parametrize("call", ["write", "mkdir", "rename", "fsync", "copy_file_range", "ftruncate"])
@pytest.mark.parametrize("then", ["once", "from then on"])
def test_a_quota_that_is_used_up_at_any_call_is_an_error_and_costs_nothing_that_was_safe(call: str, then: str) -> None:
    """EDQUOT, injected into the n-th such call of each thread. (A real quota needs a file system that keeps them.)"""
    shape = "large" if call == "copy_file_range" else "kinds"

    def one(index: int) -> int:
        with directory_for_lives(shape=shape) as directory:
            trace = directory.parent / f"{directory.name}.trace"
            how = ["-f", "-e", f"trace={call}", "-o", str(trace)]
            how += ["-e", f"inject={call}:error=EDQUOT:when={index}{'+' if then != 'once' else ''}"]
            with Running(directory, STEPS, shape, "gate-start") as program, tracer(program, "start", *how):
                life = program.end(may_fail=True)
            met = "(INJECTED)" in trace.read_text()
            trace.unlink()
            checked(life, "Disk quota exceeded")
            goes_on(directory, life, STEPS, shape, cut=True)
            tally.count("quotas used up", call, int(met))
            return int(met)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        met = sum(pool.map(one, range(1, 17, 1 if LONG else 5)))
    assert met, "no life met it: this tests nothing"


@ext4_only
@pytest.mark.parametrize("kind", ["ext4 ordered", "ext4 writeback"])
def test_a_file_system_that_becomes_read_only_in_mid_run_is_an_error_and_after_repair_all_goes_on(kind: str) -> None:
    failed = 0
    with Volume.made(kind) as volume:
        for number in range(16 if LONG else 4):
            with directory_for_lives(volume.path, "kinds") as directory:
                durable(directory)
                gate = ("start", "saver")[number % 2]  # before all else, or when two steps were hidden
                with Running(directory, STEPS, "kinds", f"gate-{gate}") as program:
                    program.until(f"gate {gate}")
                    if number < 2:  # it stands still, and is sure to meet it
                        volume.break_down()
                        program.go()
                    else:
                        program.go()
                        time.sleep(0.003 * number)
                        volume.break_down()
                    life = program.end(may_fail=True)
                checked(life, "Read-only file system", "Input/output error")  # what an fsync says then
                failed += life.status == 1
                volume.repair()
                goes_on(directory, life, STEPS, "kinds", cut=True)
                tally.count("file systems that broke down", kind, int(life.status == 1))
    assert failed >= 2, "no life met it: this tests nothing"
