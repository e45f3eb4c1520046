"""`safepoint crash-test` and `compare`: planted mistakes of restarts are found, and named."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest
from test_mpi import mpiexec

HOUSE = Path(__file__).parents[1]
sys.path.append(str(HOUSE / "examples"))

SOLVER = """\
import random, sys, time
import safepoint

STEPS = 24
safepoint.init()
saved = safepoint.restore()
step = saved.step if saved else 0
rng = random.Random(7)
total = 0.0
if saved:
    u, before = map(float, open("u.txt").read().split())
    rng.setstate(eval(open("rng.txt").read()))
    total = float(open("mean.txt").read().split()[0])
    {after_restore}
else:
    u, before = 1.0, 0.9

def write():
    open("u.txt", "w").write(f"{{u!r}} {{before!r}}")
    open("rng.txt", "w").write(repr(rng.getstate()))
    open("mean.txt", "w").write(f"{{total!r}} {{total / (step or 1)!r}}")

if not saved:
    write()
while step < STEPS:
    safepoint.hide(step=step)
    time.sleep(0.01)
    u, before = 2 * u - before - 0.01 * u + 0.001 * rng.random(), u
    step += 1
    total += u
    {inside}
    write()
safepoint.finish(step=step)
"""

RANKED = """\
import sys, time
from mpi4py import MPI
import safepoint

comm = MPI.COMM_WORLD
rank, size = comm.rank, comm.size
safepoint.init(comm=comm)
saved = safepoint.restore()
step = saved.step if saved else 0
u = float(open(f"u-{{{whose}}}.txt").read()) if saved else 1.0 + rank

def write():
    open(f"u-{{rank}}.txt", "w").write(repr(u))
    if rank == 0:
        open("sum.txt", "w").write(repr(total))

total = comm.allreduce(u)
if not saved:
    write()
while step < 24:
    safepoint.hide(step=step)
    time.sleep(0.01)
    u += 0.25 * (rank + 1)
    total = {total}
    step += 1
    safepoint.watch(step, total=total)
    write()
safepoint.finish(step=step)
"""


def planted(directory: Path, *, after_restore: str = "pass", inside: str = "pass", manifest: str = "") -> Path:
    directory.mkdir(exist_ok=True)
    (directory / "solver.py").write_text(SOLVER.format(after_restore=after_restore, inside=inside))
    (directory / ".safepoint").write_text(manifest or "u.txt\nrng.txt\nmean.txt\n")
    return directory


def safepoint(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(HOUSE), "COLUMNS": "10000"}
    return subprocess.run(
        [sys.executable, "-m", "safepoint", *arguments], cwd=directory, capture_output=True, text=True, env=environment,
        stdin=subprocess.DEVNULL, timeout=300,
    )  # fmt: skip


def try_out(directory: Path, tmp_path: Path, *options: str, command: tuple[str, ...] = ()) -> dict[str, Any]:
    """What a crash test says; its runs stay below `tmp_path`. Again, if the machine became so much faster after the
    undisturbed run that most of the kills, which are drawn from its length, came too late."""
    for runs in ("runs", "runs-2", "runs-3"):
        done = safepoint(
            directory, "crash-test", "--kills", "4", "--seed", "5", "--json", "--work", str(tmp_path / runs), *options,
            "--", *(command or (sys.executable, "solver.py")),
        )  # fmt: skip
        assert done.stdout, done.stderr
        said: dict[str, Any] = json.loads(done.stdout)
        assert done.returncode == said["code"], done.stderr
        if said["verdict"] != "no restart" or "was killed 1 time," not in said["text"]:
            break
    return said


def first(said: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = said["ledger"]["first"][0]
    return found


def names(said: dict[str, Any]) -> set[str]:
    return {item["name"] for item in said["ledger"]["first"]}


def test_a_right_program_is_equal_and_was_restarted(tmp_path: Path) -> None:
    said = try_out(planted(tmp_path / "w"), tmp_path)
    assert (said["verdict"], said["code"]) == ("equal", 0), said
    assert said["restarts"] >= 1 and len(said["kills"]) >= 2 and said["ledger"]["steps"] == 24


MISTAKES = {
    "a field of the step before": ({"after_restore": "before = u"}, {"u.txt"}, "a field of the step before"),
    "the random numbers": ({"after_restore": "rng.seed(7)"}, {"u.txt", "rng.txt"}, "random number generator"),
    "a step too many": ({"after_restore": "step += 1"}, {"u.txt", "rng.txt"}, "counted wrong by one"),
    "statistics": ({"after_restore": "total = 0.0"}, {"mean.txt"}, "accumulated statistics"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_planted_mistake_is_found_at_the_step_after_the_restart(tmp_path: Path, mistake: str) -> None:
    plant, files, look = MISTAKES[mistake]
    said = try_out(planted(tmp_path / "w", **plant), tmp_path)
    assert (said["verdict"], said["code"]) == ("differs", 1), said
    found = first(said)
    assert found["step"] == found["restored_step"] + 1 and found["restarts"] >= 1, found
    assert names(said) >= files and look in said["look"], said
    hide = next(n for n, line in enumerate(SOLVER.splitlines(), 1) if "hide" in line)
    assert found["at_a"] == found["at_b"] == f"solver.py:{hide}"
    assert "values differ" in found["text"]  # which and by how much, as the sets are kept
    if mistake == "statistics":
        assert names(said) == files and set(said["ledger"]["names"]) == files


@pytest.mark.parametrize(
    "manifest", ["u.txt\nrng.txt\nmean.txt\n", "u.txt\nrng.txt\nmean.txt\nhistory.csv copy optional\n"]
)
def test_rows_that_are_there_twice_are_found(tmp_path: Path, manifest: str) -> None:
    """Not listed at all; listed as a copy it is given back as it was, and all is well."""
    write = 'open("history.csv", "a").write(f"{step}, {u!r}\\n"); time.sleep(0.04)'
    said = try_out(planted(tmp_path / "w", inside=write, manifest=manifest), tmp_path)
    if "copy" in manifest:
        assert said["verdict"] == "equal", said
        return
    assert said["verdict"] == "differs" and not said["ledger"]["first"], said
    assert [file["path"] for file in said["files"]] == ["history.csv"]
    assert "has lines twice" in said["look"] and "append" in said["look"]


def ranked(directory: Path, *, whose: str = "rank", total: str = "comm.allreduce(u)") -> Path:
    directory.mkdir()
    (directory / "solver.py").write_text(RANKED.format(whose=whose, total=total))
    (directory / ".safepoint").write_text("u-{rank}.txt\nsum.txt\n")
    return directory


@pytest.mark.xdist_group("mpi")
@pytest.mark.parametrize("one", [False, True])
def test_four_ranks_are_equal_and_one_that_reads_the_file_of_another_is_named(tmp_path: Path, one: bool) -> None:
    command = tuple(mpiexec(4, "solver.py"))
    options = ("--one-rank",) if one else ()
    said = try_out(ranked(tmp_path / "right"), tmp_path, *options, command=command)
    assert said["verdict"] == "equal" and said["restarts"] >= 1, said
    assert not one or {kill["process"] for kill in said["kills"]} & {f"rank {n}" for n in range(4)}
    if one:
        return
    os.rename(tmp_path / "runs", tmp_path / "runs-before")
    said = try_out(ranked(tmp_path / "wrong", whose="(1, 0, 2, 3)[rank]"), tmp_path, command=command)
    assert said["verdict"] == "differs", said
    found = first(said)
    assert found["step"] == found["restored_step"] + 1
    assert {"u-0.txt", "u-1.txt"} <= set(said["ledger"]["names"]) and "u-2.txt" not in said["ledger"]["names"]


@pytest.mark.xdist_group("mpi")
def test_an_unordered_reduction_is_not_taken_for_a_mistake_of_the_restart(tmp_path: Path) -> None:
    parts = "[0.1 * x * 1e-3 ** k for k, x in enumerate(comm.allgather(u))]"
    shuffled = f"sum(__import__('random').SystemRandom().sample({parts}, size))"
    assert RANKED.count("{total}") == 1
    directory = ranked(tmp_path / "w", total=f"comm.bcast({shuffled})")
    said = try_out(directory, tmp_path, command=tuple(mpiexec(4, "solver.py")))
    assert (said["verdict"], said["code"]) == ("not deterministic", 2), said
    assert first(said)["name"].startswith(("total", "sum.txt"))


def test_threads_that_race_are_not_taken_for_a_mistake_of_the_restart(tmp_path: Path) -> None:
    race = textwrap.dedent("""\
        import concurrent.futures as cf
            with cf.ThreadPoolExecutor(4) as pool:
                wait = lambda: time.sleep(random.SystemRandom().random() / 500)
                jobs = [pool.submit(lambda k=k: (wait(), 1 / (k + 3))[1]) for k in range(12)]
                for done in cf.as_completed(jobs):
                    u = u * 1.0001 + done.result()
        """)
    said = try_out(planted(tmp_path / "w", inside=race.rstrip()), tmp_path, "--rtol", "1e-300")
    assert (said["verdict"], said["code"]) == ("not deterministic", 2), said
    assert "B" in said["look"]


def test_a_tolerance_makes_small_differences_equal(tmp_path: Path) -> None:
    plant = {"after_restore": "u *= 1 + 1e-13"}
    said = try_out(planted(tmp_path / "w", **plant), tmp_path, "--rtol", "1e-6", "--exclude", "nothing")
    assert said["verdict"] == "equal" and said["ledger"]["tolerated"], said


def test_a_program_that_fails_after_a_restart_is_told_with_its_last_words(tmp_path: Path) -> None:
    said = try_out(planted(tmp_path / "w", after_restore="sys.exit('no such field')"), tmp_path)
    assert (said["verdict"], said["code"]) == ("fails after a restart", 1), said
    assert "no such field" in said["text"]


def test_a_program_that_never_restores_is_no_proof(tmp_path: Path) -> None:
    directory = planted(tmp_path / "w")
    text = (directory / "solver.py").read_text()
    text = text.replace(
        "saved = safepoint.restore()", "import shutil; shutil.rmtree('.safepoint.d', True)\nsaved = None"
    )
    (directory / "solver.py").write_text(
        text.replace("safepoint.init()", "").replace("rng = ", "safepoint.init()\nrng = ")
    )
    said = try_out(directory, tmp_path)
    assert (said["verdict"], said["code"]) == ("no restart", 2), said


@pytest.mark.parametrize(
    ("command", "text"),
    [
        ((sys.executable, "-c", "raise SystemExit('broken input')"), "broken input"),
        ((sys.executable, "-c", "pass"), "no ledger"),
    ],
)
def test_an_undisturbed_run_that_fails_or_saves_nothing_is_no_verdict(
    tmp_path: Path, command: tuple[str, ...], text: str
) -> None:
    said = try_out(planted(tmp_path / "w"), tmp_path, command=command)
    assert (said["verdict"], said["code"]) == ("no run", 2) and text in said["text"], said


def test_bad_calls_are_refused_and_change_nothing(tmp_path: Path) -> None:
    directory = planted(tmp_path / "w")
    before = sorted(os.listdir(directory))
    for arguments, text in (
        (("--tolerance", "u", "--", "x"), "must be NAME=RTOL"),
        (("--", str(directory / "solver.py")), "in copies of it"),
        (("--", "x", f"--dir={directory}"), "in copies of it"),
        (("--", "no-such-program"), "cannot start no-such-program"),
        (("--work", str(directory / "runs"), "--", "x"), "name a place elsewhere"),
    ):
        done = safepoint(directory, "crash-test", *arguments)
        assert done.returncode not in (0, 1) and text in done.stderr + done.stdout, done
    assert sorted(os.listdir(directory)) == before


@pytest.mark.xdist_group("mpi")
def test_a_rank_without_files_has_its_values_in_a_ledger_and_leaves_restarts_alone(tmp_path: Path) -> None:
    directory = ranked(tmp_path / "w", total="comm.allreduce(u)")
    (directory / ".safepoint").write_text("sum.txt\n")
    from_file = 'float(open(f"u-{rank}.txt").read()) if saved else 1.0 + rank'
    text = (directory / "solver.py").read_text().replace(from_file, "1.0 + rank")
    (directory / "solver.py").write_text(text)
    for last in ("raise SystemExit(3)", ""):
        (directory / "solver.py").write_text(text.replace("safepoint.finish", f"{last}\nsafepoint.finish"))
        environment = {**os.environ, "SAFEPOINT_LEDGER": "modify"}
        done = subprocess.run(mpiexec(2, "solver.py"), cwd=directory, env=environment, capture_output=True)
        assert (done.returncode == 0) == (not last), done.stderr
    side = directory / ".safepoint.d"
    assert not (side / "rank-00001").exists()
    rows = [json.loads(line) for line in (side / "log-00001.jsonl").read_text().splitlines()]
    assert [row["event"] for row in rows if row["event"] != "watch"] == ["start", "restored"]
    assert max(row["step"] for row in rows if row["event"] == "watch") == 24
    assert json.loads(safepoint(directory, "status", "--json").stdout)["foreign"] == []


@pytest.mark.xdist_group("mpi")
@pytest.mark.parametrize("name", ["landscape", "landscape_mpi", "emcee_chain"])
def test_the_examples_are_equal(tmp_path: Path, name: str) -> None:
    directory = tmp_path / "w"
    directory.mkdir()
    program = str(HOUSE / f"examples/{name}.py")
    namespace = importlib.import_module(name).__dict__
    (directory / ".safepoint").write_text(namespace["MANIFEST"])
    command = {
        "landscape": (sys.executable, program, "--steps", "400", "--every", "20"),
        "landscape_mpi": (*mpiexec(4, program), "--steps", "300", "--every", "20"),
        "emcee_chain": (sys.executable, program, "60"),
    }[name]
    said = try_out(directory, tmp_path, command=command)
    assert said["verdict"] == "equal" and said["restarts"] >= 1, said


def test_a_manifest_that_is_a_link_stays_as_it_is(tmp_path: Path) -> None:
    directory = planted(tmp_path / "w")
    shared = tmp_path / "common"
    (directory / ".safepoint").rename(shared)
    (directory / ".safepoint").symlink_to(shared)
    before = shared.read_text()
    assert try_out(directory, tmp_path)["verdict"] == "equal"
    assert shared.read_text() == before and (directory / ".safepoint").is_symlink()


def test_an_unlisted_file_that_a_kill_has_cost_is_a_difference(tmp_path: Path) -> None:
    """It is written once, beside the sets, by the life that is killed then or never."""
    inside = 'time.sleep(0.01); saved or step > 12 or open(f"snap-{step}.txt", "w").write("x")'
    said = try_out(planted(tmp_path / "w", inside=inside), tmp_path)
    assert said["verdict"] == "differs" and all(f["path"].startswith("snap-") for f in said["files"]), said


@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux: it dies with its parent")
def test_a_test_that_is_ended_leaves_nothing_running_and_no_copies(tmp_path: Path) -> None:
    directory = planted(tmp_path / "w", inside="time.sleep(0.5)")
    environment = {**os.environ, "PYTHONPATH": str(HOUSE), "TMPDIR": str(tmp_path)}
    words = [sys.executable, "-m", "safepoint", "crash-test", "--", sys.executable, "solver.py"]
    with subprocess.Popen(words, cwd=directory, env=environment, stderr=subprocess.DEVNULL) as test:
        deadline = time.monotonic() + 30
        while not list(tmp_path.glob("safepoint-crash-test-*/A/.safepoint.d/rank-00000/set-*/record.json")):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        owner = json.loads(
            next(tmp_path.glob("safepoint-crash-test-*/A/.safepoint.d/rank-00000/owner.json")).read_text()
        )
        test.terminate()
        assert test.wait(30) == 143
    assert not list(tmp_path.glob("safepoint-crash-test-*")) and not Path(f"/proc/{owner['pid']}").exists()


def test_the_report_reads_well_and_what_is_equal_leaves_nothing_behind(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(HOUSE), "COLUMNS": "80", "TMPDIR": str(tmp_path)}
    for plant, begin in (({}, "equal: resumed"), ({"after_restore": "before = u"}, "differs: a run")):
        directory = planted(tmp_path / "w", **plant)
        done = subprocess.run(
            [sys.executable, "-m", "safepoint", "crash-test", "--kills", "3", "--seed", "2", "--", sys.executable,
             "solver.py"],
            cwd=directory, capture_output=True, text=True, env=environment, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        assert done.stdout.startswith(begin), done
        assert "kill 2 of 3: all processes" in done.stderr
        assert not plant or all(f"\n{part}" in done.stdout for part in ("first difference: step", "where to look:"))
        left = [name for name in os.listdir(tmp_path) if name.startswith("safepoint-crash-test")]
        assert len(left) == bool(plant)
        assert max(map(len, done.stdout.splitlines())) <= 80 or plant
