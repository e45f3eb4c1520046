"""Putting sets and bringing them: killed at each operation, on both sides; and runs that do not know each other."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from testbed.faultdisk import FaultDisk, Killed, images
from testbed.places import (
    MANIFEST,
    NO_RATE,
    Dead,
    Dying,
    Kept,
    directory,
    drained,
    fetched,
    files_below,
    given_back,
    newest,
    parts_of,
    run,
    saved,
)
from testbed.sweep import PROOF, sample

from safepoint import LockedError, Session
from safepoint.disk import Disk
from safepoint.nodes.copying import AtRemote, Superseded
from safepoint.record import Record, dump, parse_record
from safepoint.restoring.read import Damaged
from safepoint.restoring.verify import verify
from safepoint.root import Root
from safepoint.tiers import note
from safepoint.tiers import part as parts
from safepoint.tiers.fetching import chosen, make_ready, sets_at
from safepoint.tiers.note import at_places, read_notes
from safepoint.tiers.place import Place, Unreachable
from safepoint.tiers.remote import Remote

FEW = 1 if PROOF else 6  # of every so-manieth operation


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("part", "remote"):
        monkeypatch.setattr(f"safepoint.tiers.{module}.PIECE", 40_000)
    # What a power cut leaves is a copy here, and it is the same directory all the same.
    monkeypatch.setattr(note, "home", lambda root: "1")


# Putting.


def test_an_upload_killed_at_each_operation_goes_on_with_what_is_missing(tmp_path: Path) -> None:
    """The table of `sending`: what is there is the older set or the new one, whole; what was told is there; no piece
    goes twice; and the next drain completes it."""
    run(tmp_path / "a", 1)
    before = Kept()
    drained(tmp_path / "a", before)
    run(tmp_path / "a", 1, first=2)
    shutil.copytree(tmp_path / "a", tmp_path / "start", symlinks=True)
    whole = Kept()
    whole.objects = dict(before.objects)
    drained(tmp_path / "a", whole)
    steps = set()
    for at in range(len(whole.calls)):
        work = tmp_path / "w"
        shutil.rmtree(work, ignore_errors=True)
        shutil.copytree(tmp_path / "start", work, symlinks=True)
        dying = Dying(dict(before.objects), at)
        with pytest.raises(Dead):
            drained(work, dying)
        left = Kept()
        left.objects = dict(dying.objects)
        there = newest(left)
        told = any("-00000002-" in text for text in at_places(Root(str(work))))
        assert there == 2 if told else there in (1, 2), (at, dying.calls[-1])
        steps.add(there)
        again = Kept()
        again.objects = dict(left.objects)
        sent = drained(work, again)
        assert newest(again) == 2 and sent.name.number == 2
        put = [
            call for call in [*dying.calls[:-1], *again.calls] if call.startswith("put set-") and ".json" not in call
        ]
        assert len(put) == len(set(put)), (at, put)
        assert {n.partition("/")[0][:4] for n in again.objects} <= {"FORM", "clai", "set-"}
        assert len([n for n in again.objects if n.startswith("claim")]) == 1
        assert {n.split("-")[4] for n in again.objects if n.startswith("set-")} == {"00000002"}
    assert steps == {1, 2}
    assert given_back(whole, tmp_path / "b") == 2


def test_a_first_upload_killed_at_each_operation_is_still_ours(tmp_path: Path) -> None:
    """The claim is remembered before it is there: after a kill it is not taken for another's."""
    run(tmp_path / "a", 1)
    whole = Kept()
    drained(tmp_path / "a", whole)
    (tmp_path / "a/.safepoint.d/remote.json").unlink()
    shutil.copytree(tmp_path / "a", tmp_path / "start", symlinks=True)
    for at in range(len(whole.calls)):
        shutil.rmtree(tmp_path / "a")
        shutil.copytree(tmp_path / "start", tmp_path / "a", symlinks=True)
        dying = Dying({}, at)
        with pytest.raises(Dead):
            drained(tmp_path / "a", dying)
        left = Kept()
        left.objects = dying.objects
        drained(tmp_path / "a", left)
        assert newest(left) == 1 and len([n for n in left.objects if n.startswith("claim")]) == 1


class Full(Kept):
    """With room for so many bytes."""

    room = 0

    def put(self, name: str, data: bytes) -> None:
        if sum(map(len, {**self.objects, name: data}.values())) > self.room:
            raise Unreachable("memory: No space left on device")
        super().put(name, data)


def test_a_place_that_was_full_once_is_not_full_for_ever(tmp_path: Path) -> None:
    """What uploads left that ended early makes room for the next set; what is whole there stays until that is there,
    also if its index cannot be read just now."""
    run(tmp_path / "a", 1)
    place = Full()
    place.room = 1 << 30
    drained(tmp_path / "a", place)
    before = dict(place.objects)
    whole = sum(map(len, before.values()))
    place.room = whole * 5 // 3  # the set there, and not all of another one
    for step in (2, 3):  # each is another one
        run(tmp_path / "a", 1, first=step)
        with pytest.raises(Unreachable, match="No space left"):
            drained(tmp_path / "a", place)
    assert len({name.split("/")[0] for name in place.objects if name.startswith("set-")}) == 2 and newest(place) == 1
    place.room = whole * 9 // 4  # enough for two sets, and not for what is left of others as well
    run(tmp_path / "a", 1, first=4)
    drained(tmp_path / "a", place)
    assert newest(place) == 4 and given_back(place, tmp_path / "b") == 4
    place.objects = dict(before)
    (index,) = (name for name in before if name.endswith(".json"))
    place.objects[index] = bytes(len(before[index]))
    listing = Remote(place).look()
    Remote(place).clear_dead(listing, max(listing.sets)._replace(number=9))
    assert {*place.objects} == {*before}


def of_two_ranks(work: Path) -> None:
    """Three sets, of which rank 0 has the newest two, and rank 1 those before: nodes that died out of step."""
    saved(work, manifest="u.dat\nkeep = 3\n", steps=3)
    one = Root(str(work))
    shutil.copytree(one.path, one.of(1).path)
    for rank, gone in ((0, 1), (1, 3)):
        root = one.of(rank)
        shutil.rmtree(root.set(gone))
        for path in Path(root.path).glob("set-*/record.json"):
            record = parse_record(path.read_bytes())
            path.chmod(0o600)
            patterns = ("u.dat", "z-{rank}.dat")
            path.write_bytes(dump(record._replace(rank=rank, ranks=2, saver=0, patterns=patterns)))


def test_nodes_out_of_step_that_drain_in_turn_put_the_set_that_both_have(tmp_path: Path) -> None:
    """None waits for the other: each says what is there of it and what is not, and the next one goes on from there."""
    of_two_ranks(tmp_path / "a")
    make_ready(str(tmp_path), Disk())
    start, place = Root(str(tmp_path), 0, 2, 0), Kept()

    def drain(rank: int) -> Record | None:
        at = AtRemote(start, "memory", lambda: place, NO_RATE, lambda: "", lead=True, keep=1, locked=True)
        return at.put_last([Root(str(tmp_path / "a"), rank, 2, 0)], lambda: False, lambda more: None)

    with pytest.raises(
        Superseded, match=r"is there of set 3 \(step 3\), and of set 2 \(step 2\) not yet; .* here again"
    ):
        drain(0)
    with pytest.raises(Superseded, match=r"there of set 2 \(step 2\), and of set 1 \(step 1\) not yet"):
        drain(1)
    found = drain(0)
    assert found and found.number == 2 and newest(place) == 2
    assert drain(1) is None


def swept(tmp_path: Path, act: Callable[[Path, FaultDisk], Any], made: Callable[[Path], None]) -> tuple[Any, list[int]]:
    """An act on a fault disk that has its end, and the operations that change something."""
    made(tmp_path / "all")
    disk = FaultDisk(tmp_path / "all")
    act(tmp_path / "all", disk)
    disk.end()
    return disk, disk.record.changing


def at_place(top: Path, disk: FaultDisk | None = None) -> Place:
    return directory(top / "place", disk)


def put_here(top: Path, disk: FaultDisk) -> None:
    drained(top / "a", at_place(top, disk), disk=disk)


def made_two(top: Path) -> None:
    """A directory whose set 1 is at the place, and whose set 2 is not."""
    top.mkdir()
    run(top / "a", 1)
    drained(top / "a", at_place(top))
    run(top / "a", 1, first=2)


def judge_put(top: Path, where: str) -> None:
    """What is at the place after a fault is whole; what was told is there; and the next drain goes on."""
    told = any("-00000002-" in text for text in at_places(Root(str(top / "a"))))
    there = newest(at_place(top))
    assert there == 2 if told else there in (1, 2), where
    drained(top / "a", at_place(top))
    assert newest(at_place(top)) == 2, where


def test_a_drain_into_a_directory_killed_or_without_power_at_each_operation(tmp_path: Path) -> None:
    """Both are on one machine here: what is told to be there has survived the power cut at the place too."""
    disk, points = swept(tmp_path, put_here, made_two)
    for at in sample(points, FEW):
        made = tmp_path / f"at-{at}"
        made_two(made)
        dying = FaultDisk(made, kill_at=at)
        with pytest.raises(Killed):
            put_here(made, dying)
        dying.end()
        judge_put(made, dying.record.ops[-1])
        shutil.rmtree(made)
    cut_at(disk, tmp_path, points, lambda top, where, ended: judge_put(top, where))


def made_first(top: Path) -> None:
    """A directory with two sets, and no place yet."""
    top.mkdir()
    run(top / "a", 2)


def killed_then_cut(
    tmp_path: Path, act: Callable[[Path, FaultDisk], Any], made: Callable[[Path], None],
    judge: Callable[[Path, str], None],
) -> None:  # fmt: skip
    """The act is killed at each operation, done again to its end, and then the power goes."""
    _, points = swept(tmp_path, act, made)
    for at in sample(points, FEW):
        made(top := tmp_path / f"at-{at}")
        dying = FaultDisk(top, kill_at=at)
        with pytest.raises(Killed):
            act(top, dying)
        second = FaultDisk(top, before=dying)
        act(top, second)
        second.end()
        (into := tmp_path / f"cuts-{at}").mkdir()
        for image in images(second.record, str(into), at=[len(second.record.ops)]):
            judge(Path(image.directory), f"{dying.record.ops[at]}: {image.policy}")
        shutil.rmtree(into)
        shutil.rmtree(top)


@pytest.mark.parametrize("made", [made_two, made_first])
def test_a_drain_killed_and_gone_on_with_survives_a_power_cut_when_it_has_told(
    made: Callable[[Path], None], tmp_path: Path
) -> None:
    """What the first one has put, and not flushed, the second one only sees."""

    def judge(top: Path, where: str) -> None:
        assert newest(at_place(top)) == 2, where

    killed_then_cut(tmp_path, put_here, made, judge)


def cut_at(disk: FaultDisk, tmp_path: Path, points: list[int], judge: Callable[[Path, str, bool], None]) -> None:
    """What a power cut could leave before each operation, and after the last."""
    (into := tmp_path / "cuts").mkdir()
    ops, cuts = len(disk.record.ops), 0
    for image in images(disk.record, str(into), at=[*sample(points, FEW), ops]):
        cuts += 1
        judge(Path(image.directory), f"{image.ops} of {ops}: {image.policy}", image.ops == ops)
        shutil.rmtree(image.directory)
    assert cuts > 10


# Bringing.


def bring_here(top: Path, disk: FaultDisk) -> None:
    fetched(at_place(top), top / "b", disk=disk)


def made_place(top: Path) -> None:
    """A place with a set, and an empty directory."""
    top.mkdir()
    run(top / "a", 2)
    drained(top / "a", at_place(top))
    (top / "b").mkdir()


def judge_brought(top: Path, where: str, *, ended: bool) -> None:
    """What has the name of a set is one, whole; and the next fetch brings it."""
    work = str(top / "b")
    states = verify(Root(work)) if (top / "b/.safepoint.d/rank-00000").is_dir() else {}
    assert set(states.values()) <= {"committed"} and (2 in states or not ended), (where, states)
    fetched(at_place(top), top / "b")
    assert verify(Root(work)) == {2: "committed"}, where
    (top / "b/.safepoint").write_text(MANIFEST)
    with Session(work) as session:
        point = session.restore()
        session.close()
    assert point and point.step == 2, where
    assert read_notes(Root(work)).places[0].seen, where


def test_a_fetch_killed_or_without_power_at_each_operation(tmp_path: Path) -> None:
    disk, points = swept(tmp_path, bring_here, made_place)
    for at in sample(points, FEW):
        made = tmp_path / f"at-{at}"
        made_place(made)
        dying = FaultDisk(made, kill_at=at)
        with pytest.raises(Killed):
            bring_here(made, dying)
        dying.end()
        judge_brought(made, dying.record.ops[-1], ended=False)
        shutil.rmtree(made)
    cut_at(disk, tmp_path, points, lambda top, where, ended: judge_brought(top, where, ended=ended))


def test_a_fetch_killed_and_begun_again_survives_a_power_cut_when_it_has_ended(tmp_path: Path) -> None:
    """What the first one has renamed, and not flushed, the second one only finds there."""
    killed_then_cut(tmp_path, bring_here, made_place, lambda top, where: judge_brought(top, where, ended=True))


# Runs that do not know each other.


def copied(tmp_path: Path, name: str) -> Path:
    shutil.copytree(tmp_path / "a", tmp_path / name, symlinks=True)
    return tmp_path / name


def test_two_directories_do_not_put_their_sets_to_one_place(tmp_path: Path) -> None:
    run(tmp_path / "a")
    run(tmp_path / "b")
    place = Kept()
    drained(tmp_path / "a", place)
    there = dict(place.objects)
    with pytest.raises(LockedError, match=r"has sets of another directory \(.*/a on "):
        drained(tmp_path / "b", place)
    assert place.objects == there
    drained(tmp_path / "b", place, take_over=True)
    with pytest.raises(LockedError, match=r"another run has taken over memory \(.*/b on "):
        drained(tmp_path / "a", place)


def test_a_run_that_was_taken_for_dead_is_fenced_and_never_mixed_in(tmp_path: Path) -> None:
    """G1, G5 across machines: whoever fetched and went on has the newest sets, whatever numbers the others reach."""
    run(tmp_path / "a")
    place = Kept()
    drained(tmp_path / "a", place)
    (tmp_path / "b").mkdir()
    fetched(place, tmp_path / "b")
    run(tmp_path / "b", 1, first=3)
    sent = drained(tmp_path / "b", place)
    assert sent.name.number == 3 and newest(place) == 3
    run(tmp_path / "a", 5, first=3)  # it was not dead
    with pytest.raises(LockedError, match=r"another run has taken over memory \(.*/b on .*, since 20"):
        drained(tmp_path / "a", place)
    remote = Remote(place)
    best = chosen(sets_at(remote, remote.look()), None, None, "memory")
    assert best.name == sent.name
    assert given_back(place, tmp_path / "c") == 3


def test_a_zombie_between_its_last_put_and_its_look_is_not_told_that_its_set_counts(tmp_path: Path) -> None:
    """Rule (3): first put, then look, against first claim, then look: one of the two sees the other."""
    run(tmp_path / "a")
    place = Kept()
    drained(tmp_path / "a", place)
    (tmp_path / "b").mkdir()
    fetched(place, tmp_path / "b")
    run(tmp_path / "b", 1, first=3)
    run(tmp_path / "a", 2, first=3)

    class Between(Kept):
        """The other run claims and puts just before this one looks for the last time."""

        done = False

        def put(self, name: str, data: bytes) -> None:
            super().put(name, data)
            if name.endswith(".json") and not self.done:
                self.done = True
                other = Kept()
                other.objects = self.objects
                with contextlib.suppress(LockedError):
                    drained(tmp_path / "b", other)

    between = Between()
    between.objects = place.objects
    drained(tmp_path / "a", between)  # its set was whole before the other looked, which gave way
    assert between.done and newest(between) == 4
    assert len([n for n in between.objects if n.startswith("claim")]) == 1
    with pytest.raises(LockedError, match="has set 4, which came after set 2 was fetched from there"):
        drained(tmp_path / "b", between)

    class Before(Kept):
        """The other run does so before the index is there."""

        done = False

        def put(self, name: str, data: bytes) -> None:
            if name.endswith(".json") and not self.done:
                self.done = True
                other = Kept()
                other.objects = self.objects
                drained(tmp_path / "b", other)
            super().put(name, data)

    run(tmp_path / "a", 1, first=5)
    last = Before()
    last.objects = {name: data for name, data in place.objects.items() if "-00000004-" not in name}
    run(tmp_path / "a2", 2)
    first = Kept()
    drained(tmp_path / "a2", first)
    shutil.rmtree(tmp_path / "b")
    (tmp_path / "b").mkdir()
    fetched(first, tmp_path / "b")
    run(tmp_path / "b", 1, first=3)
    run(tmp_path / "a2", 2, first=3)
    last.objects = first.objects
    with pytest.raises(LockedError, match="another run has taken over"):
        drained(tmp_path / "a2", last)
    assert not any("-00000004-" in text for text in at_places(Root(str(tmp_path / "a2"))))
    best = chosen(sets_at(Remote(last), Remote(last).look()), None, None, "memory")
    assert best.name.number == 3  # the other's, of the later claim


def test_a_place_that_was_emptied_is_filled_again(tmp_path: Path) -> None:
    """If somebody says so: a file system that is not mounted is empty too. Single pieces are put again."""
    run(tmp_path / "a")
    drained(tmp_path / "a", Kept())
    other = Kept()
    with pytest.raises(Unreachable, match="is it not mounted"):
        drained(tmp_path / "a", other)
    assert not other.objects
    assert drained(tmp_path / "a", other, take_over=True).went
    assert newest(other) == 2
    for name in [name for name in other.objects if ".000000" in name]:
        other.objects.pop(name)
    assert newest(other) is None
    assert drained(tmp_path / "a", other).went and newest(other) == 2


def test_the_older_sets_stay_that_are_to_be_kept_and_no_others(tmp_path: Path) -> None:
    place = Kept()
    for step in range(1, 6):
        run(tmp_path / "a", 1, first=step)
        drained(tmp_path / "a", place, keep=3)
    remote = Remote(place)
    assert [each.name.number for each in sets_at(remote, remote.look())] == [5, 4, 3]
    assert given_back(place, tmp_path / "b") == 5
    assert {text.split("-")[1] for text in at_places(Root(str(tmp_path / "a")))} == {"00000005", "00000004", "00000003"}


def test_a_note_that_cannot_be_read_costs_nothing_but_a_question(tmp_path: Path) -> None:
    run(tmp_path / "a")
    place = Kept()
    drained(tmp_path / "a", place)
    note = tmp_path / "a/.safepoint.d/remote.json"
    note.write_bytes(note.read_bytes()[:-9])
    with pytest.raises(LockedError, match="--take-over"):
        drained(tmp_path / "a", place)
    assert drained(tmp_path / "a", place, take_over=True).name.number == 2
    assert newest(place) == 2


def test_a_set_that_goes_away_while_it_comes_leaves_nothing_behind(tmp_path: Path) -> None:
    run(tmp_path / "a")

    class Pruned(Kept):
        def get(self, name: str, size: int) -> bytes:
            if ".000001" in name:
                self.objects.pop(name)
            return super().get(name, size)

    place = Pruned()
    drained(tmp_path / "a", place)
    (tmp_path / "b").mkdir()
    with pytest.raises(Exception, match=r"rank-00000\.000001"):
        fetched(place, tmp_path / "b")
    assert not list((tmp_path / "b").rglob("fetched")) and not list((tmp_path / "b").rglob("set-*"))
    with pytest.raises(Damaged, match=r"no set at memory is whole.*\n.*000001-\w+ is missing"):
        fetched(place, tmp_path / "b")


def test_the_names_at_a_place_sort_as_sets_are_chosen(tmp_path: Path) -> None:
    """The newest claim first, in it the newest life, in it the newest number. What is none of ours is left alone."""
    from safepoint.tiers.names import Name, name_of

    names = [Name(1, "f" * 16, 9, 99, "0" * 16), Name(2, "0" * 16, 1, 5, "0" * 16), Name(2, "0" * 16, 2, 3, "0" * 16)]
    assert sorted(names) == names == [name_of(name.text) for name in sorted(names)]
    assert sorted(name.text for name in names) == [name.text for name in names]
    run(tmp_path / "a")
    place = Kept()
    place.objects = {"readme.txt": b"mine", "set-x/rank-00000.json": b"", "data/u.dat": b"1"}
    drained(tmp_path / "a", place)
    run(tmp_path / "a", 1, first=3)
    drained(tmp_path / "a", place)
    assert place.objects["readme.txt"] == b"mine" and "data/u.dat" in place.objects
    assert Remote(place).look().others == ("data", "readme.txt", "set-x")


def test_files_of_all_kinds_are_equal_on_the_other_side(tmp_path: Path) -> None:
    run(tmp_path / "a", 3)
    drained(tmp_path / "a", at_place(tmp_path))
    given_back(at_place(tmp_path), tmp_path / "b")
    with Session(tmp_path / "a") as session:
        session.restore()
        session.close()
    assert files_below(tmp_path / "a") == files_below(tmp_path / "b")
    assert parts_of(tmp_path / "a")[0][1] == parts_of(tmp_path / "b")[0][1]
    assert parts.PIECE == 40_000 and isinstance(Disk(), Disk)
