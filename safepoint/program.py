"""The session of a program: the verbs, and with them the log, and the answers to when to save and when to stop."""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import sys
import time
import traceback
import weakref
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, SupportsIndex

from safepoint import settings
from safepoint.callbacks import Callbacks, OnDurable, OnFailed
from safepoint.collective import collective
from safepoint.disk import Disk
from safepoint.disk.files import exists
from safepoint.disk.signals import undisturbed
from safepoint.errors import SaveError, UsageError
from safepoint.kept import StoredSet, extracted, stored_sets
from safepoint.ledger import log as ledger
from safepoint.ledger.scribe import Scribe
from safepoint.listener import SavePoint
from safepoint.nodes.placed import Placed
from safepoint.opening import whole
from safepoint.pace.blocking import Blocking
from safepoint.pace.interval import Every, every
from safepoint.pace.limits import time_limits
from safepoint.pace.signals import Signals, signal_numbers
from safepoint.pace.times import duration
from safepoint.pace.timing import Timing
from safepoint.ranks import join
from safepoint.retention import EVERY
from safepoint.root import REAL
from safepoint.session import Verbs
from safepoint.settings import Setting
from safepoint.spawned import refuse_worker
from safepoint.state.variables import State, path_in
from safepoint.state.variables import load as load_state
from safepoint.state.variables import save as write_state
from safepoint.tiers import settings as tiers

if TYPE_CHECKING:
    from pathlib import Path

logger = logging.getLogger("safepoint")
# When `due` says that it is time: 10 steps, 15min, auto. Mean time between failures, seconds; None: by the log.
SETTINGS: dict[str, Setting] = {
    **settings.SETTINGS, **ledger.SETTINGS, **tiers.SETTINGS, "every": (every, Every()), "mtbf": (duration, None),
}  # fmt: skip


class Session(Placed):
    """One program at work in one directory. A context manager: it ends with `finish()`, or, on an exception, `close`;
    with other ranks that ends the job (MPI_Abort), unless all ranks raise it.
    A block that knows its last step calls `finish(step)` itself, since files written after the last set have none."""

    def __init__(
        self, directory: str | os.PathLike[str] = ".", *, comm: Any = None, saver: int | None = 0,
        coordinate: bool | None = None, keep: int | str | None = None, background: bool = True, inflight: str = "warn",
        signals: Sequence[str | int] = (), stop_at: str | float | None = None, stop_after: str | float | None = None,
        store: str | None = None, on_durable: OnDurable | None = None, on_failed: OnFailed | None = None,
        in_place: bool = False, disk: Disk = REAL,
    ) -> None:  # fmt: skip
        """As `safepoint.init`. `in_place`: the files stay where they are, and a set is a snapshot of them: for programs
        that know nothing of this."""
        refuse_worker()
        ranks, began = join(comm), time.time()
        try:
            with ranks.undisturbed():
                caught, bounds, above = ranks.together(
                    lambda: (
                        signal_numbers(signals),
                        time_limits(stop_at, stop_after, began, os.environ),
                        ledger.from_environment(os.environ),
                    )
                )
                options: dict[str, Any] = {"saver": saver, "coordinate": coordinate, "keep": keep}
                options |= {"background": background, "inflight": inflight, "store": store}
                super().__init__(directory, ranks, disk, options, SETTINGS, in_place=in_place)
                self._timing = Timing(self._home, self._peers, bounds)
                self._scribe = Scribe(self._home, self._timing.reasons, self._ledger(above), sampled=in_place)
                self._store_every()
                told, beside = ranks.together(
                    lambda: (
                        Callbacks(on_durable, on_failed, alone=self._peers.size == 1),
                        self._with_a_drain(in_place),
                    )
                )
                self._meet()
                blocking = Blocking(self._home, every=self._work.every)
                self._listeners = (self._timing, self._scribe, blocking, *beside, told)
            self._timing.caught = Signals(caught)
            atexit.register(_at_exit, weakref.ref(self))
        except BaseException:  # also by a handler: there is no session that could be closed
            if hasattr(self, "_timing"):
                self._timing.caught.remove()
            if hasattr(self, "_home"):
                self._home.release()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """With other ranks an exception ends the job as `python -m mpi4py` does, when all that this rank has handed
        over is durable: the others would wait for it for ever. Not one that all raise, nor an exit with status 0."""
        alone = not self._closed and os.getpid() == self._pid and self._ranks.size > 1
        super().__exit__(kind, error, trace)
        mpi: Any = sys.modules.get("mpi4py.MPI")
        if error is None or not alone or mpi is None or mpi.Is_finalized() or _on_all_ranks(error):
            return
        status = 1
        if isinstance(error, SystemExit):
            status = error.code if isinstance(error.code, int) else int(error.code is not None)
        else:
            sys.excepthook(type(error), error, trace)
        if status:
            why = traceback.format_exception_only(type(error), error)[-1].strip()
            whose = f"rank {self._ranks.rank} of {self._ranks.size}"
            print(f"safepoint: {whose} ends the job, as the others would wait for it: {why}", file=sys.stderr)
            for stream in (sys.stdout, sys.stderr):
                stream.flush()
            mpi.COMM_WORLD.Abort(status)

    def _store_every(self) -> None:
        """Without being told to: where each set is wanted."""
        told, why = (self._choices.store or self._home.manifest.setting("store")) == "every", ""
        if self._scribe.ledger.level >= ledger.MODIFY:
            why = "the ledger is to see each step"
        elif self._home.keep.newest >= EVERY:
            why = "keep = all"
        (found,) = self._peers.least(-(told or bool(why)))  # an environment may differ
        self._work.every = bool(found)
        if why and not told:
            self._remarks.say(logging.INFO, f"{why}: every set is stored, so hide waits for the one before")

    def _ledger(self, above: Mapping[str, int]) -> ledger.Ledger:
        root, told = self._root, {**self._home.manifest.settings, **above}
        return ledger.Ledger(root, root.log if self._home.active else root.apart, told["ledger"], told["edges"])

    def due(self) -> bool:
        """Whether it is time to save: call it once in every step, right before the files would be written and hidden.

        By the setting `every`: so many steps or so much time after the last set, or, with `auto`, the default, after
        the time that wastes least, by what saves cost here and how often the run fails (Daly 2006). True again and
        again until a set is hidden. It changes nothing. Collective if the ranks coordinate, though most calls only
        count; decided on one rank, so the answer is the same on all.
        """
        return not self._timing.due_waits and self._decide_due()

    @collective
    def _decide_due(self) -> bool:
        self._check("due")
        first, when = not self._timing.asked, self._timing.ask(noted=self._scribe.noted)
        if first:
            when.due_waits()
        return when.decide_due(saving=self.saving, first=self._committed is None)

    def should_stop(self) -> bool:
        """Whether this process had better save and end: call it once in every step.

        True when the time limit is near, so that a step and a save just fit before it; when one of the `signals` of
        `init` came, to any rank; or when somebody asked for it with `safepoint halt`. Then it is true for ever, and
        `stop` ends the process. Collective if the ranks coordinate: all are told in the same step.
        """
        return not self._timing.stop_waits and self._decide_should_stop()

    @collective
    def _decide_should_stop(self) -> bool:
        self._check("should_stop")
        first, when = not self._timing.asked, self._timing.ask(noted=self._scribe.noted)
        if first:
            when.stop_waits()
        stopping, new = when.decide_stop(saving=self.saving)
        if new:
            self._remarks.say(logging.WARNING, f"stopping: {when.stop.why}")
            self._scribe.stopping(when.stop.why)
        return stopping

    def stop(self) -> NoReturn:
        """End the process so that it can be started again from the last set.

        Waits until everything hidden is durable, closes the session, and raises `SystemExit`: with status 75 ("try
        again": the job script, or the scheduler, puts the job back into the queue), or 79 after `safepoint halt`. If
        the set in flight fails its `SaveError` is raised instead. Collective if the ranks coordinate.
        """
        self.wait()
        status = self._timing.status
        # Together, as some launchers end all ranks when the first one leaves with a status.
        self._peers.together(lambda: self._end(None, "stop() was called"))
        raise SystemExit(status)

    def watch(self, step: SupportsIndex, /, **values: Any) -> None:
        """Note digests of these values (numbers, arrays of numpy, what numpy makes arrays of) at `step`, in the ledger.

        With `ledger = modify` in the manifest, or SAFEPOINT_LEDGER=modify in the environment: type, shape and xxh3-128;
        with `full` also the smallest, largest and mean value and the root of the sum of squares. Otherwise nothing is
        done, in less than a microsecond. On return the line is written, and survives the death of this process; what
        hinders that is said in a warning. Not collective. Raises `UsageError` for what is no value.
        """
        if self._scribe.ledger.level >= ledger.MODIFY:
            self._check("watch")
            self._scribe.ledger.watch(whole("watch: step", step), values)

    @property
    def directory(self) -> Path:
        """The working directory."""
        from pathlib import Path

        return Path(self._root.work)

    def __repr__(self) -> str:
        state = "ended" if self._closed else self._broken or ("not restored yet" if self._must_restore else "at work")
        ranks = f", rank {self._ranks.rank} of {self._ranks.size}" if self._ranks.size > 1 else ""
        newest = f", {self._committed.label} is durable" if self._committed and not self._closed else ""
        return f"<Session in {self._root.work}{ranks}: {state}{newest}{', a set is being stored' * self.saving}>"

    @collective
    def save_state(self, step: SupportsIndex, /, **state: Any) -> SavePoint:
        """Write these variables to `state.npz` (`state-{rank}.npz` with ranks), and hide that with all that is listed.

        Kept are arrays of numpy, numbers, strings, bytes, None, lists, tuples and dicts of them, `numpy.random`'s
        generators and `random.Random`: as an archive that `numpy.load` reads, and nothing pickled. `UsageError` names
        what cannot be kept; then nothing was changed. Else as `hide`, also in its errors: the variables are in memory
        still. Killed inside: the set before is given back. Collective.
        """

        def write() -> None:
            if self._must_restore:
                raise UsageError("save_state before load_state, in a directory that has save points: call it first")
            self._as_step("save_state", step)
            self._check("hide")
            path = path_in(self._home)
            with self._root.reporting(SaveError, f"the state of step {step} not written", "it is in memory still"):
                write_state(self._root, path, state)

        self._peers.together(write)
        point: SavePoint | None = Verbs.hide.__wrapped__(self, step)  # type: ignore[attr-defined]
        assert point
        return point

    @collective
    def load_state(self) -> State | None:
        """Restore the last complete set, and read the variables of it; None at a first start.

        A dict of them by name, with the attributes `step` and `finished`. Raises as `restore`; `MissingFilesError` if
        the set was saved without `save_state`, `FormatError` if the file is none of its. Collective.
        """
        point: SavePoint | None = Verbs.restore.__wrapped__(self)  # type: ignore[attr-defined]
        if point is None:
            return None
        return self._peers.together(lambda: load_state(self._root, path_in(self._home), point))

    def sets(self) -> list[StoredSet]:
        """The sets of this rank that are there, newest first. Nothing is changed. Not collective."""
        self._check("sets")
        return stored_sets(self._root)

    @contextlib.contextmanager
    def reading(
        self, which: SupportsIndex | StoredSet, *, directory: str | os.PathLike[str] | None = None
    ) -> Iterator[Path]:
        """The files of this set, by its number or from `sets`, read-only, in a temporary directory (below `directory`)
        as long as the block lasts. The run is not touched. Not collective: of this rank. Raises `NothingSavedError` if
        there is no such set, or it was removed meanwhile, `DamagedError` if it is not whole."""
        self._check("reading")
        with extracted(self._root, which, directory) as files:
            if self._work.thread is None:
                self._root.disk.helpers.dismiss(wait=True)  # as after each verb: then forking is safe
            yield files


def _on_all_ranks(error: BaseException | None) -> bool:
    """Whether it is, or comes of, one that every rank raises."""
    while error is not None:
        if getattr(error, "on_all_ranks", False):
            return True
        error = error.__cause__ or error.__context__
    return False


def _at_exit(reference: weakref.ref[Session]) -> None:
    """Finish the set in flight. A failure that nobody asked for must not vanish with the process."""
    session = reference()
    if session is None or session._pid != os.getpid():
        return
    with undisturbed():
        for _ in range(3):  # one set may be in flight, and one wait
            try:
                session._work.drain()
                break
            except Exception as error:
                if not session._closed:
                    logger.error("%s", error)
    if not session._closed and exists(session._root.disk, session._root.log):
        for listener in session._listeners:
            listener.closing(getattr(sys, "last_value", None), "")
