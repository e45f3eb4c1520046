"""What the program wants to be told: that a set is durable, or that it could not be stored."""

from __future__ import annotations

import contextlib
import logging
from collections import deque
from collections.abc import Callable

from safepoint.collective import refusing
from safepoint.errors import UsageError
from safepoint.kept import StoredSet
from safepoint.listener import Listener
from safepoint.record import Record, Taken

logger = logging.getLogger("safepoint")
IN_A_CALLBACK = "in a callback: the other ranks are told at other moments, and would not call it too"
OnDurable = Callable[[StoredSet], object]
OnFailed = Callable[[StoredSet, Exception], object]


class Callbacks(Listener):
    """The saver thread notes, and the thread of the program calls: at the end of its next verb, in the order in which
    it happened. What they raise is logged, since the verb has done its work, and other ranks go on."""

    def __init__(self, on_durable: OnDurable | None, on_failed: OnFailed | None, *, alone: bool) -> None:
        for name, each in (("on_durable", on_durable), ("on_failed", on_failed)):
            if each is not None and not callable(each):
                raise UsageError(f"{name} must be a function, not {each!r:.100}")
        self._on_durable, self._on_failed, self._alone = on_durable, on_failed, alone
        self._calls: deque[Callable[[], object]] = deque()
        self._calling = False

    def stored(self, record: Record, seconds: float, *, waited: bool) -> None:
        if durable := self._on_durable:
            self._calls.append(lambda: durable(StoredSet.of(record)))

    def failed(self, taken: Taken, error: Exception, seconds: float) -> None:
        if failed := self._on_failed:
            self._calls.append(lambda: failed(StoredSet.of(taken), error))

    def after(self, *, ended: bool) -> None:
        """A callback may call verbs itself, but not with other ranks: these are told later, or not at all."""
        if self._calling:
            return
        self._calling = True
        try:
            while self._calls:
                call = self._calls.popleft()
                try:
                    with contextlib.nullcontext() if self._alone else refusing(IN_A_CALLBACK):
                        call()
                except Exception:
                    logger.exception("a callback has failed")
        finally:
            self._calling = False
