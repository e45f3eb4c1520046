"""What is to be recorded where: `threads.toml`, and `!$sp` lines in the source, which win.

[levels]                      # off, region, write, full (everything; this is how it is without a file)
regions = "full"              # and variables, procedures
depth = 1                     # inside that many nested regions; below no iteration is traced
edges = 2                     # as SP_EDGES, for the run
digest = ["u", "v"]           # these too at the end of each region, where they are known
[file."solver.f90"]
level = "write"
[[file."solver.f90".lines]]
from = 10
to = 40
level = "off"
[procedure.smooth]
level = "region"
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from safepoint.errors import UsageError
from safepoint.threads.lines import Source

LEVELS = ("off", "region", "write", "full")


@dataclass(frozen=True)
class Choices:
    """The settings of a build. `include`, `defines`, `width`, `free`: of the user's line, for what is read."""

    variables: str = "full"
    procedures: bool = True
    regions: str = "full"
    depth: int = 0
    edges: int | None = None
    digest: tuple[str, ...] = ()
    files: dict[str, dict[str, Any]] = field(default_factory=dict)
    units: dict[str, dict[str, Any]] = field(default_factory=dict)
    include: tuple[Path, ...] = ()
    defines: tuple[str, ...] = ()
    width: int | None = None
    free: bool | None = None


def read(path: Path) -> Choices:
    """Raises `UsageError` for what is not TOML, or a level that is none."""
    if sys.version_info >= (3, 11):
        import tomllib as toml
    else:
        try:
            import tomli as toml
        except ImportError as error:
            raise UsageError("Python before 3.11 reads no TOML by itself: pip install tomli") from error
    try:
        given = toml.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: {error}") from error
    return choices(given, str(path))


def choices(given: dict[str, Any], name: str = "threads.toml") -> Choices:
    """From what is in the file."""
    levels = given.get("levels", {})
    known = {"levels", "file", "procedure", "depth", "edges", "digest"}
    if strange := [key for key in given if key not in known] + [
        key for key in levels if key not in ("regions", "variables", "procedures", "depth", "edges", "digest")
    ]:
        raise UsageError(f"{name}: {strange[0]} is not known; there are {', '.join(sorted(known))}")
    found = [levels.get("regions"), levels.get("variables"), levels.get("procedures")]
    for table in (given.get("file", {}), given.get("procedure", {})):
        for entry in table.values():
            found += [entry.get("level"), *(lines.get("level") for lines in entry.get("lines", []))]
    for level in found:
        if level is not None and level not in LEVELS:
            raise UsageError(f"{name}: level {level!r} is not one of {', '.join(LEVELS)}")
    more = {**levels, **given}
    return Choices(
        variables=levels.get("variables", "full"), procedures=levels.get("procedures", "full") != "off",
        regions=levels.get("regions", "full"), depth=int(more.get("depth", 0)), edges=more.get("edges"),
        digest=tuple(str(each).lower() for each in more.get("digest", [])), files=given.get("file", {}),
        units={key.lower(): value for key, value in given.get("procedure", {}).items()},
    )  # fmt: skip


class Levels:
    """The level of each line of one source."""

    def __init__(self, source: Source, settings: Choices, untouched: frozenset[int]) -> None:
        self.source, self.settings, self.untouched = source, settings, untouched
        self.marks: list[tuple[int, str]] = []
        self.strange: list[tuple[int, str]] = []  # `!$sp` lines that say nothing known
        for given in source.sentinels:
            if given.kind == "sp":
                self._mark(given.first, given.text.lower())

    def _mark(self, at: int, text: str) -> None:
        found = re.fullmatch(r"(off|on|level\s+(\w+)|watch\b.*)", text.strip())
        if not found or (found[2] and found[2] not in LEVELS):
            self.strange.append((self.source.lines[at].line, text))
        elif not text.startswith("watch"):
            level = found[2] or ("off" if found[1] == "off" else "")
            self.marks.append((at, level))

    def at(self, number: int, procedure: str) -> str:
        """off, region, write or full."""
        where = self.source.lines[number]
        if where.line in self.untouched:
            return "off"
        level = self.settings.variables
        for name, entry in self.settings.files.items():
            if where.file == name or where.file.endswith("/" + name):
                level = entry.get("level", level)
        level = self.settings.units.get(procedure, {}).get("level", level)
        for name, entry in self.settings.files.items():
            if where.file == name or where.file.endswith("/" + name):
                for lines in entry.get("lines", []):
                    if lines["from"] <= where.line <= lines.get("to", lines["from"]):
                        level = lines.get("level", "off")
        for mark, said in self.marks:
            if mark <= number:
                level = said or self.settings.variables
        return str(level)
