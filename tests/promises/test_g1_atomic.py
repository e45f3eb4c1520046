"""G1, atomic: after `restore()` all listed files in W belong to one set, byte for byte as handed to `hide`.

Any sequence of hide, wait, restore, finish, kill and power cut: a Hypothesis state machine on `faultdisk`. The sweeps
of the other promises look at every byte, too.
"""

from __future__ import annotations

import os
import random
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from testbed.disks import Meddler
from testbed.faultdisk import FaultDisk, Killed, images, on
from testbed.program import SHAPES, BusySaver, Program, consistent, given_to, listed, new_directory
from testbed.sessions import ROOT, Start, kill, sets, write
from testbed.sweep import ALL, LONG, kept, many

from safepoint import SaveError, Session
from safepoint.root import Root
from safepoint.saving import contents
from safepoint.saving import store as saving_store

FRESH = -1  # the step of a start without files


class Lives(RuleBasedStateMachine):
    """`step`: what the files in W hold; `handed`, `durable`: the newest steps that a kill, a power cut may not cost."""

    @initialize(shape=st.sampled_from(sorted(SHAPES)), saver=st.sampled_from(["now", "late", "busy"]))
    def first_start(self, shape: str, saver: str) -> None:
        where = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        self.base = Path(tempfile.mkdtemp(prefix="safepoint-", dir=where))
        self.shape, self.files, self.saver = shape, SHAPES[shape][1], saver
        self.boots = 0
        self.handed = self.durable = FRESH
        self.finished = False
        self.start(FaultDisk(new_directory(self.base / "work", shape)))

    def teardown(self) -> None:
        if hasattr(self, "base"):
            self.disk.end()
            shutil.rmtree(self.base)

    def start(self, disk: FaultDisk) -> None:
        """A new life; what it finds must be one whole step, and not older than promised."""
        self.disk = disk
        self.program = Program(disk, self.shape)
        self.session = Session(disk.directory, disk=disk)
        given_to(self.session, self.saver)
        saved = self.session.restore()
        self.step = FRESH if saved is None else int(saved.step or 0)
        if saved is None:
            assert listed(disk.directory) == {}
        else:
            assert listed(disk.directory) == self.files(self.step)
            assert saved.finished == self.finished or self.hidden_since
        self.finished = saved is not None and saved.finished  # else a new history has begun
        kept(self.handed, self.step)
        self.handed = self.durable = self.step
        self.in_place = saved is not None
        self.hidden_since = False

    hidden_since = False  # whether this life has hidden something, or died over it

    @rule()
    def compute(self) -> None:
        """The program writes the files of its next step, over the old ones if they were not hidden."""
        self.step += 1
        self.program._write(self.files(self.step))
        self.in_place = True

    @precondition(lambda self: self.in_place)
    @rule(wait=st.booleans())
    def hide(self, wait: bool) -> None:
        point = self.session.hide(step=self.step, wait=wait)
        assert point is not None and point.step == self.step
        self.in_place = False
        self.handed = self.step
        self.durable = self.step if wait else max(self.durable, self.committed())
        self.hidden_since = True

    @precondition(lambda self: self.saver == "busy")
    @rule()
    def catch_up(self) -> None:
        """The set in flight is stored, and the one that waited is in flight."""
        assert isinstance(self.session._work.thread, BusySaver)
        self.session._work.thread.catch_up()
        self.durable = max(self.durable, self.committed())

    def committed(self) -> int:
        return int(self.session._committed.step or 0) if self.session._committed else FRESH

    @rule()
    def wait(self) -> None:
        self.session.wait()
        if not self.in_place or self.handed == self.step:
            self.durable = self.handed

    @precondition(
        lambda self: self.handed > FRESH and (self.in_place or self.session._committed or self.session._work.flight)
    )
    @rule()
    def finish(self) -> None:
        self.session.finish(step=self.step)
        self.finished = True
        self.handed = self.durable = self.step
        self.disk.end()
        self.start(FaultDisk(self.disk.directory, boot=self.disk.boot, inodes=self.disk.inodes))

    @rule()
    def roll_back(self) -> None:
        """`restore` again in the same life: back to the last set."""
        if self.session._committed is None and self.session._work.flight is None:
            return
        self.session.restore()
        assert listed(self.disk.directory) == self.files(self.handed)
        self.step, self.in_place = self.handed, True

    @precondition(lambda self: self.overwritten_in_place_is_fine())
    @rule()
    def kill(self) -> None:
        self.disk.end()
        self.start(FaultDisk(self.disk.directory, boot=self.disk.boot, inodes=self.disk.inodes))

    @precondition(lambda self: self.in_place and self.overwritten_in_place_is_fine())
    @rule(after=st.integers(0, 60))
    def killed_inside_hide(self, after: int) -> None:
        self.disk.kill_at = len(self.disk.record.ops) + after
        try:
            self.session.hide(step=self.step, wait=True)
            self.handed = self.step
        except Killed:
            pass
        self.hidden_since = True
        self.disk.end()
        self.start(FaultDisk(self.disk.directory, boot=self.disk.boot, inodes=self.disk.inodes))

    @precondition(lambda self: self.overwritten_in_place_is_fine())
    @rule(seed=st.integers(0, 10**6))
    def power_cut(self, seed: int) -> None:
        self.disk.end()
        record = self.disk.record
        into = self.base / f"boot-{self.boots}"
        into.mkdir()
        choices = list(images(record, str(into), seed=seed, singles=2, at=[len(record.ops)]))
        image = random.Random(seed).choice(choices)
        self.boots += 1
        self.handed = self.durable
        self.start(FaultDisk(image.directory, boot=f"boot-{self.boots}", inodes=image.inodes))

    def overwritten_in_place_is_fine(self) -> bool:
        """A program that writes over its result or its initial files before it hid anything has nothing behind it: the
        library refuses such a start (G3), which other tests show."""
        return bool(self.session._committed or self.session._work.flight) or self.handed in (FRESH, self.step)

    @invariant()
    def no_set_is_damaged(self) -> None:
        if hasattr(self, "disk"):
            consistent(self.disk.directory)

    @invariant()
    def not_more_sets_than_asked_for(self) -> None:
        if hasattr(self, "disk"):
            sets = on(Root(self.disk.directory), FaultDisk(self.disk.directory)).numbers("set")
            assert len(sets) <= 5, sets  # two kept, one in flight, one that waits, one that a kill left


TestLives = Lives.TestCase
TestLives.settings = settings(
    max_examples=1000 if ALL else 160 if LONG else many(96), stateful_step_count=30, derandomize=True,
    suppress_health_check=list(HealthCheck),
)  # fmt: skip


def replaced(path: Path) -> None:
    """By another file that looks the same, as rename does it."""
    info, new = path.stat(), path.with_name(path.name + ".tmp")
    new.write_bytes(path.read_bytes())
    os.utime(new, ns=(info.st_mtime_ns, info.st_mtime_ns))
    new.replace(path)


@pytest.mark.parametrize(
    ("manifest", "victim", "what", "when"),
    [
        ("run.zarr/\n", "set-00000002/files/run.zarr/meta", "replaced", "while it is open"),
        ("run.zarr/\nbundle_from = 1\n", "set-00000002/files/run.zarr/meta", "replaced", "while it is open"),
        ("run.zarr/\n", "set-00000002/files/run.zarr/meta", "removed", "before it is opened"),
        ("run.zarr/\n", "set-00000002/files/run.zarr/meta", "removed", "while it is open"),
        ("u.dat\nhistory.csv append\n", "../../history.csv", "replaced", "while it is open"),
        ("u.dat\nhistory.csv append\n", "../../history.csv", "replaced", "before it is opened"),
        ("u.dat\n", "set-00000002/files/u.dat", "removed", "before it is opened"),
        ("u.dat\n", "set-00000002/files/u.dat", "removed", "while it is open"),
        ("u.dat\n", "set-00000002/files/u.dat", "a link", "before it is opened"),
    ],
)
def test_a_file_that_is_replaced_after_hide_took_it_is_noticed(
    start: Start, work: Path, monkeypatch: pytest.MonkeyPatch, manifest: str, victim: str, what: str, when: str
) -> None:
    """G1: what was read and flushed must be what has the name, however alike the other one looks. The set is not
    stored, and no later start completes it."""

    def meddle() -> None:
        path = Path(os.path.normpath(work / ROOT / victim))
        if what == "replaced":
            replaced(path)
            return
        path.unlink()
        if what == "a link":
            path.symlink_to(work / "elsewhere")

    disk = Meddler(meddle)
    session = start(manifest, disk=disk)
    for step in range(2):
        write(work, u_dat=str(step), run_zarr__meta=str(step), history_csv=f"{step}\n")
        if step == 0:
            session.hide(step, wait=True)
    if when == "while it is open":
        disk.what = disk.armed
    else:
        contents_of = contents.contents_of

        def look(*arguments: Any, **options: Any) -> list[contents.Content]:
            if what == "replaced":
                meddle()
            contents = list(contents_of(*arguments, **options))
            if what != "replaced":
                meddle()
            return contents

        monkeypatch.setattr(saving_store, "contents_of", look)
    session.hide(1)
    with pytest.raises(SaveError, match=r"(replaced|removed) after hide took it"):
        session.wait()
    monkeypatch.undo()
    assert sets(work) == [1]
    kill(session)
    point = start().restore()
    assert point and point.number == 1
