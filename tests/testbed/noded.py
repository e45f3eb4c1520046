"""A program of several ranks on disks of nodes: `python noded.py START STEPS PAUSE [how …]`, each rank with a DISK and
a DOMAIN of its own in its environment. Every byte of its files follows from rank and step, so each restore checks all.

Said, a line each: `restored STEP` or `first` by rank 0, `partner STEP` by each rank when that is newer, `hid STEP`.
"""

from __future__ import annotations

import errno
import functools
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

from safepoint import SafepointError, SaveError, Session
from safepoint.disk import Disk
from safepoint.nodes import nearby
from safepoint.saving import commit
from safepoint.tiers import beside
from safepoint.tiers.place import Unreachable

MANIFEST = """\
z-{rank}.dat
p-{rank}.dat  compress
u.dat
history.csv   append
local  = $DISK
domain = $DOMAIN
remote = ../place
partner = on
"""


def files_of(rank: int, step: int) -> dict[str, bytes]:
    files = {
        f"z-{rank}.dat": b"z of %d at %d\n" % (rank, step) * 400,
        f"p-{rank}.dat": b"p %d %d\n" % (rank, step) * 99,
    }
    if rank == 0:
        files["u.dat"] = b"u at %d\n" % step
        files["history.csv"] = b"".join(b"row %d\n" % k for k in range(step + 1))
    return files


def few(saver: int) -> None:
    """From now on there are the saver's files alone."""
    global files_of
    every = files_of

    def his(rank: int, step: int) -> dict[str, bytes]:
        return {n: d for n, d in every(0, step).items() if n in ("u.dat", "history.csv")} if rank == saver else {}

    files_of = his


def write(rank: int, step: int) -> None:
    for name, data in files_of(rank, step).items():
        path = Path(name)
        if name == "history.csv" and path.exists():
            with path.open("ab") as file:
                file.write(data[path.stat().st_size :])
        else:
            path.write_bytes(data)


def check(rank: int, step: int) -> None:
    for name, data in files_of(rank, step).items():
        assert Path(name).read_bytes() == data, f"rank {rank}: {name} is not that of step {step}"


class Dying(Disk):
    """The process dies before its n-th operation that changes something, in whatever thread."""

    def __init__(self, last: int) -> None:
        self._last, self.count, self._lock = last, 0, threading.Lock()

    def _one(self) -> None:
        with self._lock:
            self.count += 1
            if self.count == self._last:
                os.kill(os.getpid(), signal.SIGKILL)


def _dying(name: str) -> Any:
    real = getattr(Disk, name)

    @functools.wraps(real)
    def call(self: Dying, *arguments: Any, **options: Any) -> Any:
        self._one()
        return real(self, *arguments, **options)

    return call


for _name in ("mkdir", "create", "append", "rename", "exchange", "link", "truncate", "set_mode_and_time", "remove",
              "rmdir", "duplicate", "sync_files", "sync_dir"):  # fmt: skip
    setattr(Dying, _name, _dying(_name))


class Failing(Disk):
    """The n-th look at the disk fails, once."""

    def __init__(self, last: int) -> None:
        self.last, self.count, self._mine = last, 0, threading.get_ident()

    def _look(self, path: object) -> None:
        if threading.get_ident() == self._mine:
            self.count += 1
            if self.count == self.last:
                raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))

    def stat(self, file: Any) -> os.stat_result:
        self._look(file)
        return super().stat(file)

    def scan(self, path: str) -> list[os.DirEntry[str]]:
        self._look(path)
        return super().scan(path)


def option(how: list[str], name: str) -> list[str]:
    """The parts of `name=A:B`."""
    return next((word.partition("=")[2].split(":") for word in how if word.startswith(f"{name}=")), [])


def say(text: str) -> None:
    os.write(1, f"{text}\n".encode())


def fail_next(session: Session, mine: bool) -> None:
    """A set that one rank cannot store, and what a careful program does then."""
    session.wait()
    real = commit.secure

    def secure(*arguments: Any, **options: Any) -> Any:
        raise SaveError("no room, for once")

    if mine:
        commit.secure = secure
    session.hide(1000)
    try:
        session.wait()
    except SaveError:
        say("could not be stored")
    commit.secure = real
    session.wait("partner")
    say(f"partner {session.safe['partner']}")
    session.restore()


def main(start: str, steps: int, pause: float, how: list[str]) -> None:
    comm = None
    if "alone" not in how:
        from mpi4py import MPI

        comm = MPI.COMM_WORLD
    rank = comm.rank if comm else 0
    say(f"pid {os.getpid()}")
    if anew := option(how, "anew"):
        beside.ANEW = float(anew[0])
    at = option(how, "kill")
    disk = Dying(int(at[1])) if at and int(at[0]) == rank else Disk()
    if (told := option(how, "looks")) and int(told[0]) == rank:
        disk = Failing(int(told[1]))
    if "mute" in how:  # the other nodes are not reached, but for what this one gets from the place
        nearby.PATIENT, nearby.PAUSE, real = 0.3, 0.05, nearby.ask_record

        def ask_record(peer: Any, which: Any) -> bytes:
            if which.where != "remote":
                raise Unreachable("no route to host")
            return real(peer, which)

        nearby.ask_record = ask_record
    saver = int(option(how, "saver")[0]) if option(how, "saver") else 0
    if saver:
        few(saver)
    session = Session(start, comm=comm, disk=disk, saver=saver)
    os.chdir(session.directory)
    wanted = next((int(word.removeprefix("step=")) for word in how if word.startswith("step=")), None)
    saved = session.restore(step=wanted)
    if saved and saved.finished:
        say(f"finished {saved.step}")
        return
    if isinstance(disk, Dying):
        say(f"operations {disk.count}")
    if isinstance(disk, Failing):
        say(f"looks {disk.count}")
        disk.last = -1
    if saved:
        assert saved.step is not None
        check(rank, saved.step)
    if rank == 0:
        say(f"restored {saved.step}" if saved else "first")
    begin, copied = (saved.step or 0) if saved else 0, -1
    level = next((word for word in how if word in ("partner", "remote")), "")
    for step in range(begin, steps):
        write(rank, step)
        fails = option(how, "fails")
        if fails and step == int(fails[1]):
            fail_next(session, rank == int(fails[0]))
            continue
        wait: bool | str = level if level and step % 2 else False
        if "tries" in how and step > 5:
            wait = "partner"
        try:
            session.hide(step, wait=wait)
        except SafepointError as error:
            if "tries" not in how:
                raise
            say(f"could not: {error}")
        say(f"hid {step}")
        safe = session.safe.get("partner")
        if safe is not None and safe > copied:
            copied = safe
            say(f"partner {copied}")
        time.sleep(pause)
    if "hidden" in how:
        session.finish()  # what was hidden last is the result
        return
    if "rows" not in how:
        write(rank, steps)
    elif rank == 0:
        with Path("history.csv").open("ab") as file:
            file.write(b"one more\n")
    if "finish" in how:
        session.finish(steps)
        return
    if level:
        session.wait(level)
        say(f"safe {session.safe}")
    session.close()


if __name__ == "__main__":
    try:
        main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), sys.argv[4:])
    except SafepointError as error:
        say(f"refused {error}")
        raise
    except BaseException as error:
        say(f"broken {type(error).__name__} {error}")
        raise
