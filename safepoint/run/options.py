"""What `safepoint run` was asked for, and how a command that is given as text is started."""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass, field


@dataclass
class Options:
    directory: str
    command: list[str]
    resume: list[str] = field(default_factory=list)
    check: str = ""
    until: str = ""
    retries: int = 0
    tolerate: str = ""
    again: bool = False
    keep: str | None = None
    limit: str = ""
    signal: str = ""


def shell_words(command: str) -> list[str]:
    return shlex.split(command) if os.name == "nt" else ["/bin/sh", "-c", command]
