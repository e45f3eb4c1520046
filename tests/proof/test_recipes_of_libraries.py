"""The programs of docs/recipes, killed at random moments: their results are those of an undisturbed run."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from testbed.paths import EXAMPLES
from testbed.sweep import one_of
from testbed.waiting import wait_for

KILLS = 3


def begin(work: Path, name: str, *arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, str(EXAMPLES / "recipes" / name), *map(str, arguments)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}  # beside other tests threads would mostly wait
    return subprocess.Popen(
        command, cwd=work, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def step_in(line: str, job: subprocess.Popen[str]) -> int:
    """Of a line that ends with a step; a program that died says why."""
    assert line, job.communicate(timeout=300)[1][-3000:]
    return int(line.split()[-1])


def undisturbed_and_killed(top: Path, name: str, *arguments: object, kills: int = KILLS) -> tuple[Path, Path]:
    """The directories of both runs. A kill comes some lines after the start, and a part of a step later."""
    seed = random.randrange(2**32)
    rng = random.Random(seed)
    one, other = top / "undisturbed", top / "killed"
    one.mkdir(), other.mkdir()
    with begin(one, name, *arguments) as job:
        said, failed = job.communicate(timeout=300)
    assert job.returncode == 0, failed[-3000:]
    last, saves = step_in(said.splitlines()[-1], job), said.count("\nstep ")
    starts = []
    for kill in range(kills + 1):
        with begin(other, name, *arguments) as job:
            assert job.stdout
            starts.append(step_in(job.stdout.readline(), job))
            if kill == kills:
                said, failed = job.communicate(timeout=300)
                assert job.returncode == 0, failed[-3000:]
                assert step_in(said.splitlines()[-1], job) == last
                break
            for _ in range(rng.randrange(2, saves // kills - 1)):  # the first line comes late
                before = time.monotonic()
                step_in(job.stdout.readline(), job)
            time.sleep(rng.random() * (time.monotonic() - before))
            job.kill()
    print(f"{name}: seed {seed}; began at steps {starts} of {last}")
    assert starts == sorted(starts) and starts[0] == 0 < starts[-1] < last, (seed, starts)
    return one, other


def same(one: Any, other: Any) -> bool:
    """Whether nested values of torch and Python are equal, to the last bit."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    return type(one) is type(other) and (one.equal(other) if hasattr(one, "equal") else one == other)


def test_a_training_loop_of_torch_ends_with_the_same_weights_and_random_states(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    one, other = undisturbed_and_killed(tmp_path, "torch_loop.py", 20)
    assert same(torch.load(one / "train.pt"), torch.load(other / "train.pt"))


def test_a_fit_of_lightning_ends_with_the_same_weights_and_random_states(tmp_path: Path) -> None:
    """Its loops count the epochs begun otherwise after a restart, so they are left out."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("lightning")
    one, other = undisturbed_and_killed(tmp_path, "lightning_fit.py", 12, kills=KILLS - 1)
    expected, found = torch.load(one / "last.ckpt"), torch.load(other / "last.ckpt")
    assert expected.pop("loops") and found.pop("loops") and expected["global_step"] == 12 * 16
    assert {"state_dict", "optimizer_states", "lr_schedulers", "callbacks"} <= expected.keys()
    assert same(expected, found)


def test_an_hdf5_file_that_is_held_open_ends_with_the_same_numbers(tmp_path: Path) -> None:
    h5py, numpy = pytest.importorskip("h5py"), pytest.importorskip("numpy")
    one, other = undisturbed_and_killed(tmp_path, "h5py_heat.py")
    with h5py.File(one / "heat.h5") as expected, h5py.File(other / "heat.h5") as found:
        assert expected.keys() == found.keys() == {"u", "hottest"}
        assert all(numpy.array_equal(expected[name][:], found[name][:]) for name in expected)


@pytest.mark.parametrize("how", one_of(["fork", "spawn"]))
def test_a_pool_of_processes_ends_with_the_same_results(tmp_path: Path, how: str) -> None:
    pytest.importorskip("numpy")
    one, other = undisturbed_and_killed(tmp_path, "pool.py", 40, how)
    assert (one / "state.npz").read_bytes() == (other / "state.npz").read_bytes()


def files_of(store: Path) -> dict[str, bytes]:
    return {str(path.relative_to(store)): path.read_bytes() for path in store.rglob("*") if path.is_file()}


def test_a_zarr_store_to_which_xarray_appends_ends_with_the_same_bytes(tmp_path: Path) -> None:
    pytest.importorskip("xarray"), pytest.importorskip("zarr")
    one, other = undisturbed_and_killed(tmp_path, "zarr_store.py", 300)
    assert len(files_of(one / "waves.zarr")) > 30
    assert files_of(one / "waves.zarr") == files_of(other / "waves.zarr")


def ended(driver: subprocess.Popen[str]) -> str:
    said, failed = driver.communicate(timeout=300)
    assert driver.returncode == 0, failed[-3000:]
    return said


def test_a_job_of_submitit_that_was_preempted_and_killed_ends_with_the_same_state(tmp_path: Path) -> None:
    """Preempted it goes on by itself; killed it is submitted once more."""
    pytest.importorskip("submitit")
    seed = random.randrange(2**32)
    rng = random.Random(seed)
    one, other = tmp_path / "undisturbed", tmp_path / "killed"
    one.mkdir(), other.mkdir()
    with begin(one, "submitit_job.py", 300, "local") as driver:
        expected = ended(driver).splitlines()[-1]
    with begin(other, "submitit_job.py", 300, "local") as driver:
        assert driver.stdout
        job = step_in(driver.stdout.readline(), driver)  # of this executor: the process that starts the tasks
        log = other / f"log/{job}_0_log.out"
        for lives, how in enumerate((signal.SIGUSR2, signal.SIGUSR2, signal.SIGKILL), start=1):
            wait_for(lambda lives=lives: log.exists() and log.read_text().count("begin at step") == lives)
            time.sleep(rng.uniform(0, 0.8))
            (task,) = Path(f"/proc/{job}/task/{job}/children").read_text().split()
            os.kill(int(task), how)
        assert driver.communicate(timeout=300) and driver.returncode != 0
    starts = [int(line.split()[-1]) for line in log.read_text().splitlines() if line.startswith("begin at step")]
    with begin(other, "submitit_job.py", 300, "local") as driver:
        said = ended(driver)
    print(f"submitit_job.py: seed {seed}; began at steps {starts} of 300, and once more")
    assert starts == sorted(starts) and 0 < starts[-1] < 300
    assert said.splitlines()[-1] == expected and expected.startswith("result ")
    assert (one / "state.npz").read_bytes() == (other / "state.npz").read_bytes()


def test_the_cells_of_the_page_of_notebooks_may_be_run_again_in_any_life(tmp_path: Path) -> None:
    """Each life runs the first cell twice, and is killed in the second one; the last one is not."""
    numpy = pytest.importorskip("numpy")
    text = (EXAMPLES.parent / "docs/notebooks.md").read_text("utf-8")
    first, second = re.findall(r"^```python\n(.*?)^```$", text, re.M | re.S)[:2]
    assert "1000:" in second
    kill = "    step % 30 or os.kill(os.getpid(), 9)\n"
    for steps in (30, 60, 80):
        code = f"import os\n{first}{first}{second.replace('1000:', '80:')}{kill}print(step, x.sum())"
        done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == (0 if steps == 80 else -9), done.stderr
    rng, x = numpy.random.default_rng(1), numpy.zeros(1000)
    for _ in range(80):
        x += rng.normal(size=x.size)
    assert done.stdout.split() == ["80", str(x.sum())]
