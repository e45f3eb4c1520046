"""G3, re-runnable: `restore` may be killed anywhere and run again. It never fails after such a fault if one set had
been made durable. Nor does it if the initial files in W were durable before the first `hide`.

Here W between two lives: what a killed first iteration left there, links that appeared, files that somebody brought.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from testbed import tally
from testbed.faultdisk import FaultDisk, Killed, images
from testbed.program import SHAPES_AND_KINDS, Program, Violation, listed, new_directory, restart
from testbed.sessions import write
from testbed.sweep import LONG, SINGLE, kept, sample, some_of, told

from safepoint import MissingFilesError, OverwrittenError, RefusedFileError, SavePoint, Session
from safepoint.cli.group import program
from safepoint.disk import Disk
from safepoint.root import Root


def everything(directory: Path) -> dict[str, str]:
    """All below a directory, links as what they point to, directories too."""
    found = {}
    for path in sorted(directory.rglob("*")):
        name = str(path.relative_to(directory))
        found[name] = os.readlink(path) if path.is_symlink() else "" if path.is_dir() else path.read_text()
    return found


def start(work: Path) -> bool:
    """A life that is killed right after its start: whether a set was given back."""
    session = Session(work)
    try:
        return session.restore() is not None
    finally:
        session.close()


def restores(work: Path, disk: FaultDisk) -> FaultDisk:
    """A life that ends when it has restored, or where its disk says."""
    with suppress(Killed):
        Session(work, disk=disk).restore()
    assert disk.kill_at < 0 or disk.dead
    disk.end()
    return disk


# Links that lead out of W.

LEADS_OUT = "g/ leads outside the working directory"


def moved_out(work: Path) -> Path:
    """`g` becomes a link to a directory beside W, which has what `g` had, and a little more."""
    outside = work.with_name("out")
    if (work / "g").exists():
        shutil.move(work / "g", outside)
    outside.mkdir(exist_ok=True)
    (outside / "rows.csv").write_text("".join(f"row {n}\n" for n in range(9)))
    (outside / "a.x").write_text("not of this run")
    (work / "g").symlink_to("../out")
    return outside


@pytest.mark.parametrize("lives", ["none", "a baseline", "a set", "a first set without a record", "a finished run"])
def test_nothing_is_changed_behind_a_link_that_leads_out(work: Path, lives: str) -> None:
    """G1, G3: no path outside W is ever read as ours, moved, cut or deleted; whenever the link came."""
    (work / ".safepoint").write_text("g/rows.csv append\ng/*.x\nkeep = 3\n")
    if lives != "none":
        write(work, g__rows="")
        start(work)
        write(work, **{"g__rows.csv": "row 0\n", "g__b.x": "0"})
    if "set" in lives or "finished" in lives:
        session = Session(work)
        session._must_restore = False  # its first files are these
        session.hide(0, wait=True)
        write(work, **{"g__c.x": "1"})
        if "finished" in lives:
            session.finish(1)
        session.close()
    if "without a record" in lives:
        os.unlink(Root(str(work)).record(1))
        write(Path(Root(str(work)).path), **{"baseline.json": "removed with the commit"})
    outside = moved_out(work)
    before = everything(outside), {name: text for name, text in everything(work).items() if ".safepoint.d" not in name}
    for _ in range(2):
        with pytest.raises(RefusedFileError, match=LEADS_OUT):
            start(work)
        done = CliRunner().invoke(program, ["restore", str(work), "--yes"])
        assert done.exit_code in (15, 20) if lives in ("none", "a baseline") else 15, done.output
        now = {name: text for name, text in everything(work).items() if ".safepoint.d" not in name}
        assert (everything(outside), now) == before


def test_a_link_that_comes_between_init_and_restore_is_refused_too(work: Path) -> None:
    (work / ".safepoint").write_text("g/*.x\n")
    write(work, g__a="not listed")
    start(work)
    write(work, **{"g__torn.x": "torn"})
    session = Session(work)
    outside = moved_out(work)
    before = everything(outside)
    with pytest.raises(RefusedFileError, match=LEADS_OUT):
        session.restore()
    assert everything(outside) == before
    session.close()


@pytest.mark.parametrize("pattern", ["*/a.x", "**/a.x", "g/*", "g/deep/", "g/d*/", "[g]/a.x"])
def test_every_kind_of_pattern_that_can_reach_the_link_is_looked_at(work: Path, pattern: str) -> None:
    (work / ".safepoint").write_text(f"{pattern}\n")
    outside = moved_out(work)
    (outside / "deep").mkdir()
    (work / "file.x").symlink_to("../out/a.x")  # a link to a file leads nowhere as a directory
    before = everything(outside)
    if pattern.startswith("**"):  # it does not go through links
        assert start(work) is False
    else:
        with pytest.raises(RefusedFileError, match=LEADS_OUT):
            start(work)
    assert everything(outside) == before


def test_a_link_inside_of_the_working_directory_is_no_obstacle(work: Path) -> None:
    (work / ".safepoint").write_text("g/*.x\n")
    (work / "real").mkdir()
    (work / "g").symlink_to("real")
    start(work)
    write(work, **{"g__a.x": "0"})
    session = Session(work)
    session._must_restore = False
    assert session.hide(0, wait=True)
    session.close()
    write(work, **{"g__a.x": "torn"})
    assert start(work) and (work / "real/a.x").read_text() == "0"


def linked(directory: Path) -> None:
    """A directory of the program is on another disk now, and a link in its place; there is more in it than before."""
    for name in ("sub", "fields"):
        if (directory / name).is_dir():
            shutil.move(directory / name, directory.with_name(f"{directory.name}-{name}"))
            (directory / name).symlink_to(f"../{directory.name}-{name}")


FILES = {"plain": ("u.dat", "sub/v.dat"), "kinds": ("u.dat", "sub/big.dat"), "directories": ("f1.dat",)}


def overwritten(directory: Path) -> None:
    """A job script that brings its templates before each start."""
    for name in FILES[shape_of(directory)]:
        (directory / name).parent.mkdir(exist_ok=True)
        if not (directory / name).is_dir():
            (directory / name).write_bytes(b"a template")


def removed(directory: Path) -> None:
    """Somebody cleans up before a restart."""
    for path in directory.iterdir():
        if path.name in ("u.dat", "f1.dat"):
            path.unlink()
        elif path.name in ("sub", "fields", "run.zarr", "d0", "d1", "d2", "d3"):
            shutil.rmtree(path)


def other_kinds(directory: Path) -> None:
    """Directories where files were, and files where directories were."""
    removed(directory)
    for name in FILES[shape_of(directory)]:
        (directory / name).mkdir(parents=True)
        (directory / name / "inside").write_bytes(b"not a file")
    if shape_of(directory) != "plain":
        (directory / "run.zarr").write_bytes(b"not a directory")


def shape_of(directory: Path) -> str:
    manifest = (directory / ".safepoint").read_text()
    return next(shape for shape in FILES if SHAPES_AND_KINDS[shape][0] == manifest)


@pytest.mark.parametrize("shape", FILES)
@pytest.mark.parametrize("change", [linked, overwritten, removed, other_kinds])
def test_killed_at_any_operation_and_then_somebody_changed_the_directory(
    tmp_path: Path, shape: str, change: Callable[[Path], None]
) -> None:
    """G1, G2k, G3: what is brought is set aside or replaced; a link that leads out is refused, and when it is gone the
    program goes on. Nothing outside is touched, and nothing that `hide` had taken is lost."""
    whole = Program(FaultDisk(new_directory(tmp_path / "whole", shape)), shape, "late", 3, False)
    whole.run()
    renamed = [str(op) if str(op).startswith("rename") else "" for op in whole.disk.record.ops]
    begin = next(n for n, op in enumerate(renamed) if op.endswith("/baseline.json"))  # before, it is an initial file
    end = next(n for n, op in enumerate(renamed) if op.endswith("/finished.json"))  # after, W is the user's
    changing = [at for at in whole.disk.record.changing if begin < at < end]
    for at in (points := sample(changing, 17, 5)):
        directory = tmp_path / f"killed-{at}"
        disk = FaultDisk(new_directory(directory, shape), kill_at=at)
        first = Program(disk, shape, "late", 3, False)
        first.run()
        change(directory)
        before = {path.name: everything(path) for path in tmp_path.iterdir() if path.name.startswith(f"killed-{at}-")}
        if before:
            with pytest.raises(RefusedFileError, match="leads outside the working directory"):
                start(directory)
            for name, files in before.items():
                assert everything(tmp_path / name) == files, whole.disk.record.ops[at]
                (directory / name.removeprefix(f"killed-{at}-")).unlink()
                shutil.move(tmp_path / name, directory / name.removeprefix(f"killed-{at}-"))
        moves = [op for op in disk.record.ops if str(op).startswith("rename") and "/files/" in str(op)]
        with told(f"killed at {at} ({whole.disk.record.ops[at]}), {change.__name__}", points):
            after = restart(FaultDisk(directory, inodes=disk.inodes), first)
            if moves:
                kept(first.handed if change is linked else first.durable, after.restored)
        tally.count("deaths in the model", "W changed by somebody before the next start")
        shutil.rmtree(directory)


# A first iteration that was killed.


@pytest.mark.parametrize(
    "manifest", ["f1\nzarr/\n", "zarr/\n", "d[0-9]/\n", "zarr/ copy\nf1\n", "f1 optional\nzarr/\n"]
)
def test_a_start_after_a_killed_first_iteration_is_fresh_where_directories_are_listed(
    work: Path, manifest: str
) -> None:
    """G3: "none of the files existed" is an initial state too, and that of the directories belongs to it."""
    (work / ".safepoint").write_text(manifest)
    start(work)
    write(work, zarr__a="torn", zarr__deep__b="torn", d5__a="torn")
    if "zarr" not in manifest:
        shutil.rmtree(work / "zarr")
    if "d[0-9]" not in manifest:
        shutil.rmtree(work / "d5")
    session = Session(work)
    assert session.restore() is None
    assert listed(work) == {} and {path.name for path in work.iterdir()} == {".safepoint", ".safepoint.d"}
    assert session.hide(0) is None, "an empty directory was taken for a step"
    write(work, f1="1", zarr__a="1", d5__a="1")
    assert session.hide(1, wait=True)
    session.close()
    assert start(work)


def test_directories_that_were_there_before_are_as_they_were(work: Path) -> None:
    """G3: what is new in them goes, with its directories; an empty one that is gone comes back."""
    (work / ".safepoint").write_text("zarr/\nother/\nf1\n")
    (work / "zarr/initial").mkdir(parents=True)
    (work / "zarr/initial/a").write_text("initial")
    (work / "other").mkdir()
    start(work)
    write(work, zarr__new__b="torn", zarr__initial__c="torn")
    (work / "other").rmdir()
    assert start(work) is False
    names = {name: text for name, text in everything(work).items() if not name.startswith(".safepoint")}
    assert names == {"other": "", "zarr": "", "zarr/initial": "", "zarr/initial/a": "initial"}


def test_an_empty_directory_does_not_say_that_a_step_was_written(work: Path) -> None:
    """Else it is saved as a step, and given back as one that has no files: the program cannot go on from that."""
    (work / ".safepoint").write_text("f1\nzarr/\n")
    (work / "zarr/deep").mkdir(parents=True)
    session = Session(work)
    assert session.restore() is None and session.hide(0) is None
    write(work, zarr__deep__a="half of a step")
    with pytest.raises(MissingFilesError, match=r"f1 \(line 1\)"):
        session.hide(0)
    write(work, f1="the other half")
    assert session.hide(1, wait=True)
    write(work, f1="2")
    (work / "zarr").mkdir()
    assert session.hide(2, wait=True), "an empty directory beside a file that was written is part of the step"
    session.close()


def after_any_cut(
    disk: FaultDisk, into: Path, holds: Callable[[Path, SavePoint | None], None], *, around: str = ""
) -> None:
    """Cut the power in the recorded life, at some operations and right after each that has `around` in it, in all
    states that the model allows; the next start must hold this."""
    ops, changing = disk.record.ops, [*disk.record.changing, len(disk.record.ops)]
    near = {next(at for at in changing if at > n) for n, op in enumerate(ops) if around and around in op}
    assert near or not around, ops
    points = sample(changing, 10)
    for image in images(
        disk.record, str(into), seed=5, singles=2 if LONG else 1, most=SINGLE, at=sorted({*points, *near})
    ):
        session = Session(image.directory, disk=FaultDisk(image.directory, boot="third", inodes=image.inodes))
        with told(f"{image} ({[*ops, 'the end'][image.ops]})", points):
            try:
                holds(Path(image.directory), session.restore())
            except AssertionError as error:
                raise Violation(str(error)) from error
        session.close()
        shutil.rmtree(image.directory)


# Somebody brings files before a start.


def first_hide_cut_off(work: Path, disk: FaultDisk) -> None:
    """A first `hide` that died when its files had moved, and then the power went."""
    session = Session(work, disk=disk)
    session.restore()
    with suppress(Killed):
        session.hide(0)
    disk.end()
    assert disk.dead


INITIAL = {"f1": "the only original", "out/f": "another", "run.zarr/a": "in a directory"}
MANIFEST = "f1\nout/f\nrun.zarr/\nparams.db copy\n"


def initial(work: Path) -> Path:
    work.mkdir(exist_ok=True)
    (work / ".safepoint").write_text(MANIFEST)
    write(work, f1=INITIAL["f1"], out__f=INITIAL["out/f"])
    write(work, **{"run.zarr__a": INITIAL["run.zarr/a"], "params.db": "stays"})
    return work


def bring(work: Path, what: str) -> None:
    """What a job script, or a user, did before the next start."""
    if what == "a template":
        write(work, f1="template")
    elif what == "a directory for a file":
        write(work, f1__inside="a directory under the name of a file")
    elif what == "a link for a directory":
        shutil.rmtree(work / "out", ignore_errors=True)
        (work / "elsewhere").mkdir()
        (work / "out").symlink_to("elsewhere")
    else:
        shutil.rmtree(work / "run.zarr", ignore_errors=True)
        write(work, **{"run.zarr": "a file under the name of a directory"})


BROUGHT = ("a template", "a directory for a file", "a link for a directory", "a file for a directory")


def is_initial_again(work: Path) -> None:
    assert {name: text.decode() for name, text in listed(work).items()} == {**INITIAL, "params.db": "stays"}


@pytest.mark.parametrize("what", BROUGHT)
def test_initial_files_come_back_though_something_else_has_their_names(tmp_path: Path, what: str) -> None:
    """G3: the first set had the only originals; what is in their way goes to discarded/, and nothing is deleted."""
    for at in _after_moves(tmp_path):
        directory = initial(tmp_path / f"killed-{at}")
        first_hide_cut_off(directory, FaultDisk(str(directory), kill_at=at))
        bring(directory, what)
        brought = set(listed(directory)) - {"out/f", "run.zarr/a", "params.db"}
        session = Session(directory, disk=FaultDisk(str(directory), boot="after"))
        saved = session.restore()  # a set, if its checksums could be proven
        if saved and what == "a link for a directory":  # it stays in W, so nothing is wrong with that
            assert (directory / "out/f").read_text() == INITIAL["out/f"]
        else:
            is_initial_again(directory)
        left = listed(Path(session._root.discarded)) if Path(session._root.discarded).exists() else {}
        assert saved or len(left) >= len(brought), (at, left)
        session.close()
        shutil.rmtree(directory)


def test_a_kill_while_initial_files_go_back_loses_neither_them_nor_what_was_in_their_way(tmp_path: Path) -> None:
    """G3: at each operation of the restore, and then a power cut in every state that the model allows."""
    directory = initial(tmp_path / "w")
    first_hide_cut_off(directory, FaultDisk(str(directory), kill_at=_after_moves(tmp_path)[0]))
    bring(directory, "a template")
    copy = shutil.copytree(directory, tmp_path / "whole", symlinks=True)
    whole = restores(copy, FaultDisk(str(copy), boot="after"))
    for at in sample(whole.record.changing, 2):
        copy = shutil.copytree(directory, tmp_path / f"killed-{at}", symlinks=True)
        restores(copy, FaultDisk(str(copy), boot="after", kill_at=at))
        session = Session(copy, disk=FaultDisk(str(copy), boot="after"))
        session.restore()
        is_initial_again(copy)
        assert "template" in everything(Path(session._root.discarded)).values(), whole.record.ops[at]
        session.close()

    def holds(work: Path, saved: SavePoint | None) -> None:
        is_initial_again(work)
        assert "template" in everything(Path(Root(str(work)).discarded)).values()

    after_any_cut(whole, tmp_path, holds)


def _after_moves(tmp_path: Path) -> list[int]:
    """The operations of a first `hide` when all its files have moved, up to its commit."""
    whole = FaultDisk(str(initial(tmp_path / "probe")))
    session = Session(whole.directory, disk=whole)
    session.restore()
    session.hide(0)
    session.close()
    ops = [str(op) for op in whole.record.ops]
    moved = max(n for n, op in enumerate(ops) if op.startswith("rename") and "/files/" in op)
    commit = next(n for n, op in enumerate(ops) if op.startswith("rename") and op.endswith("/record.json"))
    return [n for n in whole.record.changing if moved < n <= commit]


class Another(Disk):
    """While this set is stored somebody writes a file of its own in W, and then the disk is full."""

    work = ""

    def sync_files(self, paths: Any, opened: Any = ()) -> None:
        if not Path(self.work, "f1").exists():
            Path(self.work, "f1").write_text("written meanwhile")
            raise OSError(28, "No space left on device", f"{self.work}/f1")
        super().sync_files(paths, opened)


def test_what_cannot_go_back_as_the_program_wrote_it_anew_is_set_aside(work: Path) -> None:
    """G7: `hide` failed; the newer file stays, the one that was taken is not deleted, and the error says where."""
    initial(work)
    disk = Another()
    disk.work = str(work)
    session = Session(work, disk=disk)
    with pytest.raises(Exception, match=r"in \.safepoint\.d/rank-00000/discarded: f1"):
        session.restore()
        session.hide(0)
    assert (work / "f1").read_text() == "written meanwhile"
    assert Path(session._root.discarded, "f1").read_text() == INITIAL["f1"]
    assert (work / "out/f").read_text() == INITIAL["out/f"]
    session.close()


# A restore that was killed, and then something else.


@pytest.fixture
def two_sets(work: Path) -> Path:
    """Sets 1 and 2 of two files; then one of the next step, half written, and a file that no set has."""
    (work / ".safepoint").write_text("u.dat\nv*.dat\n")
    session = Session(work)
    session.restore()
    for step in (1, 2):
        write(work, **{"u.dat": f"u of {step}", "v.dat": f"v of {step}"})
        session.hide(step, wait=True)
    session.close()
    write(work, **{"u.dat": "torn", "v1.dat": "rows that no set has"})
    return work


def killed_restore(work: Path, after: str) -> FaultDisk:
    """The disk of a restore that dies right after the first operation whose name begins with this."""
    whole = shutil.copytree(work, work.with_name("copy"), symlinks=True)
    disk = restores(whole, FaultDisk(str(whole)))
    ops = [str(op) for op in disk.record.ops]
    at = next(n for n in disk.record.changing if any(op.startswith(after) for op in ops[:n]))
    shutil.rmtree(whole)
    return restores(work, FaultDisk(str(work), kill_at=at))


def test_clean_does_not_take_away_the_sign_that_files_in_place_are_a_mixture(two_sets: Path) -> None:
    """G1: `safepoint hide` would save it as a set, and a restore give it back as whole."""
    killed_restore(two_sets, "exchange" if hasattr(Disk, "exchange") else "rename u.dat")
    for command in (["clean", str(two_sets), "--yes"], ["hide", str(two_sets), "--step", "9"]):
        done = CliRunner().invoke(program, command)
    assert done.exit_code == 10 and "a restore was killed here" in done.output
    assert start(two_sets) and (two_sets / "u.dat").read_text() == "u of 2"


@pytest.mark.leaves_damage
def test_what_a_killed_restore_set_aside_survives_another_one_that_is_killed_while_it_falls_back(
    two_sets: Path,
) -> None:
    """Rule (4) of `restoring`: what leaves W goes to discarded/; also when set 2 turns out damaged each time."""
    root = Root(str(two_sets))
    Path(root.stored(2, "v.dat")).write_text("v of X")
    killed_restore(two_sets, "rename .safepoint.d/rank-00000/discarded/v1.dat")
    whole = shutil.copytree(two_sets, two_sets.with_name("copy"), symlinks=True)
    disk = restores(whole, FaultDisk(str(whole)))
    shutil.rmtree(whole)
    end = max(n for n, op in enumerate(disk.record.ops) if str(op).endswith("/stage"))
    for at in sample(disk.record.changing, 2):
        copy = shutil.copytree(two_sets, two_sets.with_name(f"killed-{at}"), symlinks=True)
        restores(copy, FaultDisk(str(copy), kill_at=at))
        session = Session(copy)
        assert session.restore() is not None
        assert (copy / "u.dat").read_text() == "u of 1"
        discarded = Path(session._root.discarded)
        if at <= end:  # else the second one had ended, and this one is the next
            assert "rows that no set has" in everything(discarded).values(), disk.record.ops[at]
        session.close()
        shutil.rmtree(copy)


def test_a_kill_between_two_torn_first_files_loses_neither(work: Path) -> None:
    """The same without any set: either may be an input that the user has brought."""
    (work / ".safepoint").write_text("*.dat\n")
    start(work)
    write(work, **{"a.dat": "one", "b.dat": "other"})
    killed_restore(work, "rename .safepoint.d/rank-00000/discarded/a.dat")
    assert start(work) is False
    assert sorted(everything(Path(Root(str(work)).discarded)).values()) == ["one", "other"]


@pytest.mark.leaves_damage
def test_a_table_that_comes_from_a_copy_in_a_newer_set_survives_a_power_cut(work: Path) -> None:
    """G2, G3: set 2, damaged, has the only copy of what set 1 needs; it goes when the bytes and the name are safe."""
    (work / ".safepoint").write_text("t.csv append\nu.dat\n")
    session = Session(work)
    session.restore()
    for step in (1, 2):
        with (work / "t.csv").open("a") as table:
            table.write(f"row {step}\n" * 200)
        write(work, **{"u.dat": f"u of {step}"})
        session.hide(step, wait=True)
    session.close()
    assert start(work)  # now there is a copy with set 2
    write(work, **{"t.csv": "begun anew"})
    Path(Root(str(work)).stored(2, "u.dat")).write_text("u of X")
    (work / ".safepoint").write_text("t.csv append\nu.dat\ncopy_append_below = 1\n")  # set 1 gets none of its own
    disk = FaultDisk(str(work), boot="after")
    session = Session(work, disk=disk)
    saved = session.restore()
    assert saved and saved.step == 1
    disk.end()

    def holds(work: Path, saved: SavePoint | None) -> None:
        assert saved and saved.step == 1
        assert ((work / "t.csv").read_text(), (work / "u.dat").read_text()) == ("row 1\n" * 200, "u of 1")

    after_any_cut(disk, work.parent, holds, around="gone-00000002")


@pytest.mark.leaves_damage
@pytest.mark.parametrize("listed", some_of(["in/mesh/*.dat optional", "in/mesh/ optional\nbundle_from = 1"], 1))
@pytest.mark.parametrize("killed", [False, True])
def test_an_input_that_only_a_newer_set_has_survives_a_power_cut_in_new_directories(
    work: Path, killed: bool, listed: str
) -> None:
    """G2, G3: an input listed only since set 1 was moved by set 2, which is damaged, and W lost its directories since.
    Set 2 goes when the input is back, and every name on the way to it is safe."""
    (work / ".safepoint").write_text("u.dat\n")
    session = Session(work)
    session.restore()
    large = "." * 70_000  # so that it is in no bundle
    write(work, **{"u.dat": f"{large} of 1"})
    session.hide(1, wait=True)
    session.close()
    (work / ".safepoint").write_text(f"u.dat\n{listed}\n")
    session = Session(work)
    session.restore()
    (work / "in/mesh/sub").mkdir(parents=True)
    write(work, **{"u.dat": f"{large} of 2", "in/mesh/m.dat": "the mesh"})
    if "bundle" in listed:
        write(work, **{"in/mesh/sub/more.dat": "the mesh"})
    session.hide(2, wait=True)
    session.close()
    shutil.rmtree(work / "in")
    Path(Root(str(work)).stored(2, "u.dat")).write_text(f"{large} of X")
    first = killed_restore(work, "rename in/mesh") if killed else None
    disk = FaultDisk(str(work), boot="after", before=first)
    session = Session(work, disk=disk)
    saved = session.restore()
    assert saved and saved.step == 1
    disk.end()

    def holds(work: Path, saved: SavePoint | None) -> None:
        assert saved and saved.step == 1
        for name in ["m.dat", *["sub/more.dat"] * ("bundle" in listed)]:
            assert (work / "in/mesh" / name).read_text() == "the mesh"

    after_any_cut(disk, work.parent, holds, around="gone-00000002")


def test_a_table_of_the_start_that_is_another_file_now_is_not_cut_back(work: Path) -> None:
    """G3: the initial rows are gone with the old file, and the first ones of the new are not these."""
    (work / ".safepoint").write_text("t.csv append\nu.dat\n")
    write(work, **{"t.csv": "row 0\n"})
    assert start(work) is False
    write(work, **{"t.csv.new": "anew 0\nanew 1\n"})
    (work / "t.csv.new").rename(work / "t.csv")
    with pytest.raises(OverwrittenError, match=r"t\.csv was there at the first start and was changed"):
        start(work)
    assert (work / "t.csv").read_text() == "anew 0\nanew 1\n"


def first_hide(work: Path, disk: FaultDisk) -> None:
    session = Session(work, disk=disk)
    session.restore()
    session.hide(0, wait=True)
    disk.end()


def test_a_first_set_that_the_next_start_completes_survives_a_power_cut(work: Path) -> None:
    """G3: killed before its first file moved, and before its directories were durable. The start moves what is nowhere
    else into them, so first these must be."""
    (work / ".safepoint").write_text("in/u.dat\n")
    write(work, **{"in/u.dat": "the only original"})
    whole = shutil.copytree(work, work.with_name("whole"))
    disk = FaultDisk(str(whole))
    first_hide(whole, disk)
    ops = [str(op) for op in disk.record.ops]
    at = next(
        n
        for n in disk.record.changing
        if ops[n].startswith("sync") and n > ops.index("mkdir .safepoint.d/rank-00000/set-00000001/files/in")
    )
    first = FaultDisk(str(work), kill_at=at)
    with suppress(Killed):
        first_hide(work, first)
    first.end()
    assert first.dead and (work / "in/u.dat").exists()
    second = FaultDisk(str(work), before=first)
    session = Session(work, disk=second)
    saved = session.restore()
    assert saved and saved.number == 1
    second.end()

    def holds(work: Path, saved: SavePoint | None) -> None:
        assert (work / "in/u.dat").read_text() == "the only original"

    after_any_cut(second, work.parent, holds, around="rename .safepoint.d/rank-00000/set-00000001/files/in/u.dat")
