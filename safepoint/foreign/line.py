"""What goes over the socket between a program and its helper; `c/safepoint.c` has the other end.

A message is a header, {uint32 length, int32 kind, int32 a, int32 b}, and `length` bytes. A question of the program's
is a CALL. In between the helper may ask for an operation of MPI. Numbers are those of this machine. Before all else the
helper says by one byte that it is there, and which version of all this it speaks.
"""

from __future__ import annotations

import os
import select
import struct
from array import array
from typing import Any, NamedTuple

VERSION = 2
NO_STEP = -(2**63)
CALL, REDUCE, BROADCAST, ARRIVE, IN_FLIGHT = range(5)
INIT, RESTORE, HIDE, WAIT, DUE, SHOULD_STOP, STOP, FINISH, CLOSE, LEAVE, WATCH = range(1, 12)
MINIMUM, SUM = range(2)
COUNTED = 2  # of IN_FLIGHT, instead of whether there is a message: see words.under_way
LOOK_EVERY = 5000  # ms
AT_ONCE = 1 << 26  # bytes of a broadcast; the program takes no message that is much longer
HEADER = struct.Struct("=Iiii")
QUESTION = struct.Struct("=8iqQ2q")
ANSWER = struct.Struct("=2i3qQ")


class Question(NamedTuple):
    verb: int
    flag: int
    rank: int
    size: int
    program: int
    line: int  # of the call
    file: int  # how many bytes the name of its file has, which comes first
    words: int  # and how many the words after it; then come data
    step: int
    signals: int  # that came, as bits
    due_calls: int  # that the program has answered itself since the last question
    stop_calls: int


class Answer(NamedTuple):
    code: int = 0
    flag: int = 0
    step: int = NO_STEP
    calls: int = 0  # that the program may answer itself
    nanoseconds: int = 0  # for which it may
    signals: int = 0  # that it is to note, as bits
    text: str = ""


class Gone(BaseException):
    """The program has ended, or has closed its side."""


class Line:
    """The helper's end of the socket; not by the module `socket`, whose import takes longer than most of ours."""

    def __init__(self, descriptor: int) -> None:
        self._socket = descriptor
        self._program = self._ended = -1
        self._polls: dict[int, select.poll] = {}

    def end_with(self, program: int) -> None:
        """This process may end while a child of it, that has not executed another program, has the socket still."""
        self._program = program
        os.set_blocking(self._socket, False)  # a write would wait for the room of all of it
        if hasattr(os, "pidfd_open"):
            try:
                self._ended = os.pidfd_open(program)
            except ProcessLookupError as error:
                raise Gone from error
            except OSError:  # an old kernel, or one that forbids it
                pass
        for event in (select.POLLIN, select.POLLOUT):
            self._polls[event] = poll = select.poll()
            poll.register(self._socket, event)
            if self._ended >= 0:
                poll.register(self._ended, select.POLLIN)

    def _await(self, event: int) -> None:
        """Until something can be read, or written; `Gone` if there will be nothing."""
        poll = self._polls[event]
        while self._ended < 0 and not poll.poll(LOOK_EVERY):
            try:
                os.kill(self._program, 0)
            except ProcessLookupError as error:
                raise Gone from error
        if [descriptor for descriptor, _ in poll.poll()] == [self._ended]:
            raise Gone

    def _receive(self, size: int) -> bytearray:
        data = bytearray(size)
        view = memoryview(data)
        while view:
            try:
                count = os.readv(self._socket, [view])
            except BlockingIOError:
                self._await(select.POLLIN)
                continue
            except OSError as error:
                raise Gone from error
            if not count:
                raise Gone
            view = view[count:]
        return data

    def receive(self) -> tuple[int, int, bytearray]:
        """Kind, a number, and what comes with them."""
        length, kind, a, _ = HEADER.unpack(self._receive(HEADER.size))
        return kind, a, self._receive(length)

    def greet(self) -> None:
        """Say that this process is there."""
        os.write(self._socket, bytes([VERSION]))

    def question(self) -> tuple[Question, tuple[str, int], bytes, memoryview]:
        """What the program asks, where it does so, words, and data."""
        _, _, received = self.receive()
        question = Question(*QUESTION.unpack_from(received))
        file, words = QUESTION.size + question.file, QUESTION.size + question.file + question.words
        place = os.fsdecode(bytes(received[QUESTION.size : file])), question.line
        return question, place, bytes(received[file:words]), memoryview(received)[words:]

    def tell(self, answer: Answer) -> None:
        self.send(CALL, 0, ANSWER.pack(*answer[:-1]) + answer.text.encode(errors="surrogateescape"))

    def send(self, kind: int, a: int = 0, data: bytes | bytearray | memoryview = b"") -> None:
        left = memoryview(HEADER.pack(len(data), kind, a, 0) + data)
        while left:
            try:
                left = left[os.write(self._socket, left) :]
            except BlockingIOError:
                self._await(select.POLLOUT)
            except OSError as error:
                raise Gone from error


class Foreign:
    """The ranks of the program, each behind its own line: a `ranks.Wire`."""

    def __init__(self, line: Line, rank: int, size: int) -> None:
        self._line, self.rank, self.size = line, rank, size

    def _asked(self, kind: int, a: int = 0, data: bytes | bytearray | memoryview = b"") -> bytearray:
        self._line.send(kind, a, data)
        answered, _, answer = self._line.receive()
        if answered != kind:  # the program has left the conversation
            raise Gone
        return answer

    def smallest(self, values: tuple[int, ...]) -> tuple[int, ...]:
        answer = array("q")
        answer.frombytes(self._asked(REDUCE, MINIMUM, array("q", values).tobytes()))
        return tuple(answer)

    def total(self, value: int) -> int:
        answer = array("q")
        answer.frombytes(self._asked(REDUCE, SUM, array("q", [value]).tobytes()))
        return answer[0]

    def spread(self, value: Any, source: int) -> Any:
        import pickle  # here: one rank needs none

        mine = pickle.dumps(value) if self.rank == source else b""
        size = self.total(len(mine))
        mine = mine or bytes(size)
        parts = (mine[at : at + AT_ONCE] for at in range(0, size, AT_ONCE))
        return pickle.loads(b"".join(self._asked(BROADCAST, source, part) for part in parts))

    def arrive(self) -> None:
        self._line.send(ARRIVE)

    def message(self) -> tuple[int, int, int] | str | None:
        found, source, tag, size = array("i", self._asked(IN_FLIGHT))
        if found == COUNTED:
            from safepoint.words import under_way  # here: it comes with a tracer alone

            return under_way(source, tag, self.rank)
        return (source, tag, size) if found else None
