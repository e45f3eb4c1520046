"""How a node begins to listen, and goes on to."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable

from safepoint.nodes.giving import Server
from safepoint.ranks import LARGEST

AGAIN = 1.0  # seconds between two tries to listen


class Listening:
    """The server of this node. What began anew takes the port that the others know, when it can be had."""

    def __init__(
        self, tell: Callable[[str], object], ready: Callable[[str, str], object], make: Callable[[], Server]
    ) -> None:  # fmt: skip
        """`tell`: what hinders it. `ready`: where it listens, whenever it begins to."""
        self._tell, self._ready, self._make, self._over = tell, ready, make, threading.Event()
        self._server: Server | None = None

    def begin(self, *, again: bool) -> None:
        """Now, or, `again`, as soon as it can. Else raises `OSError`."""
        try:
            self._begin()
        except OSError as error:
            if not again:
                raise
            self._tell(f"this node cannot be asked, nor hold copies: {error.strerror or error}; it is tried again")
            threading.Thread(target=self._retry, daemon=True).start()

    def _begin(self) -> None:
        self._server = server = self._make()
        self._ready(server.host, str(server.port))

    def _retry(self) -> None:
        while self._server is None and not self._over.wait(AGAIN):
            with contextlib.suppress(OSError):
                self._begin()

    def keep(self, key: int) -> None:
        """The set with this key is on two nodes everywhere."""
        if self._server:
            self._server.kept = key

    def parity_floor(self) -> int:
        """As of the server; until there is one nothing goes."""
        return self._server.parity_floor() if self._server else LARGEST

    @property
    def busy(self) -> bool:
        return self._server is not None and self._server.busy > 0

    def end(self) -> None:
        self._over.set()
        if self._server:
            self._server.close()
