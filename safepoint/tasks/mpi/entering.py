"""The way into a run: all ranks come, and signals wait from there on.

(1) A rank that raised before its call of `run` never comes. Nobody can know that, but after some time it is said.
(2) Ctrl-C goes to all ranks, and finds each somewhere else. One that raised alone would leave the others in an
    agreement for ever. So it is noted: until all have come it ends all ranks, and after that rank 0 decides.
"""

from __future__ import annotations

import contextlib
import logging
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

from safepoint.tasks.mpi.messages import Naps, mpi

logger = logging.getLogger("safepoint")
LONG_S = 30.0  # until a word is said
DEFAULT = (signal.default_int_handler, signal.SIG_DFL)


class Signals:
    """Those that came meanwhile, and the handlers that they would have had."""

    def __init__(self) -> None:
        self.came: list[int] = []
        self.before: dict[int, Any] = {}

    def ending(self) -> int:
        """One that would have ended the program; 0: none came."""
        return next((number for number in self.came if self.before[number] in DEFAULT), 0)

    def deliver(self) -> None:
        """To the handlers that are there now; they may raise."""
        came, self.came = self.came, []
        for number in dict.fromkeys(came):
            signal.raise_signal(number)


@contextlib.contextmanager
def unmoved() -> Iterator[Signals]:
    """Ctrl-C and SIGTERM are noted here, and do nothing else."""
    held = Signals()
    if threading.current_thread() is not threading.main_thread():
        yield held
        return
    numbers = (signal.SIGINT, signal.SIGTERM)
    held.before = {number: signal.getsignal(number) for number in numbers}
    for each in numbers:
        signal.signal(each, lambda number, frame: held.came.append(number))
    try:
        yield held
    finally:
        for number, handler in held.before.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)


def all_come(comm: Any, held: Signals, abort: Callable[[str, int], object]) -> None:
    """Returns when all ranks have entered. Leaves the core to others meanwhile. Collective; what is no communicator of
    several ranks is left to those who refuse it."""
    known = sys.modules.get("mpi4py.MPI")
    if not known or not isinstance(comm, known.Intracomm) or comm == known.COMM_NULL or comm.Get_size() < 2:
        return
    rank, size = comm.Get_rank(), comm.Get_size()
    request, naps, waited, said = comm.Ibarrier(), Naps(), 0.0, False
    began = mpi().Wtime()
    while not request.Test():
        if number := held.ending():
            abort(f"{signal.Signals(number).name} came before all ranks had entered run; nothing was run", 128 + number)
        waited = mpi().Wtime() - began
        if waited > LONG_S and rank < 2 and not said:  # two of them, since one may be who is missing
            logger.warning(
                "rank %d of %d has waited in run for other ranks for %d s: all must enter it. One that raised before "
                "never does; python -m mpi4py PROGRAM ends all ranks then", rank, size, LONG_S,
            )  # fmt: skip
            said = True
        naps.sleep()
