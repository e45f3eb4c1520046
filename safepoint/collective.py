"""What makes a method of the session a collective verb."""

from __future__ import annotations

import contextlib
import functools
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any, TypeVar, cast

from safepoint.errors import SafepointError, UsageError

Verb = TypeVar("Verb", bound=Callable[..., Any])


_here = threading.local()


@contextlib.contextmanager
def refusing(why: str) -> Iterator[None]:
    """In this thread no such verb may be called meanwhile: the other ranks would not call it too."""
    _here.why = why
    try:
        yield
    finally:
        _here.why = ""


def collective(verb: Verb) -> Verb:
    """A collective verb. The other ranks wait in its next agreement, so no error or signal may end it here before."""

    @functools.wraps(verb)
    def call(self: Any, /, *arguments: Any, **options: Any) -> Any:
        if why := getattr(_here, "why", ""):
            raise UsageError(f"{verb.__name__.removeprefix('_decide_')} {why}")
        if self.finished or os.getpid() != self._pid:  # there are no others to agree with any more
            self._check(verb.__name__.removeprefix("_decide_"))
        self._work.remember()
        try:
            with self._ranks.undisturbed():
                return verb(self, *arguments, **options)
        except BaseException as error:
            self._sets.told(self._work.told(error, ours=isinstance(error, SafepointError)), self._number)
            raise
        finally:
            # Keep the helper threads for the next set, unless nothing runs in the background: then none is left, and
            # forking is safe.
            if self._work.thread is None and verb.__name__ in ("restore", "hide", "finish"):
                self._root.disk.helpers.dismiss(wait=True)
            self._after()

    return cast(Verb, call)
