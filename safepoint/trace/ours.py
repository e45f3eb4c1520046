"""What the tracer of Python notes of this library itself: each `hide` and `mark`, with the line of the program.

In check mode `restore` and `finish` too, as ranks wait for each other in them.

What they send to agree is not noted (`seen.Seen.site`). While `hide` runs, it asks the exact check (`underway`).
"""

from __future__ import annotations

import struct
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import safepoint
from safepoint import default, ranks
from safepoint.trace import record, roles
from safepoint.trace.seen import PACKAGE, Seen
from safepoint.trace.underway import Check

NO_STEP = -(2**63)


def _put(name: str, method: Callable[..., Any]) -> None:
    plain = getattr(safepoint.Session, name)
    method.__doc__, method.__wrapped__ = plain.__doc__, plain  # type: ignore[attr-defined]
    setattr(safepoint.Session, name, method)


class Ours:
    """The notes of one process of its calls of this library."""

    def __init__(self, seen: Seen) -> None:
        self._seen = seen

    def listen(self, watched: frozenset[str] | None = None) -> None:
        """From now on, in this process. `watched`: in check mode, which cannot tell what is under way."""
        if watched is None:
            ranks.exact = Check(self._seen)
        if watched is None or "mark" in watched:
            default.marked = self.mark
        if watched is not None and "hide" not in watched:
            return
        plain = safepoint.Session.hide

        def hide(session: Any, step: Any = None, **words: Any) -> Any:
            at = self._begun(roles.HIDE, step if isinstance(step, int) else NO_STEP, session._peers.size)
            try:
                result = plain(session, step, **words)
            except BaseException as error:
                if at:
                    self._seen.raised(at, error)
                raise
            self._ended(at)
            return result

        _put("hide", hide)
        if watched is not None:
            _put("restore", self._noting(roles.RESTORE, safepoint.Session.restore))
            _put("finish", self._noting(roles.FINISH, safepoint.Session.finish))

    def _noting(self, function: int, plain: Callable[..., Any]) -> Callable[..., Any]:
        def noting(*words: Any, **more: Any) -> Any:
            at = self._begun(function, 0, words[0]._peers.size)
            try:
                return plain(*words, **more)
            finally:
                self._ended(at)

        return noting

    def mark(self) -> None:
        self._ended(self._begun(roles.MARK, 0, 0))

    def _begun(self, function: int, value: int, size: int) -> int:
        """The place of the note; 0 if there is none. `size`: how many ranks the session is of."""
        seen = self._seen
        if seen.stopped:
            return 0
        try:
            frame = sys._getframe(2)
            while frame.f_back is not None and frame.f_code.co_filename.startswith(PACKAGE):
                frame = frame.f_back
            site = seen.sites.get((id(frame.f_code), frame.f_lasti)) or seen.site(frame)
            at = seen.notes.advance()
            if at >= seen.notes.end:
                seen.grow(at)
            if seen.checking and function != roles.MARK:
                step = value if function == roles.HIDE and NO_STEP <= value < 2**63 else record.ABSENT
                seen.notes.more(at, record.ARGUMENTS, (step, size))
            thread = 0 if threading.get_ident() == seen.main else seen.thread()
            record.LAYOUT.pack_into(
                seen.notes.map, at, time.monotonic_ns(), 0, site, function, 0, -4, -4, -4, -4, value % 2**64, 0, 0, 0,
                thread, 255, record.ENTERED,
            )  # fmt: skip
        except Exception as error:
            seen.stop(error)
            return 0
        return int(at)

    def _ended(self, at: int) -> None:
        if at and self._seen.notes.map is not None:
            struct.pack_into("<Q", self._seen.notes.map, at + record.LEAVE, time.monotonic_ns())
            self._seen.notes.map[at + 62 : at + 64] = bytes((0, record.RETURNED))
