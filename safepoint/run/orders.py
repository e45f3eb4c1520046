"""What the command is told: the signals that came to us, and those that its end asks for."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from types import FrameType

from safepoint.run.ending import Ending
from safepoint.run.processes import Family

FORWARDED = ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2")


class Orders:
    """Over all lives of a command. `told`: this life had SIGUSR1 or SIGUSR2, which may mean that it should stop."""

    def __init__(self, ending: Ending) -> None:
        self.ending = ending
        self.asked_to_stop = self.told = False
        self._came: list[int] = []

    @property
    def stopped(self) -> bool:
        """Whether the command may have stopped anywhere, as it was asked to."""
        return self.asked_to_stop or self.told

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """Note the signals that come to us."""

        def note(number: int, _: FrameType | None) -> None:
            self._came.append(number)

        # What is ignored stays so, in the command too: nohup, and jobs in the background of a script.
        numbers = [getattr(signal, name) for name in FORWARDED if hasattr(signal, name)]
        numbers = [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]
        before = {number: signal.signal(number, note) for number in numbers}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def sleep(self, seconds: float) -> bool:
        """Whether a signal came; then the command is not started again, and what came counts as told."""
        end = time.monotonic() + seconds
        while not self._came and time.monotonic() < end:
            time.sleep(0.05)
        for number in self._came:
            self.ending.told(number)
        return bool(self._came)

    def forward(self, child: subprocess.Popen[bytes], family: Family | None, step: int) -> None:
        """What came, and what the end asks for."""
        while self._came:
            number = self._came.pop(0)
            if self.ending.told(number):
                continue
            if number in (getattr(signal, "SIGUSR1", None), getattr(signal, "SIGUSR2", None)):
                self.told = True
            else:
                self.asked_to_stop = True
            _send(number, child, family)
        if number := self.ending.now(step):
            self.asked_to_stop = True
            _send(number, child, family)


def _send(number: int, child: subprocess.Popen[bytes], family: Family | None) -> None:
    """To the command's first process and those in its group, as a shell does not pass it on; when it has ended, to each
    that it has left behind, as nobody else would."""
    left = [process.pid for process in family.alive()] if family and child.returncode is not None else []
    for tell, whom in ((os.kill, pid) for pid in left) if left else [(os.killpg, child.pid)]:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            tell(whom, number)
