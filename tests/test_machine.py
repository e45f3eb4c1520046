"""Any sequence of hide, wait, restore, finish, kill and power cut: a Hypothesis state machine on `faultdisk`."""

from __future__ import annotations

import os
import random
import shutil
import tempfile
from pathlib import Path

from faultdisk import FaultDisk, Killed, images
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from lives import ALL, LONG
from program import SHAPES, LateSaver, NowSaver, Program, consistent, listed, new_directory

from safepoint import Session
from safepoint.record import Root

FRESH = -1  # the step of a start without files


class Lives(RuleBasedStateMachine):
    """`step`: what the files in W hold; `handed`, `durable`: the newest steps that a kill, a power cut may not cost."""

    @initialize(shape=st.sampled_from(sorted(SHAPES)), late=st.booleans())
    def first_start(self, shape: str, late: bool) -> None:
        where = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        self.base = Path(tempfile.mkdtemp(prefix="safepoint-", dir=where))
        self.shape, self.files, self.late = shape, SHAPES[shape][1], late
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
        self.session._thread = LateSaver() if self.late else NowSaver()  # type: ignore[assignment]
        saved = self.session.restore()
        self.step = FRESH if saved is None else int(saved.step or 0)
        if saved is None:
            assert listed(disk.directory) == {}
        else:
            assert listed(disk.directory) == self.files(self.step)
            assert saved.finished == self.finished or self.hidden_since
        self.finished = saved is not None and saved.finished  # else a new history has begun
        assert self.step >= self.handed, f"step {self.handed} was promised, restored was {self.step}"
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
        before = self.handed
        point = self.session.hide(step=self.step, wait=wait)
        assert point is not None and point.step == self.step
        self.in_place = False
        self.handed = self.step
        self.durable = self.step if self.session._flight is None else max(self.durable, before)
        self.hidden_since = True

    @rule()
    def wait(self) -> None:
        self.session.wait()
        if not self.in_place or self.handed == self.step:
            self.durable = self.handed

    @precondition(
        lambda self: self.handed > FRESH and (self.in_place or self.session._committed or self.session._flight)
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
        if self.session._committed is None and self.session._flight is None:
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
        return bool(self.session._committed or self.session._flight) or self.handed in (FRESH, self.step)

    @invariant()
    def no_set_is_damaged(self) -> None:
        if hasattr(self, "disk"):
            consistent(self.disk.directory)

    @invariant()
    def not_more_sets_than_asked_for(self) -> None:
        if hasattr(self, "disk"):
            sets = Root(self.disk.directory).numbers(FaultDisk(self.disk.directory), "set")
            assert len(sets) <= 5, sets  # two kept, one in flight, one prepared, one that a kill left


TestLives = Lives.TestCase
TestLives.settings = settings(
    max_examples=1000 if ALL else 160 if LONG else 24, stateful_step_count=30, deadline=None, derandomize=True,
    suppress_health_check=list(HealthCheck),
)  # fmt: skip
