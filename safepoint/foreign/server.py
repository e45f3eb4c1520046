"""The helper's work: it answers the program's questions with a session, and ends with the program."""

from __future__ import annotations

import contextlib
import functools
import gc
import os
import signal
import sys
import traceback
from collections.abc import Callable
from typing import Any

from safepoint.errors import SaveError, UsageError
from safepoint.foreign.line import (
    CLOSE,
    DUE,
    FINISH,
    HIDE,
    INIT,
    LEAVE,
    NO_STEP,
    RESTORE,
    SHOULD_STOP,
    STOP,
    WAIT,
    WATCH,
    Answer,
    Foreign,
    Gone,
    Line,
    Question,
)
from safepoint.listener import Listener

# What a signal to all processes of a job may be, and is meant for the program: all but those that stop and continue
# both, those of a fault of this process's own, and what tells of a child.
NOT_IGNORED = {
    getattr(signal, name, None) for name in (
        "SIGKILL", "SIGSTOP", "SIGTSTP", "SIGTTIN", "SIGTTOU", "SIGCONT", "SIGCHLD",
        "SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL", "SIGABRT", "SIGSYS", "SIGTRAP",
    )
}  # fmt: skip
FORMATS = {  # of what numpy calls so, for memoryview; complex numbers are pairs
    "float64": "d", "float32": "f", "complex128": "d", "complex64": "f", "int64": "q", "int32": "i", "int16": "h",
    "int8": "b", "uint64": "Q", "uint32": "I", "uint16": "H", "uint8": "B",
}  # fmt: skip


OF_ITS_MPI = "mpiexec.mpich or mpiexec.openmpi; ldd shows which library it is"


class Streams(Listener):
    """What the program could not write out is in no file: a set without it would be torn."""

    unwritten = ""  # and why

    def check(self) -> None:
        if self.unwritten:
            raise SaveError(
                f"not all that the program has written is in its files ({self.unwritten}): a stream, or a unit, could "
                f"not be flushed; the files are where they were"
            )

    def hiding(self, number: int) -> None:
        self.check()


class Noted:
    """The signals that came to the program, as it tells them: in place of handlers, which this process has none of."""

    def __init__(self) -> None:
        self.came = 0  # the first

    def note(self, bits: int) -> None:
        if bits and not self.came:
            self.came = (bits & -bits).bit_length()

    def remove(self) -> None:
        pass


def options_of(text: str) -> dict[str, Any]:
    """Those of `init` of Python, from words name=value. Raises `UsageError`."""
    import shlex  # here: most programs give none

    found: dict[str, Any] = {}
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise UsageError(f"options {text!r}: {error}") from error
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or name not in OPTIONS:
            raise UsageError(f"unknown option {word!r} (known: {', '.join(OPTIONS)}, each as name=value)")
        if name in found:
            raise UsageError(f"option {name} is given twice")
        try:
            found[name] = OPTIONS[name](value)
        except (ValueError, KeyError):
            raise UsageError(f"option {name} cannot be {value!r}") from None
    return found


def _options(text: str) -> tuple[dict[str, Any], tuple[int, ...]]:
    """Those of a session, and the signals that the program is to note."""
    import logging

    from safepoint.pace.signals import signal_numbers

    options = options_of(text) if text else {}
    logging.basicConfig(format="safepoint: %(message)s")
    logging.getLogger("safepoint").setLevel(options.pop("log", logging.WARNING))
    return options, signal_numbers(options.pop("signals", ()))


def _yes(text: str) -> bool:
    return {"yes": True, "no": False, "true": True, "false": False, "1": True, "0": False}[text]


OPTIONS: dict[str, Callable[[str], Any]] = {
    "saver": lambda text: None if text == "none" else int(text),
    "coordinate": _yes,
    "keep": lambda text: int(text) if text.isdecimal() else text,
    "background": _yes,
    "inflight": str,
    "store": str,
    "signals": lambda text: text.split(","),
    "stop_at": str,
    "stop_after": str,
    "log": lambda text: {"debug": 10, "info": 20, "warning": 30, "error": 40}[text],
}


class Server:
    """One program's questions, from its first to its last."""

    def __init__(self, line: Line) -> None:
        self._line = line
        self._session: Any = None
        self._noted, self._streams = Noted(), Streams()

    def serve(self) -> None:
        """Rule (2), until the program ends its side."""
        while True:
            self._line.tell(self._answered(*self._line.question()))

    def _answered(self, question: Question, caller: tuple[str, int], words: bytes, data: memoryview) -> Answer:
        from safepoint.errors import SafepointError

        try:
            return self._do(question, caller, words, data)
        except SafepointError as error:
            return Answer(error.code, text=str(error))
        except Exception as error:
            return Answer(1, text=f"{type(error).__name__}: {error}")

    def _do(self, question: Question, caller: tuple[str, int], words: bytes, data: memoryview) -> Answer:
        if question.verb == INIT:
            return self._begin(question, os.fsdecode(words), os.fsdecode(bytes(data)))
        session, step = self._session, None if question.step == NO_STEP else question.step
        session._scribe.ledger.caller = caller
        self._noted.note(question.signals)
        session._timing.count(question.due_calls, question.stop_calls)
        verb = question.verb
        if verb == RESTORE:
            point = session.restore()
            flag = 0 if point is None else 2 if point.finished else 1
            given = NO_STEP if point is None or point.step is None else point.step
            if not NO_STEP <= given < -NO_STEP:
                raise UsageError(
                    f"{point} is in place, but its step does not fit into 64 bits: only Python can have it"
                )
            return Answer(0, flag, given)
        self._streams.unwritten = os.fsdecode(words) if verb in (HIDE, FINISH) else ""
        if verb == HIDE:
            session.hide(step, wait=bool(question.flag))
        elif verb == WAIT:
            session.wait()
        elif verb in (DUE, SHOULD_STOP):
            flag = session.due() if verb == DUE else session.should_stop()
            return Answer(0, flag, NO_STEP, *session._timing.to_come(stop=verb == SHOULD_STOP))
        elif verb == STOP:
            try:
                session.stop()
            except SystemExit as end:
                return Answer(0, int(end.code or 0))
        elif verb == FINISH:
            session._ranks.together(self._streams.check)
            session.finish(step)
        elif verb in (CLOSE, LEAVE):
            session.close()
        elif verb == WATCH:
            self._watch(question.step, words, data)
        return Answer()

    def _begin(self, question: Question, directory: str, text: str) -> Answer:
        from safepoint import owner
        from safepoint.ledger.log import MODIFY
        from safepoint.program import Session
        from safepoint.ranks import join, outnumbered, refuse_strangers

        self._line.end_with(question.program)
        wire = Foreign(self._line, question.rank, question.size) if question.size > 1 else None
        if question.flag == 1:  # all ranks that MPI knows of
            strangers = outnumbered("the program is linked with another MPI library", OF_ITS_MPI, question.program)
            refuse_strangers(strangers, "call safepoint_init, which knows of no ranks")
        options, numbers = join(wire).together(lambda: _options(text))
        owner.speak_for(question.program, _command_of(question.program))
        self._session = Session(directory, comm=wire, **options)
        self._session._listeners = (*self._session._listeners, self._streams)
        self._session._timing.caught = self._noted
        watched = self._session._scribe.ledger.level >= MODIFY
        signals = sum(1 << (number - 1) for number in numbers)
        return Answer(flag=watched, signals=signals, text=self._session._root.work)

    def _watch(self, step: int, words: bytes, values: memoryview) -> None:
        name, _, kind = words.partition(b"\0")
        self._session.watch(step, **{os.fsdecode(name): _array(values, kind.decode())})


@functools.cache
def _numpy() -> Any:
    """Where this Python has it; None if it has none."""
    import site

    site.main()  # it was started without
    try:
        import numpy
    except ModuleNotFoundError:
        return None
    return numpy


def _array(values: memoryview, kind: str) -> Any:
    """Without numpy there are no statistics of it."""
    numpy = _numpy()
    return values.cast(FORMATS[kind]) if numpy is None else numpy.frombuffer(values, kind)  # type: ignore


def _command_of(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return " ".join(map(os.fsdecode, file.read().rstrip(b"\0").split(b"\0")))
    except OSError:
        return "a program in C or Fortran"


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


def _keep_only(descriptor: int) -> None:
    """Rule (3): what else the program has open would look as if this process might write to it."""
    for name in os.listdir("/proc/self/fd" if os.path.isdir("/proc/self/fd") else "/dev/fd"):
        if int(name) > 2 and int(name) != descriptor:
            with contextlib.suppress(OSError):
                os.close(int(name))


def main(descriptor: int) -> None:
    """Serve the program at the other end of this socket."""
    _keep_only(descriptor)
    nothing = os.open(os.devnull, os.O_RDWR)  # who waits for the end of the program's output waits for no flush of ours
    for number in (0, 1, *[2] * (not _is_open(2))):
        os.dup2(nothing, number)
    for number in signal.valid_signals() - NOT_IGNORED:
        with contextlib.suppress(OSError):  # some are the C library's own
            signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    os.set_inheritable(descriptor, False)
    sys.argv = ["safepoint"]
    import safepoint.program  # noqa: F401  # before it says that it is there

    gc.freeze()  # what was imported stays; the collector was off until now
    gc.enable()

    try:
        line = Line(descriptor)
        line.greet()
        Server(line).serve()
    except (Gone, OSError):
        pass
    except BaseException:
        traceback.print_exc()
    finally:  # rule (1)
        with contextlib.suppress(Exception):
            sys.stderr.flush()
        os._exit(0)
