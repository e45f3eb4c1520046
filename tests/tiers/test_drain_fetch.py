"""`safepoint drain` and `safepoint fetch`, as people use them."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from testbed.commands import answer, cli
from testbed.drains import at_work, following, until
from testbed.jobs import mpiexec
from testbed.places import files_below, run
from testbed.waiting import wait_for

from safepoint import Session
from safepoint.owner import Waiting, claim
from safepoint.restoring.verify import verify
from safepoint.root import Root


def restored(work: Path) -> int | None:
    with Session(work) as session:
        point = session.restore()
        session.close()
    return point.step if point else None


def test_from_one_machine_to_another_in_three_commands(a: Path, tmp_path: Path) -> None:
    """The manifest comes along; the program goes on there, and puts its own sets from then on."""
    done = cli("drain", a)
    assert done.exit_code == 0 and "set 2 (step 2) is at" in done.output, done.output
    assert "it was there already" in cli("drain", a).output
    b = tmp_path / "b"
    done = cli("fetch", tmp_path / "place", b)
    assert done.exit_code == 0 and "fetched set 2 (step 2)" in done.output, done.output
    assert (b / ".safepoint").read_text() == (a / ".safepoint").read_text()
    assert restored(b) == restored(a) == 2
    assert files_below(a) == files_below(b)
    assert "is in" in cli("fetch", tmp_path / "place", b).output
    run(b, 1, first=3)
    done = cli("drain", b)
    assert done.exit_code == 0 and "removed there: set 2" in done.output, done.output
    run(a, 2, first=3)
    done = cli("drain", a)
    assert done.exit_code == 13 and "another run has taken over" in done.output
    assert restored(b) == 3


def elsewhere(*command: object) -> subprocess.CompletedProcess[str]:
    """As on another machine: another name, and another boot."""
    script = (
        "hostname elsewhere && cat /proc/sys/kernel/random/uuid > $0 && "
        'mount --bind $0 /proc/sys/kernel/random/boot_id && exec "$@"'
    )
    with tempfile.NamedTemporaryFile() as boot:
        words = ["unshare", "--uts", "--mount", "sh", "-c", script, boot.name, *map(str, command)]
        return subprocess.run(words, capture_output=True, text=True)


@pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="needs root, for another host name")
def test_on_a_machine_of_another_name_and_boot(a: Path, tmp_path: Path) -> None:
    """What was taken there is no more believed than anywhere; the claim there is told with the machine's name."""
    cli("drain", a)
    b = tmp_path / "b"
    done = elsewhere(sys.executable, "-m", "safepoint", "fetch", tmp_path / "place", b)
    assert done.returncode == 0 and "fetched set 2" in done.stdout, done
    go_on = (
        "import platform, sys; sys.path.insert(0, sys.argv[2])\n"
        "from pathlib import Path; from testbed.places import run\n"
        "assert platform.node() == 'elsewhere'; run(Path(sys.argv[1]), 1, first=3)"
    )
    done = elsewhere(sys.executable, "-c", go_on, b, Path(__file__).parents[1])
    assert done.returncode == 0, done
    done = elsewhere(sys.executable, "-m", "safepoint", "drain", b)
    assert done.returncode == 0 and "set 3" in done.stdout, done
    refused = cli("drain", a)
    assert refused.exit_code == 13 and f"({b} on elsewhere, since" in refused.output, refused.output
    assert restored(b) == 3


def test_what_both_say_as_json(a: Path, tmp_path: Path) -> None:
    sent = answer("drain", a)
    assert sent["set"] == sent["step"] == 2 and sent["sent"] == sent["size"] > 10_000 and sent["removed"] == []
    listed = answer("fetch", tmp_path / "place", "--list")
    assert listed["sets"] == [{**listed["sets"][0], "number": 2, "step": 2, "whole": True, "ranks": [0], "reasons": {}}]
    got = answer("fetch", tmp_path / "place", tmp_path / "b")
    assert (got["set"], got["step"], got["size"], got["here"]) == (2, 2, sent["size"], False)
    assert answer("fetch", tmp_path / "place", tmp_path / "b")["here"] is True
    (seen,) = [each for each in answer("status", a)["sets"] if each["number"] == 2]
    assert seen["places"] == [str(tmp_path / "place")]


def test_status_shows_what_is_at_another_place(a: Path, tmp_path: Path) -> None:
    assert "remote" not in cli("status", a).output.splitlines()[-3]
    cli("drain", a)
    run(a, 1, first=3)
    lines = cli("status", a).output.splitlines()
    head = next(line for line in lines if line.startswith("set"))
    rows = {line.split()[0]: line for line in lines[lines.index(head) + 1 :] if line.strip()}
    at = head.index("remote")
    assert rows["2"][at:].startswith("yes") and rows["3"][at:].startswith("-"), lines


def test_what_is_wrong_is_named_and_changes_nothing(a: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "b").mkdir()
    (tmp_path / "empty").mkdir()
    cli("drain", "a")
    before = sorted(tmp_path.rglob("*"))
    for words, code, text in (
        ("drain a --to http://x", 10, "knows no http://"), ("drain a --to s3://k:s3cret@b/x", 10, "has a secret in it"),
        ("drain b", 11, ".safepoint"), ("drain a --rate fast", 2, "takes a size"),
        ("drain a --within soon", 2, "takes a time"), ("drain a --pid 7", 2, "--follow"),
        ("drain a --follow --set 1", 2, "--follow"), ("drain a --set 9", 20, "no set 9"),
        ("drain a --to not/there", 16, "cannot use this directory"),
        ("fetch nowhere", 16, "cannot use this directory"), ("fetch empty new", 20, "there is no set at"),
        ("fetch {rank} new", 2, "--rank"), ("fetch place --set 1 --step 1", 2, "both say which set"),
        ("fetch place new --set 9", 20, "no set 9 at"), ("fetch place new --step 9", 20, "no set of step 9"),
    ):  # fmt: skip
        done = cli(*words.split())
        assert (done.exit_code, text in done.output) == (code, True), (words, done.output)
        assert "s3cret" not in done.output
        left = [path for path in tmp_path.rglob("*") if path not in before and path.name != "remote.lock"]
        assert not left or left == [tmp_path / "new"], (words, left)


def test_the_manifest_refuses_what_is_no_place(a: Path) -> None:
    (a / ".safepoint").write_text("u.dat\nremote = s3://key:secret@bucket/x\n")
    done = cli("drain", a)
    assert done.exit_code == 11 and ".safepoint:2: remote" in done.output and "secret@" not in done.output, done.output


def test_a_directory_with_newer_sets_is_left_as_it_is(a: Path, tmp_path: Path) -> None:
    cli("drain", a)
    run(a, 1, first=3)
    done = cli("fetch", tmp_path / "place", a, "--set", 2)
    assert done.exit_code == 10 and "set 3" in done.output, done.output
    cli("fetch", tmp_path / "place", tmp_path / "b")
    run(tmp_path / "b", 2, first=3)
    run(a, 1, first=4)
    cli("drain", a)
    before = sorted((tmp_path / "b").rglob("*"))
    done = cli("fetch", tmp_path / "place", tmp_path / "b")
    assert done.exit_code == 10 and "b has set 4, which" in done.output, done.output
    assert sorted((tmp_path / "b").rglob("*")) == before


def test_a_directory_in_use_is_not_fetched_into(a: Path, tmp_path: Path) -> None:
    cli("drain", a)
    cli("fetch", tmp_path / "place", tmp_path / "b")
    run(a, 1, first=3)
    cli("drain", a)
    with Session(tmp_path / "b") as session:
        done = cli("fetch", tmp_path / "place", tmp_path / "b")
        assert done.exit_code == 13 and "in use by another run" in done.output, done.output
        session.restore()
        session.close()


def test_a_finished_run_says_that_its_result_is_in_place(a: Path) -> None:
    with Session(a) as session:
        session.restore()
        session.finish(9)
    done = cli("drain", a)
    assert done.exit_code == 20 and "was finished" in done.output, done.output


def test_one_drain_at_a_time(a: Path, tmp_path: Path) -> None:
    """Two at once: one works, the other says so; together they put the set once."""
    command = [sys.executable, "-m", "safepoint", "drain", str(a), "--rate", "100K"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as first:
        wait_for(lambda: list((tmp_path / "place").glob("claim-*")))
        while first.poll() is None:
            done = cli("drain", a)
            if done.exit_code:
                assert done.exit_code == 13 and "another drain or fetch is at work" in done.output, done.output
        assert first.wait(60) == 0, first.stdout and first.stdout.read()
    assert len(list((tmp_path / "place").glob("claim-*"))) == 1
    claim(Root(str(a)), Waiting())()  # the run's own lock was never taken


def test_it_follows_a_run_and_ends_after_its_last_set(a: Path) -> None:
    with following(a, at_work(a, 6, 0.3)) as said:
        until(said, "set 8 (step 8) is at")


def test_it_follows_a_run_that_is_killed_and_its_newest_set_is_there(a: Path) -> None:
    """A kill of the solver does not stop what was begun."""
    with following(a, program := at_work(a, 10**6, 0.05)) as said:
        until(said, " is at ")
        wait_for(lambda: max(Root(str(a)).numbers("set")) > 9)
        program.kill()


def test_a_place_that_is_away_is_told_once_and_caught_up_with(a: Path, tmp_path: Path) -> None:
    """The run goes on; when the place is there again its newest set is put."""
    with following(a, program := at_work(a, 10**6, 0.1)) as said:
        until(said, " is at ")
        (tmp_path / "place").rename(tmp_path / "away")
        (tmp_path / "place").write_text("")  # as a mount point that is none now
        until(said, "it is tried again")
        newest = max(Root(str(a)).numbers("set"))
        wait_for(lambda: max(Root(str(a)).numbers("set")) > newest + 9)
        (tmp_path / "place").unlink()
        (tmp_path / "away").rename(tmp_path / "place")
        assert "it is tried again" not in until(said, "answers again")
        program.kill()
        assert "it is tried again" not in said.read()


def test_a_place_that_is_away_from_before_the_start_until_after_the_end_gets_the_last_set(
    a: Path, tmp_path: Path
) -> None:
    (tmp_path / "place").write_text("")  # as a mount point that is none now
    with following(a, program := at_work(a, 3, 0.1)) as said:
        program.wait()
        until(said, "it is tried again")
        (tmp_path / "place").unlink()
        assert "it is tried again" not in until(said, "answers again")
    assert restored(a) == 5


def test_what_is_not_there_in_time_goes_on_later(a: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("part", "remote"):
        monkeypatch.setattr(f"safepoint.tiers.{module}.PIECE", 20_000)
    done = cli("drain", a, "--rate", "100", "--within", "0.7s")  # the first piece goes, whenever
    assert done.exit_code == 16 and "the time is over; a later drain goes on" in done.output, done.output
    assert answer("fetch", tmp_path / "place", "--list", code=0)["sets"][0]["whole"] is False
    sent = answer("drain", a)
    assert 0 < sent["sent"] < sent["size"]


def test_killed_at_random_a_fetch_is_begun_anew_and_ends_equal(a: Path, tmp_path: Path) -> None:
    cli("drain", a)
    rng = random.Random(2)
    for _ in range(5):
        with subprocess.Popen([sys.executable, "-m", "safepoint", "fetch", tmp_path / "place", tmp_path / "b"],
                              stdout=subprocess.DEVNULL) as fetch:  # fmt: skip
            with contextlib.suppress(subprocess.TimeoutExpired):
                fetch.wait(rng.uniform(0.25, 0.6))
            fetch.send_signal(signal.SIGKILL)
        states = verify(Root(str(tmp_path / "b"))) if (tmp_path / "b/.safepoint.d/rank-00000").is_dir() else {}
        assert set(states.values()) <= {"committed"}
    assert cli("fetch", tmp_path / "place", tmp_path / "b").exit_code == 0
    assert restored(tmp_path / "b") == restored(a) == 2
    assert files_below(a) == files_below(tmp_path / "b")


RANKS = """
import sys, pathlib, safepoint
from mpi4py import MPI
comm, alone, top = MPI.COMM_WORLD, sys.argv[1] == "alone", sys.argv[2]
rank = comm.Get_rank()
work = pathlib.Path(f"{top}/n{rank}" if alone else f"{top}/a")
session = safepoint.Session(work, comm=comm, saver=None if alone else 0)
session.restore()
for step in (1, 2):
    (work / ("u.dat" if alone else f"z-{rank}.dat")).write_text(f"{rank} {step}")
    if rank == 0 and not alone:
        (work / "u.dat").write_text(str(step))
    session.hide(step, wait=True)
session.close()
"""


def on_ranks(count: int, how: str, top: Path) -> None:
    done = subprocess.run([*mpiexec(count), "-c", RANKS, how, str(top)], capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr


@pytest.mark.xdist_group("mpi-tiers")
def test_the_sets_of_many_ranks_go_together(tmp_path: Path) -> None:
    """A set is there when all ranks' parts are; one that lacks a part is named with the rank, and not given back."""
    a, b = tmp_path / "a", tmp_path / "b"
    a.mkdir()
    (a / ".safepoint").write_text(f"z-{{rank}}.dat\nu.dat\nremote = {tmp_path / 'place'}\ndrain = off\n")
    on_ranks(3, "together", tmp_path)
    assert cli("drain", a).exit_code == 0
    (listed,) = answer("fetch", tmp_path / "place", "--list")["sets"]
    assert listed["ranks"] == [0, 1, 2] and listed["whole"]
    assert cli("fetch", tmp_path / "place", b).exit_code == 0
    assert json.loads(cli("status", b, "--json").stdout)["restart"]["set"] == 2
    assert cli("restore", b, "--yes").exit_code == 0
    assert files_below(b) == {"u.dat": b"2", "z-0.dat": b"0 2", "z-1.dat": b"1 2", "z-2.dat": b"2 2"}
    next((tmp_path / "place").rglob("rank-00001.json")).unlink()
    done = cli("fetch", tmp_path / "place", tmp_path / "c")
    assert done.exit_code == 18 and "set 2: rank 1: is not there" in done.output, done.output
    assert cli("drain", a).exit_code == 0  # which puts what is missing
    assert cli("fetch", tmp_path / "place", tmp_path / "c").exit_code == 0


@pytest.mark.xdist_group("mpi-tiers")
def test_a_rank_that_is_alone_in_its_directory_has_a_place_of_its_own(tmp_path: Path) -> None:
    for rank in range(2):
        (tmp_path / f"n{rank}").mkdir()
        (tmp_path / f"n{rank}/.safepoint").write_text("u.dat\n")
    on_ranks(2, "alone", tmp_path)
    done = cli("drain", tmp_path / "n1", "--to", tmp_path / "place")
    assert done.exit_code == 10 and "write {rank} into" in done.output, done.output
    (tmp_path / "place").mkdir()
    for rank in range(2):
        done = cli("drain", tmp_path / f"n{rank}", "--to", f"{tmp_path}/place/{{rank}}")
        assert done.exit_code == 0, done.output
    assert sorted(os.listdir(tmp_path / "place")) == ["00000", "00001"]
    assert cli("fetch", f"{tmp_path}/place/{{rank}}", tmp_path / "m1", "--rank", 1).exit_code == 0
    assert cli("restore", tmp_path / "m1", "--yes").exit_code == 0
    assert (tmp_path / "m1/u.dat").read_text() == "1 2"


def test_status_says_where_a_flush_is_nothing(a: Path, tmp_path: Path) -> None:
    """`wait` on tmpfs has flushed, and a power cut takes all: that is said, and only there."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as other:
        run(there := Path(other, "a"), 1)
        for work in (a, there):
            kind = subprocess.run(["stat", "-f", "-c", "%T", str(work)], capture_output=True, text=True).stdout.strip()
            lost = kind in ("tmpfs", "ramfs")
            said = cli("status", work).output
            assert (f"a power cut empties {kind}" in said) == answer("status", work)["in_memory"] == lost, (kind, said)
