"""The file-system calls of one save, counted by strace: what goes by a name, and what flushes.

Counted are open, stat, rename, link, unlink, mkdir, rmdir and the like, reading a directory, and fsync. Not counted is
what a descriptor needs that is open already: read, write, close, fstat, fcntl, sync_file_range; that asks no metadata
server.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import NamedTuple

CALLS = (
    "open", "openat", "openat2", "creat", "stat", "lstat", "newfstatat", "statx", "access", "faccessat2", "readlink",
    "rename", "renameat", "renameat2", "link", "linkat", "symlink", "symlinkat", "unlink", "unlinkat", "mkdir",
    "mkdirat", "rmdir", "chmod", "fchmodat", "utimensat", "truncate", "getdents64", "fsync", "fdatasync", "syncfs",
)  # fmt: skip
PROGRAM = """
import os, sys
from pathlib import Path
import safepoint
work, files, size, manifest, save = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], int(sys.argv[5])
os.chdir(work)
Path(".safepoint").write_text(manifest)
names = [name.format(k) for k in range(files) for name in [sys.argv[6]]]
def write(step):
    for name in names:
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_bytes((b"%d " % step) * (size // 2))
session = safepoint.Session(work)
session.restore()
for step in range(save):
    write(step)
    session.hide(step, wait=True)
write(save)
os.path.exists("/begin of hide")
session.hide(save)
os.path.exists("/end of hide")
session.wait()
os.path.exists("/end of save")
session.close()
"""
RESTART = """
import os, sys
from pathlib import Path
import safepoint
work, files = sys.argv[1], int(sys.argv[2])
os.chdir(work)
names = [f"f{k:05}" for k in range(files)]
Path(".safepoint").write_text("bundle_from = 100000\\n" + "".join(f"{name}\\n" for name in names))
def write(step):
    for name in names:
        Path(name).write_bytes(b"%d " % step * 50)
with safepoint.Session(work) as session:
    session.restore()
    for step in range(2):
        write(step)
        session.hide(step, wait=True)
    write(2)
    session.close()
session = safepoint.Session(work)
os.path.exists("/begin of hide")
session.restore()
os.path.exists("/end of save")
session.close()
"""
why_not = "" if shutil.which("strace") else "needs strace"


class Calls(NamedTuple):
    saved: Counter[str]  # of `hide`, and of storing and committing the set
    removed: Counter[str]  # of the removal of an older one

    @property
    def fsyncs(self) -> int:
        return self.saved["fsync"] + self.removed["fsync"]


def of_a_save(work: Path, files: int, manifest: str, *, size: int = 100, save: int = 4, name: str = "f{:05}") -> Calls:
    """Of the `save`-th `hide` after the first, with what its saver thread does, one older set removed."""
    trace = work.parent / f"{work.name}.trace"
    return _traced(trace, [PROGRAM, str(work), str(files), str(size), manifest, str(save), name])


def of_a_restart(work: Path, files: int) -> int:
    """Of `restore`, over files that are there, with two sets of so many files."""
    found = _traced(work.parent / f"{work.name}.trace", [RESTART, str(work), str(files)])
    return found.saved.total() + found.removed.total()


def _traced(trace: Path, program: list[str]) -> Calls:
    command = ["strace", "-f", "-qq", "-o", str(trace), "-e", "trace=%file,%desc", sys.executable, "-c", *program]
    subprocess.run(command, check=True)
    calls = Calls(Counter(), Counter())
    found: Counter[str] | None = None
    of_proc: set[str] = set()  # descriptors of directories of /proc, where it is looked up what is open
    with trace.open(errors="replace") as lines:
        for line in lines:
            if '"/begin of hide"' in line:
                found = calls.saved
            elif '"/end of save"' in line:
                found = None
            elif found is not None and '"/end of hide"' not in line:
                opened = re.match(r'\d+ +openat\(AT_FDCWD, "(.*)", .* = (\d+)$', line)
                if opened:
                    (of_proc.add if opened[1].startswith("/proc") else of_proc.discard)(opened[2])
                if '"/proc' in line or '"/sys/' in line:  # the kernel, which no metadata server is asked for
                    continue
                if "/gone-" in line:
                    found = calls.removed
                call = re.match(r"\d+\s+(\w+)\((.*)", line)
                if call and call[1] == "getdents64" and call[2].split(",")[0] in of_proc:
                    continue
                if call and call[1] in CALLS and not _of_descriptor(*call.groups()):
                    found[call[1]] += 1
    os.remove(trace)
    return calls


def _of_descriptor(name: str, arguments: str) -> bool:
    return name in ("newfstatat", "statx") and re.match(r'\d+, "",', arguments) is not None
