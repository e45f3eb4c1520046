"""Agreement among the ranks of a program.

`Serial` is a program of one rank: it agrees with itself. `Ranks` speaks for many and answers the same calls, over a
wire: `Mpi4py`, a duplicate of the communicator that the program gave, so that none of our messages meets one of its; or
that of a program in C or Fortran (`foreign`). All calls are collective, but for `launcher` and `misfit`.

(1) Every rank makes the same calls in the same order, whatever fails on it: it brings its failure along to the next
    agreement, and all raise there. A rank that raised alone would leave the others waiting for ever.
(2) What is agreed on is the minimum over the ranks of a few integers (the maximum of x is the minimum of -x): one
    Allreduce, O(log P) messages, and no memory that grows with P. Texts travel only after a failure.
(3) Between the agreements of one verb no signal handler of the program runs: it could raise on this rank alone.
(4) A message is called in flight only if it was sent before its sender entered `hide`: it is looked for after all have
    entered, and none leaves before all have looked.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from array import array
from collections.abc import Callable, Collection, Mapping
from typing import Any, Protocol, TypeVar, runtime_checkable

from safepoint.disk.signals import undisturbed
from safepoint.errors import SafepointError, UsageError

T = TypeVar("T")
LARGEST = 2**63 - 1  # brought to a minimum by a rank that has no say
NAMED = 8  # so many ranks are named in a message; the others are counted
# What a tracer of this process has registered: given the communicator of the program and our duplicate, collectively
# what is under way to this rank; "" if nothing is, None if it cannot tell.
exact: Callable[[Any, Any], str | None] | None = None
LAUNCHERS = ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID", "PALS_RANKID", "FLUX_TASK_RANK")
# Where a launcher says how many it started. Not SLURM_NTASKS, which the one process of a batch script sees too.
COUNTS = {
    "OMPI_COMM_WORLD_SIZE": "Open MPI's mpiexec",
    "PMI_SIZE": "a launcher of MPICH's kind",
    "SLURM_STEP_NUM_TASKS": "srun",
}


class Serial:
    """One rank, alone."""

    rank = 0
    size = 1

    def least(self, *values: int) -> tuple[int, ...]:
        """Of each value, the minimum over all ranks."""
        return values

    def share(self, value: Any, source: int) -> Any:
        """The value that the rank `source` has."""
        return value

    def together(self, work: Callable[[], T]) -> T:
        """Let every rank do its part. If it fails on any, all raise."""
        return work()

    def fail_together(self, failure: BaseException | None) -> None:
        """If any rank has a failure, all raise: the class of the first one, and a text that names the ranks."""
        if failure is not None:
            raise failure

    def newest_common(self, offers: Collection[int] | None) -> int | None:
        """The newest set number that every rank offers, or None. A rank with nothing to say (None) offers all."""
        return max(offers or (), default=None)

    def union(self, numbers: Collection[int]) -> list[int]:
        """The numbers that any rank has, largest first."""
        return sorted(numbers, reverse=True)

    def name_some(self, flag: bool) -> tuple[list[int], str]:
        """The first few of the ranks for which the flag is set, and a text that names these and counts the rest."""
        return [0] if flag else [], ""

    def too_large(self, step: int | None) -> bool:
        """Whether a step cannot be agreed on. Local."""
        return False

    def arrive(self) -> None:
        """Say that this rank has come to a save point."""

    def in_flight(self) -> str:
        """When all have arrived: what message, if any, the program sent before and has not yet received here."""
        return ""

    def undisturbed(self) -> contextlib.AbstractContextManager[object]:
        """Signals wait until the end; with one rank Ctrl-C may bring that nearer. Local."""
        return undisturbed()


@runtime_checkable
class Wire(Protocol):
    """What an agreement needs of whoever connects the ranks."""

    rank: int
    size: int

    def smallest(self, values: tuple[int, ...]) -> tuple[int, ...]:
        """Of each of these 64-bit integers the minimum over all ranks."""

    def total(self, value: int) -> int:
        """The sum over all ranks."""

    def spread(self, value: Any, source: int) -> Any:
        """The value that this rank has; on the others it does not count."""

    def arrive(self) -> None:
        """Begin a barrier."""

    def message(self) -> tuple[int, int, int] | str | None:
        """End the barrier: source, tag and bytes of a message of the program that was sent before, and waits here; or
        in words what else is under way."""


class Mpi4py:
    """A duplicate of a communicator."""

    def __init__(self, comm: Any, mpi: Any) -> None:
        self._mpi, self._users, self._comm = mpi, comm, comm.Get_attr(_key(mpi))
        if self._comm is None:  # one duplicate for all sessions: an MPI library may have no more than 2048
            self._comm = comm.Dup()
            comm.Set_attr(_key(mpi), self._comm)
        self.rank, self.size = self._comm.Get_rank(), self._comm.Get_size()
        self._arriving = mpi.REQUEST_NULL
        self._exact = exact if self.smallest((exact is not None,)) == (1,) else None

    def smallest(self, values: tuple[int, ...]) -> tuple[int, ...]:
        mine = array("q", values)
        result = array("q", mine)
        self._comm.Allreduce(mine, result, self._mpi.MIN)
        return tuple(result)

    def total(self, value: int) -> int:
        return int(self._comm.allreduce(value))

    def spread(self, value: Any, source: int) -> Any:
        return self._comm.bcast(value if self.rank == source else None, source)

    def arrive(self) -> None:
        self._arriving = self._comm.Ibarrier()

    def message(self) -> tuple[int, int, int] | str | None:
        self._arriving.Wait()
        status = self._mpi.Status()
        freed = self._users == self._mpi.COMM_NULL  # by the program, which then has no messages there
        if self._exact and not freed and (found := self._exact(self._users, self._comm)):
            return found
        if freed or not self._users.Iprobe(status=status):
            return None
        return status.Get_source(), status.Get_tag(), status.Get_count(self._mpi.BYTE)


class Ranks:
    """The ranks that a wire connects."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self.rank, self.size = wire.rank, wire.size

    def least(self, *values: int) -> tuple[int, ...]:
        return self._wire.smallest(values)

    def share(self, value: Any, source: int) -> Any:
        return self._wire.spread(value, source)

    def together(self, work: Callable[[], T]) -> T:
        failure = result = None
        try:
            result = work()
        except BaseException as error:
            failure = error
        self.fail_together(failure)
        return result  # type: ignore[return-value]

    def fail_together(self, failure: BaseException | None) -> None:
        if self.least(0 if failure is None else -1) == (0,):
            return
        failed, names = self.name_some(failure is not None)
        reports = {rank: self.share(_report(failure), rank) for rank in failed}
        kind, errno, text = reports[failed[0]]
        lines = [f"{names}: {text}"]
        lines += [f"rank {rank}: {other}" for rank, (_, _, other) in reports.items() if other != text]
        if failure is not None and not isinstance(failure, SafepointError):
            failure.on_all_ranks = True  # type: ignore[attr-defined]
            raise failure  # an interrupt, or a fault of ours: as it is
        error = kind("\n  ".join(lines))
        error.errno, error.on_all_ranks = errno, True
        raise error from failure

    def newest_common(self, offers: Collection[int] | None) -> int | None:
        below = LARGEST
        while True:
            if offers is None:
                newest, oldest = self.least(LARGEST, LARGEST)
            else:
                mine = max((number for number in offers if number <= below), default=0)
                newest, oldest = self.least(mine, -mine)
            if newest in (0, -oldest):
                return newest or None
            below = newest  # what all have is not above the least of the newest

    def union(self, numbers: Collection[int]) -> list[int]:
        every: list[int] = []
        while True:
            mine = max((number for number in numbers if not every or number < every[-1]), default=0)
            (largest,) = self.least(-mine)
            if largest == 0:
                return every
            every.append(-largest)

    def name_some(self, flag: bool) -> tuple[list[int], str]:
        found: list[int] = []
        while len(found) < NAMED:
            waiting = flag and (not found or self.rank > found[-1])
            (first,) = self.least(self.rank if waiting else LARGEST)
            if first == LARGEST:
                break
            found.append(first)
        count = self._wire.total(int(flag))
        more = f" and {count - len(found)} more" if count > len(found) else ""
        names = f"rank{'s' * (count > 1)} {', '.join(map(str, found))}{more} of {self.size}"
        return found, f"all {self.size} ranks" if count == self.size > 1 else names

    def too_large(self, step: int | None) -> bool:
        return step is not None and abs(step) > LARGEST // 2

    def arrive(self) -> None:
        self._wire.arrive()

    def in_flight(self) -> str:
        message = self._wire.message()
        if message is None or isinstance(message, str):
            return message or ""
        source, tag, size = message
        return f"a message of {size} bytes from rank {source} to rank {self.rank}, with tag {tag}"

    def undisturbed(self) -> contextlib.AbstractContextManager[object]:
        return undisturbed(cut=False)


@functools.cache
def _key(mpi: Any) -> int:
    """Under which a communicator keeps our duplicate of it."""
    return int(mpi.Comm.Create_keyval())


def join(comm: Any) -> Serial | Ranks:
    """The ranks of a communicator, or of none. Collective. Raises `UsageError` for what is none of mpi4py."""
    if comm is None:
        return Serial()
    mpi = sys.modules.get("mpi4py.MPI")  # whoever has a communicator has loaded it
    if (mpi is None or not isinstance(comm, mpi.Comm)) and isinstance(comm, Wire):
        return Ranks(comm) if comm.size > 1 else Serial()
    if mpi is None or not isinstance(comm, mpi.Intracomm) or comm == mpi.COMM_NULL:
        raise UsageError(
            f"comm must be an intracommunicator of mpi4py, such as MPI.COMM_WORLD, not a {type(comm).__name__}"
        )
    if comm.Get_size() > 1:
        return Ranks(Mpi4py(comm, mpi))
    refuse_strangers(misfit(), "call init without comm")
    return Serial()


def refuse_strangers(wrong: str, alone: str) -> None:
    """Or the first of them would work as if the others were not there."""
    if wrong:
        raise UsageError(
            f"these processes are no ranks of one program: {wrong}. If each is to be alone, in a directory of its own, "
            f"{alone}; nothing was changed"
        )


def launcher(environment: Mapping[str, str] = os.environ) -> str:
    """The variable by which this process knows that a launcher of parallel programs started it, or nothing. Local."""
    return next((name for name in LAUNCHERS if name in environment), "")


def misfit() -> str:
    """What is wrong if a launcher started several, and the MPI library of this process knows of one. Local."""
    mpi = sys.modules.get("mpi4py.MPI")
    if mpi is None or not mpi.Is_initialized() or mpi.Is_finalized() or mpi.COMM_WORLD.Get_size() > 1:
        return ""
    vendor, version = mpi.get_vendor()
    library = f"mpi4py works with {vendor} {'.'.join(map(str, version))}"
    return outnumbered(library, "that of a wheel is beside python", os.getpid())


def outnumbered(library: str, where: str, pid: int) -> str:
    """The same of a process whose MPI library, which is this one, knows of one process: whether its launcher started
    more. `where`: to find the right launcher. Local."""
    said = {name: os.environ[name] for name in COUNTS if os.environ.get(name, "").isdecimal()}
    if os.environ.get("SLURM_TASK_PID") != str(pid):  # what a task of srun starts is not one of its tasks
        said.pop("SLURM_STEP_NUM_TASKS", None)
    if not said or "1" in said.values():  # launchers may be nested, and one that started one is right
        return ""
    name, count = next(iter(said.items()))
    where = "see srun --mpi" if name.startswith("SLURM") else where
    return (
        f"{COUNTS[name]} started {count} processes ({name}), but {library}, which takes each for the only one. Use the "
        f"launcher of that library ({where})"
    )


def _report(failure: BaseException | None) -> tuple[type[Exception], int | None, str]:
    if isinstance(failure, SafepointError):
        return type(failure), failure.errno, str(failure)
    try:
        text = str(failure)
    except Exception:
        text = "…"
    return SafepointError, None, f"{type(failure).__name__}: {text}"


def step_key(step: int | None) -> int:
    """A step as the agreement of ranks knows it."""
    return -LARGEST if step is None else step


def low_high(value: int, counts: bool = True) -> tuple[int, int]:
    """What to bring to `least` to learn the minimum and, negated, the maximum; without a say if it does not count."""
    return (value, -value) if counts else (LARGEST, LARGEST)


def bounds(values: Collection[int]) -> tuple[int, int]:
    """The same of all ranks that one process speaks for."""
    return min(values, default=LARGEST), -max(values, default=-LARGEST)


def ranks_by_step(peers: Serial | Ranks, step: int | None) -> str:
    """Who has which step: the few smallest ones. Collective."""
    named: list[str] = []
    last = -LARGEST - 1
    while len(named) < NAMED:
        (last,) = peers.least(step_key(step) if step_key(step) > last else LARGEST)
        if last == LARGEST:
            break
        _, names = peers.name_some(step_key(step) == last)
        named.append(f"step {None if last == -LARGEST else last} on {names}")
    return ", ".join(named)


def by_step(peers: Serial | Ranks, steps: Mapping[int, int | None]) -> str:
    """The same, where a process may speak for several: the steps of those by rank. Collective."""
    if len(steps) > 1:  # then it is alone
        return ", ".join(f"step {step} on rank {rank}" for rank, step in steps.items())
    return ranks_by_step(peers, next(iter(steps.values()), None))
