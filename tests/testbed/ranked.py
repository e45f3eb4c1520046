"""A small solver on many ranks, each on a `FaultDisk` of its own, and a communicator on which all die with the first.

Run under mpiexec; `test_mpi.py` does. The files at a step are a pure function of rank and step, so that every byte can
be checked. What a check finds on one rank is raised on all, with the name of the rank.
"""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from mpi4py import MPI

from safepoint import SafepointError, Session
from safepoint.restoring.verify import verify
from safepoint.root import Root
from testbed.faultdisk import FaultDisk, Killed, on
from testbed.program import BusySaver, given_to, listed

MANIFEST = """\
z-{rank}.dat                       # each rank
sub/p-{rank:03d}.dat     compress
u.dat                              # the saver
history.csv              append
"""


def files_of(rank: int, step: int, saver: int | None = 0) -> dict[str, bytes]:
    files = {f"z-{rank}.dat": b"z of %d at %d\n" % (rank, step) * 5}
    files[f"sub/p-{rank:03d}.dat"] = b"p of %d at %d\n" % (rank, step) * (20 + step)
    if saver in (rank, None):
        files["u.dat"] = b"u at %d\n" % step
        files["history.csv"] = b"".join(b"row %d\n" % k for k in range(step + 1))
    return files


def check(comm: Any, holds: bool, text: object = "") -> None:
    """An assertion that fails on all ranks together, and says on which it failed."""
    failed = [f"rank {rank}: {what}" for rank, what in enumerate(comm.allgather(None if holds else str(text))) if what]
    assert comm.allreduce(int(not holds)) == 0, "; ".join(failed)


def same(comm: Any, value: Any, text: str = "") -> None:
    values = comm.allgather(value)
    assert values.count(values[0]) == len(values), f"{text}: {values}"


class Mortal(MPI.Intracomm):  # type: ignore[misc]
    """A communicator on which the death of one rank is the end of all, at their next communication: as under mpiexec,
    where the others would wait for ever, or be killed."""

    disk: FaultDisk
    others: Any
    told: bool

    @classmethod
    def of(cls, comm: Any, others: Any, disk: FaultDisk) -> Mortal:
        new: Mortal = cls(comm)
        new.others, new.disk, new.told = others, disk, False
        return new

    def alive(self) -> None:
        if self.told or self.others.allreduce(int(self.disk.dead)):
            self.told = self.disk.dead = True
            raise Killed

    def Dup(self, info: Any = None) -> Mortal:
        self.copy = Mortal.of(super().Dup(), self.others, self.disk)
        return self.copy

    def Get_attr(self, keyval: int) -> None:
        """Every life has a duplicate of its own, which `last_words` frees."""

    def Set_attr(self, keyval: int, value: Any) -> None:
        pass

    dies_in = 0  # the number of the Allreduce after which all ranks die together

    def Allreduce(self, *arguments: Any) -> None:
        self.alive()
        self.dies_in -= 1
        super().Allreduce(*arguments)
        if self.dies_in == 0:
            self.told = self.disk.dead = True
            raise Killed

    def allreduce(self, *arguments: Any) -> Any:
        self.alive()
        return super().allreduce(*arguments)

    def bcast(self, *arguments: Any) -> Any:
        self.alive()
        return super().bcast(*arguments)

    def Ibarrier(self) -> Any:
        self.alive()
        return super().Ibarrier()

    def last_words(self) -> None:
        """At the end of a life, of whatever kind: no rank is left behind in a communication."""
        told = getattr(self, "copy", self).told
        if not told:
            self.disk.dead |= bool(self.others.allreduce(int(self.disk.dead)))
        if hasattr(self, "copy"):
            self.copy.Free()


@dataclass
class Crew:
    """`run` is one life of the program on one rank."""

    comm: Any
    others: Any
    disk: FaultDisk
    steps: int = 3
    saver: str = "now"
    options: dict[str, Any] = field(default_factory=dict)
    handed: int = -1  # the newest step for which hide had returned here
    durable: int = -1  # the newest step that was promised to survive a power cut
    restored: int = -1
    finished: bool = False
    error: BaseException | None = None

    def run(self) -> None:
        mortal = Mortal.of(self.comm, self.others, self.disk)
        try:
            self._live(mortal)
        except Killed:
            pass
        except SafepointError as error:
            self.error = error
        finally:
            mortal.last_words()
            self.disk.end()

    def _live(self, comm: Any) -> None:
        rank = self.comm.Get_rank()
        owner = self.options.get("saver", 0)
        session = Session(
            self.disk.directory, comm=comm, background=self.saver != "wait", disk=self.disk, **self.options
        )
        given_to(session, self.saver)
        saved = session.restore()
        begin = 0
        if saved is None:
            self._write(files_of(rank, 0, owner))
        else:
            begin = self.restored = int(saved.step or 0)
            self._right(files_of(rank, begin, owner))
        for step in range(begin, self.steps):
            session.hide(step)
            self.handed = step
            if isinstance(session._work.thread, BusySaver) and step % 3 == 0:
                session._work.thread.catch_up()
            # What this rank has committed, and knows all others to have.
            known = session._agreed
            if session._committed is not None and session._committed.number == known:
                self.durable = max(self.durable, session._committed.step or 0)
            self._write(files_of(rank, step + 1, owner))
        session.finish(self.steps)
        self.finished, self.durable = True, self.steps

    def _right(self, files: dict[str, bytes]) -> None:
        for name, data in files.items():
            with open(os.path.join(self.disk.directory, name), "rb") as file:
                assert file.read() == data, f"rank {self.comm.Get_rank()}: {name} is wrong"

    def _write(self, files: dict[str, bytes]) -> None:
        try:
            self._write_each(files)
        except OSError as error:  # the program's own: it ends, and the others with it
            self.disk.dead = True
            raise Killed from error

    def _write_each(self, files: dict[str, bytes]) -> None:
        for name, data in files.items():
            path = os.path.join(self.disk.directory, name)
            if not os.path.isdir(os.path.dirname(path)):
                with suppress(FileExistsError):  # another rank was quicker
                    self.disk.mkdir(os.path.dirname(path))
            if name == "history.csv" and os.path.exists(path):
                self.disk.append(path, data[os.path.getsize(path) :])
            else:
                self.disk.overwrite(path, data)


def new_directory(comm: Any, path: str, text: str = MANIFEST) -> str:
    if comm.Get_rank() == 0:
        shutil.rmtree(path, ignore_errors=True)
        os.makedirs(path)
        with open(os.path.join(path, ".safepoint"), "w") as file:
            file.write(text)
    comm.Barrier()
    return path


def restart(before: Crew, directory: str, *, disk_failed: bool = False) -> Crew:
    """The next life, undisturbed: all ranks are at one step, the right bytes, and it reaches the end."""
    comm = before.comm
    disk = FaultDisk(directory, inodes=before.disk.inodes)
    after = Crew(comm, before.others, disk, before.steps, before.saver, before.options)
    after.run()
    check(comm, after.error is None, f"could not start again: {after.error!r}")
    check(comm, after.finished, "did not reach the end")
    same(comm, after.restored, "G5: restored steps")
    least = max(comm.allgather(before.durable if disk_failed else before.handed))
    check(comm, after.restored >= least, f"G2, G2k: hide had returned for {least}, restored was {after.restored}")
    right = {}
    for rank in range(comm.Get_size()):
        right |= files_of(rank, before.steps)
    if comm.Get_rank() == 0:
        assert listed(directory) == right, "the final files are wrong"
    consistent(comm, directory)
    return after


def consistent(comm: Any, directory: str) -> None:
    """No set that claims to be committed is damaged."""
    root = Root(os.path.realpath(directory), comm.Get_rank(), comm.Get_size())
    states = verify(on(root, FaultDisk(directory)))
    bad = {number: state for number, state in states.items() if state not in ("committed", "uncommitted")}
    check(comm, not bad, bad)
