"""Signals of the program wait while something is done that they would tear.

Python runs signal handlers in the main thread, between any two instructions of ours. What one raises there, such as the
KeyboardInterrupt of Ctrl-C, could leave a lock taken, helper threads at work, or a failed fsync unseen.
"""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType

# Those whose handlers may raise: Ctrl-C, time limits, schedulers.
NAMES = ("SIGINT", "SIGTERM", "SIGALRM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGXCPU")
HELD = [getattr(signal, name) for name in NAMES if hasattr(signal, name)]

_ending = False


def ending() -> bool:
    """Whether Ctrl-C was pressed, and waits for what the main thread does: it had better come to an end."""
    return _ending


class Undisturbed:
    """A block in which no handler runs; they do at its end, and what they raise is in `raised`, for the caller to
    raise. In other threads than the main one, where no handler ever runs, it does nothing."""

    def __init__(self) -> None:
        self.ending = False  # Ctrl-C was pressed, and will raise KeyboardInterrupt
        self.raised: list[BaseException] = []
        self._arrived: list[int] = []
        self._handlers = {}
        if threading.current_thread() is threading.main_thread():
            self._handlers = {number: handler for number in HELD if callable(handler := signal.getsignal(number))}

    def __enter__(self) -> Undisturbed:
        try:
            for number in self._handlers:
                signal.signal(number, self._note)
        except BaseException:
            self._restore()
            raise
        return self

    def _note(self, number: int, frame: FrameType | None) -> None:
        global _ending
        self._arrived.append(number)
        if self._handlers[number] is signal.default_int_handler:
            _ending = self.ending = True

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        global _ending
        while self._arrived:
            number = self._arrived.pop(0)
            try:
                self._handlers[number](number, None)
            except BaseException as raised:
                self.raised.append(raised)
        _ending = False if self.ending else _ending
        self._restore()

    def _restore(self) -> None:
        rest = list(self._handlers.items())[::-1]
        while rest:
            try:
                while rest:
                    signal.signal(*rest[0])
                    del rest[0]
            except BaseException as raised:  # by the handler of one that came just now
                self.raised.append(raised)
