"""Places that are not what they were, runs that have nothing to do with each other, and what no message may repeat."""

from __future__ import annotations

import errno
import itertools
import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from testbed.commands import cli, process
from testbed.drains import at_work, following, there, until
from testbed.places import MANIFEST, Kept, drained, fetched, flip, run, saved

from safepoint import Session
from safepoint.disk import Disk
from safepoint.root import Root
from safepoint.sealed import seal, unseal
from safepoint.tiers.place import Unreachable
from safepoint.tiers.remote import Remote

SECRET = "s3cretkey"


def made(work: Path, more: str = "", steps: int = 2) -> Path:
    work.mkdir()
    (work / ".safepoint").write_text(MANIFEST + more)
    run(work, steps)
    return work


def names(place: Path) -> list[Path]:
    return sorted(place.rglob("*"))


# Runs that have nothing to do with each other.


def test_a_copy_of_a_directory_is_another_one(a: Path, place: Path, tmp_path: Path) -> None:
    """The copy has the note with the claim. Else the two would remove each other's sets, and both end well."""
    assert cli("drain", a).exit_code == 0
    shutil.copytree(a, tmp_path / "copy", symlinks=True)
    run(tmp_path / "copy", 3, first=3)
    done = cli("drain", tmp_path / "copy")
    assert done.exit_code == 13 and "has sets of another directory" in done.output, done.output
    assert there(place) == [2]
    run(a, 1, first=3)
    assert cli("drain", a).exit_code == 0 and there(place) == [3]


def test_a_run_that_comes_back_after_it_fetched_what_the_other_has_put_goes_on(
    a: Path, place: Path, tmp_path: Path
) -> None:
    """What the message says does help: fetch again, and go on."""
    cli("drain", a)
    b = tmp_path / "b"
    cli("fetch", place, b)
    run(b, 1, first=3)
    assert cli("drain", b).exit_code == 0
    assert cli("drain", a).exit_code == 13
    assert cli("fetch", place, a).exit_code == 0
    run(a, 1, first=4)
    assert cli("drain", a).exit_code == 0 and there(place) == [4]
    assert cli("drain", b).exit_code == 13


def test_a_set_does_not_come_into_the_directory_of_another_run(a: Path, place: Path, tmp_path: Path) -> None:
    """That run's own sets would be old at once, and go."""
    cli("drain", a)
    b = made(tmp_path / "b", steps=1)
    before = names(b)
    done = cli("fetch", place, b)
    assert done.exit_code == 10 and "nothing to do with" in done.output, done.output
    assert [path for path in names(b) if path.name != "remote.lock"] == before


def test_a_lost_claim_is_put_again(a: Path, place: Path) -> None:
    cli("drain", a)
    (claim,) = place.glob("claim-*")
    claim.unlink()
    run(a, 1, first=3)
    done = cli("drain", a)
    assert done.exit_code == 0 and there(place) == [3], done.output


def test_after_an_older_set_was_fetched_the_newer_ones_that_were_seen_give_way(
    a: Path, place: Path, tmp_path: Path
) -> None:
    """Whoever asked for the older one has decided that."""
    (a / ".safepoint").write_text(f"{MANIFEST}remote = {place}\ndrain = off\nremote_keep = 3\nkeep = 3\n")
    cli("drain", a)
    run(a, 1, first=3)
    cli("drain", a)
    assert there(place) == [3, 2]
    b = tmp_path / "b"
    assert cli("fetch", place, b, "--set", 2).exit_code == 0
    run(b, 1, first=3)
    done = cli("drain", b)
    assert done.exit_code == 0, done.output


# Places that are not what they were.


def test_a_file_system_that_is_not_mounted_is_not_filled(a: Path, place: Path) -> None:
    """Its mount point is an empty directory."""
    cli("drain", a)
    place.rename(place.with_name("away"))
    place.mkdir()
    run(a, 1, first=3)
    done = cli("drain", a)
    assert done.exit_code == 16 and "is it not mounted?" in done.output and not names(place), done.output
    assert cli("drain", a, "--take-over").exit_code == 0 and there(place) == [3]


def test_a_place_that_was_there_is_not_made_anew(a: Path, place: Path) -> None:
    cli("drain", a)
    place.rename(place.with_name("away"))
    done = cli("drain", a)
    assert done.exit_code == 16 and "is it not mounted?" in done.output and not place.exists(), done.output
    assert cli("drain", a, "--take-over").exit_code == 0 and there(place) == [2]


@pytest.mark.leaves_damage
def test_a_set_that_is_damaged_at_the_place_is_passed_over_aloud(a: Path, place: Path, tmp_path: Path) -> None:
    (a / ".safepoint").write_text(f"{MANIFEST}remote = {place}\ndrain = off\nremote_keep = 2\n")
    cli("drain", a)
    run(a, 1, first=3)
    cli("drain", a)
    newest = max(place.glob("set-*"))
    flip(next(newest.glob("rank-00000.000000-*")), 5000)
    b = tmp_path / "b"
    done = cli("fetch", place, b)
    assert done.exit_code == 0 and "an older set is looked for" in done.output, done.output
    assert "fetched set 2" in done.output
    assert cli("fetch", place, tmp_path / "c", "--set", 3).exit_code == 18


def test_what_a_dead_upload_was_putting_goes(a: Path, place: Path) -> None:
    cli("drain", a)
    (old,) = place.glob("set-*")
    (old / "rank-00000.000000-0123456789abcdef.77.new").write_bytes(b"half")
    (lost := place / old.name.replace("-00000002-", "-00000001-")).mkdir()
    (lost / "rank-00000.000000-0123456789abcdef.77.new").write_bytes(b"half")
    run(a, 1, first=3)
    assert cli("drain", a).exit_code == 0
    assert not list(place.rglob("*.new")) and not lost.exists()


def test_names_that_are_none_of_ours_cost_nothing(a: Path, place: Path) -> None:
    cli("drain", a)
    (of,) = place.glob("set-*")
    for name, content in (
        ("claim-00000-0123456789abcdef", seal({"time": float("nan"), "host": "h", "directory": "d"})),
        ("claim-00000-123456789abcdef0", b"\xff"), ("SET/rank-0000001.json", b"{}"), ("SET/rank-٠٠٠٠١.json", b"{}"),
        ("claim-٠٠٠٠9-0123456789abcdef", b""),
        ("set-00001-0123456789abcdef-9999999-00000001-0123456789abcdef/rank-00000.json", b"{}"),
    ):  # fmt: skip
        path = place / name.replace("SET", of.name)
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
    run(a, 1, first=3)
    assert cli("drain", a).exit_code == 0 and 3 in there(place)


def test_a_claim_of_a_stranger_is_described_only_as_far_as_it_can_be_read(a: Path, place: Path) -> None:
    cli("drain", a)
    (place / "claim-00009-0123456789abcdef").write_bytes(seal({"time": float("nan"), "host": "h", "directory": "d"}))
    run(a, 1, first=3)
    done = cli("drain", a)
    assert done.exit_code == 13 and "another run has taken over" in done.output and "nan" not in done.output


def test_a_claim_after_which_none_can_come_is_named(a: Path, place: Path) -> None:
    cli("drain", a)
    (place / "claim-99999999-0123456789abcdef").write_bytes(seal({}))
    done = cli("drain", a, "--take-over")
    assert done.exit_code == 12 and "none can come after it" in done.output, done.output


@pytest.mark.parametrize("words", [["fetch", "PLACE", "NEW"], ["fetch", "PLACE", "--list"], ["drain", "RUN"]])
def test_a_directory_that_cannot_all_be_listed_is_not_empty(
    words: list[str], a: Path, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """EACCES, EIO or ESTALE of one directory in it, or of all of it: it is named."""
    assert cli("drain", a).exit_code == 0
    (inner,) = place.glob("set-*")
    named, scan = {"PLACE": place, "NEW": tmp_path / "new", "RUN": a}, Disk.scan
    for path, number in itertools.product((place, inner), (errno.EACCES, errno.EIO, errno.ESTALE)):

        def failing(disk: Disk, at: str, path: Path = path, number: int = number) -> Any:
            if os.path.realpath(at) == str(path):
                raise OSError(number, os.strerror(number), at)
            return scan(disk, at)

        monkeypatch.setattr(Disk, "scan", failing)
        done = cli(*(named.get(word, word) for word in words))
        assert done.exit_code == 16 and f"{path}: {os.strerror(number)}" in done.output, (path, number, done.output)


def test_a_place_that_does_not_show_what_was_put_is_refused(tmp_path: Path) -> None:
    class Late(Kept):
        def names(self) -> dict[str, int]:
            return {}

    run(tmp_path / "a")
    with pytest.raises(Unreachable, match="does not show"):
        drained(tmp_path / "a", Late())


def test_text_of_a_store_cannot_drive_a_terminal(a: Path, place: Path, tmp_path: Path) -> None:
    cli("drain", a)
    (index,) = place.rglob("rank-00000.json")
    content = unseal(index.read_bytes())
    content.pop("format")
    content["manifest"] = "a.dat \x1b]0;owned\x07\n"
    index.write_bytes(seal(content))
    done = cli("fetch", place, tmp_path / "b")
    assert done.exit_code == 0 and "not written" in done.output and "\x1b" not in done.output


# What no message may repeat, and no place may get.


@pytest.mark.parametrize("url", [f"s3://AKIA:{SECRET}@bucket/x", f"s3:/AKIA:{SECRET}@bucket/x"])
@pytest.mark.parametrize("alone", [False, True])
def test_a_secret_in_an_address_is_refused_and_not_repeated(url: str, alone: bool, tmp_path: Path) -> None:
    work = saved(tmp_path / "w", **{"saver": None} if alone else {})
    for words in (("drain", work, "--to", url), ("fetch", url, tmp_path / "b"), ("fetch", url + "{rank}", "--rank", 1)):
        done = cli(*words)
        assert done.exit_code == 10 and SECRET not in done.output, done.output


def test_comments_of_the_manifest_stay_here(a: Path, place: Path, tmp_path: Path) -> None:
    with (a / ".safepoint").open("a") as file:
        file.write(f"# once s3://AKIA:{SECRET}@bucket\n'x # y.dat' optional   # {SECRET}\n")
    assert cli("drain", a).exit_code == 0
    assert not [path for path in place.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()]
    assert cli("fetch", place, tmp_path / "b").exit_code == 0
    assert "'x # y.dat' optional" in (tmp_path / "b/.safepoint").read_text()


# What is wrong here.


def test_a_manifest_with_a_mistake_is_no_reason_to_remove_sets_there(a: Path, place: Path) -> None:
    (a / ".safepoint").write_text(f"{MANIFEST}remote = {place}\ndrain = off\nremote_keep = 3\n")
    cli("drain", a)
    run(a, 1, first=3)
    cli("drain", a)
    (a / ".safepoint").write_text(f"{MANIFEST}remote_keep = many\n")
    assert cli("drain", a, "--to", place).exit_code == 11
    assert there(place) == [3, 2]


@pytest.mark.parametrize("url", ["s3://bucket/run[1]", "s3://bucket/run*", "gs://bucket/what?"])
def test_an_address_that_would_mean_others_too_is_refused(url: str, a: Path) -> None:
    assert cli("drain", a, "--to", url).exit_code == 10


def test_the_directory_of_the_run_is_no_place(a: Path) -> None:
    for to in (a, a / ".safepoint.d"):
        assert cli("drain", a, "--to", to).exit_code == 10
    (link := a.parent / "link").symlink_to(a / ".safepoint.d")
    assert cli("drain", a, "--to", link).exit_code == 10


def test_status_is_shown_though_the_note_cannot_be_read(a: Path) -> None:
    Path(Root(str(a)).remote).mkdir()
    assert cli("status", a).exit_code == 0


def test_the_time_that_is_given_is_kept_also_while_a_rate_is(a: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("part", "remote"):
        monkeypatch.setattr(f"safepoint.tiers.{module}.PIECE", 20_000)
    assert cli("drain", a, "--rate", "10", "--within", "1s").exit_code == 16  # it would take hours


def test_more_files_than_may_be_open_is_said(tmp_path: Path) -> None:
    work = tmp_path / "w"
    work.mkdir()
    (work / ".safepoint").write_text("f-*.dat\nbundle_from = 1000\n")
    for name in range(120):
        (work / f"f-{name}.dat").write_text(str(name))
    with Session(work) as session:
        session.restore()
        session.hide(1, wait=True)
        session.close()
    done = process(
        "drain", work, "--to", tmp_path / "place",
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (60, 60)),
    )  # fmt: skip
    assert done.returncode == 10 and "ulimit -n" in done.stderr, done.stderr


# Beside a run.


def followed(a: Path) -> subprocess.CompletedProcess[str]:
    """A drain that follows a program which has ended."""
    with subprocess.Popen(["true"]) as ended:
        ended.wait()
    command = [sys.executable, "-m", "safepoint", "drain", str(a), "--follow", "--pid", str(ended.pid)]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.mark.leaves_damage
def test_who_follows_does_not_end_well_if_the_newest_set_is_not_there(a: Path) -> None:
    flip(Path(Root(str(a)).set(2), "files/u.dat"), 100)
    done = followed(a)
    assert done.returncode == 18 and "u.dat is not as it was committed" in done.stderr, done


def test_who_follows_ends_though_the_last_set_is_one_that_only_a_start_commits(a: Path) -> None:
    for number in (1, 2):
        Path(Root(str(a)).record(number)).unlink()
    done = followed(a)
    assert done.returncode == 20 and "no set is complete" in done.stderr, done


def test_who_follows_sees_that_sets_were_removed_there(a: Path, place: Path) -> None:
    cli("drain", a)
    for path in place.glob("set-*"):
        shutil.rmtree(path)
    done = followed(a)
    assert done.returncode == 0 and there(place) == [2], done


def test_a_fetch_of_what_is_here_is_durable_and_noted(tmp_path: Path) -> None:
    """A fetch that was killed between its renames and its note is completed by the next one."""
    run(tmp_path / "a")
    place = Kept()
    drained(tmp_path / "a", place)
    (tmp_path / "b").mkdir()
    fetched(place, tmp_path / "b")
    Path(Root(str(tmp_path / "b")).remote).unlink()
    fetched(place, tmp_path / "b")
    run(tmp_path / "b", 1, first=3)
    drained(tmp_path / "b", place)
    assert max(Remote(place).look().sets).number == 3


# What a second reading found.


def test_who_follows_waits_for_a_program_that_was_started_a_moment_ago(place: Path, tmp_path: Path) -> None:
    (work := tmp_path / "w").mkdir()
    (work / ".safepoint").write_text(MANIFEST)
    program = at_work(work, 1, 0.0, first=2.0)
    done = process("drain", work, "--to", place, "--follow", "--pid", program.pid)
    program.wait()
    assert done.returncode == 0 and there(place) == [1], done


def test_a_file_system_that_goes_away_under_a_drain_is_not_filled(a: Path, place: Path) -> None:
    cli("drain", a)
    with following(a, program := at_work(a, 3, 0.7)) as said:
        place.rename(place.with_name("away"))
        place.mkdir()
        until(said, "is it not mounted?")
        program.wait()
        assert not [path for path in names(place) if path.is_file()]
        place.rmdir()
        place.with_name("away").rename(place)
        assert "is it not mounted?" not in said.read()


@pytest.mark.parametrize("gone", ["set-*", "claim-*"])
def test_who_follows_puts_again_what_goes_away_meanwhile(gone: str, a: Path, place: Path) -> None:
    with following(a, at_work(a, 2, 1.0)) as said:
        until(said, " is at ")
        for path in place.glob(gone):
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def test_a_fetch_of_an_old_set_that_is_here_decides_nothing(a: Path, place: Path, tmp_path: Path) -> None:
    """The run that was taken for dead asks for the set that it has; what came since is another's."""
    cli("drain", a)
    b = tmp_path / "b"
    cli("fetch", place, b)
    (b / ".safepoint").write_text(f"{MANIFEST}remote = {place}\ndrain = off\nremote_keep = 2\n")
    run(b, 1, first=3)
    assert cli("drain", b).exit_code == 0 and there(place) == [3, 2]
    assert cli("fetch", place, a, "--set", 2).exit_code == 0
    run(a, 1, first=3)
    assert cli("drain", a).exit_code == 13
    assert there(place) == [3, 2]


def test_sets_of_another_tell_of_its_claim_though_all_claims_are_lost(a: Path, place: Path, tmp_path: Path) -> None:
    cli("drain", a)
    b = tmp_path / "b"
    cli("fetch", place, b)
    (b / ".safepoint").write_text(f"{MANIFEST}remote = {place}\ndrain = off\nremote_keep = 2\n")
    run(b, 1, first=3)
    cli("drain", b)
    for path in place.glob("claim-*"):
        path.unlink()
    run(a, 1, first=3)
    assert cli("drain", a).exit_code == 13
    assert there(place) == [3, 2]
    assert cli("drain", b).exit_code == 0


def test_comments_go_line_by_line(a: Path, place: Path, tmp_path: Path) -> None:
    text = f"{MANIFEST}don't.dat optional  # a 'quoted' {SECRET}\n# {SECRET}\nisn't.dat optional\n'x # y' optional\n"
    text += f"!'tree/*.t # mp'  # {SECRET}\n"
    (a / ".safepoint").write_text(text)
    assert cli("drain", a, "--to", place).exit_code == 0
    assert not [path for path in place.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()]
    assert cli("fetch", place, tmp_path / "b").exit_code == 0
    brought = (tmp_path / "b/.safepoint").read_text()
    assert "don't.dat optional\n\nisn't.dat optional\n'x # y' optional\n!'tree/*.t # mp'\n" in brought


@pytest.mark.leaves_damage
def test_the_last_whole_set_is_found_behind_many_damaged_ones(a: Path, place: Path, tmp_path: Path) -> None:
    (a / ".safepoint").write_text(f"{MANIFEST}remote = {place}\ndrain = off\nremote_keep = 9\n")
    cli("drain", a)
    for step in range(3, 9):
        run(a, 1, first=step)
        cli("drain", a)
    for path in sorted(place.glob("set-*"))[1:]:
        piece = next(path.glob("rank-00000.000000-*"))
        piece.write_bytes(bytes(piece.stat().st_size))
    done = cli("fetch", place, tmp_path / "b")
    assert done.exit_code == 0 and "fetched set 2" in done.output, done.output
    assert done.output.count("an older set is looked for") == 6


def test_what_is_damaged_there_is_put_anew(a: Path, place: Path, tmp_path: Path) -> None:
    cli("drain", a)
    piece = next(place.rglob("rank-00000.000000-*"))
    piece.write_bytes(bytes(piece.stat().st_size))
    assert cli("fetch", place, tmp_path / "b").exit_code == 18
    assert cli("drain", a).exit_code == 0 and cli("fetch", place, tmp_path / "b").exit_code == 18
    assert cli("drain", a, "--anew").exit_code == 0
    assert cli("fetch", place, tmp_path / "b").exit_code == 0


def test_a_fetch_that_was_killed_between_its_renames_goes_on_when_the_place_has_gone_on(
    a: Path, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli("drain", a)
    (tmp_path / "b").mkdir()

    class Stopped(BaseException):
        pass

    def stop(*_: object, **__: object) -> None:
        raise Stopped

    with monkeypatch.context() as broken:
        broken.setattr("safepoint.tiers.fetching.Fetch._flush", stop)
        with pytest.raises(Stopped):
            cli("fetch", place, tmp_path / "b")
    assert Path(Root(str(tmp_path / "b")).record(2)).exists()
    run(a, 1, first=3)
    cli("drain", a)
    assert cli("fetch", place, tmp_path / "b").exit_code == 0
    run(tmp_path / "b", 1, first=4)
    assert cli("drain", tmp_path / "b").exit_code == 0 and there(place) == [4]


def test_a_place_is_the_same_under_each_of_its_names(a: Path, place: Path, tmp_path: Path) -> None:
    cli("drain", a)
    b = tmp_path / "b"
    cli("fetch", place, b)
    (link := tmp_path / "link").symlink_to(place)
    for step, url in ((3, f"file://{place}"), (5, link), (7, f"{place}/")):
        run(b, 1, first=step)
        cli("drain", b)
        assert cli("fetch", url, a).exit_code == 0
        run(a, 1, first=step + 1)
        assert cli("drain", a, "--to", url).exit_code == 0 and there(place) == [step + 1]
        cli("fetch", place, b)


def test_a_file_that_runs_as_somebody_else_is_refused_before_a_byte_goes(tmp_path: Path, place: Path) -> None:
    work = saved(tmp_path / "w", mode=0o2755)
    done = cli("drain", work, "--to", place)
    assert done.exit_code == 10 and "u.dat is setuid or setgid" in done.output and not list(place.glob("set-*"))


def test_a_relative_address_is_below_where_one_stands(a: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli("drain", a, "--to", "here").exit_code == 0 and there(tmp_path / "here") == [2]


def test_a_set_that_only_a_start_commits_is_named(tmp_path: Path, place: Path) -> None:
    """As after a kill between the last file and the record."""
    work = saved(tmp_path / "w", steps=2)
    Path(Root(str(work)).record(2)).unlink()
    done = cli("drain", work, "--to", place)
    assert done.exit_code == 0 and there(place) == [1]
    assert "set 2 (step 2) is uncommitted: `safepoint restore`, or the next start, commits it" in done.output
