"""Each source of a line compiled twice, with OpenMP and without, from one text with the calls that record.

Where a compiler refuses that text, the user's own is tried: if it is refused too, the mistake is the user's. Else the
statement at which it stopped is left as it is, once; and if that is refused again, the whole file.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from safepoint.errors import UsageError
from safepoint.threads import texts
from safepoint.threads.apart import Unit
from safepoint.threads.compilers import called, is_fortran, said
from safepoint.threads.library import Library
from safepoint.threads.sites import Site

VARIANTS = ("parallel", "serial")
MARKER = re.compile(r'#\s*(?:line\s+)?(\d+)\s+"([^"]*)"')
MOST_LINES = 8  # of what a compiler says about what was inserted


class Bodies:
    """The sources that were compiled so far. `unread`: those of which nothing is recorded. `sites`: of all of them.
    `told`: a line for each. `objects`: by variant and by the word of the line that links."""

    def __init__(self, runtime: Library, work: Path, settings: Any) -> None:
        self.runtime, self.work, self.settings = runtime, work, settings
        self.next = 1
        self.sites: list[Site] = []
        self.told: list[str] = []
        self.warnings: list[str] = []
        self.counts: dict[str, dict[str, int]] = {}
        self.left: list[tuple[str, int, str, str]] = []
        self.objects: dict[str, dict[str, str]] = {variant: {} for variant in VARIANTS}
        self.modules: dict[str, Any] = {}
        self.unread = set[str]()
        for variant in VARIANTS:
            (work / variant).mkdir()

    def survey(self, units: Sequence[Unit]) -> None:
        """Read all sources before the first is written: then it is known what a procedure does wherever it is called,
        such as that its argument is a clock."""
        from safepoint.threads import fortran

        named = [(Path(name_of(unit)), self._choices(unit)) for unit in units if is_fortran(name_of(unit))]
        fortran.survey(named, self.modules)

    def compile(self, unit: Unit) -> None:
        """Raises `UsageError` with what the compiler says if it refuses the user's own text."""
        source, first = name_of(unit), self.next
        if not is_fortran(source):
            self._compiled(unit, None, ("-DSP_TRACE",), must=True)
            self.told.append(f"{source}: {_calls(Path(source))} (C is not instrumented)")
            return
        if (made := self._instrumented(unit, first, frozenset())) is None:
            return
        text = self._fresh(source)
        if refused := self._try(unit, text, made):
            self._compiled(unit, None, (), must=True)  # raises if the mistake is the user's
            blamed = self._blamed(unit, text, made.text)
            self._tell_refused(source, refused, blamed)
            made = self._instrumented(unit, first, frozenset(blamed)) if blamed else None
            if made is None or self._try(unit, text, made):
                self._as_it_is(unit, 1, "the compiler refuses what was inserted")
                return
        self._count(source, made)

    def unmatched(self) -> list[str]:
        """A line for each name in the settings that stands for nothing in the sources that were compiled."""
        from safepoint.threads import choices, known

        read = self.modules.get(known.FILES, {})
        files = {line.file for source, _ in read.values() for line in source.lines}
        units = None if self.unread else {unit.name for _, found in read.values() for unit in _all(found)}
        digests = {site.name for site in self.sites if site.type == "array"}
        return choices.unmatched(self.settings, files | self.unread, units, digests) if self.settings else []

    def _choices(self, unit: Unit) -> Any:
        from safepoint.threads.choices import Choices

        return replace(self.settings or Choices(), **unit.line.reading(Path(name_of(unit)).parent))

    def _instrumented(self, unit: Unit, first: int, untouched: frozenset[int]) -> Any:
        """None if it cannot be read: then it was compiled as it is, and that was said."""
        from safepoint.threads import fortran

        try:
            return fortran.instrument(
                Path(name_of(unit)),
                settings=self._choices(unit),
                modules=self.modules,
                first=first,
                untouched=untouched,
            )  # fmt: skip
        except fortran.Unreadable as error:
            self._as_it_is(unit, error.line, str(error))
            return None

    def _as_it_is(self, unit: Unit, line: int, why: str) -> None:
        source = name_of(unit)
        self.unread.add(source)
        self._compiled(unit, None, (), must=True)
        self.warnings.append(f"{source}:{line}: {texts.AS_IT_IS}: {why}")
        self.told.append(f"{source}: nothing recorded")

    def _fresh(self, source: str) -> Path:
        """Where the text of a source goes; its name is the user's, if it is the first one of that name."""
        text = self.work / os.path.basename(source)
        return text if not text.exists() else self.work / f"{len(self.objects['serial'])}-{text.name}"

    def _try(self, unit: Unit, text: Path, made: Any) -> str:
        """What the compiler says against the text; empty: it is compiled."""
        text.write_text(made.text, "utf-8", errors="surrogateescape")
        return self._compiled(unit, text, unit.line.family.quiet)

    def _compiled(self, unit: Unit, text: Path | None, more: Sequence[str], *, must: bool = False) -> str:
        """Both variants side by side, of the user's file or of a text; what the compiler says if it refuses one."""
        commands = []
        for variant, objects in self.objects.items():
            if unit.key not in objects:
                objects[unit.key] = str(self.work / variant / f"{len(objects)}-{Path(unit.source).stem}.o")
            commands.append(self._command(variant, unit, text, more))
        for done in _together(commands, unit.line.directory):
            if done.returncode and must:
                raise UsageError(f"{name_of(unit)}: not compiled, and nothing was changed\n{said(done)}")
            if done.returncode:
                return said(done)
        return ""

    def _command(self, variant: str, unit: Unit, text: Path | None, more: Sequence[str]) -> list[str]:
        line, place = unit.line, self.work / variant
        command = line.compiling(openmp=variant == "parallel")
        if is_fortran(unit.source):
            for flag in line.family.modules:
                command += [f"-J{place}"] if flag == "-J" else [flag, str(place)]
            command += [f"-I{place}", *([f"-I{line.module_directory}"] if line.module_directory else [])]
        command += [f"-I{self.runtime.include}", f"-I{os.path.dirname(unit.source) or '.'}", *more]
        return [*command, "-c", str(text or unit.source), "-o", self.objects[variant][unit.key]]

    def _blamed(self, unit: Unit, text: Path, marked: str) -> dict[int, str]:
        """The lines of the user's at which the compiler stops, and what was inserted there: asked once more, without
        the markers, it names the lines of the text itself."""
        lines = marked.splitlines()
        text.write_text("\n".join("" if MARKER.match(line) else line for line in lines), "utf-8", "surrogateescape")
        refused = self._compiled(unit, text, unit.line.family.quiet)
        pattern = re.escape(text.name) + r"(?::\s*|\s*\(|:\s*line )(\d+)"
        found: dict[int, str] = {}
        for number in map(int, re.findall(pattern, refused)):
            if number <= len(lines) and (at := _marked(lines, number)):
                found.setdefault(at, lines[number - 1].strip())
        return found

    def _tell_refused(self, source: str, refused: str, blamed: dict[int, str]) -> None:
        cause = "\n".join(f"    {line}" for line in refused.splitlines()[:MOST_LINES])
        if not blamed:
            self.warnings.append(f"{source}:1: the compiler refuses what was inserted:\n{cause}")
            return
        for number, call in blamed.items():
            what = f"the compiler refuses what was inserted here, {call}: this statement is not recorded"
            self.warnings.append(f"{source}:{number}: {what}")
        self.warnings[-1] += f"\n{cause}"

    def _count(self, source: str, made: Any) -> None:
        self.sites += made.sites
        self.next = max([self.next, *(site.number + 1 for site in made.sites)])
        self.counts[source] = texts.counts(made)
        self.left += texts.left(source, made)
        self.told.append(f"{source}: {texts.counted(made)}")
        self.warnings += [f"{source}:{number}: {text}" for number, text in made.warnings]


def _all(units: Iterable[Any]) -> Iterator[Any]:
    """With the procedures in them."""
    for unit in units:
        yield unit
        yield from _all(unit.inside)


def _marked(lines: Sequence[str], number: int) -> int:
    """The line of the user's that a line of the text is of; 0: of none."""
    for at in range(number - 1, -1, -1):
        if marker := MARKER.match(lines[at]):
            return int(marker[1]) + number - at - 2
    return 0


def name_of(unit: Unit) -> str:
    """Of its source, as seen from here."""
    return os.path.relpath(unit.line.directory / unit.source) if unit.line.directory != Path() else unit.source


def _together(commands: Sequence[Sequence[str]], directory: Path) -> list[subprocess.CompletedProcess[str]]:
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(len(commands)) as pool:
        return list(pool.map(lambda command: called(command, directory), commands))


def _calls(source: Path) -> str:
    """Whether a source in C has calls by hand; those in a header of its own are not seen."""
    with contextlib.suppress(OSError):
        if not re.search(r"\b(SP_[A-Z]|sp_[a-z])", source.read_text("utf-8", errors="replace")):
            return "no SP_ call in it, so nothing is recorded"
    return "the calls that are in it"
