"""Freshly made, journaled file systems for tests and benchmarks: an image file, a loop device, a mount. Needs root.

The disk of a build machine may be an ext4 without a journal, where mistakes in the order of fsyncs cannot show.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

MAKERS = {
    "ext4": ["mkfs.ext4", "-q", "-F", "-O", "has_journal"],
    "xfs": ["mkfs.xfs", "-q", "-f"],
}


def why_not(kind: str) -> str | None:
    """Why this kind of file system cannot be made and mounted here; None if it can."""
    if not hasattr(os, "geteuid") or os.geteuid() != 0:
        return "needs root"
    if not Path("/dev/loop-control").exists():
        return "needs loop devices"
    for program in (MAKERS[kind][0], "mount", "umount"):
        if shutil.which(program) is None:
            return f"needs {program}"
    known = Path("/proc/filesystems").read_text().split()
    return None if kind in known else f"this kernel does not know {kind}"


@contextlib.contextmanager
def mounted(kind: str, megabytes: int = 400, where: str | None = None) -> Iterator[Path]:
    """A new file system of this kind; `where` is the directory for its image (default: memory, if there is one)."""
    if where is None:
        where = "/dev/shm" if os.access("/dev/shm", os.W_OK) else tempfile.gettempdir()
    with tempfile.TemporaryDirectory(dir=where) as directory:
        image, mount = Path(directory, "image"), Path(directory, "mount")
        mount.mkdir()
        with image.open("wb") as file:
            file.truncate(megabytes << 20)
        subprocess.run([*MAKERS[kind], str(image)], check=True, capture_output=True)
        subprocess.run(["mount", "-o", "loop", str(image), str(mount)], check=True, capture_output=True)
        try:
            yield mount
        finally:
            subprocess.run(["umount", str(mount)], check=True, capture_output=True)
