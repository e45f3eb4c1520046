"""Build a program twice from the user's own line: with OpenMP and calls that record, and the same without OpenMP.

(1) Nothing of the user's changes on error: all is made in a directory beside the result, and renamed when it is whole.
    What is there already is replaced only if a build made it (`owned.py`).
(2) Both programs have the same text and the same sites: what is compared is OpenMP alone.
(3) The line keeps its order, so modules are found as the user's line finds them.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from safepoint.errors import UsageError
from safepoint.threads import apart, library, line, owned, texts
from safepoint.threads.bodies import Bodies, name_of
from safepoint.threads.compilers import called, said
from safepoint.threads.restarted import SERIAL
from safepoint.threads.texts import MARK, SITES, TEXTS

IDS = """\
/* Made by `safepoint threads build`: where the sites of this program are described. */
const char sp_build_id[] = {id};
const char sp_build_sites[] = {sites};
"""


class Built(NamedTuple):
    """`sites`: None if no Fortran is in it, so that all sites are made by hand. `told`: a line per source. `warnings`:
    lines with file and line of what looks wrong before any run."""

    parallel: Path
    serial: Path
    sites: Path | None
    texts: Path
    told: list[str]
    warnings: list[str]
    counts: dict[str, dict[str, int]]


def build(words: Sequence[str], out: Path | None = None, *, settings: Any = None) -> Built | list[Path]:
    """Make `out` and `out.serial` from the line. With `-c` on it: the user's own objects, with a note for the line that
    links them. Raises `UsageError` with what a compiler says; then all is as it was."""
    parts = line.parse(words)
    if parts.objects_only:
        return apart.compile_plain(parts, words)
    units, told = apart.units(parts)
    _check(parts, units, told)
    target = out or Path(parts.output or "a.out")
    runtime = library.library(units[0].line.compiler[0])
    old = owned.check(target, _files(parts, units))
    with _beside(target) as work:
        bodies = Bodies(runtime, work, settings)
        bodies.survey(units)
        for unit in units:
            bodies.compile(unit)
        bodies.told += [*told, *bodies.unmatched()]
        build_id = texts.write_sites(work / f"x{SITES}", bodies.sites)
        more = [str(runtime.archive)]
        if bodies.sites:
            more.insert(0, str(_ids(work, build_id, target)))
        for variant, name in (("parallel", "x"), ("serial", f"x{SERIAL}")):
            _link(parts, bodies.objects[variant], [*more, *runtime.flags], work / name)
        note = {
            "line": list(words), "build": build_id, "edges": getattr(settings, "edges", None),
            "sources": [os.path.abspath(unit.line.directory / unit.source) for unit in units],
            "left": bodies.left, "warnings": bodies.warnings, "screen": _screen(bodies),
            "linked": told,
            "unknown": _unknown(units, bodies), "files": sorted(owned.names(work) - {"x", f"x{SERIAL}"}),
            SERIAL: [owned.checksum(work / f"x{SERIAL}"), *old],
        }  # fmt: skip
        (work / MARK).write_text(json.dumps(note) + "\n", "utf-8")
        return _placed(work, target, bodies)


def _files(parts: line.Line, units: Sequence[apart.Unit]) -> list[Path]:
    """What the program is made of."""
    inputs = [parts.directory / word.parts[0] for word in parts.words if word.kind in ("source", "input")]
    return [*inputs, *(unit.line.directory / unit.source for unit in units)]


def _check(parts: line.Line, units: Sequence[apart.Unit], told: Sequence[str]) -> None:
    if not units:
        stale = [f"{text.partition(',')[0]}\n" for text in told if apart.NOTE in text][:1]
        raise UsageError(
            f"{''.join(stale)}the line links objects of which nobody knows how they were made: compile each with "
            "`safepoint threads build -- COMPILER -c …` too, in a Makefile with "
            "FC = safepoint threads build -- gfortran"
        )
    if not parts.openmp and not any(unit.line.openmp for unit in units):
        family = parts.family
        raise UsageError(
            f"no flag for OpenMP is on the line, so there would be nothing to compare: add {family.example} "
            f"({family.name})"
        )


def _screen(bodies: Bodies) -> list[dict[str, Any]]:
    """What the sources in Fortran print."""
    if not bodies.modules:
        return []
    from safepoint.threads import screen

    return [each._asdict() for each in screen.survey(bodies.modules)]


def _unknown(units: Sequence[apart.Unit], bodies: Bodies) -> list[str]:
    """Sources of which nobody knows what they print."""
    return [name for unit in units if (name := name_of(unit)) not in bodies.counts]


def _link(parts: line.Line, objects: dict[str, str], more: Sequence[str], target: Path) -> None:
    """With the flag for OpenMP even for the serial program: a call of `omp_get_wtime` must be found."""
    command = [*parts.linking(objects, more), "-o", str(target)]
    done = called(command)
    if done.returncode:
        raise UsageError(f"not linked, and nothing was changed: {' '.join(command)}\n{said(done)}")


def _ids(work: Path, build_id: str, target: Path) -> Path:
    """An object that tells the runtime which sites these are, and where they are described."""
    where = os.path.realpath(f"{target}{SITES}")
    source, made = work / "ids.c", work / "ids.o"
    source.write_text(IDS.format(id=_quoted(build_id), sites=_quoted(where)), "utf-8", errors="surrogateescape")
    compiler = os.environ.get("CC", "cc").split()
    done = called([*compiler, "-c", str(source), "-o", str(made)])
    if done.returncode:
        raise UsageError(f"the C compiler ({' '.join(compiler)}; CC names another) makes no object\n{said(done)}")
    return made


def _quoted(text: str) -> str:
    """A string of C."""
    return '"' + "".join(f"\\{byte:03o}" if byte < 32 or byte > 126 or byte in b'"\\?' else chr(byte)
                         for byte in os.fsencode(text)) + '"'  # fmt: skip


@contextlib.contextmanager
def _beside(target: Path) -> Iterator[Path]:
    """A new directory beside the target, removed if it was not renamed. Raises `UsageError` if there is no place for
    it, and OSError that names the place, not ours, if the system refuses it."""
    if not target.parent.is_dir():
        why = "is no directory" if os.path.lexists(target.parent) else "does not exist"
        raise UsageError(f"{target}: {target.parent} {why}; nothing was built", errno.ENOENT)
    try:
        work = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent)).resolve()
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(target)) from error
    try:
        yield work
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _placed(work: Path, target: Path, bodies: Bodies) -> Built:
    """The texts first, the program last: until then the old one runs as it did."""
    made, names = Path(f"{target}{TEXTS}"), [("x" + SITES, SITES), ("x" + SERIAL, SERIAL), ("x", "")]
    if not bodies.sites:
        names = names[1:]
    with tempfile.TemporaryDirectory(prefix=f".{target.name}-", dir=target.parent) as away:
        if made.exists():
            os.rename(made, Path(away) / "old")
        os.mkdir(made)
        for name in os.listdir(work):
            if not name.startswith("x") or name not in dict(names):
                os.rename(work / name, made / name)
    for name, end in names:
        os.replace(work / name, f"{target}{end}")
    sites = Path(f"{target}{SITES}") if bodies.sites else None
    return Built(target, Path(f"{target}{SERIAL}"), sites, made, bodies.told, bodies.warnings, bodies.counts)
