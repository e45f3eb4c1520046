"""When to stop: the time limit of the job, a signal, or the wish of an operator (`safepoint halt`).

The limit is near when less time is left than it may take to end the step and to save. It is `stop_at` or `stop_after`,
of the program or of the environment (SAFEPOINT_STOP_AT, SAFEPOINT_STOP_AFTER: for a job script), and what the job
scheduler says; the earliest counts. A scheduler is asked when the session first looks, and again before it stops, since
a limit can be extended.
"""

from __future__ import annotations

import json
import logging
import math
import operator
import os
import re
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from types import FrameType
from typing import Any, NamedTuple

from safepoint.disk import Disk
from safepoint.errors import UsageError
from safepoint.record import Root, read_note, write_durably
from safepoint.times import duration, moment, shown

logger = logging.getLogger("safepoint")
REQUEUE, HALTED = 75, 79  # exit statuses: EX_TEMPFAIL of sysexits.h, "try again"; and one that is not in it
LOOK = 1.0  # seconds between two looks for what costs something: the clock, the halt file
SHARE, LEAST, OF_ALL = 0.25, 10.0, 0.02  # the margin: a quarter of what is needed, 10 s, at most 2 % of the limit
PATIENCE, AGAIN = 10.0, 60.0  # seconds, for the answer of a scheduler, and until it is asked again if it gave none


def _clock(text: str) -> float:
    """Seconds of `D-HH:MM:SS`, with or without the parts in front, as Slurm and PBS write times."""
    match = re.fullmatch(r"(?:(?:(\d+)-)?(\d+):)?(\d+):(\d+)", text)
    if not match:
        raise ValueError(text)
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)


def _of_slurm(text: str) -> float:
    """A line for each task or component that the number stands for."""
    return min(math.inf if line in ("UNLIMITED", "NOT_SET") else _clock(line) for line in text.split())


def _of_pbs(text: str) -> float:
    """`qstat -f`: of OpenPBS the limit and the start, of Torque what remains."""
    if remains := re.search(r"Walltime\.Remaining = (\d+)", text):
        return float(remains[1])
    limit, start = re.search(r"Resource_List\.walltime = ([\d:]+)", text), re.search(r"stime = (.+)", text)
    if not limit:
        return math.inf
    if not start:
        raise ValueError("it does not say when the job began")
    return time.mktime(time.strptime(start[1].strip(), "%a %b %d %H:%M:%S %Y")) + _clock(limit[1]) - time.time()


def _of_lsf(text: str) -> float:
    """`hours:minutes L`, with seconds too where that is switched on; a dash, or E, an estimate: no limit."""
    words = text.split()
    if words[:1] == ["-"] or words[1:2] == ["E"]:
        return math.inf
    if len(text.splitlines()) != 1:
        raise ValueError("not one line")
    return _clock(words[0] if words[0].count(":") == 2 else f"{words[0]}:00")


def _job(environment: Mapping[str, str], job: str, array: str, task: str, form: str) -> str:
    """The number of a job, or of this task of an array of jobs."""
    number = environment.get(task, "")
    return form.format(environment.get(array) or environment[job], number) if number.strip("0") else environment[job]


class Scheduler(NamedTuple):
    name: str
    job: str  # the variable with the number of the job
    command: tuple[str, ...]  # that tells how much time is left; the number of the job follows
    left: Callable[[str], float]
    array: tuple[str, str, str] = ("", "", "{}")  # variables of an array of jobs and its task, and how to name that
    end: str = ""  # the variable with the end of the job, if the scheduler sets one; seconds since the epoch


SCHEDULERS = (
    Scheduler("Slurm", "SLURM_JOB_ID", ("squeue", "-h", "-o", "%L", "-j"), _of_slurm,
              ("SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID", "{}_{}"), "SLURM_JOB_END_TIME"),
    Scheduler("PBS", "PBS_JOBID", ("qstat", "-f"), _of_pbs),
    Scheduler("LSF", "LSB_JOBID", ("bjobs", "-noheader", "-o", "time_left"), _of_lsf, ("", "LSB_JOBINDEX", "{}[{}]")),
    Scheduler("Flux", "FLUX_JOB_ID", ("flux", "job", "timeleft"), float),
)  # fmt: skip


class Limit:
    """Until when this process may run. `end`: seconds since the epoch, or infinite. `told`: the end of the job, as the
    scheduler told it at its start."""

    asked = -math.inf  # when; seconds since the epoch
    failed = False

    def __init__(
        self, source: str, end: float, scheduler: Scheduler | None = None, job: str = "", told: str = ""
    ) -> None:
        self.source, self.end, self.scheduler, self.job, self.told = source, end, scheduler, job, told

    def ask(self, *, again: bool) -> None:
        """Bring the end up to date. What hinders it is said, once, and the end stays as it was."""
        scheduler = self.scheduler
        if scheduler is None:
            return
        self.asked = time.time()
        if not again and self.told.isdecimal():
            self.end = float(self.told)
            return
        import subprocess  # here: only a job that must ask its scheduler needs it

        command = (*scheduler.command, self.job)
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=PATIENCE, check=True, stdin=subprocess.DEVNULL
            )
            self.end, self.failed = time.time() + scheduler.left(done.stdout.strip()), False
        except Exception as error:  # whatever it answered is no reason to stop a computation
            why = error.stderr.strip() if isinstance(error, subprocess.CalledProcessError) else str(error)
            known = "the limit it told before is kept" if math.isfinite(self.end) else (
                "until it does its time limit does not count; or give stop_at or stop_after"
            )  # fmt: skip
            logger.log(logging.DEBUG if self.failed else logging.WARNING,
                       "%s did not tell how much time is left (%s: %s): %s",
                       scheduler.name, " ".join(command), why or type(error).__name__, known)  # fmt: skip
            self.failed = True


def limits(
    stop_at: str | float | None, stop_after: str | float | None, began: float, environment: Mapping[str, str]
) -> list[Limit]:
    """All that are known. `began`: seconds since the epoch. Raises `UsageError` for a time that is none."""
    found = []
    given = {
        "stop_at": stop_at, "stop_after": stop_after, "SAFEPOINT_STOP_AT": environment.get("SAFEPOINT_STOP_AT") or None,
        "SAFEPOINT_STOP_AFTER": environment.get("SAFEPOINT_STOP_AFTER") or None,
    }  # fmt: skip
    for name, value in given.items():
        if value is None:
            continue
        at = name.lower().endswith("at")
        try:
            number = float(value) if not isinstance(value, str) else (moment(value, began) if at else duration(value))
        except (ValueError, TypeError) as error:
            raise UsageError(f"{name}={value}: {error}") from error
        if not math.isfinite(number):
            raise UsageError(f"{name}={value}: not a time")
        found.append(Limit(name, number if at else began + number))
    for scheduler in SCHEDULERS:
        if environment.get(scheduler.job):
            job = _job(environment, scheduler.job, *scheduler.array)
            found.append(Limit(scheduler.name, math.inf, scheduler, job, environment.get(scheduler.end, "")))
            break
    return found


class Signals:
    """Handlers that note that a signal came, and then call the program's own. From `__init__` to `remove`."""

    def __init__(self, numbers: Sequence[int]) -> None:
        self.came = 0  # the first
        self._seen: set[int] = set()
        self._over, self._pid = False, os.getpid()
        self._before: dict[int, Any] = {number: signal.getsignal(number) for number in numbers}
        try:
            for number in numbers:
                signal.signal(number, self._note)
        except BaseException:  # by a handler
            self.remove()
            raise

    def _note(self, number: int, frame: FrameType | None) -> None:
        before = self._before[number]
        if self._over or os.getpid() != self._pid:  # of a session that has ended, or in a forked child
            if signal.getsignal(number) == self._note:  # whoever held the handlers meanwhile has put this one back
                signal.signal(number, before)
                signal.raise_signal(number)
            elif callable(before):  # a later handler has called this one
                before(number, frame)
            return
        again = number in self._seen
        self._seen.add(number)
        self.came = self.came or number
        # Python's own handler of Ctrl-C would end the program at once: only the second one does.
        if callable(before) and (before is not signal.default_int_handler or again):
            before(number, frame)

    def remove(self) -> None:
        self._over = True
        if threading.current_thread() is threading.main_thread():
            for number, before in self._before.items():
                if signal.getsignal(number) == self._note:
                    signal.signal(number, before)


def numbers(names: Sequence[str | int]) -> tuple[int, ...]:
    """Of signals by name or number. Raises `UsageError` for what cannot be caught, or not from here."""
    try:
        found = tuple(dict.fromkeys(_number(name) for name in ((names,) if isinstance(names, str) else names)))
    except TypeError as error:
        raise UsageError(f"signals takes names or numbers, such as ('USR1', 'TERM'), not {names!r}") from error
    if found and threading.current_thread() is not threading.main_thread():
        raise UsageError("signals can only be caught by the main thread: call init there")
    for number in found:
        if signal.getsignal(number) is None:
            raise UsageError(f"{name_of(number)} is caught by code that is not Python's: its handler would be lost")
    return found


def _number(name: str | int) -> int:
    if isinstance(name, str):
        found = getattr(signal, f"SIG{name.upper().removeprefix('SIG')}", None)
        if not isinstance(found, signal.Signals):
            raise UsageError(f"unknown signal {name}: give a name, such as SIGUSR1 or TERM")
        name = found
    number = operator.index(name)
    uncaught = {getattr(signal, each, None) for each in ("SIGKILL", "SIGSTOP")}
    if number not in signal.valid_signals() or number in uncaught:
        raise UsageError(f"{name_of(number)} cannot be caught")
    return number


def name_of(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def halt(disk: Disk, root: Root, runs: list[dict[str, Any]], *, until: float | None, steps: int | None) -> None:
    """Ask the runs with these owners to stop; at once, at `until`, seconds since the epoch, or after `steps`."""
    content = {"time": time.time(), "runs": [_who(run) for run in runs], "until": until, "steps": steps}
    write_durably(disk, root.halt, json.dumps(content).encode() + b"\n")


class Asked(NamedTuple):
    """What halt.json holds."""

    time: float
    runs: tuple[Any, ...]
    until: float | None
    steps: int | None


def halted(disk: Disk, root: Root) -> dict[str, Any] | None:
    """What was asked; None: nothing, or nothing that can be read."""
    return read_note(disk, root.halt, Asked)


def _who(owner: Mapping[str, Any]) -> list[Any]:
    return [owner["host"], owner["pid"], owner["since"]]


class Stop:
    """Whether to stop, as one rank sees it. Nothing here fails: what goes wrong is said, and does not count."""

    def __init__(
        self, disk: Disk, root: Root, owner: Mapping[str, Any] | None, bounds: list[Limit], caught: Signals
    ) -> None:
        """`owner`: as whom somebody may ask this process to stop; None: another one is asked for it."""
        self._disk, self._root, self._limits, self._signals = disk, root, bounds, caught
        self._me = _who(owner) if owner else None
        self._next = -math.inf  # when to look again
        self._steps: int | None = None  # that are left
        self._halt = 0.0  # when that was asked for
        self._began = time.time()
        self._said = False
        self.why, self.status = "", 0
        self.halted = False

    def look(self, steps: int, needed: float, *, exact: bool = False) -> str:
        """Why to stop, or nothing. `steps`: since the last look. `needed`: seconds to end a step and to save. `exact`:
        without a margin."""
        if self._steps is not None:
            self._steps -= steps
        now = time.time()
        if now >= self._next or any(self._left(limit, needed, exact) < 0 for limit in self._limits):
            self._next = now + LOOK
            try:
                self._look_at_halt(now)
            except Exception as error:
                if not self._said:
                    logger.warning("cannot look for %s: %s", self._root.shown(self._root.halt), error)
                self._said = True
            for limit in self._limits:
                self._look_at(limit, needed, exact)
        if self._steps is not None and self._steps <= 0 and not self.why:
            self._set("safepoint halt", HALTED, halted=True)
        if self._signals.came and not self.why:
            self._set(f"{name_of(self._signals.came)} came", REQUEUE)
        return self.why

    @property
    def steps(self) -> int | None:
        """How many are left, if somebody asked for a number of them."""
        return self._steps

    @property
    def signal(self) -> int:
        return self._signals.came

    def agreed(self, why: str, status: int) -> None:
        """What one rank has found is told to this one."""
        self.why, self.status = why, status

    def _set(self, why: str, status: int, *, halted: bool = False) -> None:
        self.why, self.status, self.halted = why, status, halted

    def _look_at_halt(self, now: float) -> None:
        if self._me is None:
            return
        asked = halted(self._disk, self._root) if self._disk.exists(self._root.halt) else None
        if not asked or self._me not in asked["runs"]:
            self._steps = None
            return
        if asked["time"] != self._halt:  # another request takes the place of the one before
            self._halt, self._steps = asked["time"], asked["steps"]
        if asked["steps"] is None and (asked["until"] is None or now >= asked["until"]):
            self._set("safepoint halt", HALTED, halted=True)

    def _margin(self, limit: Limit, needed: float, exact: bool) -> float:
        if exact:
            return 0.0
        return max(SHARE * needed, min(LEAST, OF_ALL * max(0.0, limit.end - self._began)))

    def _left(self, limit: Limit, needed: float, exact: bool) -> float:
        """Seconds until it is time."""
        return limit.end - time.time() - needed - self._margin(limit, needed, exact)

    def _look_at(self, limit: Limit, needed: float, exact: bool) -> None:
        since = time.time() - limit.asked
        # Before it is time once more, early enough for the answer; and later again as long as there was none.
        near = math.isfinite(limit.end) and self._left(limit, needed, exact) < PATIENCE and since > AGAIN / 10
        if not math.isfinite(since):
            limit.ask(again=False)
        elif near or (limit.failed and since > AGAIN):
            limit.ask(again=True)
        if self._left(limit, needed, exact) < 0 and not self.why:
            left, margin = max(0.0, limit.end - time.time()), self._margin(limit, needed, exact)
            what = f"{shown(needed)} needed" + f", {shown(margin)} of margin" * (not exact)
            self._set(f"time limit ({limit.source}): {shown(left)} left, {what}", REQUEUE)

    def end(self, *, shared: bool) -> None:
        """The session is over: what was asked of this run is done with. `shared`: other ranks have yet to look."""
        try:
            if self.halted and not shared and self._disk.exists(self._root.halt):
                self._disk.remove(self._root.halt)
        except OSError as error:  # it is for this run only
            logger.warning("%s not removed: %s", self._root.shown(self._root.halt), error)
