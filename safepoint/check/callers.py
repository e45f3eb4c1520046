"""The port of the server, and who calls there without having given proof yet.

(1) Few may try at once. If more come, the one that has tried longest has to go, once it has had a moment: who keeps
    silent keeps nobody out. A follower that was sent away so tries again (`node.connected`).
(2) Only `close` ends the listening. Descriptors, memory and threads may be missing for a moment, and a caller may leave
    before it is heard.
"""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import os
import socket
import threading
import time
from collections.abc import Callable

GREETING, TRIES_S = 64, 1.0  # callers at once that have not given proof yet; what each has before it may have to go
WAITING = 1024  # callers that the system keeps until they are accepted; it may keep fewer
AGAIN_S = 0.1  # after something has failed


class Callers:
    """Of one port, which is had from the beginning."""

    def __init__(self, port: int) -> None:
        """`port` 0: any. Raises OSError: it cannot be had."""
        self._socket = _listening(port)
        self.port = int(self._socket.getsockname()[1])
        self._trying: dict[socket.socket, float] = {}  # since when, the first one first
        self._changed, self._closed = threading.Condition(), False

    def listen(self, serve: Callable[[socket.socket], None]) -> None:
        """Have each caller served by a thread of its own, which says `known` when it has proof, or has none."""
        threading.Thread(target=self._accept, args=(serve,), name="safepoint check: server", daemon=True).start()

    def _accept(self, serve: Callable[[socket.socket], None]) -> None:
        while not self._closed:
            try:
                connection, _ = self._socket.accept()
            except OSError:  # (2)
                time.sleep(0 if self._closed else AGAIN_S)
                continue
            self._make_room()
            with self._changed:
                self._trying[connection] = time.monotonic()
            try:
                threading.Thread(target=serve, args=(connection,), daemon=True).start()
            except RuntimeError:  # there are too many threads
                self.known(connection)
                connection.close()
                time.sleep(AGAIN_S)

    def _make_room(self) -> None:
        """(1)"""
        with self._changed:
            while len(self._trying) >= GREETING:
                oldest, since = next(iter(self._trying.items()))
                left = since + TRIES_S - time.monotonic()
                if left > 0:
                    self._changed.wait(left)
                    continue
                del self._trying[oldest]
                with contextlib.suppress(OSError):  # it has gone by itself
                    oldest.shutdown(socket.SHUT_RDWR)  # who reads from it comes to its end

    def known(self, connection: socket.socket) -> None:
        """This one tries no more."""
        with self._changed:
            self._trying.pop(connection, None)
            self._changed.notify_all()

    def close(self) -> None:
        self._closed = True
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # it wakes the thread that accepts
        self._socket.close()


def _listening(port: int) -> socket.socket:
    """At SAFEPOINT_ADDRESS alone, if that is a number of this host; else at all addresses. Raises OSError."""
    told = os.environ.get("SAFEPOINT_ADDRESS", "")
    with contextlib.suppress(ValueError):  # a name may lead elsewhere on other hosts than here
        family = socket.AF_INET6 if ipaddress.ip_address(told).version == 6 else socket.AF_INET
        try:
            return socket.create_server((told, port), family=family, backlog=WAITING)
        except OSError as error:
            if error.errno != errno.EADDRNOTAVAIL:  # that of a gateway
                raise
    if socket.has_dualstack_ipv6():
        with contextlib.suppress(OSError):
            return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=WAITING)
    return socket.create_server(("", port), backlog=WAITING)
