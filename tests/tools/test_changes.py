"""Commands that change something: restore by hand, extract, drop, clean; and what they do beside a run."""

from __future__ import annotations

import os
import pty
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import write_cli
from testbed.commands import (
    MANIFEST,
    a_run,
    answer,
    ask,
    cli,
    damages,
    hurt,
    in_place,
    make,
    snapshot,
    write,
)
from testbed.lives import killed_beside_a_child
from testbed.sessions import ordinary_user
from testbed.sweep import some_of

import safepoint
from safepoint import Session
from safepoint.cli.terminal import DISK
from safepoint.manifest import load
from safepoint.record import Life, Record, dump, parse_record
from safepoint.restoring.baseline import note_baseline
from safepoint.restoring.choose import Choice, choose
from safepoint.restoring.read import Damaged
from safepoint.restoring.stage import extract
from safepoint.root import Root
from safepoint.saving import commit, find, prune, take
from safepoint.saving.memory import Memory, Options
from safepoint.sealed import FORMAT


def test_an_older_set_is_restored_only_when_the_loss_of_the_newer_is_agreed_to(work: Path) -> None:
    before = snapshot(work)
    result = cli("restore", work, "--set", 1)
    assert result.exit_code == 10 and "set 3 (step 20)" in result.stderr and "--yes" in result.stderr
    code, output = ask("n", "restore", work, "--set", 1)
    assert code == 10 and "set 2 (step 10): whole" in output and "nothing was changed" in output
    assert snapshot(work) == before
    code, output = ask("y", "restore", work, "--set", 1)
    assert code == 0 and "restored set 1 (step 0)" in output
    assert (work / "history.csv").read_text() == "0, 0.0\n"
    assert [s["number"] for s in answer("status", work)["sets"]] == [1]


def test_a_set_is_named_by_its_step_too(work: Path, tmp_path: Path) -> None:
    """The newest of that step; an unknown one is answered with those that are there."""
    steps = {each["number"]: each["step"] for each in answer("status", work)["sets"]}
    number, step = min(steps.items())
    done = cli("restore", work, "--step", step, "--to", tmp_path / "there")
    assert done.exit_code == 0 and f"extracted set {number} (step {step})" in done.stdout
    done = cli("restore", work, "--step", 4711)
    assert (
        done.exit_code == safepoint.NothingSavedError.code
        and f"no set of step 4711 in {work}: there are set" in done.stderr
    )
    assert cli("restore", work, "--step", step, "--set", number).exit_code == 2


def test_restore_by_hand_serves_all_ranks_and_only_what_all_have(ranked: Path) -> None:
    result = cli("restore", ranked)
    assert result.exit_code == 10 and "rank 2: the machine went down" in result.stderr
    assert not (ranked / "u-1.npy").exists()
    assert cli("restore", ranked, "--yes").exit_code == 0
    for rank in range(4):
        data = (ranked / f"u-{rank}.npy").read_bytes()
        assert data[:3] == bytes([rank + 2, rank + 3, rank + 4])
        assert (ranked / f"fields/v-{rank}.vtk").read_text().startswith("field 2\n")
    assert len((ranked / "history.csv").read_text().splitlines()) == 2
    assert [(s["number"], s["state"]) for s in answer("status", ranked)["sets"]] == [(2, "complete"), (1, "complete")]
    assert [e["rank"] for e in answer("log", ranked)["events"] if e["event"] == "restored"] == [0, 1, 2, 3]


@damages
def test_a_part_that_turns_out_damaged_leaves_every_file_of_every_rank_alone(ranked: Path) -> None:
    """G6, by hand: set 2 is staged on ranks 0 to 2 when rank 3 finds its part damaged."""
    hurt(ranked, 2, "files/u-3.npy", rank=3)
    before = in_place(ranked)
    result = cli("restore", ranked, "--set", 2, "--yes")
    assert result.exit_code == 18 and "rank 3: the checksum of u-3.npy differs" in result.stderr
    assert in_place(ranked) == before
    assert not list(ranked.glob(".safepoint.d/*/stage"))
    assert "restored set 1 (step 100)" in cli("restore", ranked, "--yes").stdout


@pytest.fixture
def fewer(tmp_path: Path) -> Path:
    """Set 1 is of two ranks, and set 2 of one."""
    work = tmp_path / "fewer"
    work.mkdir()
    write_cli.make(str(work), 2, 1)
    taken = write_cli.taken_by(str(work), 0, 1, 2, None)
    commit.secure(Root(str(work), 0, 1), taken, None, Memory(Options("1")))
    return work


@damages
def test_a_set_of_more_ranks_than_the_newest_is_given_back_only_if_asked_for(fewer: Path, tmp_path: Path) -> None:
    hurt(fewer, 2, "files/u-0.npy")
    for where in (["--yes"], ["--to", tmp_path / "none"]):
        result = cli("restore", fewer, *where)
        assert result.exit_code == 18 and "set 2 (step 200): the checksum of u-0.npy differs" in result.stderr
        assert "set 1 (step 100): rank 0: it was saved by 2 ranks, and the newest set by 1" in result.stderr
    assert not (tmp_path / "none").exists()
    assert answer("restore", fewer, "--set", 1, "--to", tmp_path / "there")["set"] == 1
    assert {path.name for path in (tmp_path / "there").glob("u-*")} == {"u-0.npy", "u-1.npy"}
    assert answer("restore", fewer, "--set", 1, "--yes")["set"] == 1


def test_a_set_of_more_ranks_needs_all_of_them(fewer: Path, tmp_path: Path) -> None:
    """G5, G6: also if it is asked for by its number."""
    shutil.rmtree(Root(str(fewer), 1).set(1))
    before = in_place(fewer)
    for where in (["--yes"], ["--to", tmp_path / "there"]):
        result = cli("restore", fewer, "--set", 1, *where)
        assert result.exit_code == 18 and "set 1 (step 100): rank 1 has none" in result.stderr
    assert in_place(fewer) == before and not (tmp_path / "there").exists()


@damages
def test_a_set_of_the_saver_alone_that_the_newest_run_does_not_have_is_passed_over(tmp_path: Path) -> None:
    """Its files are with rank 1, and the newest set is of a run without one."""
    (tmp_path / ".safepoint").write_text("u.dat\n")
    side = Path(Root(str(tmp_path)).side)
    side.mkdir()
    (side / "FORMAT").write_text(f"safepoint {FORMAT}\n")
    for number, (rank, ranks) in enumerate([(1, 2), (0, 1)], 1):
        (tmp_path / "u.dat").write_text(f"u at {number}")
        root = Root(str(tmp_path), rank, ranks, rank)
        os.mkdir(root.path)
        items = find.find(root, load(str(tmp_path)).owned_by(rank, ranks, rank)).items
        where = DISK.page_cache(root.path), Life(1, "2f6a91c04d8e37b5")
        taken = take.take(root, load(str(tmp_path)), items, number, number, *where, None, prune.Sets())
        commit.secure(root, taken, None, Memory(Options("1")))
    assert [s["state"] for s in answer("status", tmp_path)["sets"]] == ["complete", "foreign"]
    hurt(tmp_path, 2, "files/u.dat")
    result = cli("restore", tmp_path, "--yes")
    text = "it was saved by 2 ranks, with its files on rank 1, and the newest set by 1"
    assert result.exit_code == 18 and text in result.stderr
    assert answer("restore", tmp_path, "--set", 1, "--yes")["set"] == 1
    assert (tmp_path / "u.dat").read_text() == "u at 1"


@damages
def test_a_root_beyond_the_ranks_of_the_newest_set_has_no_say(ranked: Path) -> None:
    shutil.copytree(ranked / ".safepoint.d/rank-00001", ranked / ".safepoint.d/rank-00009")
    hurt(ranked, 2, "files/u-1.npy", rank=9)
    for where in (["--to", ranked.with_name("out")], ["--yes"]):
        said = answer("restore", ranked, *where)
        assert said["set"] == 2 and len(said["files"]) == len(set(said["files"])) == 9


@pytest.mark.parametrize("left", [1, 3])
def test_a_root_that_is_left_of_other_runs_has_no_say_in_that_of_a_program_alone_in_its_directory(
    tmp_path: Path, left: int
) -> None:
    """`saver=None`: rank 3 of 8, say, has its sets under the name of rank 0."""
    (tmp_path / ".safepoint").write_text("u.dat\n")
    side = Path(Root(str(tmp_path)).side)
    side.mkdir()
    (side / "FORMAT").write_text(f"safepoint {FORMAT}\n")
    root = Root(str(tmp_path), 3, 8, None)
    os.mkdir(root.path)
    (side / f"rank-{left:05d}").mkdir()
    last = None
    for number in (1, 2):
        (tmp_path / "u.dat").write_text(f"u at {number}")
        mine = load(str(tmp_path)).owned_by(3, 8, None)
        where = DISK.page_cache(root.path), Life(1, "2f6a91c04d8e37b5")
        taken = take.take(root, mine, find.find(root, mine).items, number, number, *where, last, prune.Sets())
        last = commit.secure(root, taken, last, Memory(Options("1")))
    assert answer("restore", tmp_path, "--set", 1, "--to", tmp_path / "out")["files"] == ["u.dat"]
    for number in (2, 1):
        assert answer("restore", tmp_path, "--set", number, "--yes")["files"] == ["u.dat"]
        assert (tmp_path / "u.dat").read_text() == f"u at {number}"


@damages
def test_the_only_set_is_damaged_before_its_baseline_was_removed(work: Path) -> None:
    """G6: as the program's own restore says; it was complete, so this is no first start."""
    for number in (2, 3):
        shutil.rmtree(Root(str(work)).set(number))
    root = Root(os.path.realpath(work))
    note_baseline(root, load(root.work))
    hurt(work, 1)
    result = cli("restore", work, "--yes")
    assert result.exit_code == 18 and "set 1 (step 0): the checksum of u.npy differs" in result.stderr
    with pytest.raises(safepoint.DamagedError, match="checksum"), Session(work) as session:
        session.restore()


def test_a_set_is_extracted_elsewhere_with_times_modes_and_the_beginning_of_what_grows(
    work: Path, tmp_path: Path
) -> None:
    before = snapshot(work)
    top = tmp_path / "out"
    said = answer("restore", work, "--set", 2, "--to", top)
    assert (said["outcome"], said["set"], said["to"]) == ("extracted", 2, str(top))
    assert in_place(top) == {
        "u.npy": in_place(top)["u.npy"], "big.dat": b"the same at 10\n" * 500, "history.csv": b"0, 0.0\n10, 2.5\n",
        "fields": None, "fields/10.vtk": b"field 10", "run.zarr": None, "run.zarr/0.0": bytes([10]) * 64,
    }  # fmt: skip
    rows = {row["path"]: row for row in answer("show", 2, work)["files"]}
    for path, row in rows.items():
        assert (top / path).stat().st_mtime == pytest.approx(row["modified"], abs=1e-6), path
    assert snapshot(work) == before
    again = cli("restore", work, "--to", top)
    assert again.exit_code == 10 and "not an empty directory" in again.stderr


def test_a_read_only_copy_without_a_manifest_can_be_extracted_by_an_ordinary_user(work: Path, tmp_path: Path) -> None:
    (work / ".safepoint").unlink()
    top = tmp_path / "out"
    top.mkdir()
    for path in [work, *work.rglob("*")]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    with ordinary_user(top):
        result = cli("restore", work, "--to", top)
    for path in [work, *work.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)
    assert result.exit_code == 0 and (top / "fields/20.vtk").read_text() == "field 20"


@damages
def test_a_damaged_set_is_not_extracted_and_leaves_nothing_behind(work: Path, tmp_path: Path) -> None:
    hurt(work, 3)
    top = tmp_path / "out"
    result = cli("restore", work, "--set", 3, "--to", top)
    assert result.exit_code == 18 and "the checksum of u.npy differs" in result.stderr and not top.exists()
    assert "extracted set 2" in cli("restore", work, "--to", top).stdout


@pytest.mark.parametrize("new", [True, False])
def test_what_somebody_else_puts_where_a_set_is_to_be_extracted_stays(
    work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, new: bool
) -> None:
    """Between the look whether it is empty and the first file."""
    top = tmp_path / "out"
    if not new:
        top.mkdir()

    def meanwhile(*arguments: Any) -> Choice:
        top.mkdir(exist_ok=True)
        (top / "thesis.txt").write_text("years of work")
        return choose(*arguments)

    monkeypatch.setattr("safepoint.cli.act.restore.choose", meanwhile)
    assert cli("restore", work, "--to", top).exit_code != 0
    assert snapshot(top) == {"thesis.txt": b"years of work"}


def test_what_a_run_removes_while_it_is_extracted_is_passed_over(
    work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what that run has staged is not touched: no lock is held."""
    stage = Path(Root(str(work)).stage)
    stage.mkdir()

    def pruned(root: Root, record: Record, *rest: Any) -> None:
        if record.number == 3:
            shutil.rmtree(root.set(3))
        extract(root, record, *rest)

    monkeypatch.setattr("safepoint.cli.act.restore.extract", pruned)
    result = cli("restore", work, "--to", tmp_path / "out")
    assert result.exit_code == 0 and stage.is_dir()
    assert "not set 3 (step 20): a run at work has removed it meanwhile" in result.stdout
    assert (tmp_path / "out/fields/10.vtk").exists() and not (tmp_path / "out/fields/20.vtk").exists()


def test_a_finished_run_is_left_alone_and_an_asked_for_set_explained(tmp_path: Path) -> None:
    work = make(tmp_path / "work", finish=True)
    before = in_place(work)
    assert "was finished at step 99" in cli("restore", work).stdout
    result = cli("restore", work, "--set", 2)
    assert result.exit_code == 20 and "its sets are gone" in result.stderr
    assert in_place(work) == before


# What changes something.
def test_beside_a_run_nothing_is_changed_and_the_run_is_named(work: Path) -> None:
    with a_run(work) as running:
        before = snapshot(work)
        for command in ("restore", "drop 1 --yes", "clean --yes", "hide", "finish"):
            result = cli(*command.split(), work)
            assert result.exit_code == 13 and f"process {running.pid} on " in result.stderr, command
            assert snapshot(work) == before


def test_while_a_command_holds_the_directory_it_is_named_to_a_run(work: Path) -> None:
    mine, its = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "safepoint", "drop", "1", str(work)], stdin=its, stderr=subprocess.PIPE, text=True
    ) as running:
        try:
            assert running.stderr and running.stderr.read(6) == "Remove"
            with pytest.raises(safepoint.LockedError, match=rf"process {running.pid} .* drop 1"):
                safepoint.Session(work)
        finally:
            os.write(mine, b"n\n")
            running.communicate(timeout=60)
    assert running.returncode == 10 and [s["number"] for s in answer("status", work)["sets"]] == [3, 2, 1]


def test_a_set_is_dropped_when_that_is_agreed_to(work: Path) -> None:
    assert cli("drop", 2, work).exit_code == 10
    assert ask("n", "drop", 2, work)[0] == 10
    assert answer("drop", 2, work, "--yes")["restart"] == 3
    assert [s["number"] for s in answer("status", work)["sets"]] == [3, 1]


def test_the_last_whole_set_is_dropped_by_force_only(work: Path) -> None:
    for number in (1, 2):
        assert cli("drop", number, work, "--yes").exit_code == 0
    result = cli("drop", 3, work, "--yes")
    assert result.exit_code == 10 and "no whole set would be left" in result.stderr
    assert cli("drop", 3, work, "--yes", "--force").exit_code == 0
    assert answer("status", work, code=20)["sets"] == []


def test_clean_removes_what_no_restart_takes_and_nothing_else(work: Path) -> None:
    root = work / ".safepoint.d/rank-00000"
    for name in ("failed-00000009/files", "gone-00000008", "stage", "discarded"):
        (root / name).mkdir(parents=True)
        (root / name / "x").write_bytes(b"x" * 1000)
    (root / "set-00000004/files").mkdir(parents=True)  # of a hide that was killed before it had taken anything
    listed = answer("clean", work, "--dry-run")
    assert {Path(each["path"]).name for each in listed["removed"]} == {
        "failed-00000009",
        "gone-00000008",
        "discarded",
        "set-00000004",
    }
    assert listed["freed"] == 3000 and (root / "gone-00000008/x").exists()
    assert cli("clean", work).exit_code == 10 and (root / "gone-00000008/x").exists()
    before = in_place(work)
    assert answer("clean", work, "--yes")["freed"] == 3000
    assert {path.name for path in root.iterdir()} == {
        "lock", "log.jsonl", "set-00000001", "set-00000002", "set-00000003", "stage",
    }  # fmt: skip
    assert in_place(work) == before and cli("verify", work).exit_code == 0
    assert "nothing to remove" in cli("clean", work).stdout


def test_clean_keeps_a_failed_set_that_may_hold_the_initial_files(tmp_path: Path) -> None:
    (tmp_path / ".safepoint").write_text("u.npy\n")
    (tmp_path / "u.npy").write_bytes(b"given")
    safepoint.Session(tmp_path).close()
    kept = tmp_path / ".safepoint.d/rank-00000/failed-00000001/files"
    kept.mkdir(parents=True)
    os.rename(tmp_path / "u.npy", kept / "u.npy")
    assert cli("clean", tmp_path, "--yes").exit_code == 0
    assert (kept / "u.npy").read_bytes() == b"given"


@pytest.mark.parametrize("command", [["status"], ["verify"], ["why"], ["restore"], ["clean", "--yes"]])
def test_without_permission_the_file_and_the_cause_are_named(work: Path, command: Sequence[str]) -> None:
    closed = work / ".safepoint.d/rank-00000"
    for path in [work, *work.rglob("*")]:
        os.chown(path, 65534, 65534) if os.geteuid() == 0 else None
    closed.chmod(0)
    try:
        with ordinary_user(work):
            result = cli(*command, work)
    finally:
        closed.chmod(0o755)
    assert result.exit_code == 17
    assert "rank-00000" in result.stderr and "Permission denied" in result.stderr
    assert f"{closed} belongs to " in result.stderr and f"with mode 0000: chmod u+rwx {closed})" in result.stderr


LOCKING = [
    ("drop", "1", "--yes"), ("clean", "--yes"), ("restore", "--yes"), ("hide", "--step", "40"), ("finish",),
    ("run", "--until", "1"),
]  # fmt: skip


@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux: /proc")
@pytest.mark.parametrize("command", some_of(LOCKING, 2), ids=lambda command: command[0])
def test_each_command_that_takes_the_lock_waits_for_a_child_of_a_killed_run(
    work: Path, command: tuple[str, ...]
) -> None:
    """G8, as a restart does: a script that kills a run and then clears up must not fail because of what is dying."""
    write(work, 30)
    where = ("--dir", work, "--", "true") if command[0] == "run" else (work,)
    words = [sys.executable, "-m", "safepoint", *command, *map(str, where)]
    with killed_beside_a_child(work) as (dead, end):
        with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
            assert running.stderr
            said = running.stderr.readline()
            assert f"safepoint: waiting up to 10 s for process {dead} on" in said, said
            end()
            said = running.communicate(timeout=60)[1]
        assert running.returncode == 0, said


@damages
def test_drop_reads_what_would_be_left_before_it_removes_a_good_set(work: Path) -> None:
    hurt(work, 1)
    hurt(work, 2)
    result = cli("drop", 3, work, "-y")
    assert result.exit_code == 10 and "no whole set would be left" in result.stderr
    assert cli("drop", 2, work, "-y").exit_code == 0


def test_clean_prints_one_object_or_none(tmp_path: Path) -> None:
    work = make(tmp_path / "work", sets=1)
    (work / ".safepoint.d/rank-00000/gone-00000001").mkdir()
    result = cli("clean", "--json", work)
    assert result.exit_code == 10 and result.stdout == ""
    finished = make(tmp_path / "finished", sets=1, finish=True)
    assert answer("clean", "--dry-run", finished)["dry_run"]


def test_a_set_of_two_steps_is_not_extracted(ranked: Path, tmp_path: Path) -> None:
    """A number that means one step on one rank and another on the next is no set."""
    path = Path(Root(str(ranked), 1).record(2))
    path.write_bytes(dump(parse_record(path.read_bytes())._replace(step=999)))
    said = answer("restore", "--to", tmp_path / "there", ranked)
    assert said["set"] == 1


@pytest.mark.parametrize("name", ["l/evil", "l/evil/x"])
def test_what_is_extracted_stays_below_the_directory_whatever_the_records_say(tmp_path: Path, name: str) -> None:
    """Each rank's record is right by itself: links of one, and a file through them of the other."""
    top, outside = tmp_path / "there", tmp_path / "evil"
    (top / "a").mkdir(parents=True)
    (top / "l").symlink_to("..")
    work = make(tmp_path / "work", sets=1)
    root = Root(os.path.realpath(work))
    record = parse_record(Path(root.record(1)).read_bytes())
    file = next(file for file in record.files if file.path == "u.npy")
    moved = file._replace(path=name)
    os.makedirs(os.path.dirname(root.stored(1, name)))
    os.rename(root.stored(1, "u.npy"), root.stored(1, name))
    with pytest.raises(Damaged, match="outside"):
        extract(root, record._replace(files=(moved,)), str(top))
    assert not outside.exists()
    os.rename(root.stored(1, name), root.stored(1, "u.npy"))


def test_a_set_is_not_dropped_with_the_only_copy_of_what_the_one_before_needs(anew: Path) -> None:
    """G6: that one is looked at, and is whole; then it must be so afterwards."""
    assert answer("drop", 3, anew, "--yes")["restart"] == 2
    assert answer("verify", anew)["damaged"] == []
    said = answer("restore", anew)
    assert said["set"] == 2 and (anew / "history.csv").read_text() == "0, 0.0\n10, 2.5\n"


@damages
def test_restore_says_by_hand_too_what_it_does_not_copy(work: Path) -> None:
    (work / ".safepoint").write_text(MANIFEST + "copy_append_below = 1\n")
    assert "history.csv: its first 23 bytes, which set 3 (step 20) needs, are not copied" in cli("restore", work).stderr
    (work / "history.csv").write_text("")
    result = cli("restore", work, "--yes")
    assert result.exit_code == 18 and "To go on bring back what is missing" in result.stderr
