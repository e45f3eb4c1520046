"""Runs a program, and follows its ranks until it has ended, or stands still.

What is found is told at once, one line a place; all of it in full at the end (`outcome`).
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path

from safepoint.check import watch
from safepoint.check.ends import Ends, Event
from safepoint.check.follow import ENDED, HUNG, Follower, never_heard, seldom_collected
from safepoint.check.outcome import Outcome, second
from safepoint.check.report import place_of
from safepoint.check.rollcall import DIED, named
from safepoint.check.server import Server
from safepoint.check.situations import Situation
from safepoint.check.tail import TIME_MAX
from safepoint.check.template import Template
from safepoint.trace import record

PAUSE_S, BEHIND_S = 0.05, 1.0  # how long nothing is looked at, and how long only notes are read
NEVER_S = 1e9
FILES_MAX = 1 << 17  # open at once, if the system allows it
Tell = Callable[[str], None]


def prepare(directory: Path, templates: Sequence[Template], hang_s: float, sync_sends: bool = False) -> None:
    """Say which calls are to be noted, and whether sends are made synchronous. Raises OSError."""
    text = json.dumps(watch.text(watch.watched(templates, hang_s > 0), sync_sends))
    (directory / record.WATCH).write_text(text, "utf-8")


class Run:
    """One program. `tell` is given a line when something happens."""

    def __init__(
        self, directory: Path, templates: Sequence[Template], hang_s: float, keep: bool, tell: Tell,
        server: Server | None = None,
    ) -> None:  # fmt: skip
        """`server`: of a run over several nodes; whoever has made it closes it."""
        self._directory, self._keep, self._tell, self._server = directory, keep, tell, server
        self.follower = Follower(templates)
        self.ends = Ends(directory, hang_s or NEVER_S, server)
        self.outcome = Outcome(templates, self.follower)
        self._deaths: list[Event] = []
        self._shown = set[tuple[str, tuple[str, ...]]]()
        self._expected = {one.id for one in templates if one.expect != "none"}

    def run(self, command: Sequence[str], environment: Mapping[str, str]) -> Outcome:
        """Raises OSError: it cannot be started; `TraceError`."""
        with _many_files() as begin:
            code = self._ran(command, environment, begin)
            self._drain()
            for event in (*self.ends.losses(), *self.ends.finish(code)):
                if event.kind == DIED and not self.outcome.ended_by_us:
                    self._deaths.append(event)
            self.outcome.deaths = [event.text for event in sorted(self._deaths, key=self._died_at)]
            self.outcome.remarks += self._strangers()
            hang = self.outcome.hang
            if hang is not None:
                (self._directory / HUNG).write_text(hang.text + "\n", "utf-8")
            self._found(self.follower.finish(hang is not None, self._lost()))
        self.outcome.code_of_program = 128 - code if code < 0 else code
        ended = {"code": self.outcome.code_of_program, "deaths": self.outcome.deaths, "by_us": self.outcome.ended_by_us}
        (self._directory / ENDED).write_text(json.dumps(ended), "utf-8")
        self.ends.close()
        return self.outcome

    def _ran(self, command: Sequence[str], environment: Mapping[str, str], begin: Callable[[], None] | None) -> int:
        """The code of the launcher, when it has ended and all has come that other nodes have noted."""
        with _left_alone():
            with subprocess.Popen(command, env=environment, preexec_fn=begin) as process:
                _pass_on(process)
                try:
                    with seldom_collected():
                        code = self._follow(process)
                except BaseException:
                    self.ends.end(process)
                    raise
            if self._server is not None:
                _hurries(self._server)
                self._server.settle(code)
                self.outcome.remarks += self._server.remarks
            return code

    def _follow(self, process: subprocess.Popen[bytes]) -> int:
        """The code of the launcher, when it has ended."""
        while process.poll() is None:
            behind = self._drain(BEHIND_S)
            if not behind:  # else they may have returned since
                self._found(self.follower.stuck(time.monotonic_ns()))
            for event in self.ends.look():
                if event.kind == "goes on":
                    self.outcome.hang = None
                if event.hang is not None:
                    self.outcome.hang = event.hang
                    if not self._keep:
                        self.outcome.ended_by_us = True
                        if self._server is not None:
                            self._server.forget()
                        return self.ends.end(process)
                if event.kind == DIED:
                    self._deaths.append(event)
                if event.kind not in ("ended",):
                    self._tell(event.text)
            self.ends.wait(0 if behind else PAUSE_S)
        return process.wait()

    def _strangers(self) -> list[str]:
        return [
            f"{named(some)} ran on {host}: where their processes were, and what ended them, was not to be seen from "
            "here. With --port 0 they are followed there"
            for host, some in self.ends.strangers().items()
        ]

    def _died_at(self, event: Event) -> int:
        """What happens on another node is heard later. Those of which it is not known come last, as they were heard."""
        return self.ends.followed[event.ranks[0]].process.ended_at or TIME_MAX

    def _lost(self) -> frozenset[int]:
        """Ranks that were not followed to their ends. Why is said with the outcome."""
        lost = {rank: why for rank, one in self.ends.followed.items() if (why := one.lost or one.tail.stopped)}
        lost |= self.ends.never
        of_nodes = self._server.lost() if self._server is not None else []
        self.outcome.incomplete += [*dict.fromkeys(lost.values())]
        self.outcome.unchecked += [why for why in of_nodes if why not in self.outcome.incomplete]
        self.outcome.unchecked += second(self._directory)
        if unheard := self.follower.unheard():
            where = f" ({self._server.where.text_of_addresses()})" if self._server is not None else ""
            self.outcome.incomplete.append(f"{never_heard(unheard)}{where}")
        return frozenset(lost) | frozenset(unheard)

    def _drain(self, seconds: float = NEVER_S) -> bool:
        """Read what has come, for so long; whether there is more."""
        end = time.monotonic() + seconds
        while notes := self.ends.poll():
            for rank, some in groupby(notes, key=lambda one: one[0]):
                self._found(self.follower.feed(self.ends.followed[rank].tail, [note for _, note in some]))
            if time.monotonic() > end:
                return True
        return False

    def _found(self, situations: Sequence[Situation]) -> None:
        for one in situations:
            self.outcome.situations.append(one)
            lines = tuple(
                place_of(self.follower.site(cell.call), self.follower.cwd)
                for cell in one.cells
                if cell.call is not None
            )
            if (key := (one.template, lines)) not in self._shown:
                self._shown.add(key)
                who = " ".join(map(str, one.ranks))
                what = "expected: " if one.template in self._expected else ""
                self._tell(f"{what}[{one.template}] {', '.join(lines)} (rank{'s' * (len(one.ranks) > 1)} {who})")


@contextmanager
def _left_alone() -> Iterator[None]:
    """Ctrl-C is for the program, which has it from the terminal. What is given is for the program to do first."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN), signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before[0])
        signal.signal(signal.SIGTERM, before[1])


@contextmanager
def _many_files() -> Iterator[Callable[[], None] | None]:
    """Of each rank four files are read: so many may be open as the system allows. What is given is for the program to
    do first: it has the signals and the limit that it would have without us."""
    if os.name != "posix":
        yield None
        return
    import resource

    before = soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)

    def begin() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    if soft != resource.RLIM_INFINITY:
        most = FILES_MAX if hard == resource.RLIM_INFINITY else min(hard, FILES_MAX)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, most), hard))
    try:
        yield begin
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def _pass_on(process: subprocess.Popen[bytes]) -> None:
    signal.signal(signal.SIGTERM, lambda number, frame: process.send_signal(number))


def _hurries(server: Server) -> None:
    """Whoever asks for the end now does not mean the launcher, which has ended, but what is left of the program."""

    def hurry(number: int, frame: object) -> None:
        server.hurried = True

    signal.signal(signal.SIGINT, hurry)
    signal.signal(signal.SIGTERM, hurry)
