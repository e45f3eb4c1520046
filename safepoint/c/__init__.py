"""The library for C and Fortran: its sources, and what compiles them. A program that it serves has `foreign` beside."""

from __future__ import annotations

import os
from pathlib import Path


def cache() -> Path:
    """Where what was built is kept from run to run."""
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(home, "safepoint")
