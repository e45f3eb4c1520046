"""The processes of a command: who belongs to it, how they ended, and how to hold them still. Linux only.

Who belongs to it: what it started, directly or not, and what is in its session; not its process group, as mpiexec,
timeout and shells make groups of their own. What outlives its parent becomes our child, and still belongs to it.

(1) A killed writer closes its file too. So every death counts: `exits` tells each, with its status. Where the kernel
    does not tell, what is gone, a zombie, and a parent that has reaped one are found, and taken for the worst.
(2) To look at files while somebody writes them tells nothing: all are stopped first, until no new one is found.
(3) Who belongs to it is asked of the kernel where it can tell: `exits` tells each fork, before the child runs, and
    /proc/PID/task/TID/children has the children of each thread. Beside 2000 other processes that takes a thousandth of
    the time of reading every one. Without the connector such a reading is the last word before a look: that list may
    leave out one whose brother ends just then, and what a daemon has started is in no list.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import time
from collections.abc import Iterable, Iterator

from safepoint.run.exits import EXEC, EXIT, FORK, WORD_OF_EXIT_S, Exits, ending_of
from safepoint.run.proc import (
    RUN_VARIABLE,
    Process,
    command_of,
    every_process,
    has_in_environment,
    is_alive,
    moves,
    process_of,
)

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36  # linux/prctl.h
STOP_ALL_S = 2.0  # until all stand still; one that waits for a disk may take long
STOP_ATTEMPT_S = 0.03  # after which all go on for a moment: a parent in vfork waits for its child, which stands still
YOUNG_S = 5.0  # an older process does not get another environment


class Family:
    """All processes of one command. `begin` it with its first one, right after that was started."""

    def __init__(self, work: str = "") -> None:
        """`work`: what has it as `RUN_VARIABLE` in its environment belongs to it too, such as what a daemon started."""
        adopt_orphans()
        self._kin = os.path.exists(f"/proc/self/task/{os.getpid()}/children")
        self._told = Exits.open()
        self._unsure = False  # of who belongs to it: the kernel could not tell of all
        self._variable = f"{RUN_VARIABLE}={work}" if work else ""
        there = self._children(os.getpid())
        self._earlier = {(child.pid, child.started) for child in there if not self._has(child.pid)}
        self._strangers = set[tuple[int, int]]()  # pid and start of those that have not
        self._first, self._members = 0, set[int]()
        self._ended = set[int]()  # of which the kernel has told; they may be zombies for a while
        self._killed = set[int]()  # of these each thread is told as killed
        self._seen: dict[int, Process] = {}
        self._stopped: list[int] = []
        self._names: dict[int, str] = {}
        self._troubles: list[tuple[int, str]] = []  # status, and what happened

    @property
    def told(self) -> bool:
        """Whether the kernel tells how processes end."""
        return self._told is not None

    def begin(self, pid: int) -> None:
        self._first, self._members = pid, {pid}
        self.update()
        self._seen = {process.pid: process for process in self.living()}

    def fileno(self) -> int | None:
        """What becomes readable when a process has begun or ended."""
        return self._told.fileno() if self._told else None

    def close(self) -> None:
        if self._told:
            self._told.close()
            self._told = None

    def update(self) -> None:
        """Take up what the kernel has told."""
        for what, pid, thread_group, rest in self._told.read() if self._told else ():
            if what == FORK and rest[0] == rest[1]:
                self._ended.discard(rest[0])  # the number is used again, by whomever
                self._killed.discard(rest[0])
                if thread_group in self._members:
                    self._members.add(rest[0])
                    self._names[rest[0]] = self._names.get(thread_group, "")
            elif what == EXEC and self._was_here(thread_group):
                self._members.add(thread_group)  # another thread has taken the place of the first one, which has ended
                self._ended.discard(thread_group)
                self._names[thread_group] = command_of(thread_group) or self._names.get(thread_group, "")
            elif what == EXEC and self._has(thread_group):
                self._members.add(thread_group)  # of no parent here: a daemon has started it for the command
            elif what == EXIT and self._was_here(thread_group):  # its first thread may have been told before
                self._note_exit(thread_group, pid, rest[0])
        if self._told and self._told.lost:
            self._told.lost, self._unsure = False, True
            self._troubles.append((-1, "so many processes end that the kernel could not tell of all"))

    def _was_here(self, process: int) -> bool:
        return process in self._members or process in self._ended

    def _note_exit(self, process: int, thread: int, code: int) -> None:
        """A process has ended with its last thread, whichever that is; all threads of a killed one are killed."""
        if code and (thread == process or code & 0x7F) and process not in self._killed:
            self._troubles.append((code, f"{self._name(process)} {ending_of(code)}"))
            self._killed.add(process)
        if not is_alive(process):
            self._members.discard(process)
            self._ended.add(process)

    def living(self) -> list[Process]:
        """Those that are there now, zombies too."""
        self.update()
        if self._kin and self._told and not self._unsure:
            return self._near()
        self._unsure = False
        every = {process.pid: process for process in every_process()}
        mine, me = {self._first, *self._members}, os.getpid()
        found = True
        while found:
            found = False
            for process in every.values():
                if process.pid in mine or process.pid == me:
                    continue
                belongs = process.parent in {me, *mine} or process.session == self._first
                if (belongs and not self._is_other(process)) or self._is_marked(process):
                    mine.add(process.pid)
                    found = True
        return self._meet({pid: every[pid] for pid in mine & every.keys()})

    def _near(self) -> list[Process]:
        """Those that descend from us or from one that is known; rule (3)."""
        found: dict[int, Process] = {}
        waiting = [process for pid in (self._first, *self._members) if (process := process_of(pid))]
        waiting += self._children(os.getpid())
        while waiting:
            process = waiting.pop()
            if process.pid not in found and not self._is_other(process):
                found[process.pid] = process
                waiting += self._children(process.pid)
        return self._meet(found)

    def _children(self, pid: int) -> list[Process]:
        """By the list of each of its threads; without such lists by a look at every process."""
        if not self._kin:
            return [process for process in every_process() if process.parent == pid]
        found: list[Process | None] = []
        with contextlib.suppress(OSError):
            for name in os.listdir(f"/proc/{pid}/task"):
                with contextlib.suppress(OSError), open(f"/proc/{pid}/task/{name}/children") as file:
                    found += [process_of(int(word)) for word in file.read().split()]
        return [process for process in found if process]

    def _is_other(self, process: Process) -> bool:
        """Our child, and nothing of this command. One of a life before may be a zombie still, and no word of its end
        will come; the command has a session of its own, unlike what `--check` and `--until` have left behind."""
        earlier = (process.pid, process.started) in self._earlier
        return process.parent == os.getpid() and (earlier or process.session == os.getsid(0))

    def _has(self, pid: int) -> bool:
        return bool(self._variable) and has_in_environment(pid, self._variable)

    def _meet(self, found: dict[int, Process]) -> list[Process]:
        """Remember who belongs to it, and what they are called now: an end is told when the name is gone."""
        for pid in found:
            if pid not in self._names or not self._told:
                self._names[pid] = command_of(pid)
        self._members = (self._members | found.keys()) - self._ended if self._told else set(found)
        return [found[pid] for pid in sorted(found)]

    def alive(self) -> list[Process]:
        """Those that may still do something; the first thread of one may have ended before the others."""
        return [process for process in self.living() if is_alive(process.pid)]

    def _is_marked(self, process: Process) -> bool:
        if not self._variable or (process.pid, process.started) in self._strangers:
            return False
        if self._has(process.pid):
            return True
        age = time.clock_gettime(time.CLOCK_BOOTTIME) - process.started / os.sysconf("SC_CLK_TCK")
        if age > YOUNG_S:
            self._strangers.add((process.pid, process.started))
        return False

    def stop(self) -> str:
        """Hold all of them still, rule (2). Empty, or what prevented it; then they go on."""
        end, window = time.monotonic() + STOP_ALL_S, STOP_ATTEMPT_S
        while True:
            hindrance = self._try_to_stop(window)
            if not hindrance:
                return ""
            self.go()
            rest = end - time.monotonic()
            if rest <= 0 or hindrance.endswith("by this user"):
                return hindrance
            time.sleep(STOP_ATTEMPT_S / 5)
            window = min(2 * window, max(rest, STOP_ATTEMPT_S))

    def _try_to_stop(self, window: float) -> str:
        """Empty, or what prevented it. `window`: seconds from the last stop on, as to find all may take longer; on a
        busy machine who is stopped must come to his turn first, so each try has more of them."""
        held: set[int] = set()
        still = 0
        begin = last = time.monotonic()
        while still < 2:  # twice, as one that was about to fork stands still before its child is looked at
            self.update()
            moving = []
            for process in self._near() if self._kin and not still else self.living():
                if not moves(process):
                    continue
                moving.append(process)
                if process.pid not in held:
                    try:
                        os.kill(process.pid, signal.SIGSTOP)
                    except ProcessLookupError:
                        continue
                    except PermissionError:
                        return f"{self._name(process.pid)} cannot be stopped by this user"
                    held.add(process.pid)
                    self._stopped.append(process.pid)
                    last = time.monotonic()
            still = 0 if moving else still + 1
            if moving:
                if time.monotonic() > min(last + window, begin + STOP_ALL_S):
                    return f"did not stop within {STOP_ALL_S:.0f} s: {self.names(moving)}"
                time.sleep(0.0002)
        return ""

    def go(self) -> None:
        """Let those go on that we have stopped; children first, since a shell looks whether its child is stopped."""
        for pid in reversed(self._stopped):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGCONT)
        self._stopped = []

    def troubles(self, tolerate: str = "", *, ended_well: bool = False) -> list[str]:
        """Why, by rule (1), what lies there may be torn: what has happened since the last call; empty: nothing has.

        `tolerate`: "status": processes that ended by themselves are no trouble, whatever their status; "all": nor are
        killed ones. `ended_well`: the command's first process, whose status was 0, is none.
        """
        self._wait_for_word()
        told, self._troubles = self._troubles, []
        if not self.told:
            now = {process.pid: process for process in (self._near() if self._kin else self.living())}
            if ended_well:
                self._seen.pop(self._first, None)
            told += [(signal.SIGKILL, text) for text in self._unexplained(now)]
            self._seen = now
        return [text for code, text in told if not (tolerate == "all" or (tolerate and code > 0 and not code & 0x7F))]

    def _wait_for_word(self) -> None:
        """A process is a zombie, or gone, some microseconds before the kernel tells how it ended."""
        deadline = time.monotonic() + WORD_OF_EXIT_S
        while self._told:
            self.update()
            silent = {pid for pid in self._members if not is_alive(pid)}
            if not silent:
                return
            if time.monotonic() > deadline:
                self._troubles += [(-1, f"{self._name(pid)} has ended, and nothing tells how") for pid in silent]
                self._members -= silent
                return
            select.select([self._told], [], [], 0.001)

    def _unexplained(self, now: dict[int, Process]) -> Iterator[str]:
        for pid, process in self._seen.items():
            after = now.get(pid)
            if after is None or after.state in "ZX" or after.started != process.started:
                yield f"{self._name(pid)} has ended, and this system does not tell how"
            elif after.reaped > process.reaped:
                yield f"a process that {self._name(pid)} had started has ended, and this system does not tell how"

    def names(self, processes: Iterable[Process]) -> str:
        return ", ".join(self._name(process.pid) for process in processes)

    def _name(self, pid: int) -> str:
        name = command_of(pid) or self._names.get(pid)
        return f"process {pid} ({name})" if name else f"process {pid}"


def adopt_orphans() -> None:
    """From now on what loses its parent below us becomes our child, so that it is not lost sight of."""
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def die_with(parent: int) -> None:
    """Called in a new child: it is killed when `parent` dies, so that it never goes on unprotected in secret."""
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it was quicker
        os._exit(128 + signal.SIGKILL)
