"""Jobs of many ranks: how they are started here."""

from __future__ import annotations

import sys

import launcher


def mpiexec(ranks: int, *command: object) -> list[str]:
    return [launcher.mpiexec(), "-n", str(ranks), sys.executable, "-W", "error", *map(str, command)]
