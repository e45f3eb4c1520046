"""The drain that a run starts beside itself, and what the run learns of it.

(1) It is a process of its own, and no child of the program, in a session of its own, with no descriptor of the
    program's but two pipes. So what is being put goes on when the program is killed, Ctrl-C does not reach it, and
    neither a launcher nor a program that waits for its children waits for it.
(2) By one pipe the run asks, "put TOKEN IDENTITY", or "back", if it went back to that set, and tells that the session
    has ended, "end". By the other the drain tells: "there IDENTITY", "trouble TEXT", "fine", "moves", "answer TOKEN
    yes", or "no TEXT", and "over TEXT" if it ends for good; who is waited for, "waits place TEXT". Who does not read
    that pipe, which is after verbs, misses lines, and no more.
(3) No `hide` waits for it, or fails because of it. What hinders it is a warning, once: see `troubles`.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
import time
from collections.abc import Iterator, Sequence

from safepoint.disk.files import exists, tail
from safepoint.disk.kernel import close_read_only
from safepoint.disk.signals import look, undisturbed
from safepoint.errors import SaveError, UsageError
from safepoint.listener import Listener, Outcome
from safepoint.opening import Opening
from safepoint.record import Item, Record
from safepoint.root import Root
from safepoint.spawned import isolated
from safepoint.tiers.names import identity
from safepoint.tiers.note import read_notes
from safepoint.tiers.troubles import OVER, PLACE, PROCESS, QUIET, WAITS_PLACE, Troubles
from safepoint.tiers.url import RANK, of_rank, place_of

logger = logging.getLogger("safepoint")
LOOK_EVERY = 0.5  # seconds in which a run at work does not ask its pipe: even that makes `hide` longer
POLL, AGAIN, ONCE_MORE = 0.05, 2.0, 10.0  # seconds: between two looks of who waits, two requests, two of the same
TOO_LONG = 30.0  # seconds that it may take to start it
ANEW = 60.0  # seconds between two starts of a drain that has ended before its time
MOST_STEPS = 256  # sets whose step is kept in mind
LAST = 2000  # bytes of what a drain has said at its end
# A process that becomes another one, which starts it and ends; and that.
FIRST = "import os, sys\nif os.fork(): os._exit(0)\nos.execv(sys.argv[1], sys.argv[1:])"
BEGIN = "from safepoint.cli import main\nsys.argv[0] = 'safepoint'\nmain()\n"
NOT_ITS = ("SAFEPOINT_RUN", "SAFEPOINT_PROGRAM")  # by which processes of a program are known


class Started:
    """A drain at work, and our ends of the pipes."""

    def __init__(self, root: Root, words: Sequence[str]) -> None:
        """`words`: its command line. On error there is none. Killed inside: it ends with the program."""
        import subprocess

        if not sys.executable or not hasattr(os, "fork"):
            raise OSError("this Python cannot start another one")
        first = [sys.executable, "-I", "-S", "-c", FIRST]  # without site-packages, so in a few milliseconds
        command = [*first, *isolated(BEGIN, *words)]
        environment = {name: value for name, value in os.environ.items() if name not in NOT_ITS}
        self.gone, self.moved, self.heard = False, time.monotonic(), time.monotonic()
        self._rest, self._root = b"", root
        if exists(root.disk, root.drain_log):
            root.disk.remove(root.drain_log)
        with contextlib.ExitStack() as theirs, contextlib.ExitStack() as ours:
            pipes = []
            for mine in (1, 0):
                pipes.append(pipe := os.pipe())
                ours.callback(close_read_only, os.close, pipe[mine])
                theirs.callback(close_read_only, os.close, pipe[1 - mine])
            (stdin, self._to), (self._from, stdout) = pipes
            said = theirs.enter_context(root.disk.create(root.drain_log))
            subprocess.run(command, stdin=stdin, stdout=stdout, stderr=said, env=environment, start_new_session=True,
                           check=True, timeout=TOO_LONG)  # fmt: skip
            for end in (self._to, self._from):
                os.set_blocking(end, False)
            self._close = ours.pop_all().close

    def ask(self, wanted: str, token: str = "", *, back: bool = False) -> str:
        """For this set now, once more if there is a token; the token of the answer."""
        token = token or str(time.time_ns())
        self.say(f"{'back' if back else 'put'} {token} {wanted}")
        return token

    def let_go(self) -> None:
        """Its session has ended; or it has itself."""
        if not self.gone:
            self.say("end")
        self.gone = True
        self._close()

    def say(self, line: str) -> bool:
        """Whether it was; else it has ended, which is seen, or has not listened for long."""
        with contextlib.suppress(OSError):
            return os.write(self._to, f"{line}\n".encode()) > 0
        return False

    def lines(self) -> list[list[str]]:
        """What it has said since; each in words, the last of which is a text. `gone`: it has ended."""
        while not self.gone:
            try:
                data = os.read(self._from, 1 << 16)
            except BlockingIOError:
                break
            except OSError:
                data = b""
            self.gone, self._rest = not data, self._rest + data
        *whole, self._rest = self._rest.split(b"\n")
        self.heard = time.monotonic() if whole else self.heard
        return [line.decode(errors="replace").split(" ", 1) for line in whole]

    def last_words(self) -> str:
        with contextlib.suppress(OSError):
            lines = tail(self._root.disk, self._root.drain_log, LAST).decode(errors="replace").split("\n")
            return next((line.removeprefix("safepoint: ") for line in reversed(lines) if line.strip()), "")
        return ""


class Beside(Listener):
    """Of one session. `mine`: it is this rank that starts the drain and hears of it; of ranks that share a directory it
    is one. `on`: one is started, by this rank or another."""

    def __init__(self, home: Opening, *, agree: bool, once: bool = False) -> None:
        """`agree`: the ranks make their sets together. `once`: none is begun anew, as what this process has started
        since would be taken for a part of a program that it protects. Raises `UsageError`."""
        root = home.root
        told, off = home.manifest.setting("remote"), home.manifest.setting("drain").off
        alone = root.saver is None and root.ranks > 1
        if alone and RANK not in told:
            raise UsageError(
                f"each rank of this program has a directory of its own, so each needs a place of its own: write {RANK} "
                f"into the setting remote, {told}; nothing was changed"
            )
        self.url = place_of(of_rank(told, root.rank if alone else 0), root.work)
        self.mine = home.active and (root.saver is None or root.rank == home.lead)
        self.on = not off and (agree or alone)
        if self.mine and not (self.on or off):
            logger.warning("with coordinate=False the ranks have no common set: none is put to %s", self.url)
        self.level = 0  # how far the last `hide` was to go, on all ranks
        self.missed = ""  # why the result is not there
        self._root, self._once, self._limit = root, once, home.manifest.setting("stall_timeout")
        self._drain: Started | None = None
        self._wanted, self._over = False, not self.on  # there is, or may be, a set; nothing is to be put any more
        self._fatal, self._why = "", ""  # why none will go on; why the last one ended
        self._troubles = Troubles()
        self._began, self._next = -ANEW, 0.0  # when it was started; when it is heard next
        self._answers: dict[str, str] = {}
        self._back = ""  # the set to which the program went back, as long as the drain does not know
        self._there = ""  # the newest set that is at the place
        self._steps: dict[str, tuple[int, int | None]] = {}  # by identity of a set, its key and its step
        self._pid, self._lock = os.getpid(), threading.Lock()  # the lock is for what is heard

    _begins_no_more = False

    @property
    def _sees(self) -> bool:
        """Whether it is this rank's drain that knows what is whole at the place."""
        return self.mine

    # What the session announces.

    def adopted(self, number: int, record: Record | None) -> None:
        self._over = True  # a job script, in which no process stays

    def restored(self, outcome: Outcome) -> None:
        finished = outcome.point is not None and outcome.point.finished
        self._wanted = self._wanted or not finished
        if outcome.record:
            for name, (key, _) in [*self._steps.items()]:
                if key > outcome.record.key:  # these have gone here
                    self._steps.pop(name, None)
            self._keep(outcome.record)
            if outcome.asked:
                self._back, self._next = _identity(outcome.record), 0.0

    def hidden(
        self, number: int, begin: float, end: float, *, taken: bool, waited: int, files: Sequence[Item]
    ) -> None:  # fmt: skip
        self._wanted, self.level = self._wanted or taken, waited if taken else 0

    def stored(self, record: Record, seconds: float, *, waited: bool) -> None:
        self._keep(record)

    def finished(self, number: int, step: int | None) -> None:
        if self.mine and not self._over and self.missed:
            logger.warning("the result is in %s alone: %s", self._root.work, self.missed)

    def closed(self) -> None:
        self._over = True
        if self._drain and self._pid == os.getpid():
            self._drain.let_go()

    def after(self, *, ended: bool) -> None:
        if self.mine and not self._over and (self._drain is None or time.monotonic() >= self._next):
            self._tend()

    # What the program asks.

    @property
    def remote_step(self) -> int | None:
        """The step of the newest set that is known to be at the place; None if that is not known."""
        if self.mine and not self._over:
            self._tend()
        there = {self._there} if self._sees and self.on else {*read_notes(self._root).at(self.url).sets}
        return next((step for name, (_, step) in reversed([*self._steps.items()]) if name in there), None)

    def wait_for(self, record: Record | None, until: float | None) -> None:
        """Return when this set is whole at the place, and the newest there. Raises `SaveError`, without `until`, a
        moment of time.monotonic, as soon as something hinders it."""
        if self.mine and record is not None:
            for _ in self.until_there(_identity(record), record.label, until):
                time.sleep(POLL)

    def until_there(self, wanted: str, label: str, until: float | None) -> Iterator[None]:
        """As `wait_for`, in steps: ends when it is there."""
        if self._over:
            raise self._not_there(label, "this run puts none there")
        self._wanted = True
        drain, token, asked, moved, refused = None, "", 0.0, 0.0, ""
        while True:
            self._tend()
            answer, now = self._answers.pop(token, None), time.monotonic()
            if answer == "":
                return
            token, refused = ("", answer) if answer else (token, refused)
            why = self._fatal or refused or (self._why if self._has_none else "")
            if why and (until is None or self._fatal):
                raise self._not_there(label, why)
            if self._drain and self._drain is not drain:
                drain, token, asked, moved = self._drain, self._drain.ask(wanted), now, now
            elif self._drain and now > asked + (ONCE_MORE if token else AGAIN):  # an answer may be lost
                token, asked = self._drain.ask(wanted, token), now
            if until is not None and now >= until:
                raise self._not_there(label, why or self._troubles.why or "the time is over, and it is being put still")
            if drain:
                self._troubles.quiet(f"the drain to {self.url}", max(drain.heard, moved), now)
            if until is None and drain and now > max(drain.moved, moved) + self._limit:
                raise self._not_there(label, self._troubles.stalled(WAITS_PLACE, "the drain", self._limit))
            look()
            yield

    def _not_there(self, label: str, why: str) -> SaveError:
        return SaveError(f"{label} is not at {self.url}: {why}; it is durable here")

    # The process.

    def _tend(self) -> None:
        """Start it, hear what it says, and see whether it has ended. Not in a forked child, whose it is not, nor while
        another thread does so."""
        if self._pid != os.getpid() or not self._lock.acquire(blocking=False):
            return
        try:
            self._next = time.monotonic() + LOOK_EVERY
            self._look()
        finally:
            self._lock.release()

    @property
    def _has_none(self) -> bool:
        """There is no process, and none begins at the next look."""
        return self._drain is None and time.monotonic() < self._began + ANEW

    def _look(self) -> None:
        if self._drain is None and self._wanted and not self._begins_no_more and not self._has_none:
            self._start()
        if self._drain is None:
            return
        if self._back:
            self._drain.ask(self._back, back=True)
            self._back = ""
        for word, *more in self._drain.lines():
            self._troubles.end(QUIET)
            self._hear(word, more[0] if more else "")
        if self._drain.gone:
            self._ended(self._drain)

    def _start(self) -> None:
        self._began = time.monotonic()
        with undisturbed():
            try:
                self._drain = Started(self._root, self._words())
            except Exception as error:  # also of a Python that is ending: the program does not fail because of it
                self._why = f"no drain could be started: {error}"
                self._troubles.warn(PROCESS, f"{self._why}; nothing goes to {self.url} now")

    def _words(self) -> list[str]:
        pid = str(os.getpid())
        return ["drain", "--follow", "--beside", "--pid", pid, "--to", self.url, "--", self._root.work]

    def _hear(self, word: str, text: str) -> None:
        if word in ("there", "fine"):
            self._there = text or self._there
            self._well()
        elif word == "answer":
            token, _, said = text.partition(" ")
            self._answers[token] = said.removeprefix("no ") if said != "yes" else ""
            self._moved()
        elif word == "moves":
            self._moved()
        elif word == "waits":  # "waits place TEXT", or "waits copy TEXT"
            which, _, why = text.partition(" ")
            self._troubles.warn(f"waits {which}", why)
        elif word == "trouble":
            self._troubles.warn(PLACE, f"{text}; the run goes on")
        elif word == "over":
            self._fatal, self._there, self._begins_no_more = text, "", True
            self._troubles.warn(OVER, f"nothing goes to {self.url} any more: {text}")

    def _well(self) -> None:
        """A set is at the place."""
        if self._troubles.end(PLACE, PROCESS, OVER, WAITS_PLACE):
            logger.warning("sets go to %s again", self.url)
        self._fatal = self._why = ""

    def _moved(self) -> None:
        if self._drain:
            self._drain.moved = time.monotonic()

    def _ended(self, drain: Started) -> None:
        """Before its time: another one begins, if it has not said that it ends for good."""
        drain.let_go()
        self._drain = None
        why = drain.last_words() or "the drain was killed"
        self._why = why
        if self._once and not self._fatal:
            self._hear("over", why)
        elif not self._begins_no_more:
            self._troubles.warn(PROCESS, f"the drain to {self.url} has ended, and another one begins: {why}")

    def _keep(self, record: Record) -> None:
        """In the saver thread too."""
        while len(self._steps) >= MOST_STEPS:
            self._steps.pop(next(iter(self._steps)), None)
        self._steps.pop(_identity(record), None)
        self._steps[_identity(record)] = record.key, record.step


def _identity(record: Record) -> str:
    return identity(record.life, record.number, record.history)
