"""What a run says, on stderr: each thing when it happens, and what repeats itself only once."""

from __future__ import annotations

import contextlib
import re
import sys


def say(text: str) -> None:
    with contextlib.suppress(OSError):  # nobody listens any more: no reason to stop a computation
        print(f"safepoint: {text}", file=sys.stderr, flush=True)


class Once:
    """Says what was not said before; other processes and sizes are nothing new."""

    def __init__(self) -> None:
        self._said: set[str] = set()

    def __call__(self, text: str) -> None:
        begin = re.sub(r"\d+", "", text)
        if begin not in self._said:
            self._said.add(begin)
            say(text)
