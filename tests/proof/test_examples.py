"""The examples, as a user would run them."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from testbed.jobs import mpiexec
from testbed.paths import EXAMPLES
from testbed.sweep import one_of
from testbed.waiting import wait_for

pytestmark = pytest.mark.xdist_group("mpi-examples")


def run(ranks: int, name: str, directory: Path, *arguments: object) -> None:
    command = mpiexec(ranks, EXAMPLES / name, "--directory", directory, *arguments)
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.parametrize("ranks", one_of([3, 1]))
def test_the_landscape_on_many_ranks_is_the_serial_one_to_the_last_bit(tmp_path: Path, ranks: int) -> None:
    """A restart on the same number of ranks can then be compared with an undisturbed run byte by byte."""
    arguments = ["--steps", "60", "--every", "20"]
    serial = [sys.executable, str(EXAMPLES / "landscape.py"), "--directory", str(tmp_path / "one"), *arguments]
    subprocess.run(serial, check=True, timeout=300)
    run(ranks, "landscape_mpi.py", tmp_path / "many", *arguments)
    z, eroded = np.concatenate([np.load(tmp_path / f"many/z-{rank}.npy") for rank in range(ranks)], axis=1)
    assert np.array_equal(z, np.load(tmp_path / "one/z.npy"))
    assert np.array_equal(eroded, np.load(tmp_path / "one/eroded.npy"))
    assert (tmp_path / "many/history.csv").read_bytes() == (tmp_path / "one/history.csv").read_bytes()


@pytest.mark.parametrize("victim", one_of([0, 2]))
def test_a_farm_that_lost_its_master_or_a_worker_goes_on_with_what_was_done(tmp_path: Path, victim: int) -> None:
    """Only the master saves; what it has saved is not computed again, and the result is that of an undisturbed run."""
    run(3, "farm.py", tmp_path / "undisturbed", "--tasks", 12)
    killed = tmp_path / "killed"
    killed.mkdir()
    manifest = (tmp_path / "undisturbed/.safepoint").read_text()
    (killed / ".safepoint").write_text(f"{manifest}store = every\n")  # the log is to tell of each
    command = mpiexec(3, EXAMPLES / "farm.py", "--directory", killed, "--tasks", 12)
    job = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    taken = killed / ".safepoint.d/rank-00000/set-00000004/taken.json"
    wait_for(lambda: taken.exists() or job.poll() is not None)
    assert job.poll() is None
    ranks = Path(f"/proc/{job.pid}/task/{job.pid}/children").read_text().split()
    ranks = [pid for proxy in ranks for pid in Path(f"/proc/{proxy}/task/{proxy}/children").read_text().split()]
    by_rank = {}
    for pid in ranks:
        environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        by_rank[int(next(entry for entry in environment if entry.startswith(b"PMI_RANK=")).split(b"=")[1])] = int(pid)
    os.kill(by_rank[victim], signal.SIGKILL)
    assert job.wait(300) != 0
    run(3, "farm.py", killed, "--tasks", 12)
    log = [json.loads(line) for line in (killed / ".safepoint.d/rank-00000/log.jsonl").read_text().splitlines()]
    (given,) = [event for event in log if event["event"] == "restored"]
    done = [event["step"] for event in log if event["event"] == "saved" and event["time"] > given["time"]]
    assert given["step"] >= 2 and done == list(range(given["step"], 12)), (given, done)
    for name in ("results.npy", "magnetization.csv"):
        assert (killed / name).read_bytes() == (tmp_path / "undisturbed" / name).read_bytes()


def test_a_chain_of_emcee_that_was_killed_again_and_again_is_the_undisturbed_chain(tmp_path: Path) -> None:
    """G1, G2k for an HDF5 file that is rewritten in place, here killed at random instants, mostly within its writes."""
    import h5py

    steps, rng = 150, random.Random(4)
    command = [sys.executable, str(EXAMPLES / "emcee_chain.py"), str(steps)]
    for name in ("undisturbed", "killed"):
        (tmp_path / name).mkdir()
    subprocess.run(command, cwd=tmp_path / "undisturbed", check=True, timeout=300, stdout=subprocess.DEVNULL)
    for kill in range(5):
        with subprocess.Popen(command, cwd=tmp_path / "killed", stdout=subprocess.PIPE, text=True) as job:
            assert job.stdout
            assert job.stdout.readline().startswith("begin at step")
            for _ in range(rng.randrange(4, 14) if kill else 2):  # once before the first save
                assert job.stdout.readline().startswith("step")
            time.sleep(rng.random() / 200)
            job.kill()
    done = subprocess.run(command, cwd=tmp_path / "killed", check=True, timeout=300, capture_output=True, text=True)
    assert not done.stdout.startswith("begin at step 0\n") and done.stdout.endswith(f"step {steps}\n")
    with h5py.File(tmp_path / "undisturbed/chain.h5") as one, h5py.File(tmp_path / "killed/chain.h5") as other:
        assert one["mcmc"].attrs["iteration"] == other["mcmc"].attrs["iteration"] == steps
        for name in ("chain", "log_prob", "accepted"):
            assert np.array_equal(one["mcmc"][name][:], other["mcmc"][name][:])
