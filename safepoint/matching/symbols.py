"""Where the calls of a program in C or Fortran stand: file, line and function of the addresses that its trace has.

`addr2line` is asked once for each module. Without it, or in a program without debug information, the module and the
offset stay. An address is that to which a call returns: the call is in the line of the byte before.
"""

from __future__ import annotations

import os
import subprocess
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

OURS = ("safepoint_", "__safepoint_MOD_", "__safepoint_df_MOD_")  # functions of the library that a hide comes through
MODULES = 200  # a damaged trace may name any number; the first of them are asked about
AT_ONCE = 500  # addresses that one command is given


class Site(NamedTuple):
    """Where a call stands."""

    file: str
    line: int  # 0: not known
    function: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.line else self.file or "?"


def sites(lines: Sequence[str]) -> list[Site]:
    """Of each line of `.sites` what it says. Those of C may have several addresses, each called by the next one: the
    first outside of the library counts."""
    wanted: dict[str, list[int]] = defaultdict(list)
    chains = [_chain(line) for line in lines]
    for module, offsets in chains:
        wanted[module] += offsets
    asked = [(module, offsets) for module, offsets in wanted.items() if offsets]
    known = {module: _resolved(module, sorted(set(offsets))) for module, offsets in asked[:MODULES]}
    known |= {module: {} for module, _ in asked[MODULES:]}
    return [
        _first(module, [known[module].get(offset) or _bare(module, offset) for offset in offsets])
        if offsets
        else _told(line)
        for line, (module, offsets) in zip(lines, chains, strict=True)
    ]


def _chain(line: str) -> tuple[str, list[int]]:
    """Module and offsets of a site of C; no offsets: it is of another kind."""
    kind, module, offsets, _ = (*line.split("\t"), "", "", "", "")[:4]
    try:
        return module, [int(offset, 16) for offset in offsets.split(",")] if kind == "c" else []
    except ValueError:
        return module, []


def _told(line: str) -> Site:
    _, file, number, function = (*line.split("\t"), "", "", "", "")[:4]
    return Site(file, int(number) if number.isdecimal() and len(number) < 10 else 0, function)


def _bare(module: str, offset: int) -> Site:
    return Site(f"{module}+{offset:#x}", 0, "")


def _first(module: str, found: list[Site]) -> Site:
    return next((site for site in found if not site.function.startswith(OURS)), found[-1])


def _resolved(module: str, offsets: list[int]) -> dict[int, Site]:
    """Those of which the module's debug information says the line, or at least its symbols the function."""
    found: dict[int, Site] = {}
    if not os.path.isfile(module):
        return found
    for at in range(0, len(offsets), AT_ONCE):
        part = offsets[at : at + AT_ONCE]
        try:
            done = subprocess.run(
                ["addr2line", "-f", "-C", "-e", module, *(hex(max(0, offset - 1)) for offset in part)],
                capture_output=True, text=True, errors="replace",
            )  # fmt: skip
        except OSError:
            return found
        answers = done.stdout.splitlines()
        for offset, function, place in zip(part, answers[::2], answers[1::2], strict=False):
            file, _, number = place.partition(" (")[0].rpartition(":")
            function = "" if function == "??" else function
            if file not in ("", "??") and number.isdecimal() and len(number) < 10 and int(number):
                found[offset] = Site(file, int(number), function)
            elif function:
                found[offset] = _bare(module, offset)._replace(function=function)
    return found
