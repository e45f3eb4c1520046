"""What a drain that a run has started beside itself hears from it, and tells it: the other end of `tiers.beside`."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections import deque
from typing import NamedTuple

NICE = 10
LONGEST_WORD = 2000  # characters of a line: it is written as a whole, or not at all
MOVES_EVERY = 5.0  # seconds
# Seconds: without progress until the first report of a wait to the run; between later reports; between two polls. The
# run warns of a wait within a minute, and takes a process that is silent for a minute for a stopped one.
FIRST_WORD, NEXT_WORD, LOOK = 40.0, 30.0, 2.0


class Request(NamedTuple):
    """The run asks for this set, its newest one, and for an answer under this token. `back`: it went back to that one,
    and what is newer there is to go."""

    token: str
    identity: str
    since: float  # time.monotonic
    back: bool = False


class Orders:
    """The two pipes, and the signals that a job as a whole gets."""

    def __init__(self) -> None:
        self.over = self.told_to_end = False
        self._asked: deque[Request] = deque()
        self._came, self._moved = threading.Event(), 0.0
        self._waits: dict[str, tuple[str, float]] = {}  # by work, who is waited for, and since when
        self._reply = os.dup(1)
        os.set_blocking(self._reply, False)  # the run may not read for long; it is told the next time
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, 1)
        os.close(nothing)
        with contextlib.suppress(OSError):  # the solver goes first
            os.nice(NICE)
        for number in (signal.SIGINT, signal.SIGHUP):  # they are meant for the program
            signal.signal(number, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, self._end)
        for work in (self._read, self._watch):
            threading.Thread(target=work, name="safepoint-orders", daemon=True).start()

    def _end(self, number: int, frame: object) -> None:
        """A job is told so as a whole; the program may save once more. But nothing is tried again after its end."""
        self.told_to_end = True
        self._came.set()

    def _read(self) -> None:
        rest = b""
        try:
            # Not by `sys.stdin`: a thread that waits in there lets no interpreter end.
            while not self.over and (data := os.read(0, 4096)):
                *lines, rest = (rest + data).split(b"\n")
                for line in lines:
                    self._hear(*line.decode().split())
                self._came.set()
        finally:  # whatever happened, nobody says anything any more
            self.over = True
            self._came.set()

    def _hear(self, word: str, *more: str) -> None:
        if word in ("put", "back"):
            self._asked.append(Request(more[0], more[1], time.monotonic(), word == "back"))
        elif word == "end":  # the pipe itself may be open in a child that the program has forked
            self.over = True

    def pause(self, seconds: float) -> bool:
        """So long, or until there is something new: whether there is."""
        came = self._came.wait(seconds)
        self._came.clear()
        return came

    def taken(self) -> Request | None:
        """The last request; those before it are answered with it."""
        request: Request | None = None
        while self._asked:
            later = self._asked.popleft()
            if request and request.identity == later.identity:
                later = later._replace(since=request.since, back=request.back or later.back)
            request = later
        return request

    def waiting(self) -> str | None:
        """Which set the newest request is about that was not yet taken."""
        return self._asked[-1].identity if self._asked else None

    def again(self, request: Request) -> None:
        """It is still to be answered."""
        self._asked.appendleft(request)

    def say(self, word: str, *more: str) -> None:
        line = " ".join([word, *more]).split()
        with contextlib.suppress(OSError):  # the run has ended, or does not listen
            os.write(self._reply, f"{' '.join(line)[:LONGEST_WORD]}\n".encode(errors="replace"))

    def answer(self, request: Request, why: str) -> None:
        """Empty: the set is there."""
        self.say("answer", request.token, f"no {why}" if why else "yes")

    def moves(self, which: str = "") -> None:
        """It lives, and waits for its turn by the rate, or for others: who waits for an answer may go on waiting.
        `which`: and bytes of this work have gone."""
        if (waits := self._waits.get(which)) is not None:
            self._waits[which] = waits[0], time.monotonic()
        if time.monotonic() > self._moved + MOVES_EVERY:
            self._moved = time.monotonic()
            self.say("moves")

    def awaits(self, which: str, whom: str) -> None:
        """This work, "place" or "copy", waits for these, from now on or still; empty: it has come to its end."""
        if whom:
            self._waits[which] = whom, self._waits.get(which, ("", time.monotonic()))[1]
        else:
            self._waits.pop(which, None)

    def _watch(self) -> None:
        said: dict[str, float] = {}
        while True:
            time.sleep(LOOK)
            now = time.monotonic()
            for which, (whom, since) in [*self._waits.items()]:
                if now >= max(since + FIRST_WORD, said.get(which, 0.0) + NEXT_WORD):
                    said[which] = now
                    self.say("waits", which, f"waiting for {whom}: no progress for {now - since:.0f} s")
