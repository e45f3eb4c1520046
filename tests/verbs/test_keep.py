"""`keep`: which sets stay."""

from __future__ import annotations

import contextlib
import os
import pickle
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from testbed.disks import Failing
from testbed.faultdisk import FaultDisk, Killed, images
from testbed.sessions import Start, sets, write

import safepoint
from safepoint import ManifestError, SaveError, UsageError
from safepoint.disk import Disk
from safepoint.retention import EVERY, PERIODS, Fact, Keep, parse

DAY = 86400.0


def lives(keep: str, facts: Sequence[Fact]) -> list[int]:
    """Each set is committed, and what is superfluous then goes."""
    rule, known, there = parse(keep), {fact.number: fact for fact in facts}, list[int]()
    for fact in facts:
        there.append(fact.number)
        gone = set(rule.superfluous(there, known.get))
        there = [number for number in there if number not in gone]
    return there


def steps(*numbers: int, each: float = 0.0, loss: Sequence[float] = ()) -> list[Fact]:
    begin = time.mktime((2026, 1, 1, 12, 0, 0, 0, 0, -1))
    values = dict(enumerate(loss))
    return [
        Fact(k + 1, step, begin + k * each, {"loss": values[k]} if k in values else None)
        for k, step in enumerate(numbers)
    ]


@pytest.mark.parametrize(
    ("keep", "facts", "left"),
    [
        ("2", steps(*range(9)), [7, 8]),
        ("1 + every 100 steps", steps(*range(0, 450, 10)), [0, 100, 200, 300, 400, 440]),
        ("1 + every 1 step", steps(3, 3, 4), [3, 4]),
        ("1 + every 100 steps", steps(50, 130, 170, 210, 290), [50, 130, 210, 290]),
        ("1 + every 10 steps", steps(-15, -5, 5, 6), [-15, -5, 5, 6]),
        ("1 + daily", steps(*range(8), each=DAY / 2), [0, 1, 3, 5, 7]),
        ("1 + weekly", steps(*range(22), each=DAY), [0, 4, 11, 18, 21]),
        ("1 + best 2 by loss", steps(*range(6), loss=[5, 1, 4, 2, 9, 8]), [1, 3, 5]),
        ("1 + best 2 by largest loss", steps(*range(6), loss=[5, 1, 4, 2, 9, 8]), [4, 5]),
        ("1 + best 1 by loss", steps(*range(3), loss=[float("nan"), 1, 1]), [1, 2]),
        ("1 + best 1 by loss", steps(*range(3)), [2]),
        ("1 + every 4 steps + best 1 by loss", steps(*range(8), loss=[9, 9, 9, 9, 9, 1, 9, 9]), [0, 4, 5, 7]),
        ("1 + best 1 by loss", steps(*range(3), loss=[1.0, 10**400, 10**401]), [0, 2]),
        ("all", steps(*range(5)), [0, 1, 2, 3, 4]),
    ],
)
def test_what_stays(keep: str, facts: list[Fact], left: list[int]) -> None:
    by_number = {fact.number: fact.step for fact in facts}
    assert [by_number[number] for number in lives(keep, facts)] == left


@given(
    st.lists(st.tuples(st.none() | st.integers(-50, 50), st.integers(0, 10**7), st.none() | st.floats()), max_size=25),
    st.lists(st.sampled_from(["every 7 steps", "daily", "hourly", "best 2 by a", "best 1 by largest a"]), max_size=3),
    st.integers(1, 4),
)
def test_the_newest_always_stay_and_a_rule_never_changes_its_mind(
    rows: list[tuple[int | None, int, float | None]], rules: list[str], newest: int
) -> None:
    """What is pruned step by step is what would be pruned at once, for all but the newest; so no restart, and no set
    that was pruned late, changes what stays."""
    facts = [Fact(k + 1, step, when, {"a": value}) for k, (step, when, value) in enumerate(rows)]
    keep = " + ".join([str(newest), *rules])
    left, known = lives(keep, facts), {fact.number: fact for fact in facts}
    assert left[-newest:] == [fact.number for fact in facts][-newest:]
    every = [fact.number for fact in facts]
    gone = set(parse(keep).superfluous(every, known.get))
    assert left == [number for number in every if number not in gone]


def test_a_rule_goes_to_other_ranks_and_is_equal_there() -> None:
    keep = parse("3 + every 10 steps + best 2 by largest some name")
    assert pickle.loads(pickle.dumps(keep)) == keep and parse("all") == Keep(EVERY) and parse(" 2 ") == Keep(2)
    assert {name for name in PERIODS if parse(f"1 + {name}").rules} == set(PERIODS)


@pytest.mark.parametrize(
    "text", ["0", "two", "2 + ", "2 + every steps", "2 + best 3", "daily", "2 + yearly", "all + daily"]
)
def test_what_is_no_rule_is_an_error_that_shows_the_form(start: Start, text: str) -> None:
    with pytest.raises(ManifestError, match=r"\.safepoint:2: .*as in 2 \+ every 100 steps \+ daily \+ best 3 by loss"):
        start(f"u.dat\nkeep = {text}\n")
    with pytest.raises(UsageError, match="keep takes a whole number from 1, or all; and rules, as in"):
        start("u.dat\n", keep=text)
    with pytest.raises(UsageError, match="keep must be at least 1, not 0"):
        start("u.dat\n", keep=0)


def stored(session: Any, work: Path, *rows: tuple[int, float]) -> None:
    for step, loss in rows:
        write(work, u_dat=str(step))
        session.hide(step, wait=True, extra={"loss": loss})


def kept_steps(session: Any) -> list[int]:
    return [each.step for each in reversed(session.sets())]


@pytest.mark.parametrize("how", ["manifest", "argument"])
def test_sets_stay_by_rule_over_lives_roll_backs_and_the_end(start: Start, work: Path, how: str) -> None:
    rule = "1 + every 10 steps + best 1 by loss"
    manifest, options = ("u.dat\n", {"keep": rule}) if how == "argument" else (f"u.dat\nkeep = {rule}\n", {})
    session = start(manifest, **options)
    stored(session, work, (0, 9), (4, 3), (8, 4), (12, 8), (16, 7))
    assert kept_steps(session) == [0, 4, 12, 16]
    session.close()
    session = start(manifest, **options)
    stored(session, work, (18, 2), (22, 8), (24, 8))
    assert kept_steps(session) == [0, 12, 18, 22, 24]
    session.restore(step=12)
    stored(session, work, (13, 5), (14, 6))
    assert kept_steps(session) == [0, 12, 13, 14]
    write(work, u_dat="end")
    session.finish(15)
    assert len(sets(work)) == 3  # 0, 12 and 13: what the rules want stays after the end too
    session = start(manifest, **options)
    assert len(sets(work)) == 3
    write(work, u_dat="1")
    session.hide(1, wait=True)
    assert kept_steps(session) == [1]


@pytest.mark.leaves_damage
def test_a_set_whose_record_cannot_be_read_is_wanted_by_no_rule(start: Start, work: Path) -> None:
    session = start("u.dat\nkeep = 1 + every 10 steps\n")
    stored(session, work, (0, 9), (10, 3), (20, 3))
    session.close()
    record = work / ".safepoint.d/rank-00000/set-00000001/record.json"
    record.write_bytes(record.read_bytes()[:-9])
    session = start()
    stored(session, work, (21, 9), (22, 9))
    assert sets(work) == [2, 3, 5]


def test_a_record_that_cannot_be_read_for_once_takes_no_set_away(start: Start, work: Path) -> None:
    class Unreadable(Disk):
        of = ""

        def open(self, path: str) -> Any:
            if self.of and self.of in path:
                raise OSError(24, "Too many open files", path)
            return super().open(path)

    manifest = "u.dat\nkeep = 1 + every 10 steps\n"
    session = start(manifest)
    stored(session, work, (0, 9), (5, 3))
    session.close()
    session = start(manifest, disk=(disk := Unreadable()))
    disk.of = "set-00000001/record.json"
    stored(session, work, (6, 9))
    disk.of = ""
    stored(session, work, (7, 9))
    assert kept_steps(session) == [0, 7]


def test_what_was_kept_of_a_finished_run_takes_no_place_in_the_next(start: Start, work: Path) -> None:
    manifest = "u.dat\nkeep = 1 + best 1 by loss\n"
    session = start(manifest)
    stored(session, work, (0, 0.1), (1, 0.2))
    session.finish(2)
    session = start(manifest)
    assert len(sets(work)) == 1
    stored(session, work, (0, 0.5), (1, 0.6), (2, 0.7))
    assert kept_steps(session) == [0, 2] and len(sets(work)) == 2
    session.close()
    session = start(manifest)
    stored(session, work, (3, 0.8))
    assert kept_steps(session) == [0, 3]


def test_after_a_failed_save_the_rules_hold_again(start: Start, work: Path) -> None:
    session = start("u.dat\nkeep = 1 + every 10 steps\n", disk=(disk := Failing()))
    stored(session, work, (0, 9), (5, 3))
    disk.of = lambda path: "files/u.dat" in path
    with pytest.raises(SaveError):
        stored(session, work, (10, 1))
    stored(session, work, (11, 9), (15, 9), (16, 9))
    assert kept_steps(session) == [0, 11, 16]


def pruned(directory: Path, disk: Any) -> None:
    session = safepoint.Session(directory, disk=disk, keep="1 + every 2 steps")
    session.restore()
    for step in range(4):
        disk.overwrite(str(directory / "u.dat"), str(step).encode())
        session.hide(step, wait=True)
    disk.end()


def whole(directory: Path, disk: FaultDisk, least: int = -1) -> None:
    """The newest set is given back, and what the rule wants of those before it is there and whole."""
    session = safepoint.Session(directory, disk=disk, keep="1 + every 2 steps")
    point = session.restore()
    newest = -1 if point is None or point.step is None else point.step
    assert newest >= least
    there = {each.step: each.number for each in session.sets()}
    assert set(there) >= {step for step in (0, 2) if step <= newest}
    for step, number in there.items():
        with session.reading(number) as old:
            assert (old / "u.dat").read_text() == str(step)
    session.close()


def test_killed_anywhere_no_set_that_a_rule_wants_is_lost(tmp_path: Path) -> None:
    for name in ("whole", "base"):
        (tmp_path / name).mkdir()
        (tmp_path / name / ".safepoint").write_text("u.dat\n")
    pruned(tmp_path / "whole", disk := FaultDisk(tmp_path / "whole"))
    for at in disk.record.changing[::3]:
        directory = Path(shutil.copytree(tmp_path / "base", tmp_path / "killed"))
        dying = FaultDisk(directory, kill_at=at)
        with contextlib.suppress(Killed):
            pruned(directory, dying)
        dying.end()
        whole(directory, FaultDisk(directory, before=dying))
        shutil.rmtree(directory)


def test_after_a_power_cut_no_set_that_a_rule_wants_is_lost(tmp_path: Path) -> None:
    (tmp_path / "whole").mkdir()
    (tmp_path / "whole/.safepoint").write_text("u.dat\n")
    pruned(tmp_path / "whole", disk := FaultDisk(tmp_path / "whole"))
    count = 0
    for image in images(disk.record, str(tmp_path), seed=2, singles=1, at=disk.record.changing[::6]):
        whole(Path(image.directory), FaultDisk(image.directory, boot="2", inodes=image.inodes))
        shutil.rmtree(image.directory)
        count += 1
    assert count > 20 and os.path.isdir(tmp_path)
