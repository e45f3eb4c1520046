"""How processes begin and end, as the kernel tells it: its process connector.

It tells each fork before the child runs, and each exit with its status, short-lived ones included. It needs Linux 6.6,
or root, and there is none in a container's own network (Documentation/driver-api/connector.rst).
"""

from __future__ import annotations

import contextlib
import signal
import socket
import struct
from collections.abc import Iterator

CONNECTOR, PROCESSES = 11, 1  # NETLINK_CONNECTOR, linux/netlink.h; CN_IDX_PROC, linux/connector.h
LISTEN = 1  # PROC_CN_MCAST_LISTEN, linux/cn_proc.h; there the events too
FORK, EXEC, EXIT = 0x00000001, 0x00000002, 0x80000000
HEADERS, EVENT = 16 + 20, 16  # bytes: of netlink and connector; of an event, before what it tells
RECEIVE_BYTES = 4 << 20  # of events that may wait: all forks and exits of the machine are in them
SO_RCVBUFFORCE = 33  # asm-generic/socket.h; beyond the limit, for root
WORD_OF_EXIT_S = 0.5  # that the word of an exit may come after it


class Exits:
    """What has been told since the last reading. `lost`: the kernel could not tell of all."""

    def __init__(self, listening: socket.socket) -> None:
        self._socket, self.lost = listening, False
        self.fileno, self.close = listening.fileno, listening.close

    @classmethod
    def open(cls) -> Exits | None:
        """None where this kernel, or this user's rights, do not have it."""
        try:
            listening = socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, CONNECTOR)
        except (AttributeError, OSError):
            return None
        try:
            try:
                listening.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, RECEIVE_BYTES)
            except PermissionError:
                listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BYTES)
            listening.bind((0, PROCESSES))
            body = struct.pack("=IIIIHHI", PROCESSES, PROCESSES, 0, 0, 4, 0, LISTEN)
            listening.send(struct.pack("=IHHII", HEADERS - 20 + len(body), 3, 0, 0, 0) + body)
            listening.settimeout(WORD_OF_EXIT_S)
            listening.recv(4096)  # the answer; none in a network of its own
            listening.setblocking(False)
        except OSError:
            listening.close()
            return None
        return cls(listening)

    def read(self) -> Iterator[tuple[int, int, int, tuple[int, int]]]:
        """What, process, thread group, and: of a fork the child's, of an exit its code and signal."""
        while True:
            try:
                data, (sender, _) = self._socket.recvfrom(4096)
            except BlockingIOError:
                return
            except OSError:  # ENOBUFS: some were dropped
                self.lost = True
                continue
            if sender == 0 and len(data) >= HEADERS + EVENT + 16:
                (what,) = struct.unpack_from("=I", data, HEADERS)
                if what in (FORK, EXEC, EXIT):
                    pid, group, first, second = struct.unpack_from("=IIII", data, HEADERS + EVENT)
                    yield what, pid, group, (first, second)


def ending_of(code: int) -> str:
    """A wait status in words."""
    if code & 0x7F:
        with contextlib.suppress(ValueError):
            return f"was killed by {signal.Signals(code & 0x7F).name}"
        return f"was killed by signal {code & 0x7F}"
    return f"ended with status {code >> 8}"
