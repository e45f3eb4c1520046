"""Freshly made, journaled file systems for tests and benchmarks: an image file, a loop device, a mount. Needs root.

The disk of a build machine may be an ext4 without a journal, where mistakes in the order of fsyncs cannot show.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import struct
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

MAKERS = {
    "ext4": ["mkfs.ext4", "-q", "-F", "-O", "has_journal"],
    "xfs": ["mkfs.xfs", "-q", "-f"],
}
MEGABYTES = {"ext4": 64, "xfs": 320}  # mkfs.xfs makes none below 300
# The kinds that differ in what a power cut leaves: how to make them, and their mount options. No journal is flushed by
# a timer within a test, so nothing is durable for which nobody has asked.
KINDS = {
    "ext4 ordered": ("ext4", [], "data=ordered,commit=600,errors=remount-ro"),
    "ext4 writeback": ("ext4", [], "data=writeback,commit=600,errors=remount-ro"),
    "xfs no reflink": ("xfs", ["-m", "reflink=0"], "defaults"),
    "xfs reflink": ("xfs", ["-m", "reflink=1"], "defaults"),
}
FS_IOC_SHUTDOWN, NO_LOG_FLUSH = 0x8004587D, 2  # _IOR('X', 125, u32) of xfs and ext4: what was not fsynced is gone


def why_not(kind: str) -> str | None:
    """Why this kind of file system cannot be made and mounted here; None if it can."""
    kind = KINDS.get(kind, (kind,))[0]
    if not hasattr(os, "geteuid") or os.geteuid() != 0:
        return "needs root"
    if not Path("/dev/loop-control").exists():
        return "needs loop devices"
    for program in (MAKERS[kind][0], "mount", "umount"):
        if shutil.which(program) is None:
            return f"needs {program}"
    known = Path("/proc/filesystems").read_text().split()
    return None if kind in known else f"this kernel does not know {kind}"


def in_memory() -> str:
    """A directory for images and trees that should not wait for a disk."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else tempfile.gettempdir()


@contextlib.contextmanager
def mounted(kind: str, megabytes: int = 400, where: str | None = None, *, direct: bool = False) -> Iterator[Path]:
    """A new file system of this kind; `where` is the directory for its image (default: memory, if there is one).
    `direct`: without a second page cache below it, as a disk; for benchmarks. Where that cannot be, with one."""
    with Volume.made(kind, megabytes, where) as volume:
        if direct:
            found = subprocess.run(["findmnt", "-n", "-o", "SOURCE", "-T", volume.path], capture_output=True, text=True)
            subprocess.run(["losetup", "--direct-io=on", found.stdout.strip()], capture_output=True)
        yield volume.path


@dataclass
class Volume:
    """A file system in an image, which can go and come back."""

    image: Path
    path: Path
    options: str = "defaults"
    sessions: list[Any] = field(default_factory=list)  # ended when it goes

    @classmethod
    @contextlib.contextmanager
    def made(cls, kind: str, megabytes: int = 0, where: str | None = None) -> Iterator[Volume]:
        maker, extra, options = KINDS.get(kind, (kind, [], "defaults"))
        with tempfile.TemporaryDirectory(dir=where or in_memory()) as directory:
            volume = cls(Path(directory, "image"), Path(directory, "mount"), options)
            volume.path.mkdir()
            with volume.image.open("wb") as file:
                file.truncate((megabytes or MEGABYTES[maker]) << 20)
            ran(*MAKERS[maker], *extra, volume.image)
            volume.mount()
            try:
                volume.work.mkdir()
                yield volume
            finally:
                for session in volume.sessions:
                    session._work.flight = None
                    session.close()
                volume.let_go()

    @property
    def work(self) -> Path:
        return self.path / "work"

    def mount(self) -> None:
        ran("mount", "-o", f"loop,{self.options}", self.image, self.path)

    def umount(self) -> None:
        ran("umount", self.path)

    def let_go(self) -> None:
        """At the end, whatever happened: nothing stays mounted, and no directory is removed through a mount."""
        try:
            if os.path.ismount(self.path):
                self.umount()
        except OSError:
            ran("umount", "--lazy", self.path)  # then the loop device goes with its last user
            raise

    @property
    def _ext4(self) -> Path:
        """What the kernel shows of this ext4."""
        device = self.path.stat().st_dev
        return Path("/sys/fs/ext4", Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}").resolve().name)

    def break_down(self) -> None:
        """ext4 finds an error in itself and makes itself read-only, as it does when a disk fails."""
        (self._ext4 / "trigger_fs_error").write_text("1")

    def not_yet_placed(self) -> int:
        """Bytes that ext4 has in its cache only, and for which it has not chosen a place on the disk."""
        return int((self._ext4 / "delayed_allocation_blocks").read_text()) * os.statvfs(self.path).f_bsize

    def repair(self) -> None:
        """As an operator does then: check the file system, mount it again."""
        self.umount()
        done = subprocess.run(["e2fsck", "-fy", str(self.image)], capture_output=True, text=True)
        assert done.returncode in (0, 1), done.stdout + done.stderr  # 1: something was mended
        self.mount()

    def shut_down(self) -> None:
        """From this moment on nothing reaches the disk, not even what is in the journal's memory."""
        import fcntl

        descriptor = os.open(self.path, os.O_RDONLY)
        try:
            fcntl.ioctl(descriptor, FS_IOC_SHUTDOWN, struct.pack("=I", NO_LOG_FLUSH))
        finally:
            os.close(descriptor)

    def cut_power(self) -> None:
        """What was not made durable is gone; the file system recovers as after a power cut."""
        self.shut_down()
        self.umount()
        self.mount()

    def fill(self, *, room: int = 0) -> Path:
        """Leave no more than this many bytes; the file to remove for more."""
        ballast = self.path / "ballast"
        with ballast.open("wb", buffering=0) as file:
            size = 0
            for step in (16 << 20, 1 << 20, 64 << 10):
                with contextlib.suppress(OSError):
                    while True:
                        os.posix_fallocate(file.fileno(), size, step)
                        size += step
            file.seek(size)
            with contextlib.suppress(OSError):
                while True:
                    size += file.write(bytes(4096))
            if room:
                file.truncate(size - room)
            os.fsync(file.fileno())
        return ballast


def ran(*command: object) -> None:
    """Run a program of the system; its error is ours. A busy mount is asked again: a killed process may take a moment
    to let go of it, or a minute beside other work."""
    words, until = [str(word) for word in command], time.monotonic() + 60
    while True:
        done = subprocess.run(words, capture_output=True, text=True)
        if done.returncode == 0:
            return
        if words[0] != "umount" or "busy" not in done.stderr or time.monotonic() > until:
            break
        time.sleep(0.02)
    raise OSError(errno.EIO, f"{' '.join(words)}: {done.stderr.strip()}")
