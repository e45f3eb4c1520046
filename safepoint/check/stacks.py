"""Where the ranks of this host are, asked by a signal: each one that listens appends its stack to a file of its own."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import time
from collections.abc import Mapping
from pathlib import Path

from safepoint.check.files import TraceError, opened
from safepoint.matching import symbols
from safepoint.matching.symbols import Site
from safepoint.trace import record

STACK_MAX, FRAMES, STEP_S = 1 << 20, 4, 0.01  # bytes of an answer; frames that are shown; between two looks
PYTHON = re.compile(r'  File "(.*)", line (\d+) in (.*)')
THREAD = re.compile(r"(?:Current thread|Thread) 0x[0-9a-f]+")
PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
OURS = re.compile(
    r"(?:^|/)mpi4py/|^<frozen |^<safepoint trace>$|(?:^|/)runpy\.py$|"
    r"(?:^|/)lib(?:p?mpi|mpich|mpi(?:ch)?(?:cxx|fort)|open-(?:pal|rte)|prrte|pmix|ucp|ucs|uct|ucm|fabric|psm2?|hwloc|"
    r"event|c|m|pthread)(?:[-_.][-_.0-9a-z]*)?\.so|(?:^|/)ld-[^/]*\.so|(?:^|/)(?:lib)?safepoint[^/]*\.so|/trace-[^/]*-[0-9a-f]+\.so$|\[vdso\]|/openmpi[^/]*/mca_"
)
OUTSIDE = "_start", "__libc_start_main", "__libc_start_call_main", "_dl_start_user"


def number() -> int:
    """Of the signal; 0: this system has none."""
    return signal.SIGRTMIN + record.STACK_SIGNAL if hasattr(signal, "SIGRTMIN") else 0


def listens(pid: int) -> bool:
    """Whether a process has a handler for it: it would end one that has none."""
    with contextlib.suppress(OSError, ValueError), open(f"/proc/{pid}/status", errors="replace") as file:
        for line in file:
            if line.startswith("SigCgt:"):
                return bool(int(line.split()[1], 16) >> (number() - 1) & 1) if number() else False
    return False


def ask(directory: Path, pids: Mapping[int, int], wait_s: float = 1.0) -> dict[int, list[Site]]:
    """The frames of these ranks, the innermost first. `pids`: of each rank, on this host. Who does not answer in time
    is left out."""
    before = dict[int, int]()
    for rank, pid in pids.items():
        if listens(pid):
            before[rank] = _size(_path(directory, rank))
            with contextlib.suppress(OSError):
                os.kill(pid, number())
    end, sizes, found = time.monotonic() + wait_s, dict(before), dict[int, list[Site]]()
    while len(found) < len(before) and time.monotonic() < end:
        time.sleep(STEP_S)
        for rank in before.keys() - found.keys():
            size = _size(_path(directory, rank))
            if before[rank] < size == sizes[rank]:  # it grows no more
                with contextlib.suppress(TraceError):
                    found[rank] = frames(_read(_path(directory, rank), before[rank]))
            sizes[rank] = size
    return found


def _path(directory: Path, rank: int) -> Path:
    return directory / f"rank-{rank:05d}.stack"


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _read(path: Path, begin: int) -> str:
    descriptor = opened(path)
    try:
        return os.pread(descriptor, STACK_MAX, begin).decode("utf-8", "replace")
    finally:
        os.close(descriptor)


def frames(text: str) -> list[Site]:
    """Of the program alone, the innermost first. Of several threads that one which is inside of MPI, else the last
    that is told: the first thread of Python."""
    if "c\t" in text and not THREAD.search(text):
        lines = [line for line in text.split("\n") if line.startswith("c\t")]
        return _kept([site for line, site in zip(lines, _sites(lines), strict=True) if not OURS.search(_module(line))])
    threads = list[list[Site]]()
    for line in text.split("\n"):
        if THREAD.match(line):
            threads.append([])
        elif threads and (found := PYTHON.fullmatch(line)) and len(found[2]) < 10:
            threads[-1].append(Site(found[1], int(found[2]), found[3]))
    inside = [thread for thread in threads if any(site.file == "<safepoint trace>" for site in thread[:2])]
    chosen = (inside or threads or [[]])[-1]
    return _kept([site for site in chosen if not OURS.search(site.file) and not site.file.startswith(PACKAGE)])


def _sites(lines: list[str]) -> list[Site]:
    try:
        return symbols.sites(lines)
    except ValueError as error:
        raise TraceError(f"a stack is damaged: {error}") from error


def _module(line: str) -> str:
    return line.split("\t")[1] if "\t" in line else ""


def _kept(sites: list[Site]) -> list[Site]:
    return [site for site in sites if site.function not in OUTSIDE]


def rendered(sites: list[Site], cwd: str = "") -> str:
    """`solver.c:88 < main solver.c:140`."""
    found = list[str]()
    for site in sites[:FRAMES]:
        file = site.file
        if cwd and file.startswith(cwd.rstrip(os.sep) + os.sep):
            file = file[len(cwd.rstrip(os.sep)) + 1 :]
        elif os.path.isabs(file):
            file = os.path.basename(file)
        at = f"{file}:{site.line}" if site.line else file
        name = "" if site.function in ("", "<module>") or not found else f"{site.function} "
        found.append(f"{name}{at}")
    return " < ".join(found) + (" < …" if len(sites) > FRAMES else "")
