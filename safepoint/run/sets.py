"""The sets of a run: what lies there is judged whole, and taken as a snapshot; the last one is given back.

The command's files stay where they are. What a death may have torn is never taken: `good` and the looks see to that.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Sequence

from safepoint.disk.files import exists
from safepoint.errors import MissingFilesError, RefusedFileError, SaveError, UsageError
from safepoint.listener import SavePoint
from safepoint.program import Session
from safepoint.run.attempts import put_bad_set_aside
from safepoint.run.options import shell_words
from safepoint.run.speech import Once, say
from safepoint.run.writers import holders, open_files
from safepoint.saving import find


class Sets:
    """`step` and `saved` are of the newest set. `check`: a command that says whether what lies there is one."""

    def __init__(self, session: Session, check: str, once: Once) -> None:
        self.session, self._check, self._once = session, check, once
        self.root, self.disk, self.manifest = session._home.root, session._home.disk, session._home.manifest
        self.work = self.root.work
        self.step = 0
        self.saved: SavePoint | None = None

    def newest(self) -> int:
        """The number of the newest committed set; 0 if there is none."""
        numbers = self.root.numbers("set")
        return max((n for n in numbers if exists(self.disk, self.root.record(n))), default=0)

    def wait(self) -> None:
        """For the set in flight; what it failed with is said."""
        try:
            self.session.wait()
        except SaveError as error:
            not_saved(error)

    def name_unlisted(self) -> None:
        """A file that the program needs and that is not listed is that of another step after a restart."""
        last = self.saved.number if self.saved else 0
        before = [self.root.record(number) for number in self.root.numbers("set") if number < last]
        stored = [path for path in before if exists(self.disk, path)]
        names = find.changed(self.root, self.manifest, stored) if stored else ""
        if names:
            self._once(
                f"not listed, and changed since the set before: {names}. After a restart these are as the killed "
                f"command left them: list what it reads then"
            )

    def give_back(self, *, again: bool) -> bool | None:
        """Whether a set was given back; None if the run is finished, and should not begin `again`."""
        put_bad_set_aside(self.root)
        point = self.session.restore()
        if point is not None and point.finished:
            if not again:
                say(
                    f"the run was finished at step {point.step}; its files are in place, and nothing is started; "
                    f"to start from them: --again"
                )
                return None
            point = None
        if point is not None:
            self.step, self.saved = point.step or 0, point
            if not self.step:
                say(f"begins with what was there at the start, from set {point.number}")
                return False
            say(f"goes on from set {point.number} (step {point.step})")
            return True
        self.step, self.saved = 0, None
        self._take_first()
        return False

    def _take_first(self) -> None:
        """What is there before the command first starts: it may be rewritten in place, and then be nowhere else."""
        taken = False
        with contextlib.suppress(MissingFilesError):  # some of them are not there: a start from nothing too
            opened = self.opened()
            if opened:
                who = holders(self.disk, opened)
                raise UsageError(f"not started: {', '.join(opened)} open for writing by {who}")
            taken = self.take("what was there at the start", wait=True)
        if not taken and exists(self.disk, self.root.finished):
            # Of the run before: what is torn from now on must not pass for its result.
            with self.root.reporting(SaveError, "not started", "the files are as they were"):
                self.disk.remove(self.root.finished)
                self.disk.sync_dir(self.root.side)

    def take(self, why: str, *, wait: bool = False) -> bool:
        """A snapshot of all that is listed, as the next step."""
        first = self.saved is None and why.startswith("what was")
        step = self.step if first else self.step + 1
        try:
            point = self.session.hide(step, wait=wait)
        except (MissingFilesError, RefusedFileError) as error:
            if why:
                raise
            self._once(f"no set can be taken: {error}")
            return False
        except SaveError as error:
            if first:
                raise  # what is there would be rewritten without a set behind it
            not_saved(error)
            return False
        if point is None:
            if not first:
                self._once("no set can be taken: none of the listed files is there")
            return False
        self.step, self.saved = step, point
        return True

    def good(self, troubles: Sequence[str]) -> bool:
        """At a good end: whether what lies there can be taken for whole. `troubles`: what may have torn it."""
        if troubles:
            say(f"the last files are not taken, as they may be torn: {'; '.join(troubles)} (see --tolerate)")
        opened = [] if troubles else self.opened()
        if opened:
            who = holders(self.disk, opened)
            say(f"the last files are not taken: {', '.join(opened)} open for writing by {who}")
        return not troubles and not opened and self.checked()

    def opened(self) -> list[str]:
        return open_files(self.root, self.manifest)

    def checked(self) -> bool:
        """Whether the command of --check says that what lies there is a set."""
        if not self._check:
            return True
        environment = {**os.environ, "SAFEPOINT_STEP": str(self.step + 1)}
        done = subprocess.run(shell_words(self._check), cwd=self.work, env=environment, stdin=subprocess.DEVNULL)
        if done.returncode:
            self._once(f"what lies there is not taken: {self._check} ended with status {done.returncode}")
        return done.returncode == 0

    def environment(self, resumed: bool) -> dict[str, str]:
        """Of the command: with step and number of the set that it was given."""
        ours = ("SAFEPOINT_STEP", "SAFEPOINT_SET")
        environment = {name: text for name, text in os.environ.items() if name not in ours}
        if resumed and self.saved is not None:
            environment |= {"SAFEPOINT_STEP": str(self.step), "SAFEPOINT_SET": str(self.saved.number)}
        return environment


def not_saved(error: SaveError) -> None:
    """The command is not stopped: its computation may be worth more than what is lost if it is killed now."""
    say(f"NOT SAVED: {error}")
