"""Signals that ask the program to stop: named, checked, and noted by handlers that call the program's own.

A handler is taken off again at the end of a session. In a forked child, or after that end, it steps aside.
"""

from __future__ import annotations

import operator
import os
import signal
import threading
from collections.abc import Sequence
from types import FrameType
from typing import Any

from safepoint.errors import UsageError


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


def signal_numbers(names: Sequence[str | int]) -> tuple[int, ...]:
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
