"""Signals of the program wait while something is done that they would tear.

Python runs a handler in the main thread, between any two instructions of ours. What it raises there, such as the
KeyboardInterrupt of Ctrl-C, could leave a lock taken, a failed fsync unseen, or other ranks in an agreement for ever.

(1) In a block of the main thread all handlers are replaced by one that notes. At its end each is put back as it was,
    those of what came run, and what they raise is raised there.
(2) Ctrl-C also puts up the flag of the block. Who works for it looks at that between two files, and between two pieces
    of a long one, and ends by KeyboardInterrupt. This is an error as any other: it is cleaned up after.
(3) Nobody looks while files are put back, nor among several ranks, where an end on one alone would not be agreed on.
(4) A forked child is in no block, and what came to its parent is not for it.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import logging
import os
import signal
import struct
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

logger = logging.getLogger("safepoint")
# Not those that cannot be caught, nor those by which the processor says what is wrong with the very next instruction.
NEVER = {"SIGKILL", "SIGSTOP", "SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL", "SIGTRAP"}
# Without an enum for each answer, which takes as long as all the rest.
_plain: Any = getattr(signal, "_signal", signal)
CTRL_C = signal.default_int_handler
HELD = sorted(signal.valid_signals() - {getattr(signal, name, None) for name in NEVER})


class _Mine(threading.local):
    block: Block | None = None  # at whose flag this thread looks


_mine = _Mine()
_held: Block | None = None  # the block of the main thread
_plainly = b""  # what the kernel knows of a signal for which Python alone has a handler


def action(number: int) -> bytes:
    """How this signal is handled, in the words of the kernel: more than Python knows. Empty where it cannot say."""
    try:
        return _buffer().raw if sys.platform != "win32" and _libc().sigaction(number, None, _buffer()) == 0 else b""
    except (ImportError, OSError):  # no descriptor is left to load that
        return b""


def meaning(action: bytes) -> bytes:
    """What `action` says, but for the mask behind its first 64 signals: glibc fills in no more, the rest is chance."""
    word = struct.calcsize("P")
    return action[: word + 8] + action[word + 128 :]


def code(action: bytes) -> bytes:
    """Where the code is that handles it."""
    return action[: struct.calcsize("P")]


@functools.cache
def _libc() -> Any:
    """For calls that take no time: the interpreter stays with this thread, and goes to no saver meanwhile."""
    import ctypes

    return ctypes.PyDLL(None)


@functools.cache
def _buffer() -> Any:
    """One is enough for the main thread; to make one takes longer than to ask."""
    import ctypes

    return ctypes.create_string_buffer(256)


class Block:
    """In which no handler runs. They do at its end, and what they raise is in `raised`, for the caller to raise.
    `cut`: whether Ctrl-C may cut it short. In another block, or in another thread, it holds nothing."""

    def __init__(self, *, cut: bool = True) -> None:
        self.raised: list[BaseException] = []
        self.interrupted, self.cut = False, cut  # the flag, and whether anybody looks at it
        self._arrived: dict[int, FrameType | None] = {}  # each once, as Python itself counts them
        self._handlers: dict[int, Callable[[int, FrameType | None], Any]] = {}
        self._actions: dict[int, bytes] = {}  # in which C code, or `siginterrupt`, may have changed something
        self._of_c: set[int] = set()  # those for which C code has a handler of its own
        self._noting = self._note  # one object, to know it again

    def __enter__(self) -> Block:
        global _held
        if threading.current_thread() is not threading.main_thread() or _held is not None:
            return self
        try:
            _mine.block = _held = self
            self._hold()
        except BaseException:  # by the handler of one that came before it could be held
            self._leave()
            raise_all(self.raised)
            raise
        return self

    def _hold(self) -> None:
        global _plainly
        for number in HELD:
            if callable(handler := _plain.getsignal(number)):
                self._handlers[number], before = handler, action(number)
                if before and meaning(before) != _plainly:  # else Python puts back all of it
                    self._actions[number] = before
                try:
                    _plain.signal(number, self._noting)
                    _plainly = _plainly or meaning(action(number))
                    if number in self._actions and code(before) != code(_plainly):
                        self._of_c.add(number)
                except ValueError as error:
                    if error.__traceback__ and error.__traceback__.tb_next:  # by a handler that ran just now
                        raise
                    self._handlers.clear()  # this is no thread, or no interpreter, where handlers run
                    return

    def _note(self, number: int, frame: FrameType | None) -> None:
        handler = self._handlers[number]
        if _held is self:
            self._arrived[number] = frame
            self.interrupted = self.interrupted or handler is CTRL_C
        elif _plain.getsignal(number) is self._noting:  # somebody had replaced this one, and has put it back too late
            self._put_back(number)
            signal.raise_signal(number)
        else:  # somebody calls it still
            handler(number, frame)

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if _held is self and threading.current_thread() is threading.main_thread():
            if isinstance(error, KeyboardInterrupt):  # by `look`: it is being raised already
                for number in list(self._arrived):
                    if self._handlers[number] is CTRL_C:
                        del self._arrived[number]
            self._leave()

    def _leave(self) -> None:
        """First the handlers are put back: what comes while those run that waited must find them, and they may have
        been changed by one of these. What one raises, also one that came just now, hinders no other."""
        global _held
        waiting: Iterator[tuple[int, FrameType | None]] | None = None
        while True:
            try:
                _mine.block = _held = None
                for number in self._handlers:
                    if _plain.getsignal(number) is self._noting:
                        self._put_back(number)
                waiting = waiting or iter(list(self._arrived.items()))
                for _ in itertools.starmap(self._handle, waiting):  # nothing is between one and the next
                    pass
                return
            except BaseException as raised:
                self.raised.append(raised)

    def _put_back(self, number: int) -> None:
        _plain.signal(number, self._handlers[number])
        if number in self._actions:
            _libc().sigaction(number, self._actions[number], None)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        """As if the signal came now. To raise it once more would also write to a wake-up descriptor once more."""
        if callable(handler := _plain.getsignal(number)) and number not in self._of_c:
            handler(number, frame)
        else:
            signal.raise_signal(number)


def _in_child() -> None:
    """The thread that goes on may be another than the one that is in the block."""
    if _held is not None:
        _held._arrived.clear()
        _held._leave()


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
def undisturbed(*, cut: bool = True) -> Iterator[None]:
    """A block at whose end is raised what the handlers raise. An error of the block is its context then, and logged."""
    block = Block(cut=cut)
    try:
        with block:
            yield
    except Exception as error:
        if block.raised:
            logger.error("%s", error)
        raise
    finally:
        raise_all(block.raised)


def block() -> Block | None:
    """At whose flag this thread looks."""
    return _mine.block


@contextlib.contextmanager
def working_for(block: Block | None) -> Iterator[None]:
    """This thread looks at the flag of that block; None: at none."""
    mine, _mine.block = _mine.block, block
    try:
        yield
    finally:
        _mine.block = mine


def uncut() -> contextlib.AbstractContextManager[None]:
    """What must not be cut short, such as to put files back."""
    return working_for(None)


def interrupted() -> bool:
    """Whether Ctrl-C was pressed, and waits for what this thread does."""
    return _mine.block is not None and _mine.block.interrupted


def look() -> None:
    """Raise KeyboardInterrupt if Ctrl-C was pressed, and waits for what this thread does, which may be cut short."""
    if _mine.block is not None and _mine.block.cut and _mine.block.interrupted:
        raise KeyboardInterrupt
