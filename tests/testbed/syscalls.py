"""The system calls of a real run, program and library and data, as strace wrote them down, played into the model.

Each call is done once more, on a copy of the directory and through a `FaultDisk`, which so learns of every effect in
the order in which the kernel had them, and of every fsync that returned. What it then holds is what POSIX allows a
power cut to leave of that run, and no longer depends on the library telling the truth about what it does.
"""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import dataclass, field
from pathlib import Path

from testbed.faultdisk import FaultDisk
from testbed.lives import Running, directory_for_lives
from testbed.program import listed
from testbed.sweep import STEPS
from testbed.tracing import tracer

CALLS = ("openat,open,creat,close,mkdir,mkdirat,rename,renameat,renameat2,unlink,unlinkat,rmdir,symlink,symlinkat,link,"
         "linkat,write,pwrite64,writev,pwritev,pwritev2,read,lseek,truncate,ftruncate,fallocate,fsync,fdatasync,syncfs,"
         "sync,chmod,fchmod,fchmodat,utimensat,copy_file_range,sendfile,splice,ioctl,mmap,sendto")  # fmt: skip
STRACE = ["-f", "-y", "-xx", "-s", str(1 << 22), "-e", f"trace={CALLS}", "-e", "signal=none"]
# Looked at and without effect on a file of the directory; any other call that changes one must have a method below.
NO_EFFECT = {"close"}
_LINE = re.compile(r"(?P<pid>\d+) +(?:<\.\.\. (?P<resumed>\w+) resumed>)?(?P<rest>.*)", re.DOTALL)
_ARGUMENT = re.compile(r'"(?:[^"\\]|\\.)*"(?:\.\.\.)?|\[[^\]]*\](?: => \[[^\]]*\])?|(?:[^,<"\[]|<[^>]*>)+')


@dataclass
class Replay:
    """The run as the model has it: its disk; the steps that were promised, each with the operation it came after."""

    disk: FaultDisk
    durable_at: list[tuple[int, int]] = field(default_factory=list)
    finished: bool = False

    def __post_init__(self) -> None:
        self._files: dict[int, list[int]] = {}  # by descriptor: where it stands, and whether it appends
        self._begun: dict[str, tuple[str, int]] = {}  # by thread: a call that has not returned, and the effects before

    def play(self, trace: Path, real: str) -> None:
        self._real = real
        for line in trace.read_text().splitlines():
            match = _LINE.fullmatch(line)
            assert match, line
            pid, rest, effects = match["pid"], match["rest"], len(self.disk.record.effects)
            if match["resumed"]:
                begin, effects = self._begun.pop(pid)
                rest = begin + rest
            if rest.endswith("<unfinished ...>"):
                self._begun[pid] = rest.removesuffix("<unfinished ...>"), effects
            elif "(" in rest and not rest.startswith(("+++", "---")):
                self._call(rest, effects)

    def _call(self, text: str, effects: int) -> None:
        name, _, rest = text.partition("(")
        inside, _, result = rest.rpartition(" = ")
        if result.split(maxsplit=1)[0] in ("-1", "?"):
            return  # it failed, or never returned: then it may not be relied on
        arguments = [part.strip() for part in _ARGUMENT.findall(inside.rstrip().removesuffix(")")) if part.strip()]
        if name in NO_EFFECT:
            return
        if name in ("fsync", "fdatasync"):
            self._fsync(arguments, effects)
        else:
            getattr(self, f"_{name}")(arguments, int(result.split("<")[0].split()[0], 0))

    # What strace writes: strings and paths in hexadecimal.

    def _path(self, argument: str) -> str:
        """Where the copy has it; empty if it is no file of the directory."""
        path = os.path.normpath(os.path.join(self._real, os.fsdecode(_bytes(argument))))
        if path != self._real and not path.startswith(self._real + "/"):
            return ""
        return os.path.join(self.disk.directory, os.path.relpath(path, self._real)).removesuffix("/.")

    def _of(self, argument: str) -> tuple[int, str]:
        """A descriptor, and the file of the directory that it stands for, under the name that this has now."""
        number, _, name = argument.partition("<")
        path = _bytes(name.removesuffix(">"))
        return int(number) if number.isdecimal() else -1, self._path(argument) if path.startswith(b"/") else ""

    def _at(self, directory: str, path: str) -> str:
        assert directory.startswith("AT_FDCWD") or _bytes(path).startswith(b"/"), "a path below a descriptor"
        return self._path(path)

    # Names.

    def _openat(self, arguments: list[str], descriptor: int) -> None:
        path, flags = self._at(*arguments[:2]), arguments[2].split("|")
        self._files[descriptor] = [0, int("O_APPEND" in flags)]
        if path and "O_CREAT" in flags and not os.path.lexists(path):
            self.disk.create(path).close()
        elif path and "O_TRUNC" in flags and os.path.getsize(path):
            self.disk.truncate(path, 0)

    def _open(self, arguments: list[str], descriptor: int) -> None:
        self._openat(["AT_FDCWD", *arguments], descriptor)

    def _mkdir(self, arguments: list[str], _: int) -> None:
        if path := self._path(arguments[0]):
            self.disk.mkdir(path)

    def _rename(self, arguments: list[str], _: int) -> None:
        source, target = self._path(arguments[0]), self._path(arguments[1])
        assert bool(source) == bool(target), "a file goes in or out"
        if source:
            self.disk.rename(source, target)

    def _renameat2(self, arguments: list[str], _: int) -> None:
        one, other = self._at(*arguments[:2]), self._at(*arguments[2:4])
        assert arguments[4] == "RENAME_EXCHANGE" and bool(one) == bool(other), arguments
        if one:
            assert self.disk.exchange(one, other), "the copy is on another file system"

    def _unlink(self, arguments: list[str], _: int) -> None:
        if path := self._path(arguments[0]):
            self.disk.remove(path)

    def _rmdir(self, arguments: list[str], _: int) -> None:
        if path := self._path(arguments[0]):
            self.disk.rmdir(path)

    def _symlink(self, arguments: list[str], _: int) -> None:
        if path := self._path(arguments[1]):
            self.disk.link(os.fsdecode(_bytes(arguments[0])), path)

    # Contents.

    def _write(self, arguments: list[str], count: int) -> None:
        descriptor, path = self._of(arguments[0])
        data = _bytes(arguments[1])[:count]
        assert len(data) == count, "strace cut the data"
        if not path:
            self._heard(data)
            return
        where = self._files[descriptor]
        begin = os.path.getsize(path) if where[1] else where[0]
        where[0] = begin + count
        self.disk.write_at(path, begin, data)

    def _pwrite64(self, arguments: list[str], count: int) -> None:
        _, path = self._of(arguments[0])
        if path:
            self.disk.write_at(path, int(arguments[3]), _bytes(arguments[1])[:count])

    def _read(self, arguments: list[str], count: int) -> None:
        descriptor, path = self._of(arguments[0])
        if path:
            self._files[descriptor][0] += count

    def _lseek(self, arguments: list[str], position: int) -> None:
        descriptor, path = self._of(arguments[0])
        if path:
            self._files[descriptor][0] = position

    def _truncate(self, arguments: list[str], _: int) -> None:
        if path := self._path(arguments[0]):
            self.disk.truncate(path, int(arguments[1]))

    def _ftruncate(self, arguments: list[str], _: int) -> None:
        _, path = self._of(arguments[0])
        if path and os.path.getsize(path) != int(arguments[1]):
            self.disk.truncate(path, int(arguments[1]))

    def _copy_file_range(self, arguments: list[str], count: int) -> None:
        _, source = self._of(arguments[0])
        _, target = self._of(arguments[2])
        begin, into = (int(arguments[k].strip("[]").split("]")[0]) for k in (1, 3))
        with open(source, "rb") as file:
            self.disk.write_at(target, into, os.pread(file.fileno(), count, begin))

    def _mmap(self, arguments: list[str], _: int) -> None:
        shared = "MAP_SHARED" in arguments[3] and "PROT_WRITE" in arguments[2]
        assert not (shared and self._of(arguments[4])[1]), "what is written to a mapping no system call tells"

    def _sendto(self, arguments: list[str], count: int) -> None:
        self._heard(_bytes(arguments[1])[:count])

    def _ioctl(self, arguments: list[str], _: int) -> None:
        _, path = self._of(arguments[0])
        assert not path or "CLONE" not in arguments[1], "no reflinks on this file system"

    # Permissions and times: of use only together with what they are of.

    def _chmod(self, arguments: list[str], _: int) -> None:
        path = self._path(arguments[0])
        if path:
            self.disk.set_mode_and_time(path, int(arguments[1], 8), os.lstat(path).st_mtime_ns)

    def _fchmod(self, arguments: list[str], _: int) -> None:
        _, path = self._of(arguments[0])
        if path:
            self.disk.set_mode_and_time(path, int(arguments[1], 8), os.lstat(path).st_mtime_ns)

    def _utimensat(self, arguments: list[str], _: int) -> None:
        path = self._at(*arguments[:2])
        if path:
            seconds, nanoseconds = re.findall(r"tv_sec=(-?\d+), tv_nsec=(\d+)", arguments[2])[1]
            self.disk.set_mode_and_time(path, os.lstat(path).st_mode, int(seconds) * 10**9 + int(nanoseconds))

    # Making durable; and what the program says of it.

    def _fsync(self, arguments: list[str], effects: int) -> None:
        _, path = self._of(arguments[0])
        if path and os.path.lexists(path):
            self.disk.synced(path, effects)

    def _heard(self, said: bytes) -> None:
        word, _, step = said.decode(errors="replace").partition(" ")
        if word in ("safe", "finished"):
            self.durable_at.append((len(self.disk.record.ops), int(step)))
        self.finished = self.finished or word == "finished"


def _bytes(text: str) -> bytes:
    """What stands, in hexadecimal, in a string or in the name of a descriptor."""
    return bytes.fromhex("".join(re.findall(r"\\x([0-9a-f]{2})", text)))


def replayed(tmp_path: Path, shape: str, *how: str) -> Replay:
    """An undisturbed life of the solver, traced, and played into the model; nothing of it may be missing there."""
    trace, copy = tmp_path / "trace", tmp_path / "copy"
    with directory_for_lives(tmp_path, shape) as directory:
        shutil.copytree(directory, copy)
        replay = Replay(FaultDisk(copy))
        with (
            Running(directory, STEPS, shape, *how, "gate-start") as program,
            tracer(program, "start", *STRACE, "-o", str(trace)),
        ):
            assert program.end().last("finished") == STEPS
        replay.play(trace, str(directory))
        assert listed(copy) == listed(directory)
        assert below(copy / ".safepoint.d") == below(directory / ".safepoint.d")
    promised = [step for _, step in replay.durable_at]
    least = STEPS if "inline" in how else 2  # beside strace a set may give way to a newer one
    assert promised == sorted(promised) and len({*promised}) >= least and promised[-1] == STEPS and replay.finished
    return replay


def below(directory: Path) -> dict[str, bytes | None]:
    return {
        str(path.relative_to(directory)): path.read_bytes() if path.is_file() else None for path in directory.rglob("*")
    }
