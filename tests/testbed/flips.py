"""A network that changes one bit."""

from __future__ import annotations

import threading

import pytest

from safepoint.nodes.transfer import Channel


class Flips:
    """Of all bytes that the channels of this process receive, in the order in which they come."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count, self._at, self.done, self._lock = 0, -1, False, threading.Lock()
        real = Channel._exactly

        def exactly(channel: Channel, size: int) -> bytes:
            data = bytearray(real(channel, size))
            with self._lock:
                if 0 <= (at := self._at - self.count) < size:
                    data[at] ^= 16
                    self.done = True
                self.count += size
            return bytes(data)

        monkeypatch.setattr(Channel, "_exactly", exactly)

    def begin(self) -> None:
        self.at(-1)

    def at(self, at: int) -> None:
        """The byte that comes after so many from now on."""
        self.count, self._at, self.done = 0, at, False

    off = begin
