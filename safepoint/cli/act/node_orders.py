"""What the process of a node hears from its run, beside what a drain hears."""

from __future__ import annotations

import threading
from collections.abc import Callable

from safepoint.cli.act.orders import Orders
from safepoint.record import key


class NodeOrders(Orders):
    """Beside what a drain hears: which partner or group, what to copy, what is needed no more."""

    def __init__(self) -> None:
        self.secret = threading.Event()
        self.key = b""
        self.partner: tuple[str, int] | None = None
        self.group: tuple[int, int, list[tuple[str, int]]] | None = None  # which of them this node is, the life, all
        self.to_copy = self.keep = ""
        self.life = self.forget = 0
        self.repeat = False
        self.kept: Callable[[int], object] = lambda key: None  # is told what stays, before another word is heard
        self.came = threading.Condition()
        super().__init__()

    def _hear(self, word: str, *more: str) -> None:
        with self.came:
            if word == "secret":
                self.key = bytes.fromhex(more[0])
                self.secret.set()
            elif word == "partner":
                self.partner = more[0], int(more[1])
            elif word == "group":
                nodes = [(more[at], int(more[at + 1])) for at in range(2, len(more), 2)]
                self.group = int(more[0]), int(more[1]), nodes
            elif word == "copy":
                self.repeat = more[0] == self.to_copy
                self.to_copy = more[0]
            elif word == "keep":
                self.keep = more[0]
                life, number = tuple(map(int, self.keep.split("-")[:2]))
                self.kept(key(life, number))
            elif word == "life":
                self.life = int(more[0])
            elif word == "forget":
                self.forget = int(more[0])
            else:
                super()._hear(word, *more)
            self.came.notify_all()
