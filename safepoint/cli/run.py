"""`safepoint run`: protect a program that writes restart files by itself and knows nothing of this.

The program's files stay where they are. Whenever a complete set of them lies there, the whole command is held still for
the moment of a look and a snapshot. What a death may have torn is never taken:

(1) A set is taken only if all of it was written and closed (`watch`), nothing of it is open for writing, and no process
    of the command has died badly since the look before (`processes`): a killed writer closes its file too.
(2) Before the command starts, and starts again, the last set is given back; with no set yet, and all files there, these
    are the first.
(3) If we are killed the command's first process dies with us, and what is left of it keeps the lock: a second run is
    refused as long as anything of it may still write.
"""

from __future__ import annotations

import contextlib
import json
import logging
import math
import os
import re
import selectors
import shlex
import shutil
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from types import FrameType
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from safepoint import save
from safepoint.cli.chances import Chances
from safepoint.cli.holding import heirs_in
from safepoint.cli.processes import MARK, Family, die_with
from safepoint.disk import Disk
from safepoint.errors import (
    LockedError,
    MissingFilesError,
    RefusedFileError,
    SafepointError,
    SaveError,
    UsageError,
)
from safepoint.opening import read_owner
from safepoint.record import Root, read_note
from safepoint.session import SavePoint, Session
from safepoint.stop import REQUEUE, Limit, Signals, Stop, limits, name_of, numbers
from safepoint.times import duration, shown

if TYPE_CHECKING:
    from safepoint.cli.watch import Watch  # needs Linux; segments do not

logger = logging.getLogger("safepoint")
FORWARDED = ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2")
AT_ONCE = 60.0  # seconds: a command that fails so soon, and saves nothing, may have been given a bad set
IN_A_ROW = 3  # times
LONGEST_REST = 0.2  # seconds
REST = 10  # times as long as a look that came to nothing the command is left alone then; once, if a new set is there
SLOWEST = 60.0  # seconds between two starts, at most
TICK = 0.5  # seconds: how often to look for what no event tells
SOON = 0.005  # seconds: the same while a set lies there and cannot be taken yet
NEVER_CLOSED = 20.0  # seconds that a file is written and not closed before it is said
AHEAD, OF_ALL = 60.0, 0.1  # the command is told to end so many seconds before the limit; at most this share of it
OFTEN = 5  # sets missed in a row, after which that is said
LEFT_BEHIND = 5.0  # seconds that the command has ended and others of it go on


@dataclass
class Options:
    directory: str
    command: list[str]
    resume: list[str] = field(default_factory=list)
    check: str = ""
    until: str = ""
    retries: int = 0
    tolerate: str = ""
    again: bool = False
    keep: int | None = None
    limit: str = ""
    signal: str = ""


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option("--dir", "directory", default=".", metavar="DIR", help="Where the manifest is, and the command runs.")
@click.option(
    "--until",
    default="",
    metavar="N|FILE|CMD",
    help="In segments: run the command again and again, and take a set whenever it has ended with status 0, until it "
    "has run N times, FILE exists, or CMD (with a space in it, or on the PATH) ends with status 0.",
)
@click.option(
    "--resume-command", default="", metavar="CMD", help="What to start instead of COMMAND when there is a set."
)
@click.option(
    "--check",
    default="",
    metavar="CMD",
    help="A set is only taken if this ends with status 0. It runs in DIR while the command stands still.",
)
@click.option(
    "--retries", default=0, metavar="N", help="Start a failed command again from the last set, up to N times in a row."
)
@click.option(
    "--tolerate",
    type=click.Choice(["status", "all"]),
    help="Which ends of processes do not make files suspect: those with a status other than 0 (as of grep -q), or "
    "kills too.",
)
@click.option("--keep", type=int, metavar="N", help="How many sets stay. Default: the manifest's setting, else 2.")
@click.option(
    "--time-limit",
    default="",
    metavar="TIME|auto",
    help="Tell the command to end before so much time has passed; auto: before the limit that the job scheduler set.",
)
@click.option(
    "--signal",
    "told_by",
    default="",
    metavar="NAME[@SECONDS]",
    help="The signal that tells it so, and how long before the limit (default: TERM@60). If given, it is also what the "
    "command gets when SIGTERM, SIGUSR1 or SIGUSR2 comes, and without --time-limit it means auto.",
)
@click.option("--again", is_flag=True, help="Start although the run was finished, from the files as they are.")
@click.option("-v", "--verbose", is_flag=True, help="Say when a set was saved.")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def run(
    directory: str, until: str, resume_command: str, check: str, retries: int, tolerate: str | None,
    keep: int | None, again: bool, time_limit: str, told_by: str, verbose: bool, command: tuple[str, ...],
) -> None:  # fmt: skip
    """Run COMMAND so that it can be killed at any moment: start it again with the same line, and it finds the files of
    the last complete set.

    The files are those of the manifest .safepoint; the program goes on writing them as ever. SAFEPOINT_STEP and
    SAFEPOINT_SET are in its environment when it was given a set. The exit status is that of the command, 128 + n if
    signal n killed it; 75 if it was told to end because of a limit or of --signal, and 79 after `safepoint halt`.
    """
    _speak(verbose)
    options = Options(
        directory, list(command), shlex.split(resume_command), check, until, retries, tolerate or "", again, keep,
        time_limit, told_by,
    )  # fmt: skip
    sys.exit(Supervisor(options).run())


def _speak(verbose: bool) -> None:
    logging.basicConfig(format="safepoint: %(message)s")  # if nobody has yet
    logger.setLevel(logging.INFO if verbose else logging.WARNING)


def say(text: str) -> None:
    with contextlib.suppress(OSError):  # nobody listens any more: no reason to stop a computation
        print(f"safepoint: {text}", file=sys.stderr, flush=True)


class Tries(NamedTuple):
    """What attempts.json holds."""

    set: int
    times: int


class Attempts:
    """How often in a row the command has failed at once after this set; kept, as each try may be a job of its own."""

    def __init__(self, disk: Disk, root: Root) -> None:
        self._disk, self._path = disk, root.attempts
        self.set = self.times = 0
        if noted := read_note(disk, self._path, Tries):
            self.set, self.times = noted["set"], noted["times"]

    def note(self, number: int, *, failed_at_once: bool) -> None:
        times = (self.times if number == self.set else 0) + 1 if failed_at_once else 0
        if (number, times) != (self.set, self.times):
            self.set, self.times = number, times
            with contextlib.suppress(OSError):  # for comfort only: without it one more try is made
                if self._disk.exists(self._path):
                    self._disk.remove(self._path)
                self._disk.write(self._path, json.dumps({"set": number, "times": times}).encode())


class Supervisor:
    """One `safepoint run`, over all lives of its command."""

    def __init__(self, options: Options) -> None:
        self.options = options
        ending = Ending(options)  # its errors before anything is done
        self.session = Session(options.directory, keep=options.keep, in_place=True)
        self.work, self.disk, self.root = self.session._root.work, self.session._disk, self.session._root
        self.manifest = self.session._manifest
        self._lock = self.disk.share_lock(self.root.lock)  # rule (3)
        self._refuse_heirs()
        self.ending = ending
        self.ending.begin(self.disk, self.root)
        self.step = 0
        self.saved: SavePoint | None = None  # the newest set
        self.signals: list[int] = []
        self.asked_to_stop = self.told = False  # told: by SIGUSR1 or SIGUSR2, which may mean that too
        self._child: subprocess.Popen[bytes] | None = None
        self.chances = Chances()
        self._looked_at = 0  # which of these chances
        self._said: set[str] = set()
        self._opened_since: dict[str, float] = {}

    def _refuse_heirs(self) -> None:
        """Rule (3), for what has closed the lock's descriptor: it still has the name of this run in its environment."""
        try:
            heirs_in(self.work)
        except LockedError:
            self.session.close()
            raise

    def run(self) -> int:
        """The exit status of the command."""
        try:
            if not self.options.until:
                if sys.platform != "linux":
                    raise UsageError("to watch a running program needs Linux; --until, in segments, works everywhere")
                from safepoint.cli.watch import check

                check(self.manifest)
            with self._listening():
                status = self._lives()
            finished = self.session._left
            return status if finished else self.ending.status or status
        finally:
            self.ending.end()
            if self.chances.seen:
                say(str(self.chances))
            try:
                self.session.close()
            except SaveError as error:
                self._loud(error)

    @contextlib.contextmanager
    def _listening(self) -> Iterator[None]:
        def note(number: int, _: FrameType | None) -> None:
            self.signals.append(number)

        # What is ignored stays so, in the command too: nohup, and jobs in the background of a script.
        numbers = [getattr(signal, name) for name in FORWARDED if hasattr(signal, name)]
        numbers = [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]
        before = {number: signal.signal(number, note) for number in numbers}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _lives(self) -> int:
        failures, wait = 0, 1.0
        resumed = self._give_back()
        while resumed is not None:
            last, begin = self._newest(), time.monotonic()
            if self.options.until and self.step and self._done():
                self.session.finish(self.step)
                return 0
            if self.ending.before_segment(self.step):
                return REQUEUE
            status = self._segment(resumed) if self.options.until else self._watched(resumed)
            if status == 0 and self.options.until and not self.asked_to_stop:
                failures, resumed = 0, True
                continue
            if status == 0:
                return 0
            self._wait()
            anew = self._newest() != last
            at_once = not anew and time.monotonic() - begin < AT_ONCE and not self.asked_to_stop
            Attempts(self.disk, self.root).note(self._newest(), failed_at_once=at_once)
            failures, wait = (1, 1.0) if anew else (failures + 1, wait)
            if self.asked_to_stop or failures > self.options.retries:
                return status
            say(f"the command ended with status {status}; try {failures} of {self.options.retries} in {wait:.0f} s")
            if self._sleep(wait):
                for number in self.signals:
                    self.ending.told(number)
                return status
            wait = min(2 * wait, SLOWEST)
            resumed = self._give_back()
        return 0

    def _newest(self) -> int:
        """The number of the newest committed set; 0 if there is none."""
        numbers = self.root.numbers(self.disk, "set")
        return max((n for n in numbers if self.disk.exists(self.root.record(n))), default=0)

    def _wait(self) -> None:
        """For the set in flight; what it failed with is said."""
        try:
            self.session.wait()
        except SaveError as error:
            self._loud(error)

    def _sleep(self, seconds: float) -> bool:
        """Whether a signal came."""
        end = time.monotonic() + seconds
        while not self.signals and time.monotonic() < end:
            time.sleep(0.05)
        return bool(self.signals)

    def _give_back(self) -> bool | None:
        """Rule (2). Whether a set was given back; None if the run is finished."""
        self._quarantine()
        point = self.session.restore()
        if point is not None and point.finished:
            if not self.options.again:
                say(f"the run was finished at step {point.step}; its files are in place; to start from them: --again")
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
        self._first_set()
        return False

    def _first_set(self) -> None:
        """What is there before the command first starts: it may be rewritten in place, and then be nowhere else."""
        taken = False
        with contextlib.suppress(MissingFilesError):  # some of them are not there: a start from nothing too
            opened = self._open()
            if opened:
                who = ", ".join(self._holders(opened))
                raise UsageError(f"not started: {', '.join(opened)} open for writing by {who}")
            taken = self._take("what was there at the start", wait=True)
        if not taken and self.disk.exists(self.root.finished):
            # Of the run before: what is torn from now on must not pass for its result.
            with self.root.reporting(SaveError, "not started", "the files are as they were"):
                self.disk.remove(self.root.finished)
                self.disk.sync_dir(self.root.side)

    def _quarantine(self) -> None:
        attempts = Attempts(self.disk, self.root)
        if attempts.times < IN_A_ROW or not self.disk.exists(self.root.record(attempts.set)):
            return
        numbers = self.root.numbers(self.disk, "set")
        older = [n for n in numbers if n < attempts.set and self.disk.exists(self.root.record(n))]
        if not older:
            say(f"from set {attempts.set} the command has failed at once {attempts.times} times; there is no older one")
            return
        with self.root.reporting(SaveError, f"set {attempts.set} cannot be put aside", "nothing was changed"):
            save.fail(self.disk, self.root, attempts.set)
            # The name before the command starts from the older set: else a power cut would bring back the bad one.
            self.disk.sync_dir(self.root.path)
        say(
            f"from set {attempts.set} the command has failed at once {attempts.times} times in a row: it is put aside, "
            f"as {self.root.shown(self.root.state('failed', attempts.set))}, and the one before is taken"
        )
        attempts.note(attempts.set, failed_at_once=False)

    def _start(self, resumed: bool) -> subprocess.Popen[bytes]:
        self.told = False
        # Also of a set that was not given back: the first, of what was there, or that of the segment before.
        self.session._keep_prefixes(self.session._committed)
        words = self.options.resume if resumed and self.options.resume else self.options.command
        environment = {
            name: text for name, text in os.environ.items() if name not in ("SAFEPOINT_STEP", "SAFEPOINT_SET")
        }
        if resumed and self.saved is not None:
            environment |= {"SAFEPOINT_STEP": str(self.step), "SAFEPOINT_SET": str(self.saved.number)}
        environment[MARK] = self.work
        me = os.getpid()
        more: dict[str, Any] = {}
        if sys.platform == "linux":
            more = {"preexec_fn": lambda: die_with(me), "pass_fds": [self._lock] * (self._lock is not None)}
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)  # what runs in the child there takes no lock
                return subprocess.Popen(words, cwd=self.work, env=environment, start_new_session=True, **more)
        except OSError as error:
            raise UsageError(f"cannot start {words[0]}: {error.strerror}", error.errno) from error

    def _forward(self, child: subprocess.Popen[bytes], family: Family | None) -> None:
        """What came, and what the end asks for."""
        while self.signals:
            number = self.signals.pop(0)
            if self.ending.told(number):
                continue
            if number in (getattr(signal, "SIGUSR1", None), getattr(signal, "SIGUSR2", None)):
                self.told = True
            else:
                self.asked_to_stop = True
            _send(number, child, family)
        if number := self.ending.now(self.step):
            self.asked_to_stop = True
            _send(number, child, family)

    def _segment(self, resumed: bool) -> int:
        """Run the command to its end, and take a set if that was good."""
        family = Family(self.work) if sys.platform == "linux" else None
        begin = time.monotonic()
        child = self._start(resumed)
        if family:
            family.begin(child.pid)
        try:
            self._until_all_ended(child, family, None)
            status = _status(child)
            # It has seen how those ended that it waited for; but not all kills are seen by everybody.
            troubles = family.troubles(self.options.tolerate or "status") if family and family.told else []
            if status == 0 and self._good(troubles):
                return 0 if self._take("segment", wait=True) else SaveError.code
            return status or 1
        finally:
            self.ending.segment_took(time.monotonic() - begin)
            if family:
                family.close()

    def _watched(self, resumed: bool) -> int:
        """Run the command to its end, and take a set whenever there is one."""
        from safepoint.cli.watch import Watch

        family = Family(self.work)
        watch = Watch(self.manifest, self.work, self.chances)
        child = self._child = self._start(resumed)
        family.begin(child.pid)
        try:
            try:
                self._until_all_ended(child, family, watch)
            except Exception as error:  # of ours: no reason to kill a computation, nor to let go of the lock
                say(f"NOT PROTECTED any more, until the next start: {type(error).__name__}: {error}")
                self._until_all_ended(child, family, None)
                return _status(child)
            status = _status(child)
            watch.read()
            if not status:
                self._at_good_end(family, watch)
            return status
        finally:
            self.chances.miss("the command ended before the look")
            watch.close()
            family.close()

    def _at_good_end(self, family: Family, watch: Watch) -> None:
        """Status 0: all is whole, unless something had died; but who was asked to stop may have stopped anywhere."""
        self._wait()
        stopped = self.asked_to_stop or self.told
        if watch.touched:
            if stopped and not watch.ready:
                say("stopped by a signal between two sets: what was written since the last one is not taken")
                return
            suspects = [f"{path} was not written again after a process had died" for path in watch.suspects()]
            if not self._good([*family.troubles(self.options.tolerate, ended_well=True), *suspects]):
                return
            if self._take("the end", wait=True):
                self.chances.take()
        if not stopped:
            self.session.finish(self.step)
        elif self.told and not self.asked_to_stop:
            say("a signal was sent to the command before it ended, so this is not marked as finished")

    def _good(self, troubles: Sequence[str]) -> bool:
        """At a good end: whether what lies there can be taken for whole."""
        if troubles:
            say(f"the last files are not taken, as they may be torn: {'; '.join(troubles)} (see --tolerate)")
        opened = [] if troubles else self._open()
        if opened:
            who = ", ".join(self._holders(opened))
            say(f"the last files are not taken: {', '.join(opened)} open for writing by {who}")
        return not troubles and not opened and self._checked()

    def _until_all_ended(self, child: subprocess.Popen[bytes], family: Family | None, watch: Watch | None) -> None:
        with selectors.DefaultSelector() as selector:
            for source in (watch, family):
                if source is not None and (descriptor := source.fileno()) is not None:
                    selector.register(descriptor, selectors.EVENT_READ)
            read, write = os.pipe()
            os.set_blocking(write, False)
            os.set_blocking(read, False)
            selector.register(read, selectors.EVENT_READ)
            before = signal.set_wakeup_fd(write, warn_on_full_buffer=False)
            sigchld = signal.signal(signal.SIGCHLD, lambda *_: None)  # so that it wakes us
            try:
                self._watch_over(child, family, watch, selector, read)
            finally:
                signal.signal(signal.SIGCHLD, sigchld)
                signal.set_wakeup_fd(before)
                os.close(read)
                os.close(write)

    def _watch_over(
        self, child: subprocess.Popen[bytes], family: Family | None, watch: Watch | None,
        selector: selectors.BaseSelector, wakes: int,
    ) -> None:  # fmt: skip
        ended = self._look_from = self._look_anew_from = 0.0
        self._quiet_since = time.monotonic()
        while True:
            self._forward(child, family)
            _reap(child)
            if family:
                family.update()
            if watch and family:
                watch.read(1)
                self._look_if_due(family, watch)
            if child.returncode is not None:
                left = family.alive() if family else []
                if not family or not left:
                    return
                ended = ended or time.monotonic()
                if time.monotonic() - ended > LEFT_BEHIND:
                    self._once(
                        f"the command has ended, but what it left behind may still write, and is waited for: "
                        f"{family.names(left)} (if that need not be, let the command end it)"
                    )
            selector.select(SOON if ended or (watch and watch.ready) else TICK)
            with contextlib.suppress(BlockingIOError):
                os.read(wakes, 4096)

    def _look_if_due(self, family: Family, watch: Watch) -> None:
        begin, anew = time.monotonic(), self.chances.seen != self._looked_at
        if watch.ready and self.session.saving:
            self.chances.hinder("the set before was still being saved")
        elif watch.ready and begin < (self._look_anew_from if anew else self._look_from):
            if anew:
                self.chances.hinder("the look before had come to nothing, and the command was left alone for a moment")
        elif watch.ready:
            self._looked_at = self.chances.seen
            self.chances.hinder("")
            if self._look(family, watch):
                self._quiet_since = begin
            else:
                end = time.monotonic()
                self._look_anew_from = end + min(end - begin, LONGEST_REST)
                self._look_from = end + min(REST * (end - begin), LONGEST_REST)
        if begin - self._quiet_since > NEVER_CLOSED:
            with contextlib.suppress(OSError):  # a file that comes and goes
                self._explain_silence(watch)

    def _look(self, family: Family, watch: Watch) -> bool:
        """Rule (1). Whether a set was taken. Whatever fails here, the command goes on."""
        self._wait()
        try:
            hindrance = family.stop()
            if hindrance:
                self.chances.hinder(f"the command {_anybody(hindrance)}")
                self._once(f"no set can be taken: {hindrance}")
                return False
            return self._look_at_still(family, watch)
        except (SafepointError, OSError) as error:
            self.chances.hinder("no set could be taken, as said above")
            self._once(f"no set can be taken: {error}")
            return False
        finally:
            family.go()

    def _look_at_still(self, family: Family, watch: Watch) -> bool:
        """While all of the command stand still."""
        watch.read()
        if self._died(family, watch) or not watch.ready:
            return False
        opened = self._open()
        if self._died(family, watch):  # in that moment: and so what it had open was closed
            return False
        if opened:
            self.chances.hinder(f"{os.path.relpath(opened[0], self.work)} was open for writing")
            self._opened_too_long(opened)
            return False
        if not self._checked():
            self.chances.miss("of --check")
            watch.refuse()
            return False
        self._opened_since.clear()
        taken = self._take("")
        if taken:
            self.chances.take()
        self.chances.miss("no set could be taken, as said above")
        watch.begin_anew()
        return taken

    def _died(self, family: Family, watch: Watch) -> bool:
        ended_well = self._child is not None and self._child.poll() == 0
        troubles = family.troubles(self.options.tolerate, ended_well=ended_well)
        if troubles:
            self.chances.miss(_anybody(troubles[0]))
            watch.distrust()
            what = "; ".join(troubles[:3])
            self._once(f"what lies there is not taken, as it may be torn: {what} (see --tolerate)")
        return bool(troubles)

    def _take(self, why: str, *, wait: bool = False) -> bool:
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
            self._loud(error)
            return False
        if point is None:
            if not first:
                self._once("no set can be taken: none of the listed files is there")
            return False
        self.step, self.saved = step, point
        return True

    def _loud(self, error: SaveError) -> None:
        """The command is not stopped: its computation may be worth more than what is lost if it is killed now."""
        say(f"NOT SAVED: {error}")

    def _open(self) -> list[str]:
        """The listed files that somebody could write to at this moment, but those that only grow."""
        found = save.find(self.disk, self.root, self.manifest)
        paths = []
        for item in found.items:
            full = os.path.join(self.work, item.path)
            if item.tree:
                paths += [os.path.join(where, name) for where, _, names in os.walk(full) for name in names]
            elif item.kind != "append":
                paths.append(full)
        regular = [path for path in paths if os.path.isfile(path) and not os.path.islink(path)]
        return self.disk.open_for_writing(regular)

    def _holders(self, paths: Sequence[str]) -> list[str]:
        return sorted({who for path in paths for who in self.disk.holders(path)}) or ["somebody who cannot be seen"]

    def _opened_too_long(self, paths: Sequence[str]) -> None:
        now = time.monotonic()
        since = {path: self._opened_since.get(path, now) for path in paths}
        self._opened_since = since
        for path in (path for path, when in since.items() if now - when > NEVER_CLOSED):
            self._never_closed(path)

    def _never_closed(self, path: str) -> None:
        name = os.path.relpath(path, self.work)
        self._once(
            f"{name} is never closed, but held open for writing by {', '.join(self._holders([path]))}: nobody outside "
            f"can tell when it is whole, so no set is taken while that lives. If it is whole at the end of a run: "
            f"--until, in segments; else list another file, one that the program closes"
        )

    def _explain_silence(self, watch: Watch) -> None:
        """No set for a while: that may be right, but not if files are written all the time."""
        if watch.lost:
            self._once(f"{watch.why_lost}: no more sets until the next start; with a mark there would be")
        waiting = [os.path.join(self.work, path) for path in watch.unclosed()]
        there = [path for path in waiting if os.path.isfile(path)]
        recent = [path for path in there if time.time() - os.stat(path).st_mtime < NEVER_CLOSED]
        for path in self.disk.open_for_writing(recent):
            self._never_closed(path)
        if self.chances.missed_in_a_row >= OFTEN:
            self._once(f"no set for a while: {self.chances}")
        if watch.uneven:
            self._once(
                f"no set is taken: {watch.uneven}. Without a mark each listed file must be written once for each set, "
                f"in the order of the list: give the one that is written last the attribute mark"
            )

    def _checked(self) -> bool:
        if not self.options.check:
            return True
        environment = {**os.environ, "SAFEPOINT_STEP": str(self.step + 1)}
        done = subprocess.run(_words(self.options.check), cwd=self.work, env=environment, stdin=subprocess.DEVNULL)
        if done.returncode:
            self._once(f"what lies there is not taken: {self.options.check} ended with status {done.returncode}")
        return done.returncode == 0

    def _done(self) -> bool:
        """Whether the segments have come to their end."""
        until = self.options.until
        if until.isdecimal():
            return self.step >= int(until)
        if " " in until or shutil.which(until):
            environment = {**os.environ, "SAFEPOINT_STEP": str(self.step)}
            done = subprocess.run(_words(until), cwd=self.work, env=environment, stdin=subprocess.DEVNULL)
            return done.returncode == 0
        return os.path.exists(os.path.join(self.work, until))

    def _once(self, text: str) -> None:
        begin = re.sub(r"\d+", "", text)  # other processes and sizes are nothing new
        if begin not in self._said:
            self._said.add(begin)
            say(text)


class Ending:
    """When and how the command is told to end: before a time limit, by a signal to us, or for `safepoint halt`."""

    def __init__(self, options: Options) -> None:
        """Raises `UsageError`."""
        name, _, seconds = options.signal.partition("@")
        try:
            (self._signal,) = numbers([name or "TERM"])
        except UsageError as error:
            raise UsageError(f"--signal {options.signal}: {error}") from error
        self._translates = bool(options.signal)
        if seconds and not re.fullmatch(r"\d+", seconds):
            raise UsageError(f"--signal {options.signal}: takes a name, and after an @ a number of seconds")
        self._ahead = float(seconds) if seconds else None
        self._bounds: list[Limit] = []
        if options.limit or options.signal:
            try:
                after = duration(options.limit) if options.limit not in ("", "auto") else None
            except ValueError as error:
                raise UsageError(f"--time-limit {error}, or auto, not {options.limit}") from error
            self._bounds = limits(None, after, time.time(), os.environ)
            if options.limit == "auto" and not self._bounds:
                raise UsageError("--time-limit auto: no job scheduler started this, and SAFEPOINT_STOP_AT is not set")
        self._longest = 0.0  # seconds, of a segment
        self._step = 0
        self._done = False

    def begin(self, disk: Disk, root: Root) -> None:
        self._stop = Stop(disk, root, read_owner(disk, root), self._bounds, Signals(()))

    @property
    def status(self) -> int:
        """The exit status that says why; 0: nothing was told."""
        return self._stop.status

    @property
    def _notice(self) -> float:
        """Seconds that the command has from the signal to the limit."""
        if self._ahead is None:
            for bound in self._bounds:
                bound.ask(again=False)
            first = min((bound.end for bound in self._bounds), default=math.inf)
            self._ahead = min(AHEAD, OF_ALL * max(0.0, first - time.time()))
        return self._ahead

    def told(self, number: int) -> bool:
        """Whether this signal to us is one that `--signal` stands for."""
        if not self._translates or name_of(number) not in ("SIGTERM", "SIGUSR1", "SIGUSR2"):
            return False
        if self._done and number == signal.SIGTERM:
            return False  # it was told, and goes on: the second is passed on as it is
        if not self._stop.why:
            self._stop.agreed(f"{name_of(number)} came", REQUEUE)
        return True

    def now(self, step: int) -> int:
        """The signal to send at this moment; 0: none. Once."""
        steps, self._step = max(0, step - self._step), step
        why = self._stop.why or self._stop.look(steps, self._notice, exact=True)
        if not why or self._done:
            return 0
        self._done = True
        say(f"{why}: {name_of(self._signal)} to the command")
        return self._signal

    def before_segment(self, step: int) -> bool:
        """Whether no further segment should begin."""
        steps, self._step = max(0, step - self._step), step
        if not self._longest:
            return False
        why = self._stop.look(steps, self._longest + self._notice)
        if why:
            say(f"{why}: no further segment is begun, of which the longest took {shown(self._longest)}")
        return bool(why)

    def end(self) -> None:
        self._stop.end(shared=False)

    def segment_took(self, seconds: float) -> None:
        self._longest = max(self._longest, seconds)


def _words(command: str) -> list[str]:
    return shlex.split(command) if os.name == "nt" else ["/bin/sh", "-c", command]


def _send(number: int, child: subprocess.Popen[bytes], family: Family | None) -> None:
    """To the command's first process and those in its group, as a shell does not pass it on; when it has ended, to each
    that it has left behind, as nobody else would."""
    left = [process.pid for process in family.alive()] if family and child.returncode is not None else []
    for tell, whom in ((os.kill, pid) for pid in left) if left else [(os.killpg, child.pid)]:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            tell(whom, number)


def _anybody(text: str) -> str:
    """The same for all processes of a name, so that it can be counted."""
    return re.sub(r"process \d+", "a process", text)


def _status(child: subprocess.Popen[bytes]) -> int:
    status = child.wait()
    return 128 - status if status < 0 else status


def _reap(child: subprocess.Popen[bytes]) -> None:
    """Wait for what has ended, without blocking: the command's first process, and orphans that became ours."""
    while hasattr(os, "waitid"):
        try:
            found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            break
        if found is None:
            break
        if found.si_pid == child.pid:
            child.poll()
        else:
            os.waitpid(found.si_pid, 0)
    child.poll()
