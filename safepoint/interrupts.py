"""Signals of the program wait while something is done that they would tear.

Python runs signal handlers in the main thread, between any two instructions of ours. What one raises there, such as the
KeyboardInterrupt of Ctrl-C, could leave a lock taken, helper threads at work, or a failed fsync unseen. So in a block
the handlers are replaced by one that notes what comes; they run at its end, or where the block says that they may.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

logger = logging.getLogger("safepoint")
# Not those that cannot be caught, nor those by which the processor says what is wrong with the very next instruction.
NEVER = {"SIGKILL", "SIGSTOP", "SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL", "SIGTRAP"}
# Without an enum for each answer, which takes as long as all the rest.
_plain: Any = getattr(signal, "_signal", signal)
HELD = sorted(signal.valid_signals() - {getattr(signal, name, None) for name in NEVER})


class _Mine(threading.local):
    block: Undisturbed | None = None  # that this thread is in, or works for
    inside = False  # as one of several


_mine = _Mine()
_outermost: Undisturbed | None = None  # of the main thread


class Undisturbed:
    """A block in which no handler runs; they do at its end, and what they raise is in `raised`, for the caller to
    raise. `early`: they may run at `deliver` too, and Ctrl-C makes `each` and long readings end.

    In a block inside another one, and in other threads than the main one, where no handler ever runs, it holds nothing.
    """

    def __init__(self, *, early: bool = True) -> None:
        self.raised: list[BaseException] = []
        self._early, self._ending = early, False
        self._arrived: dict[int, FrameType | None] = {}  # each once, as Python itself counts them
        self._handlers: dict[int, Callable[[int, FrameType | None], Any]] = {}
        self._noting = self._note  # one object, to know it again
        self._outer: Undisturbed | None = None

    def __enter__(self) -> Undisturbed:
        global _outermost
        self._outer = _mine.block
        if self._outer is not None or threading.current_thread() is not threading.main_thread():
            return self
        try:
            _mine.block = _outermost = self
            self._hold()
        except BaseException:  # by the handler of one that came before it could be held
            self._leave()
            raise_all(self.raised)
            raise
        return self

    def _hold(self) -> None:
        for number in HELD:
            if callable(handler := _plain.getsignal(number)):
                self._handlers[number] = handler
                try:
                    _plain.signal(number, self._noting)
                except ValueError as error:
                    if error.__traceback__ and error.__traceback__.tb_next:  # by a handler that ran just now
                        raise
                    self._handlers.clear()  # this is no thread, or no interpreter, where handlers run
                    return

    def _note(self, number: int, frame: FrameType | None) -> None:
        handler = self._handlers[number]
        if _outermost is self:
            self._arrived[number] = frame
            self._ending = self._ending or (self._early and handler is signal.default_int_handler)
        elif _plain.getsignal(number) is self._noting:  # somebody had replaced this one, and has put it back too late
            _plain.signal(number, handler)
            signal.raise_signal(number)
        else:  # somebody calls it still
            handler(number, frame)

    @property
    def ending(self) -> bool:
        """Whether Ctrl-C was pressed, and waits: what is done here had better come to an end."""
        return (self._outer or self)._ending

    def deliver(self, *, only_end: bool = False) -> None:
        """Let the handlers of what came so far run here, where what they raise does no harm. `only_end`: if it was
        Ctrl-C. In other threads than that of the block nothing is done."""
        block = self._outer or self
        if only_end and _mine.inside:  # who waits for all of them lets it run
            if block._ending:
                raise KeyboardInterrupt
            return
        if block is not _outermost or not block._early or threading.current_thread() is not threading.main_thread():
            return
        while block._arrived and (block._ending or not only_end):
            number = next(iter(block._arrived))
            handler, frame = block._handlers[number], block._arrived.pop(number)
            block._ending = block._ending and handler is not signal.default_int_handler
            handler(number, frame)

    def go_on(self) -> None:
        """Ctrl-C waits for the end of the block again: what is done next must not be cut short."""
        (self._outer or self)._ending = False

    @contextlib.contextmanager
    def also_here(self) -> Iterator[None]:
        """This thread works for the block, as one of several."""
        block, inside = _mine.block, _mine.inside
        _mine.block, _mine.inside = self._outer or self, True
        try:
            yield
        finally:
            _mine.block, _mine.inside = block, inside

    def __exit__(self, *_: object) -> None:
        if self._outer is None and _outermost is self and threading.current_thread() is threading.main_thread():
            self._leave()

    def _leave(self) -> None:
        """First the handlers are put back: what comes while those run that waited must find them, and they may have
        been changed by one of these. What one raises, also one that came just now, hinders no other."""
        global _outermost
        waiting: Iterator[tuple[int, FrameType | None]] | None = None
        while True:
            try:
                _mine.block = _outermost = None
                self._ending = False
                for number, handler in self._handlers.items():
                    if _plain.getsignal(number) is self._noting:
                        _plain.signal(number, handler)
                waiting = waiting or iter(list(self._arrived.items()))
                for _ in itertools.starmap(_handle, waiting):  # nothing is between one and the next
                    pass
                return
            except BaseException as raised:
                self.raised.append(raised)


def _handle(number: int, frame: FrameType | None) -> None:
    """As if the signal came now. To raise it once more would also write to a wake-up descriptor once more."""
    if callable(handler := _plain.getsignal(number)):
        handler(number, frame)
    else:
        signal.raise_signal(number)


def _in_child() -> None:
    """In a forked child, whose signals are not those that came in its parent. Its thread may be another than the one
    that is in the block."""
    if _outermost is not None:
        _outermost._arrived.clear()
        _outermost._leave()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)


def raise_all(raised: list[BaseException]) -> None:
    """Raise the last of them, each in the context of the one before, as if they had come one by one."""
    if raised:
        try:
            raise raised[0]
        finally:
            raise_all(raised[1:])


@contextlib.contextmanager
def undisturbed(*, early: bool = True) -> Iterator[None]:
    """A block at whose end is raised what the handlers raise. An error of the block is its context then, and logged."""
    signals = Undisturbed(early=early)
    try:
        with signals:
            yield
    except Exception as error:
        if signals.raised:
            logger.error("%s", error)
        raise
    finally:
        raise_all(signals.raised)


def deliver() -> None:
    """As `Undisturbed.deliver`, of the block that this thread is in, if any."""
    if _mine.block is not None:
        _mine.block.deliver()


def must_wait() -> bool:
    """Whether a signal has come that `deliver` does not let run before the end of the block that this thread is in."""
    return _mine.block is not None and not _mine.block._early and bool(_mine.block._arrived)


def end_if_asked() -> None:
    """Raise KeyboardInterrupt if Ctrl-C was pressed and waits for what this thread does."""
    if _mine.block is not None and _mine.block.ending:
        _mine.block.deliver(only_end=True)
        raise KeyboardInterrupt  # in a helper; the main thread raises its own when all have ended
