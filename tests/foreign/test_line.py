"""The helper's end of the socket: it ends when the program has, whoever holds the other end, whatever it was doing."""

from __future__ import annotations

import os
import pickle
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from safepoint.foreign import line
from safepoint.foreign.line import BROADCAST, REDUCE, Foreign, Gone, Line

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="no programs in C there")


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    pair = socket.socketpair()
    with pair[0], pair[1]:
        yield pair


@pytest.fixture
def program() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"]) as running:
        yield running
        running.kill()


@pytest.mark.parametrize("kernel", ["new", "old"])
@pytest.mark.parametrize("doing", ["reads", "writes"])
def test_it_ends_with_the_program_though_a_child_holds_the_socket(
    kernel: str, doing: str, ends: Any, program: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither an end of file nor an error would ever come. Old kernels, and other systems, cannot await a process."""
    monkeypatch.setattr(line, "LOOK_EVERY", 20)
    if kernel == "old":
        monkeypatch.delattr(os, "pidfd_open", raising=False)
    mine = Line(ends[0].fileno())
    mine.end_with(program.pid)
    ends[1].send(b"half a message")
    os.kill(program.pid, signal.SIGKILL)
    program.wait()
    with pytest.raises(Gone):
        if doing == "reads":
            mine.receive()
        else:
            mine.send(BROADCAST, 0, bytes(10_000_000))


def test_what_came_before_the_end_is_answered(ends: Any, program: Any) -> None:
    """Rule (2): a program that has asked and then died has hidden, or not; but what was read whole is done."""
    mine = Line(ends[0].fileno())
    mine.end_with(program.pid)
    Line(ends[1].fileno()).send(REDUCE, 7, b"whole")
    program.kill()
    program.wait()
    assert mine.receive() == (REDUCE, 7, b"whole")


class Loop(Line):
    """A program of one rank: what is spread or summed is what it was."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, int]] = []

    def send(self, kind: int, a: int = 0, data: bytes | bytearray | memoryview = b"") -> None:
        self.asked.append((kind, len(data)))
        self._last = kind, a, bytearray(data)

    def receive(self) -> tuple[int, int, bytearray]:
        return self._last


def test_a_large_object_goes_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The program takes no message of more than a GiB."""
    monkeypatch.setattr(line, "AT_ONCE", 1000)
    loop, value = Loop(), list(range(2000))
    assert Foreign(loop, 0, 2).spread(value, 0) == value
    sizes = [size for kind, size in loop.asked if kind == BROADCAST]
    assert sum(sizes) == len(pickle.dumps(value)) and max(sizes) == 1000 and len(sizes) > 4
