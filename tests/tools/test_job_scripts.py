"""Commands for job scripts: init, hide, restore and finish by a shell."""

from __future__ import annotations

import errno
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from testbed.commands import a_run, answer, cli, damages, make, process, snapshot, unrecorded, write

from safepoint.disk import Disk, SyncFailed
from safepoint.manifest import load


# For job scripts.
def test_a_job_script_saves_and_finishes_with_commands(tmp_path: Path) -> None:
    (tmp_path / ".safepoint").write_text("u.dat\n")
    for step in (1, 2, 3):
        (tmp_path / "u.dat").write_text(f"step {step}")
        done = process("hide", "--step", step, cwd=tmp_path)
        assert (done.returncode, done.stdout) == (0, f"saved set {step} (step {step}): 1 file\n"), done.stderr
    (tmp_path / "v.dat").write_text("new")
    said = process("hide", cwd=tmp_path)
    assert (said.returncode, said.stdout) == (0, "nothing to hide\n")
    assert "none of these files exists: u.dat; changed since set 3 (step 3): v.dat: list in" in said.stderr
    (tmp_path / "u.dat").write_text("torn")
    assert cli("restore", tmp_path).exit_code == 0 and (tmp_path / "u.dat").read_text() == "step 3"
    assert cli("finish", tmp_path, "--step", 3).exit_code == 0
    assert answer("status", tmp_path)["finished"]["step"] == 3


def test_a_job_script_whose_manifest_lists_another_file_is_told_so_by_its_first_hide(tmp_path: Path) -> None:
    """Each hide is a process of its own: none could count."""
    (tmp_path / ".safepoint").write_text("u.dat\n")
    assert process("restore", cwd=tmp_path).returncode == 20
    for changed in ("", "; changed since the start: v.dat: list in .safepoint what is to be saved"):
        (tmp_path / "v.dat").write_text("new")
        said = process("hide", cwd=tmp_path)
        assert (said.returncode, said.stdout) == (0, "nothing to hide\n")
        assert said.stderr == f"safepoint: nothing to hide: none of these files exists: u.dat{changed}\n"


def test_a_first_manifest_is_proposed_from_what_changed_last(tmp_path: Path) -> None:
    for k in range(5):
        (tmp_path / f"f{k}.vtk").write_text("v")
    (tmp_path / "run.log").write_text("l")
    (tmp_path / "rows").write_text("1 2\n3 4\n")
    (tmp_path / "held.log").write_text("")
    sqlite3.connect(tmp_path / "params").execute("create table t(x)").connection.close()
    (tmp_path / "odd [name] {1}.dat").write_text("d")
    (tmp_path / "solver.py").write_text("s")
    (tmp_path / ".hidden").write_text("h")
    (tmp_path / "z.zarr").mkdir()
    (tmp_path / "z.zarr/0").write_text("0")
    with (tmp_path / "big,1.bin").open("wb") as file:
        file.truncate(200 << 20)
    (tmp_path / "old.dat").write_text("o")
    os.utime(tmp_path / "old.dat", (1e9, 1e9))
    with (tmp_path / "held.log").open("a"):
        lines = answer("init", tmp_path, "--print")["text"].splitlines()
    assert ["as a program has it open" in line for line in lines if line.startswith("held.log")] == [True]
    text = answer("init", tmp_path, "--print")["text"]
    assert not (tmp_path / ".safepoint").exists()
    assert cli("init", tmp_path).exit_code == 0 and (tmp_path / ".safepoint").read_text() == text
    entries = {e.text: (e.kind, e.compress) for e in load(str(tmp_path)).entries}
    assert entries == {
        "*.vtk": ("move", None), "run.log": ("move", None), "rows": ("copy", None), "params": ("copy", None),
        "held.log": ("move", None), "odd [[]name] {{1}}.dat": ("move", None),
        "z.zarr/": ("move", None), "big,1.bin": ("move", 3),
    }  # fmt: skip
    found, missing = load(str(tmp_path)).find(str(tmp_path), os.lstat)
    assert not missing and "odd [name] {1}.dat" in found and "old.dat" not in found
    assert text.count("# proposed") == len(entries)
    again = cli("init", tmp_path)
    assert again.exit_code == 10 and "is there already" in again.stderr
    assert cli("init", tmp_path, "--force").exit_code == 0


def test_a_database_is_proposed_as_a_copy_and_what_lies_beside_it_not_at_all(tmp_path: Path) -> None:
    for name in ("a.db", "a.db-wal", "a.db-shm", "b.dat"):
        (tmp_path / name).write_bytes(b"SQLite format 3\0" if name == "a.db" else b"data")
    assert cli("init", tmp_path).exit_code == 0
    assert {e.text: e.kind for e in load(str(tmp_path)).entries} == {"a.db": "copy", "b.dat": "move"}
    assert "# proposed, with what SQLite keeps beside it" in (tmp_path / ".safepoint").read_text()


# What a second reader found.
@damages
@pytest.mark.parametrize("command", [("hide", "--step", 50), ("finish",)])
def test_a_job_script_that_goes_on_after_a_killed_hide_or_restore_is_asked_to_restore_first(
    work: Path, command: Sequence[object]
) -> None:
    """Else the only copy of the newest files would go, or a mixture pass for a set."""
    unrecorded(work, 3, boot=Disk().page_cache(str(work)).boot)
    for path in work.iterdir():
        if not path.name.startswith(".safepoint"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    before = snapshot(work / ".safepoint.d/rank-00000/set-00000003")
    result = cli(*command, work)
    assert result.exit_code == 10 and "set 3 is not whole" in result.stderr and "restore first" in result.stderr
    assert snapshot(work / ".safepoint.d/rank-00000/set-00000003") == before


def test_a_failed_fsync_is_not_forgotten_by_the_next_hide_of_a_script(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """G7: the pages are clean then, so a second fsync would succeed over nothing."""
    work = make(tmp_path / "work", sets=1, torn=False)
    write(work, 10)

    def fail(self: Disk, paths: Any, opened: Any = ()) -> None:
        for path in paths:
            if path.endswith("u.npy"):
                raise SyncFailed(errno.EIO, os.strerror(errno.EIO), path)

    with monkeypatch.context() as patch:
        patch.setattr(Disk, "sync_files", fail)
        assert cli("hide", "--step", 10, work).exit_code == 16
    result = cli("hide", "--step", 10, work)
    assert result.exit_code == 16 and "u.npy" in result.stderr, result.output
    assert answer("status", work)["restart"]["set"] == 1
    assert cli("restore", "-y", work).exit_code == 0
    write(work, 10)
    assert cli("hide", "--step", 10, work).exit_code == 0


def test_init_does_not_replace_a_manifest_by_an_empty_one(tmp_path: Path) -> None:
    (tmp_path / ".safepoint").write_text("u.npy\n")
    result = cli("init", "--force", tmp_path)
    assert result.exit_code == 10 and (tmp_path / ".safepoint").read_text() == "u.npy\n"


@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux: it looks through /proc")
@pytest.mark.parametrize("command", [("drop", 3, "-y"), ("clean", "-y"), ("restore", "-y")])
def test_what_a_live_run_has_started_is_not_taken_for_what_a_killed_one_left(
    work: Path, command: Sequence[object]
) -> None:
    with a_run(work) as running:
        mark = {**os.environ, "SAFEPOINT_RUN": os.path.realpath(work)}
        child = subprocess.Popen(["sleep", "60"], env=mark)
        try:
            result = cli(*command, work)
        finally:
            child.kill()
            child.wait()
    assert result.exit_code == 13 and f"process {running.pid}" in result.stderr and "is gone" not in result.stderr


def test_a_job_script_may_begin_its_table_anew_after_the_restore(anew: Path) -> None:
    """G1, G2: killed before its next `safepoint hide`, and after it."""
    for name in ("u.npy", "big.dat"):
        (anew / name).write_bytes(b"half")
    assert answer("restore", anew)["set"] == 3
    (anew / "history.csv").write_text("begun anew\n")
    write(anew, 30)
    assert answer("hide", anew, "--step", 30)["number"] == 4
    assert answer("verify", anew)["damaged"] == []
    assert answer("restore", anew)["set"] == 4
    assert (anew / "history.csv").read_text() == "begun anew\n30, 7.5\n"
