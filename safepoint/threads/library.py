"""The runtime library for the programs of a compiler: `libsp_trace.a`, `sp_trace.h`, and for Fortran the module.

A build is keyed by the sources and the compilers, and is renamed into the cache when it is whole: two at once, or one
that is killed, leave none that is half. The archive is compiled by a compiler of C, `CC` or the first of gcc, cc and
clang, with the descriptors of arrays as the program's own compiler of Fortran has them.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from safepoint.c import cache
from safepoint.c.build import words
from safepoint.errors import UsageError
from safepoint.session import __version__
from safepoint.threads import interface

SOURCES = Path(__file__).resolve().parent / "c"
PARTS = "sp_trace.c", "sp_files.c", "sp_run.c", "sp_settings.c", "sp_digest.c"
HEADERS = "sp_trace.h", "sp_inner.h", "xxhash.h"
FLAGS = "-std=gnu11", "-O2", "-fPIC", "-w"
LINK = "-lm", "-lpthread"
DESCRIPTORS = "ISO_Fortran_binding.h"
FORTRAN = re.compile(
    r"(.*-)?(gfortran|flang|ifx|ifort|nvfortran|pgfortran|pgf90|mpi\w*f\w*|ftn|f\d\d|frt|xlf\w*)([-\d.].*|-new.*)?"
)


class Library(NamedTuple):
    """`include`: the directory of `sp_trace.h` and of the module. `flags`: what the linker needs behind the archive."""

    include: Path
    archive: Path
    flags: tuple[str, ...]


def library(compiler: str) -> Library:
    """For programs of this compiler, of C or of Fortran; built if need be. Raises `UsageError` with what is missing, or
    what a compiler says."""
    cc, fortran = _cc(), FORTRAN.fullmatch(os.path.basename(words(compiler)[0])) is not None
    version = _ran([*words(compiler), "--version"])
    parts = [compiler, version, *cc, _ran([*cc, "--version"]), *FLAGS, shutil.which(words(compiler)[0]) or ""]
    parts += [(SOURCES / name).read_text("utf-8") for name in (*PARTS, *HEADERS, interface.TARGET.name)]
    key = hashlib.sha256("\0".join(parts).encode(errors="surrogateescape")).hexdigest()[:16]
    home = cache(f"threads-{__version__}-{key}")
    if not home.exists():
        with tempfile.TemporaryDirectory(dir=home.parent) as place:
            os.mkdir(whole := os.path.join(place, "whole"))
            build(Path(whole), cc, words(compiler) if fortran else [], version)
            try:
                os.rename(whole, home)
            except OSError:
                if not home.exists():  # else another was quicker
                    raise
    return Library(home, home / "libsp_trace.a", LINK)


def build(place: Path, cc: Sequence[str], fortran: Sequence[str], version: str = "", more: Sequence[str] = ()) -> None:
    """Compile into a directory; `fortran` is empty for C alone. `more`: flags for the compiler of C."""
    name = version.strip().partition("\n")[0].replace("\\", "").replace('"', "")
    flags = [*FLAGS, f'-DSP_COMPILER="{name}"', f"-I{SOURCES}", *more]
    if fortran:
        flags += ["-DSP_DESCRIPTORS", f"-I{_descriptors(fortran, version, place)}"]
    _ran([*cc, *flags, "-c", *(str(SOURCES / each) for each in PARTS)], place)
    if fortran:
        _module(fortran, place)
    objects = sorted(path.name for path in place.glob("*.o"))
    _ran([*words(os.environ.get("AR") or "ar"), "rcs", "libsp_trace.a", *objects], place)
    for each in objects:
        os.unlink(place / each)
    shutil.rmtree(place / "descriptors", ignore_errors=True)
    shutil.copy(SOURCES / "sp_trace.h", place)


def _cc() -> list[str]:
    if chosen := os.environ.get("CC"):
        return words(chosen)
    for name in ("gcc", "cc", "clang"):
        if shutil.which(name):
            return [name]
    raise UsageError("the library of traces needs a compiler of C: none of gcc, cc, clang is in PATH; CC names another")


def _module(fortran: Sequence[str], place: Path) -> None:
    """With all kinds of reals that this compiler has."""
    text, path = interface.TARGET.read_text("utf-8"), place / "sp_trace.f90"
    options = interface.OPTIONS
    for left_out in ((), options[:1], options[1:], options):
        path.write_text(interface.without(left_out, text), "utf-8")
        try:
            _ran([*fortran, "-O2", "-fPIC", "-c", path.name, "-o", "sp_module.o"], place)
            break
        except UsageError:
            if left_out == options:
                raise
    os.unlink(path)


def _descriptors(fortran: Sequence[str], version: str, place: Path) -> Path:
    """A directory that has this compiler's header of descriptors; that of another compiler would be read wrongly."""
    if "GNU Fortran" in version:
        found = Path(_ran([*fortran, f"-print-file-name=include/{DESCRIPTORS}"]).strip())
        candidates = [found] if found.is_absolute() else []
    else:
        home = Path(os.path.realpath(shutil.which(_behind(fortran)) or "")).parents
        below = "include/flang", "include", "compiler/include", "opt/compiler/include"
        candidates = [up / name / DESCRIPTORS for up in home[1:4] for name in below]
        if chosen := os.environ.get("SP_FC_INCLUDE"):
            candidates.insert(0, Path(chosen, DESCRIPTORS))
    for path in candidates:
        if path.exists():
            alone = place / "descriptors"  # beside it lie headers that are not for the compiler of C
            alone.mkdir(exist_ok=True)
            shutil.copy(path, alone)
            return alone
    raise UsageError(
        f"{fortran[0]}: its {DESCRIPTORS} is not where it is looked for; SP_FC_INCLUDE names the directory of it"
    )


def _behind(fortran: Sequence[str]) -> str:
    """The compiler that a wrapper of an MPI library calls; else itself."""
    for option in ("-show", "-showme:command"):
        done = subprocess.run([*fortran, option], capture_output=True, text=True)
        if os.path.basename(fortran[0]).startswith("mpi") and done.returncode == 0 and done.stdout.split():
            return done.stdout.split()[0]
    return fortran[0]


def _ran(command: Sequence[str], place: Path | None = None) -> str:
    """What it prints. Raises `UsageError` with what it says."""
    try:
        done = subprocess.run(command, cwd=place, capture_output=True, text=True, errors="replace")
    except OSError as error:
        raise UsageError(f"cannot run {command[0]}: {error.strerror}", error.errno) from error
    if done.returncode:
        raise UsageError(f"{' '.join(command[:8])}:\n{(done.stderr or done.stdout).strip()[-3000:]}")
    return done.stdout
