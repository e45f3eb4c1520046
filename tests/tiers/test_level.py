"""`verify`, `why` and `drop` with `--level remote`."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from testbed.commands import answer, cli
from testbed.places import MANIFEST, flip, run

from safepoint.root import Root
from safepoint.tiers import note


@pytest.fixture
def a(tmp_path: Path, place: Path) -> Path:
    """A directory whose sets 1 and 2 are at a place."""
    (work := tmp_path / "a").mkdir()
    (work / ".safepoint").write_text(f"{MANIFEST}remote = {place}\ndrain = off\nremote_keep = 5\n")
    for first in (1, 2):
        run(work, 1, first=first)
        assert cli("drain", work).exit_code == 0
    return work


def piece(place: Path, number: int) -> Path:
    (found,) = place.glob(f"set-*-{number:08d}-*/rank-00000.000000-*")
    return found


def test_verify_reads_all_bytes_that_are_there(a: Path, place: Path) -> None:
    done = cli("verify", a, "--level", "remote")
    assert done.exit_code == 0 and [line.split()[-1] for line in done.output.splitlines()] == ["result", "ok", "ok"]
    before = sorted((path, path.stat().st_mtime_ns) for path in place.rglob("*"))
    flip(piece(place, 1))
    done = cli("verify", a, "--level", "remote")
    assert done.exit_code == 18 and "damaged: the checksum of" in done.output, done.output
    said = answer("verify", a, "--level", "remote", code=18)
    assert said["damaged"] == [1] and said["place"] == str(place)
    assert [row["ranks"][0]["state"] for row in said["sets"]] == ["ok", "damaged"]
    assert cli("verify", a, "--level", "remote", "--set", 2).exit_code == 0
    assert cli("verify", a).exit_code == 0  # those here are as they were
    assert [path for path, _ in before] == sorted(place.rglob("*"))


def test_what_is_being_put_is_incomplete_and_not_damaged(a: Path, place: Path) -> None:
    next(place.glob("set-*-00000002-*/rank-00000.json")).unlink()
    done = cli("verify", a, "--level", "remote")
    assert done.exit_code == 0 and "incomplete: is not there" in done.output, done.output
    piece(place, 1).unlink()
    done = cli("verify", a, "--level", "remote")
    assert done.exit_code == 18 and "is missing" in done.output, done.output


def test_why_says_what_a_fetch_would_bring(a: Path, place: Path) -> None:
    done = cli("why", a, "--level", "remote")
    assert done.exit_code == 0 and "Fetch brings set 2 (step 2)" in done.output, done.output
    assert "All its checksums hold." in done.output
    flip(piece(place, 2))
    done = cli("why", a, "--level", "remote")
    assert "Fetch brings set 1 (step 1)" in done.output and "Not set 2 (step 2): rank 0: the checksum" in done.output
    assert "Fetch brings set 2" in cli("why", a, "--level", "remote", "--quick").output
    said = answer("why", a, "--level", "remote")
    assert (said["set"], said["outcome"], said["passed_over"][0]["set"]) == (1, "fetched", 2)
    flip(piece(place, 1))
    done = cli("why", a, "--level", "remote")
    assert done.exit_code == 18 and "Fetch fails: no set is whole." in done.output, done.output
    assert answer("why", a, "--level", "remote", code=18)["error"]["code"] == 18


def test_drop_removes_a_set_there_and_none_here(a: Path, place: Path) -> None:
    assert cli("drop", 2, a, "--level", "remote").exit_code == 10  # nobody is here to answer
    done = cli("drop", 2, a, "--level", "remote", "--yes")
    assert done.exit_code == 0 and "a fetch then brings set 1 (step 1)" in done.output, done.output
    assert [each["number"] for each in answer("fetch", place, "--list")["sets"]] == [1]
    assert Root(str(a)).numbers("set") == [1, 2]
    assert [text[6:14] for text in note.read_notes(Root(str(a))).places[0].sets] == ["00000001"]
    done = cli("drop", 1, a, "--level", "remote", "--yes")
    assert done.exit_code == 10 and "no whole set would be left there" in done.output
    assert cli("drop", 7, a, "--level", "remote", "--yes").exit_code == 20
    assert answer("drop", 1, a, "--level", "remote", "--yes", "--force")["restart"] is None
    assert cli("fetch", place, "--list").exit_code == 20
    assert cli("drain", a).exit_code == 0  # and it can be put again
    assert [each["number"] for each in answer("fetch", place, "--list")["sets"]] == [2]


def test_drop_keeps_what_is_all_that_is_whole_by_its_checksums(a: Path, place: Path) -> None:
    flip(piece(place, 1))
    done = cli("drop", 2, a, "--level", "remote", "--yes")
    assert done.exit_code == 10 and "no whole set would be left there" in done.output, done.output
    assert cli("drop", 1, a, "--level", "remote", "--yes").exit_code == 0


def test_drop_removes_no_set_of_another_run(a: Path, place: Path, tmp_path: Path) -> None:
    cli("fetch", place, tmp_path / "b")
    run(tmp_path / "b", 1, first=3)
    assert cli("drain", tmp_path / "b").exit_code == 0
    done = cli("drop", 1, a, "--level", "remote", "--yes")
    assert done.exit_code == 13 and "has sets of another run" in done.output, done.output
    assert cli("drop", 1, a, "--level", "remote", "--yes", "--force").exit_code == 0


def test_a_set_of_another_run_is_not_what_is_left(a: Path, place: Path, tmp_path: Path) -> None:
    """After a take-over those that lie there still are of a run that has nothing to do with this one."""
    (b := tmp_path / "b").mkdir()
    (b / ".safepoint").write_text((a / ".safepoint").read_text())
    run(b, 1, first=7)
    assert cli("drain", b, "--take-over").exit_code == 0
    assert [each["step"] for each in answer("fetch", place, "--list")["sets"]] == [7, 2, 1]
    done = cli("drop", 1, b, "--level", "remote", "--yes")
    assert done.exit_code == 10 and "set 1 (step 7) is not removed: no whole set would be left there" in done.output
    assert cli("drop", 1, b, "--level", "remote", "--yes", "--force").exit_code == 0
    assert [each["step"] for each in answer("fetch", place, "--list")["sets"]] == [2, 1]


def test_nothing_is_dropped_beside_a_drain(a: Path) -> None:
    with note.alone(Root(str(a)), "drain"):
        done = cli("drop", 1, a, "--level", "remote", "--yes")
    assert done.exit_code == 13 and "drop did nothing" in done.output, done.output


@pytest.mark.parametrize("command", [("verify",), ("why",), ("drop", 1)])
def test_where_there_is_no_other_place_it_is_said(command: tuple[object, ...], a: Path, place: Path) -> None:
    name, *more = command
    (a / ".safepoint").write_text("u.dat\n")
    done = cli(name, *more, a, "--level", "remote")
    assert done.exit_code == 10 and "no setting `remote`" in done.output, done.output
    (a / ".safepoint").write_text("u.dat\nremote = ../empty\n")
    done = cli(name, *more, a, "--level", "remote")
    assert done.exit_code == 16 and "cannot use this directory" in done.output, done.output
    os.mkdir(a.parent / "empty")
    done = cli(name, *more, a, "--level", "remote")
    assert done.exit_code == 20 and "there is no set" in done.output, done.output
