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

import json
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from safepoint.errors import UsageError
from safepoint.threads.lines import Source

LEVELS = ("off", "region", "write", "full")
NAME = re.compile(r"[a-z]\w*(%[a-z]\w*)*", re.I)  # of a variable, or of its component
Check = Callable[[Any, str, str], None]  # of a value, the name of the file, and the key: raises `UsageError`


@dataclass(frozen=True)
class Choices:
    """The settings of a build. `name`: of their file. `include`, `defines`, `width`, `free`: of the user's line, for
    what is read."""

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
    name: str = "threads.toml"


def read(path: Path) -> Choices:
    """Raises `UsageError` for what is not TOML, or no setting."""
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
    """From what is in the file. Raises `UsageError` with file, key and cause."""
    _table(given, {"levels": _levels, "file": _each(_file), "procedure": _each(_unit), **NUMBERS}, name, "")
    levels = given.get("levels", {})
    more = {**levels, **given}
    return Choices(
        variables=levels.get("variables", "full"), procedures=levels.get("procedures", "full") != "off",
        regions=levels.get("regions", "full"), depth=more.get("depth", 0), edges=more.get("edges"),
        digest=tuple(each.lower() for each in more.get("digest", [])), files=given.get("file", {}),
        units={key.lower(): value for key, value in given.get("procedure", {}).items()}, name=name,
    )  # fmt: skip


def unmatched(
    settings: Choices, files: Iterable[str], units: Iterable[str] | None, digests: Iterable[str]
) -> list[str]:
    """A line for each entry that names nothing. `files`: that are read. `units`: procedures; None: not all are known.
    `digests`: names of all that is digested."""
    sources, known, arrays = set(files), None if units is None else set(units), set(digests)
    found = [f"[file.{json.dumps(name)}] is no Fortran source of this program" for name in settings.files
             if not any(_is_file(each, name) for each in sources)]  # fmt: skip
    found += [f"[procedure.{name}] is no procedure of this program" for name in settings.units
              if known is not None and name not in known]  # fmt: skip
    found += [f"digest: {name} is no variable that any region could digest" for name in settings.digest
              if not any(each == name or each.startswith(f"{name}%") for each in arrays)]  # fmt: skip
    return [f"{settings.name}: {text}" for text in found]


def _is_file(path: str, name: str) -> bool:
    return path == name or path.endswith("/" + name)


def _table(given: Any, known: Mapping[str, Check], name: str, where: str) -> None:
    """Raises `UsageError` for a key that is not known, or what its own check refuses."""
    if not isinstance(given, dict):
        raise UsageError(f"{name}: {where} is {given!r}: a table is wanted, [{where}]")
    for key, value in given.items():
        if key not in known:
            place = f" in [{where}]" if where else ""
            raise UsageError(f"{name}: {key}{place} is not known; there are {', '.join(sorted(known))}")
        known[key](value, name, f"{where}.{key}" if where else key)


def _each(check: Check) -> Check:
    """Of a table with an entry for each name."""

    def checked(given: Any, name: str, where: str) -> None:
        _table(given, dict.fromkeys(given if isinstance(given, dict) else (), check), name, where)

    return checked


def _levels(given: Any, name: str, where: str) -> None:
    _table(given, {"regions": _level, "variables": _level, "procedures": _level, **NUMBERS}, name, where)


def _file(given: Any, name: str, where: str) -> None:
    _table(given, {"level": _level, "lines": _lines}, name, where)


def _unit(given: Any, name: str, where: str) -> None:
    _table(given, {"level": _level}, name, where)


def _lines(given: Any, name: str, where: str) -> None:
    for entry in given if isinstance(given, list) else [given]:
        _table(entry, {"from": _number, "to": _number, "level": _level}, name, where)
        if "from" not in entry or entry.get("to", entry["from"]) < entry["from"]:
            raise UsageError(f"{name}: {where}: lines go from = N to = M, and M is not before N")
    if not isinstance(given, list):
        raise UsageError(f"{name}: {where} is a table: a list of tables is wanted, [[{where}]]")


def _level(given: Any, name: str, where: str) -> None:
    if given not in LEVELS:
        raise UsageError(f"{name}: {where}: level {given!r} is not one of {', '.join(LEVELS)}")


def _number(given: Any, name: str, where: str) -> None:
    if type(given) is not int or given < 0:
        raise UsageError(f"{name}: {where} is {given!r}: a number is wanted, 0 or more")


def _digest(given: Any, name: str, where: str) -> None:
    if not isinstance(given, list) or not all(isinstance(each, str) and NAME.fullmatch(each) for each in given):
        raise UsageError(f'{name}: {where} is {given!r}: a list of variables is wanted, as in ["u", "grid%v"]')


NUMBERS: dict[str, Check] = {"depth": _number, "edges": _number, "digest": _digest}


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
            if _is_file(where.file, name):
                level = entry.get("level", level)
        level = self.settings.units.get(procedure, {}).get("level", level)
        for name, entry in self.settings.files.items():
            if _is_file(where.file, name):
                for lines in entry.get("lines", []):
                    if lines["from"] <= where.line <= lines.get("to", lines["from"]):
                        level = lines.get("level", "off")
        for mark, said in self.marks:
            if mark <= number:
                level = said or self.settings.variables
        return str(level)
