"""The directories that the commands look at."""

from __future__ import annotations

from testbed.commands import anew, four, no_width, pristine, ranked, work  # noqa: F401
