"""Compile the library for C and Fortran with the program's own compilers: `libsafepoint.a`, headers, the module.

A build is keyed by the compilers, this Python and the sources, and is renamed into the cache when it is whole: two at
once, or one that is killed, leave none that is half.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from safepoint.c import cache
from safepoint.errors import UsageError
from safepoint.session import __version__

SOURCES = Path(__file__).resolve().parent
HEADERS = ("safepoint.h", "safepoint_mpi.h", "safepoint_df.h")
FLAGS = ("-O2", "-fPIC")


class Compilers(NamedTuple):
    """The commands, each with its options; empty: without."""

    cc: str = "cc"
    mpicc: str = ""
    fc: str = ""

    @property
    def mpi(self) -> bool:
        return bool(self.mpicc)


def built(compilers: Compilers, prefix: Path | None = None) -> Path:
    """The directory with `include` and `lib`, made if need be. Raises `UsageError` with what a compiler says."""
    versions = [_version(command) + _behind(command) for command in compilers if command]
    if prefix is not None:
        prefix.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=prefix) as place:
            _build(compilers, Path(place), prefix)
            for path in sorted(Path(place).rglob("*")):
                if path.is_file():
                    target = prefix / path.relative_to(place)
                    target.parent.mkdir(parents=True, exist_ok=True)
                    os.replace(path, target)
        return prefix
    parts = [str(SOURCES), _packages(), sys.executable, os.environ.get("LD_LIBRARY_PATH", ""), *compilers, *versions]
    parts += [
        path.read_text("utf-8") for path in sorted(SOURCES.iterdir()) if path.suffix in (".c", ".h", ".f90", ".py")
    ]
    key = hashlib.sha256("\0".join(parts).encode(errors="surrogateescape")).hexdigest()[:16]
    home = cache(f"c-{__version__}-{key}")
    if not home.exists():
        with tempfile.TemporaryDirectory(dir=home.parent) as place:
            os.mkdir(whole := os.path.join(place, "whole"))
            _build(compilers, Path(whole), home)
            try:
                os.rename(whole, home)
            except OSError:
                if not home.exists():  # else another was quicker
                    raise
    return home


def flags(compilers: Compilers, home: Path) -> tuple[str, str]:
    """What to compile and to link with."""
    words = f"-I{home / 'include'}", str(home / "lib" / _archive(compilers))
    return words if not re.search(r"\s", str(home)) else (_escaped(words[0]), _escaped(words[1]))


def _archive(compilers: Compilers) -> str:
    return "libsafepoint_mpi.a" if compilers.mpi else "libsafepoint.a"


def package(compilers: Compilers) -> str:
    """The name for pkg-config."""
    return _archive(compilers)[3:-2]


def words(command: str) -> list[str]:
    """Of a compiler and its options, as a shell has them. Raises `UsageError`."""
    try:
        found = shlex.split(command)
    except ValueError as error:
        raise UsageError(f"the compiler {command!r}: {error}") from error
    if not found:
        raise UsageError("a compiler is given as an empty text: leave the option out, or name one")
    return found


def _escaped(text: str) -> str:
    """As pkg-config, and the eval of a shell, read it."""
    return re.sub(r"([^\w@%+=:,./-])", r"\\\1", text)


def _version(command: str) -> str:
    try:
        done = subprocess.run([*words(command), "--version"], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UsageError(f"cannot run the compiler {command}: {getattr(error, 'strerror', None) or error}") from error
    return done.stdout + done.stderr


def _behind(command: str) -> str:
    """What a wrapper of an MPI library calls: of all of them the version is that of the compiler behind."""
    found = os.path.realpath(shutil.which(words(command)[0]) or command)
    for option in ("-show", "-showme"):
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            done = subprocess.run([*words(command), option], capture_output=True, text=True, timeout=60)
            if done.returncode == 0:
                return found + done.stdout
    return found


def _run(command: Sequence[str], cwd: Path) -> None:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True)
    if done.returncode:
        raise UsageError(f"{' '.join(command)}:\n{done.stderr.strip() or done.stdout.strip()}")


def _packages() -> str:
    """The directory of the packages that this one needs; empty if they lie in several."""
    found = {str(Path(find_spec(name).origin).parents[1]) for name in ("filelock", "xxhash", "zstandard")}  # type: ignore
    return found.pop() if len(found) == 1 else ""


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _build(compilers: Compilers, place: Path, home: Path) -> None:
    """Into `place`, which is to be `home`."""
    include, lib = place / "include", place / "lib"
    (lib / "pkgconfig").mkdir(parents=True)
    include.mkdir()
    for name in HEADERS:
        if compilers.mpi or name == "safepoint.h":
            shutil.copyfile(SOURCES / name, include / name)
    defines = [
        f"-DSAFEPOINT_PYTHON={_quoted(sys.executable)}",
        f"-DSAFEPOINT_PATH={_quoted(str(SOURCES.parents[1]))}",
        f"-DSAFEPOINT_PACKAGES={_quoted(_packages())}",
        f"-DSAFEPOINT_LIBRARY_PATH={_quoted(os.environ.get('LD_LIBRARY_PATH', ''))}",
    ]
    with tempfile.TemporaryDirectory() as directory:
        work = Path(directory)
        c = words(compilers.mpicc or compilers.cc)
        objects = ["safepoint.o", "safepoint_mpi.o" if compilers.mpi else "safepoint_serial.o"]
        for name in objects:
            source = SOURCES / name.replace(".o", ".c")
            _run([*c, *FLAGS, *defines, f"-I{SOURCES}", "-c", str(source), "-o", name], work)
        if compilers.fc:
            fortran, modules = words(compilers.fc), ["safepoint", *["safepoint_df"] * compilers.mpi]
            for name in modules:
                _run([*fortran, *FLAGS, "-c", str(SOURCES / f"{name}.f90"), "-o", f"{name}_f.o"], work)
                objects.append(f"{name}_f.o")
            for path in work.glob("*.mod"):
                shutil.copyfile(path, include / path.name)
        _run(["ar", "rcs", str(lib / _archive(compilers)), *objects], work)
    compile_with, name = f"-I{_escaped(str(home / 'include'))}", package(compilers)
    link_with = f"-L{_escaped(str(home / 'lib'))} -l{name}"
    (lib / "pkgconfig" / f"{name}.pc").write_text(
        f"Name: {name}\nDescription: Crash-safe save points for long computations\nVersion: {__version__}\n"
        f"Cflags: {compile_with}\nLibs: {link_with}\n"
    )
