"""The library for C and Fortran: its sources, and what compiles them. A program that it serves has `foreign` beside."""

from __future__ import annotations

import os
from pathlib import Path

from safepoint.errors import UsageError


def cache() -> Path:
    """Where what was built is kept from run to run. Raises `UsageError` if this user has no such directory."""
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    if not os.path.isabs(home):  # of a user without HOME, and without a line in passwd; a `~` would be made here
        raise UsageError(
            f"{home} is no absolute path, so what is compiled cannot be kept: set HOME, or XDG_CACHE_HOME to a "
            f"directory of your own"
        )
    return Path(home, "safepoint")
