"""How a run ended, for all ranks: what was found, or an error that each of them raises.

Values do not travel here: each rank reads those that it wants from the directory that all see. An error travels as its
class and text, since exceptions may not be picklable.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from safepoint.errors import SafepointError
from safepoint.tasks.found import Found, Stopped
from safepoint.tasks.running import tasks_directory
from safepoint.tasks.saved import Store


@dataclass(frozen=True)
class Outcome:
    found: Found | None = None
    error: BaseException | None = None

    def given(self) -> Found:
        """What `run` returns or raises."""
        if self.error is not None:
            raise self.error
        assert self.found is not None
        return self.found

    @property
    def status(self) -> int:
        """Of the process, if it must end for this."""
        if isinstance(self.error, KeyboardInterrupt):
            return 130
        return self.error.code if isinstance(self.error, SystemExit) and isinstance(self.error.code, int) else 1

    @property
    def text(self) -> str:
        name = type(self.error).__name__
        said = self.error.why if isinstance(self.error, Stopped) else str(self.error or "")
        return f"{name}: {said}" if said else name

    def packed(self) -> Packed:
        error, found = self.error, self.found
        if error is None:
            return Packed(_fields(found))
        found = getattr(error, "found", None)
        if isinstance(error, Stopped):
            return Packed(_fields(found), Stopped, error.why, code=error.code)
        if isinstance(error, KeyboardInterrupt):
            return Packed(None, KeyboardInterrupt)
        if isinstance(error, SafepointError):
            return Packed(_fields(found), type(error), str(error), errno=error.errno)
        return Packed(None, SafepointError, f"rank 0 could not go on: {self.text}")


@dataclass(frozen=True)
class Packed:
    """The same, to be sent."""

    found: Mapping[str, Any] | None
    kind: type[BaseException] | None = None
    text: str = ""
    code: Any = 0
    errno: int | None = None

    def unpacked(self, directory: str) -> Outcome:
        found = None if self.found is None else Found(Store(tasks_directory(directory)), **self.found)
        if self.kind is None:
            return Outcome(found)
        if self.kind is Stopped:
            assert found is not None
            return Outcome(None, Stopped(self.code, self.text, found))
        if not issubclass(self.kind, SafepointError):
            return Outcome(None, self.kind())
        error = self.kind(self.text, self.errno)
        if found is not None:
            error.found = found  # type: ignore[attr-defined]
        return Outcome(None, error)


def _fields(found: Found | None) -> Mapping[str, Any] | None:
    if found is None:
        return None
    names = ("records", "failed", "skipped", "ran", "seconds")
    return {name: getattr(found, name) for name in names}
