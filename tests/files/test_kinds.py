"""Each kind of file × each fault: G1 to G7 as a table. The program is that of `program.py`, with one kind of file at a
time, so that a fault in one cannot hide behind another."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path

import pytest
from testbed import tally
from testbed.faultdisk import FaultDisk, Image, images
from testbed.program import ANEW, EACH_KIND, Program, Violation, listed, restart, restart_image
from testbed.sweep import (
    ALL,
    LONG,
    SINGLE,
    STEPS,
    cuts,
    kills,
    nothing_lost,
    one_of,
    sample,
    some_of,
    stopped_after,
    told,
    undisturbed,
)

from safepoint import DamagedError, Session
from safepoint.record import parse_record
from safepoint.root import Root

each_kind = pytest.mark.parametrize("kind", EACH_KIND)
some_kinds = pytest.mark.parametrize("kind", some_of([*EACH_KIND], 8))
LIVES = [(saver, initial) for saver in (("now", "late", "wait") if ALL else ("late",)) for initial in (False, True)]


@some_kinds
def test_killed_and_power_cut_at_every_operation(tmp_path: Path, kind: str) -> None:
    """G1, G2, G2k, G3, G4: the cuts in the states that the model of the disk allows."""
    for saver, initial in one_of(LIVES):
        where = tmp_path / f"{saver}-{initial}"
        where.mkdir()
        whole = undisturbed(where / "whole", kind, saver, initial)
        kills(where, whole, sample(whole.disk.record.changing, 20, 1), of="each kind of file")
        points = sample([*whole.disk.record.changing, len(whole.disk.record.ops)], 50, 3)
        cuts(where, whole, points, of="each kind of file", seed=5, singles=3 if ALL else 0)


@pytest.mark.leaves_damage
@each_kind
def test_every_file_of_the_newest_set_damaged_in_turn(tmp_path: Path, kind: str) -> None:
    """G6: passed over for the set before it, which is whole; of a file that stays in W there is but one: an error, and
    nothing of W was touched."""
    stopped_after(tmp_path / "whole", kind, 2)
    newest = Root(str(tmp_path / "whole")).set(2)
    record = parse_record(Path(newest, "record.json").read_bytes())
    kept = {Root(str(tmp_path / "whole")).where(2, file) for file in record.files if file.has_bytes and file.size}
    for number, path in enumerate(sorted(kept)):
        for what in ("flip", "cut", "gone"):
            work = tmp_path / f"{what}-{number}"
            shutil.copytree(tmp_path / "whole", work, symlinks=True)
            victim = work / Path(path).relative_to(tmp_path / "whole")
            damage(victim, what)
            before = listed(work)
            in_place = ".safepoint.d" not in victim.parts
            with Session(work, disk=FaultDisk(work)) as session:
                if in_place and what == "gone":  # else set 1, of fewer rows, is whole
                    with pytest.raises(DamagedError, match=r"set 2 .*\n.*set 1 "):
                        session.restore()
                    assert listed(work) == before
                else:
                    saved = session.restore()
                    assert saved is not None and saved.number == 1, (what, path)
                    assert listed(work) == EACH_KIND[kind][1](0), (what, path)
                session.close()


def damage(victim: Path, what: str) -> None:
    data = victim.read_bytes()
    if what == "gone":
        victim.unlink()
    elif what == "cut":
        victim.write_bytes(data[: len(data) // 4])  # of a bundle: files, and not only the zeros at its end
    else:
        middle = min(len(data) // 2, 700)  # of a bundle: in its first file, after a header of 512 bytes
        victim.write_bytes(data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :])


@each_kind
def test_restored_twice_is_restored_once(tmp_path: Path, kind: str) -> None:
    """G3: restore, write some of the next files, end; restore again: the same set, the same bytes, nothing beside."""
    stopped_after(tmp_path / "w", kind, 2)
    manifest, files = EACH_KIND[kind]
    for _ in range(3):
        session = Session(tmp_path / "w")
        saved = session.restore()
        assert saved is not None and (saved.number, saved.step) == (2, 1)
        assert listed(tmp_path / "w") == files(1)
        again = session.restore()
        assert again is not None and (again.number, listed(tmp_path / "w")) == (2, files(1))
        for name, data in files(2).items():
            path = tmp_path / "w" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("ab" if "append" in manifest and name.endswith("history.csv") else "wb") as file:
                file.write(data[len(files(1).get(name, b"")) if file.mode == "ab" else 0 :][: len(data) // 2])
        session.close()


# A program that begins its table anew when it was given back a set.

each_anew = pytest.mark.parametrize("kind", ANEW)


def next_life(work: Path, kind: str, *, dies_anew: bool = False, **how: object) -> Program:
    """One that goes on from step 1, or dies on the way."""
    program = Program(FaultDisk(work, **how), kind, "now", STEPS, dies_anew=dies_anew)  # type: ignore[arg-type]
    program.run()
    assert not program.errors, program.errors
    assert program.restored in (None, 1) and (program.restored == 1 or "kill_at" in how)
    return program


def copy_of(base: Path, work: Path) -> Path:
    return Path(shutil.copytree(base, work, symlinks=True))


def until_the_next_set(program: Program) -> list[int]:
    """The operations of a start that change something, and those of the first save after it."""
    ops = program.disk.record.ops
    (committed,) = [at for at, op in enumerate(ops) if op.startswith("rename") and op.endswith("3/record.json")]
    return [at for at in program.disk.record.changing if at <= committed + 8]


@each_anew
def test_killed_at_every_operation_of_a_start_that_begins_its_table_anew(tmp_path: Path, kind: str) -> None:
    """G1, G2k, G3: and once more in the start after it, when it has begun its table anew."""
    stopped_after(tmp_path / "base", kind, 2)
    whole = next_life(copy_of(tmp_path / "base", tmp_path / "whole"), kind)
    for at in (points := sample(until_the_next_set(whole), 3)):
        work = copy_of(tmp_path / "base", tmp_path / f"killed-{at}")
        first = next_life(work, kind, kill_at=at)
        second = next_life(work, kind, dies_anew=True, inodes=first.disk.inodes)
        with told(f"killed at {at} ({whole.disk.record.ops[at]}), and when it had begun anew", points):
            nothing_lost(first, restart(FaultDisk(work, inodes=second.disk.inodes), second))
        tally.count("deaths in the model", "a table begun anew")
        shutil.rmtree(work)


@pytest.mark.parametrize("kind", some_of([*ANEW], 1, 4))
def test_power_cut_at_every_operation_of_a_start_that_begins_its_table_anew(tmp_path: Path, kind: str) -> None:
    """G1, G2, G3: what the program did to its table is durable, and nothing that had not to be before it."""
    stopped_after(tmp_path / "base", kind, 2)
    begun = len(next_life(copy_of(tmp_path / "base", tmp_path / "begun"), kind, dies_anew=True).disk.record.ops)
    program = next_life(tmp_path / "base", kind)
    starts = until_the_next_set(program)
    points = sorted({*sample(starts, 12), *(at for at in starts if begun <= at < begun + 4)})
    for image in images(program.disk.record, str(tmp_path), seed=6, singles=3 if ALL else 1, most=SINGLE, at=points):
        goes_on_from_step_1(image, program, f"{image} ({program.disk.record.ops[image.ops]})")


@each_anew
def test_killed_in_a_start_then_power_cut_in_the_next_that_begins_its_table_anew(tmp_path: Path, kind: str) -> None:
    """G1, G2, G3: what the killed life had named, and not synced, is not durable in the next one either."""
    stopped_after(tmp_path / "base", kind, 2)
    whole = next_life(copy_of(tmp_path / "base", tmp_path / "whole"), kind)
    starts = until_the_next_set(whole)
    ops = whole.disk.record.ops
    copying = next(at for at in starts if "append" in ops[at])
    taking = next(at for at in starts if ops[at].endswith("3/taken.json"))
    for at in sample([at for at in starts if copying <= at < taking], 6):
        work = copy_of(tmp_path / "base", tmp_path / f"killed-{at}")
        first = next_life(work, kind, kill_at=at)
        second = next_life(work, kind, dies_anew=True, before=first.disk)
        cut = [len(second.disk.record.ops)]
        for image in images(second.disk.record, str(tmp_path), seed=7, singles=1 if LONG else 0, at=cut):
            goes_on_from_step_1(image, second, f"killed at {at} ({ops[at]}), {image}")
        shutil.rmtree(work)


@pytest.mark.leaves_damage
@each_anew
@pytest.mark.parametrize("error", ["ENOSPC", "EIO"])
def test_each_operation_of_a_start_that_begins_its_table_anew_fails_once(
    tmp_path: Path, kind: str, error: str, caplog: pytest.LogCaptureFixture
) -> None:
    """G3, G7: an error, or the set all the same; and the next start goes on, though the table is begun anew. Or the
    start has warned that there was no room for a copy."""
    stopped_after(tmp_path / "base", kind, 2)
    whole = next_life(copy_of(tmp_path / "base", tmp_path / "whole"), kind, dies_anew=True)
    unkept = 0
    for at in sample(whole.disk.record.changing[:-1], 2):  # the last one is the program's
        caplog.clear()
        work = copy_of(tmp_path / "base", tmp_path / f"failed-{at}")
        disk = FaultDisk(work, fail_at=at, error=getattr(errno, error))
        first = Program(disk, kind, "now", STEPS, dies_anew=True)
        first.run()
        if error == "ENOSPC" and "are not copied (No space left on device)" in caplog.text:
            unkept += 1
            continue
        try:
            second = next_life(work, kind, dies_anew=True, inodes=disk.inodes)
            nothing_lost(second, restart(FaultDisk(work, inodes=second.disk.inodes), second))
        except (AssertionError, Violation) as violation:
            pytest.fail(f"failed at {at} ({whole.disk.record.ops[at]}), {first.errors}: {violation}")
        shutil.rmtree(work)
    assert unkept <= (9 if error == "ENOSPC" else 0), "which is for the copies alone"


def goes_on_from_step_1(image: Image, program: Program, when: str) -> None:
    try:
        after = restart_image(image, program)
        if after.restored not in (1, STEPS):
            raise Violation(f"restored was {after.restored}")
    except Violation as violation:
        pytest.fail(f"{when}: {violation}")
    tally.count("states of the model", "a table begun anew")
    shutil.rmtree(image.directory)
