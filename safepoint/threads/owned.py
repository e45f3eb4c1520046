"""What stands where a build, a note or a text is to be written: a file of the user's is never replaced.

(1) A program is replaced by a program only, as a linker does; never a source, an object, a library, a script.
(2) What comes beside it, of which the user named no word, is replaced only if it is known that a build made it: the
    directory and `.serial` by the mark in the directory, sites and notes by their own first lines.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from safepoint.errors import UsageError
from safepoint.threads.compilers import is_source
from safepoint.threads.line import INPUTS
from safepoint.threads.restarted import SERIAL
from safepoint.threads.sites import FORMAT
from safepoint.threads.texts import MARK, SITES, TEXTS

LIBRARY = re.compile(r"\.so\.[\d.]+$")
ELF, MACH = b"\x7fELF", (b"\xcf\xfa\xed\xfe", b"\xce\xfa\xed\xfe", b"\xca\xfe\xba\xbe")
PROGRAM = (2, 3)  # in the head of ELF: linked, and linked to run at any address
HEAD = 64  # bytes: what tells a program from anything else
NOTED = {"line", "source", "directory", "time"}


def check(target: Path, files: Iterable[Path]) -> list[str]:
    """Raises `UsageError` if building `target` would replace a file of the user's; `files`: what it is built of.
    Returns the checksums that its `.serial` may have until the new one is there, for the mark."""
    place = Path(f"{target}{TEXTS}")
    mark = _mark(place)
    if os.path.lexists(place) and mark is None:
        raise _in_the_way(place)
    if mark is not None and (others := names(place) - {MARK, *mark.get("files", [])}):
        raise UsageError(f"{place / min(others)} is not of a build, which would remove it: move it; nothing was built")
    _program(target, files)
    sites, serial = Path(f"{target}{SITES}"), Path(f"{target}{SERIAL}")
    if os.path.lexists(sites) and not is_sites(sites):
        raise _in_the_way(sites)
    if not os.path.lexists(serial):
        return []
    found = checksum(serial) if serial.is_file() else ""
    if mark is None or found not in mark.get(SERIAL, []):
        raise _in_the_way(serial)
    return [found]


def _program(target: Path, files: Iterable[Path]) -> None:
    """Raises `UsageError` unless the target is new, or a program."""
    if target.is_dir():
        raise UsageError(f"{target} is a directory: name another program with -o; nothing was built")
    for file in files:
        if target.exists() and file.exists() and target.samefile(file):
            raise UsageError(
                f"{target} is what the program is made of: name another program with -o; nothing was built"
            )
    if not target.exists():
        return
    named = is_source(target.name) or target.name.endswith(INPUTS) or LIBRARY.search(target.name)
    if named or not stat.S_ISREG(target.stat().st_mode) or not _linked(target):
        raise UsageError(f"{target} is there, and is no program: name another with -o, or move it; nothing was built")


def _linked(path: Path) -> bool:
    head = _head(path)
    return not head or head[:4] in MACH or (head[:4] == ELF and len(head) > 17 and max(head[16:18]) in PROGRAM)


def note(target: str, sources: Iterable[str], end: str) -> Path:
    """Where the note of an object goes. Raises `UsageError` if a file of the user's is there, or the object is one."""
    place = Path(f"{target}{end}")
    for source in sources:
        if os.path.exists(target) and os.path.samefile(target, source):
            raise UsageError(f"{target} is what the object is made of: name another with -o; nothing was compiled")
    if os.path.lexists(place) and not _first_line(place).keys() >= NOTED:
        raise UsageError(f"{place} is in the way, and no note of a build: move it; nothing was compiled")
    return place


def text(source: Path, out: Path) -> None:
    """Raises `UsageError` if the instrumented text of a source would replace another file than such a text."""
    sites = out.with_name(out.name + SITES)
    if out.exists() and out.samefile(source):
        raise UsageError(f"{out} is the source itself: name another file with -o; nothing was written")
    if os.path.lexists(sites) and not is_sites(sites):
        raise UsageError(f"{sites} is in the way, and not of a build: move it; nothing was written")
    if os.path.lexists(out) and not sites.exists():
        raise UsageError(f"{out} is there, and no text that was made here: move it; nothing was written")


LONGEST_LINE = 1 << 20  # bytes


def is_sites(path: Path) -> bool:
    head = _first_line(path)
    return head.keys() == {"format", "build"} and head["format"] == FORMAT


def checksum(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def names(place: Path) -> set[str]:
    """Of all files below a directory, for the mark."""
    return {os.path.relpath(os.path.join(at, name), place) for at, _, found in os.walk(place) for name in found}


def _mark(place: Path) -> dict[str, Any] | None:
    found = _first_line(place / MARK)
    return found if {"line", "build"} <= found.keys() else None


def _first_line(path: Path) -> dict[str, Any]:
    """Empty if there is none, or it is no JSON object."""
    try:
        with open(path, "rb") as file:
            found = json.loads(file.readline(LONGEST_LINE))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _head(path: Path) -> bytes:
    with open(path, "rb") as file:
        return file.read(HEAD)


def _in_the_way(path: Path) -> UsageError:
    return UsageError(f"{path} is in the way, and not of a build: move it; nothing was built")
