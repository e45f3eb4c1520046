"""The command line `safepoint`: a client of the library, and the only part of it that needs click and rich."""

from __future__ import annotations

import io
import sys

NEEDED = ("click", "inotify_simple", "rich")


def main() -> None:
    """Run the command that the arguments of this process name, and end the process with its exit code."""
    try:
        from safepoint.cli.group import program
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in NEEDED:
            raise
        print(missing(), file=sys.stderr)
        sys.exit(1)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without these characters is no failure of the command
    program(prog_name="safepoint")


def missing() -> str:
    """What to say where the packages of the command line are not installed."""
    needed = "the command line needs click and rich, on Linux inotify_simple too"
    return f"{needed}: pip install '.[cli]' in the directory of safepoint's source"
