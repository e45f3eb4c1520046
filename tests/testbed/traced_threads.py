"""Programs with the calls of `sp_trace`, compiled once for all tests, run, and their traces read."""

from __future__ import annotations

import functools
import glob
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from safepoint.threads import kinds, library
from safepoint.threads.trace import Run, Thread, decoded
from testbed.builds import built_once, digest_of, version

SOURCES = Path(__file__).parent / "c" / "threads"
LIBRARY = Path(library.__file__).parent / "c"
OMP = [f"-L{os.path.dirname(path)}" for path in sorted(glob.glob("/usr/lib/llvm-*/lib/libomp.so"))[:1]]
TELLS = ("SP_", "OMP_", "PMI_")  # variables that a test sets itself


class Event(NamedTuple):
    """`words`: its value, and those of its records MORE."""

    kind: int
    site: int
    extra: int
    type: int
    words: tuple[int, ...]

    @property
    def value(self) -> Any:
        return decoded(self.type, list(self.words))


def needs(compiler: str) -> None:
    if shutil.which(compiler) is None:
        pytest.skip(f"no {compiler} here")


@functools.cache
def compiled(source: str, compiler: str = "gcc", *flags: str, archive: Path | None = None) -> Path:
    """The program of a source in `testbed/c/threads`. Skips if there is no such compiler, or it has no OpenMP."""
    needs(compiler)
    of = library.library(compiler)
    name = source.partition(".")[0]
    ended = ["-xnone"] if "-xc++" in flags else []
    command = [compiler, "-O2", "-DSP_TRACE", *flags, str(SOURCES / source), *ended, f"-I{of.include}", "-o", name,
               str(archive or of.archive), *of.flags]  # fmt: skip
    command += OMP if "flang" in compiler or "clang" in compiler else []

    def link(place: Path) -> None:
        done = subprocess.run(command, capture_output=True, text=True, cwd=place)
        if "-fopenmp" in flags and re.search(r"cannot find -l\w*omp|omp\.h|omp_lib", done.stderr):
            pytest.skip(f"no OpenMP for {compiler} here")
        assert done.returncode == 0, done.stderr
        assert "warning" not in done.stderr, done.stderr

    return built_once(name, [*command, version(compiler), digest_of(SOURCES, LIBRARY)], link) / name


@functools.cache
def killable() -> Path:
    """A library that calls `sp_point` wherever a kill would be between two steps."""
    more = ["-DSP_POINT=extern void sp_point(void); sp_point();"]

    def build(place: Path) -> None:
        library.build(place, ["gcc"], [], more=more)

    return built_once("killable", [*more, version("gcc"), digest_of(LIBRARY)], build) / "libsp_trace.a"


def ran(
    program: Path, at: Path, *arguments: str, check: bool = True, **variables: str
) -> subprocess.CompletedProcess[str]:
    """The program in directory `at`. With `check` it must end with 0."""
    path = os.environ.get("LD_LIBRARY_PATH", "").split(":") + [flag[2:] for flag in OMP]
    environ = {name: value for name, value in os.environ.items() if not name.startswith(TELLS)}
    environ |= {"LD_LIBRARY_PATH": ":".join(filter(None, path)), **variables}
    done = subprocess.run([str(program), *arguments], cwd=at, env=environ, capture_output=True, text=True)
    assert not check or done.returncode == 0, done
    return done


def run_of(program: Path, at: Path, *arguments: str, **variables: str) -> Run:
    """The trace that it wrote; SP_LEVEL is full if nothing else is said."""
    ran(program, at, *arguments, **{"SP_LEVEL": "full", **variables})
    return Run(at / f"{program.name}.threads")


def events(thread: Thread) -> list[Event]:
    found: list[tuple[int, int, int, int, list[int]]] = []
    for site, extra, type, kind, value in thread.records.tolist():
        if kind == kinds.MORE:
            found[-1][4].append(value)
        else:
            found.append((kind, site, extra, type, [value]))
    for kind, _, extra, type, words in found:
        assert len(words) == 1 + kinds.more(kind, type, extra, words[0]), (kind, words)
    return [Event(*each[:4], tuple(each[4])) for each in found]


def names(thread: Thread) -> list[str]:
    """Of its events."""
    return [kinds.NAMES[event.kind] for event in events(thread)]
