"""The file-system calls of one save, counted by strace: what goes by a name, and what flushes.

Counted are open, stat, rename, link, unlink, mkdir, rmdir and the like, reading a directory, and fsync. Not counted is
what a descriptor needs that is open already: read, write, close, fstat, fcntl, sync_file_range; that asks no metadata
server.
"""

from __future__ import annotations

import collections
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

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
why_not = "" if shutil.which("strace") else "needs strace"


def of_a_save(
    work: Path, files: int, manifest: str, *, size: int = 100, save: int = 4, name: str = "f{:05}"
) -> collections.Counter[str]:
    """Of the `save`-th `hide` after the first, with what its saver thread does, one older set removed."""
    trace = work.parent / f"{work.name}.trace"
    arguments = [str(work), str(files), str(size), manifest, str(save), name]
    command = [
        "strace",
        "-f",
        "-qq",
        "-o",
        str(trace),
        "-e",
        "trace=%file,%desc",
        sys.executable,
        "-c",
        PROGRAM,
        *arguments,
    ]
    subprocess.run(command, check=True)
    found: collections.Counter[str] = collections.Counter()
    inside = False
    with trace.open(errors="replace") as lines:
        for line in lines:
            if '"/begin of hide"' in line or '"/end of save"' in line:
                inside = "begin" in line
                continue
            call = re.match(r"\d+\s+(\w+)\((.*)", line)
            if (
                inside
                and call
                and call[1] in CALLS
                and '"/end of hide"' not in line
                and not _of_descriptor(*call.groups())
            ):
                found[call[1]] += 1
    os.remove(trace)
    return found


def _of_descriptor(name: str, arguments: str) -> bool:
    return name in ("newfstatat", "statx") and re.match(r'\d+, "",', arguments) is not None
