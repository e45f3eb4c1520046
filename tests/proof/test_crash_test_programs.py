"""`safepoint crash-test` and programs of many ranks or threads, and the examples."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from testbed.jobs import mpiexec
from testbed.paths import HOUSE
from testbed.sweep import some_of
from testbed.tried import RANKED, first, planted, ranked, safepoint, try_out


@pytest.mark.xdist_group("mpi-examples")
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


@pytest.mark.xdist_group("mpi-examples")
def test_an_unordered_reduction_is_not_taken_for_a_mistake_of_the_restart(tmp_path: Path) -> None:
    parts = "[x / n for x in comm.allgather(u) for n in range(1, 65)]"  # two orders agree in one step of eight
    shuffled = f"sum(sorted({parts}, key=lambda _: __import__('random').SystemRandom().random()))"
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


@pytest.mark.xdist_group("mpi-examples")
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


@pytest.mark.xdist_group("mpi-examples")
@pytest.mark.parametrize("name", some_of(["landscape", "landscape_mpi", "emcee_chain"], 1, 1))
def test_the_examples_are_equal(tmp_path: Path, name: str) -> None:
    directory = tmp_path / "w"
    directory.mkdir()
    program = str(HOUSE / f"examples/{name}.py")
    namespace = importlib.import_module(name).__dict__
    (directory / ".safepoint").write_text(namespace["MANIFEST"])
    command = {
        "landscape": (sys.executable, program, "--steps", "400", "--every", "20"),
        "landscape_mpi": (*mpiexec(4, program), "--steps", "120", "--every", "10"),
        "emcee_chain": (sys.executable, program, "60"),
    }[name]
    said = try_out(directory, tmp_path, command=command)
    assert said["verdict"] == "equal" and said["restarts"] >= 1, said


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


def test_a_tolerance_makes_small_differences_equal(tmp_path: Path) -> None:
    plant = {"after_restore": "u *= 1 + 1e-13"}
    said = try_out(planted(tmp_path / "w", **plant), tmp_path, "--rtol", "1e-6", "--exclude", "nothing")
    assert said["verdict"] == "equal" and said["ledger"]["tolerated"], said


def test_an_unlisted_file_that_a_kill_has_cost_is_a_difference(tmp_path: Path) -> None:
    """It is written once, beside the sets, by the life that is killed then or never."""
    inside = 'time.sleep(0.01); saved or open(f"snap-{step}.txt", "w").write("x")'
    said = try_out(planted(tmp_path / "w", inside=inside), tmp_path)
    assert said["verdict"] == "differs" and all(f["path"].startswith("snap-") for f in said["files"]), said
