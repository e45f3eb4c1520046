"""The drain that a run starts beside itself, and what the run learns of it.

(1) It is a process of its own, in a session of its own, with no descriptor of the program's but the end of a pipe: what
    is being put goes on when the program is killed, Ctrl-C does not reach it, and no launcher waits for it.
(2) By the pipe the run asks for its newest set now. The end of the pipe is that of the session.
(3) What it has put, and what hinders it, it says in `remote.json`. The run looks at that after a verb, once a second at
    most. No `hide` waits for it, or fails because of it.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from safepoint.disk.disk import close_read_only
from safepoint.disk.files import exists, read, stat_or_none
from safepoint.disk.signals import look
from safepoint.errors import SaveError, UsageError
from safepoint.listener import Listener, Outcome
from safepoint.opening import Opening
from safepoint.record import Item, Record
from safepoint.tiers.names import identity
from safepoint.tiers.note import Known, read_notes
from safepoint.tiers.url import RANK, of_rank, place_of

if TYPE_CHECKING:
    import subprocess

logger = logging.getLogger("safepoint")
LOOK_EVERY, POLL, AGAIN = 1.0, 0.05, 2.0  # seconds: between two looks of a run at work, of one that waits, two requests
ANEW = 60.0  # seconds between two starts of a drain that was killed
MOST_STEPS = 256  # sets whose step is kept in mind
LAST = 2000  # bytes of what a drain has said at its end
# The descriptors are closed by who starts it. The package last, since its directory may hold all that is installed.
BEGIN = (
    "import sys; sys.path.append(sys.argv.pop(1))\n"
    "from safepoint.cli import main; sys.argv[0] = 'safepoint'; main()"
)  # fmt: skip
NOT_ITS = ("SAFEPOINT_RUN", "SAFEPOINT_PROGRAM")  # by which processes of a program are known


class Beside(Listener):
    """Of one session. `mine`: it is this rank that starts the drain and knows of it; of ranks that share a directory it
    is one."""

    def __init__(self, home: Opening, *, agree: bool, once: bool = False) -> None:
        """`agree`: the ranks make their sets together. `once`: none is begun anew, as what this process has started
        since would be taken for a part of a program that it protects. Raises `UsageError`."""
        root = home.root
        told, self._when = home.manifest.setting("remote"), home.manifest.setting("drain")
        alone = root.saver is None and root.ranks > 1
        if alone and RANK not in told:
            raise UsageError(
                f"each rank of this program has a directory of its own, so each needs a place of its own: write {RANK} "
                f"into the setting remote, {told}; nothing was changed"
            )
        self.url = place_of(of_rank(told, root.rank if alone else 0), root.work)
        self.mine = home.active and (root.saver is None or root.rank == home.lead)
        self.on = not self._when.off and (agree or alone)  # a drain is started, by this rank or another
        self.missed = ""  # why the result is not there
        self.level = 0  # how far the last `hide` was to go, on all ranks
        self._root, self._starts, self._once = root, self.mine and self.on, once
        if self.mine and not (self.on or self._when.off):
            logger.warning("with coordinate=False the ranks have no common set: none is put to %s", self.url)
        self._drain: subprocess.Popen[bytes] | None = None
        self._pipe = -1  # our end of it
        self._ended, self._started = "", 0.0  # why it will not go on; when it began
        self._wanted, self._over = False, False  # there is, or may be, a set; the session has ended
        self._known, self._seen, self._looked = Known(self.url), (0, 0, 0), 0.0
        self._said = ""  # the trouble of which the log knows
        self._steps: dict[str, int | None] = {}  # by identity of a set

    # What the session announces.

    def adopted(self, number: int, record: Record | None) -> None:
        self._starts = False  # a job script, in which no process stays

    def restored(self, outcome: Outcome) -> None:
        finished = outcome.point is not None and outcome.point.finished
        self._wanted = self._wanted or not finished
        if outcome.record:
            self._keep(outcome.record)

    def hidden(
        self, number: int, begin: float, end: float, *, taken: bool, waited: int, files: Sequence[Item]
    ) -> None:  # fmt: skip
        self._wanted, self.level = self._wanted or taken, waited if taken else 0

    def stored(self, record: Record, seconds: float, *, waited: bool) -> None:
        self._keep(record)

    def finished(self, number: int, step: int | None) -> None:
        if self._starts and (self.missed or step is None):
            why = self.missed or "it has no step: finish(step=…) puts it there"
            logger.warning("the result is in %s alone: %s", self._root.work, why)

    def closed(self) -> None:
        self._over = True
        self._let_go()

    def _let_go(self) -> None:
        """The session of this drain has ended; or it has itself."""
        if self._pipe >= 0:
            close_read_only(os.close, self._pipe)
            self._pipe = -1

    def after(self, *, ended: bool) -> None:
        if self._starts and self._wanted and not self._over and self._drain is None and not self._ended:
            self._start()
        if self.mine and time.monotonic() >= self._looked + LOOK_EVERY:
            self._look()
            self._watch()

    # What the program asks.

    @property
    def remote_step(self) -> int | None:
        """The step of the newest set that is known to be at the place; None if that is not known."""
        self._look()
        known = [text for text in self._steps if text in self._known.sets]
        return self._steps[known[-1]] if known else None

    def wait_for(self, record: Record | None, timeout: float | None) -> None:
        """Return when this set, or a newer one, is at the place. Raises `SaveError`, if there is no timeout as soon as
        the drain says what hinders it."""
        if not self.mine or record is None:
            return
        until = None if timeout is None else time.monotonic() + timeout
        if not self._starts:
            self._wait_for_another(record, until)
            return
        self._wanted = True
        drain, asked, when = None, 0, 0.0
        while True:
            self.after(ended=False)
            self._watch()
            answered = bool(asked) and self._known.answered == asked
            if answered and self._has(record):
                return
            if self._ended or (answered and until is None):
                raise self._not_there(record, self._ended or self._known.trouble)
            if self._drain and self._drain.poll() is not None and until is None:
                raise self._not_there(record, "the drain was killed, and another one begins in a minute")
            if self._drain and (self._drain is not drain or (answered and time.monotonic() > when + AGAIN)):
                drain, asked, when = self._drain, self._ask(), time.monotonic()
            self._rest(record, until)

    def _wait_for_another(self, record: Record, until: float | None) -> None:
        """A drain that somebody else has started."""
        next_look = 0.0
        while not self._has(record):
            if time.monotonic() >= next_look:
                next_look = time.monotonic() + LOOK_EVERY
                if self._nobody_drains() and not self._has(record):
                    raise self._not_there(record, "no drain is at work here, and this run starts none")
            self._rest(record, until)

    def _nobody_drains(self) -> bool:
        with contextlib.suppress(OSError):  # there may be no locks
            if release := self._root.disk.lock(self._root.remote_lock):
                release()
                self._look()  # it may have ended just now
                return True
        return False

    def _rest(self, record: Record, until: float | None) -> None:
        look()
        if until is not None and time.monotonic() >= until:
            raise self._not_there(record, self._known.trouble or "the time is over, and it is being put still")
        time.sleep(POLL)
        self._look()

    def _not_there(self, record: Record, why: str) -> SaveError:
        return SaveError(f"{record.label} is not at {self.url}: {why or 'nobody says why'}; it is durable here")

    def _has(self, record: Record) -> bool:
        """As far as the note tells. A newer set is as good: older ones go there."""
        newer = [text for text in self._known.sets if text[-16:] == record.history]
        return max(newer, default="") >= identity(record.life, record.number, record.history)

    # The process.

    def _start(self) -> None:
        import subprocess

        class Apart(subprocess.Popen[bytes]):
            """Nobody is warned that it goes on."""

            def __del__(self) -> None:
                pass

        package = os.path.abspath(f"{__file__}/../../..")
        words = ["drain", "--follow", "--beside", "--pid", str(os.getpid()), "--to", self.url, "--", self._root.work]
        environment = {name: value for name, value in os.environ.items() if name not in NOT_ITS}
        root, self._started = self._root, time.monotonic()
        try:
            if exists(root.disk, root.drain_log):
                root.disk.remove(root.drain_log)
            with root.disk.create(root.drain_log) as said:
                theirs, self._pipe = os.pipe()
                try:
                    self._drain = Apart(
                        [sys.executable, "-c", BEGIN, package, *words], stdin=theirs, stdout=subprocess.DEVNULL,
                        stderr=said, start_new_session=True, env=environment,
                    )  # fmt: skip
                finally:
                    close_read_only(os.close, theirs)
        except OSError as error:
            self._let_go()
            self._ended = f"no drain could be started: {error}"
            logger.warning("%s: nothing goes to %s", self._ended, self.url)
            return
        _started[:] = [each for each in _started if each.poll() is None] + [self._drain]

    def _ask(self) -> int:
        """For the newest set now, under this number."""
        number = time.time_ns()
        with contextlib.suppress(OSError):  # it has ended, which is seen
            if self._pipe >= 0:
                os.write(self._pipe, b"%d\n" % number)
        return number

    def _watch(self) -> None:
        """Say once that the drain has ended before its time; if it was killed another one begins."""
        if self._drain is None or self._over or (code := self._drain.poll()) is None or self._ended:
            return
        self._let_go()
        if code < 0 and not self._once:
            if time.monotonic() > self._started + ANEW:
                logger.warning("the drain to %s was killed: another one begins", self.url)
                self._drain = None
            return
        self._ended = self._known.trouble or self._last_words() or f"the drain has ended with status {code}"
        if self._said != self._ended:
            self._said = self._ended
            logger.warning("nothing goes to %s any more: %s", self.url, self._ended)

    def _last_words(self) -> str:
        with contextlib.suppress(OSError):
            lines = read(self._root.disk, self._root.drain_log, LAST).decode(errors="replace").split("\n")
            return next((line.removeprefix("safepoint: ") for line in reversed(lines) if line.strip()), "")
        return ""

    def _look(self) -> None:
        """At the note, if it is another one than the last time."""
        self._looked = time.monotonic()
        try:
            info = stat_or_none(self._root.disk, self._root.remote)
        except OSError as error:  # the next look may see it
            logger.debug("%s: %s", self._root.remote, error)
            return
        if not info or (seen := (info.st_ino, info.st_mtime_ns, info.st_size)) == self._seen:
            return
        self._seen, self._known = seen, read_notes(self._root).at(self.url)
        trouble = self._known.trouble
        if trouble and not self._said and self._starts:
            logger.warning("%s; the run goes on", trouble)
        elif self._said and not trouble and not self._ended:
            logger.warning("sets go to %s again", self.url)
        self._said = self._ended or trouble

    def _keep(self, record: Record) -> None:
        while len(self._steps) >= MOST_STEPS:
            self._steps.pop(next(iter(self._steps)), None)
        name = identity(record.life, record.number, record.history)
        self._steps.pop(name, None)
        self._steps[name] = record.step


_started: list[Any] = []  # those that may be at work: nobody waits for them, and none is left as a zombie for long
