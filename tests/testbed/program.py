"""A small solver on a `FaultDisk`, and what must hold whenever it starts again. Its files at a step are a pure function
of the step, so that every byte can be checked."""

from __future__ import annotations

import hashlib
import os
import re
from collections import ChainMap
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

from safepoint import SafepointError, Session
from safepoint.disk.files import remove_tree
from safepoint.restoring.verify import verify
from safepoint.root import Root
from safepoint.saving import store as saving_store
from safepoint.saving.background import rest_after
from testbed.faultdisk import FaultDisk, Image, Killed

PLAIN = "u.dat\nsub/v.dat\n"
KINDS = """\
u.dat                # moved
sub/big.dat   compress
history.csv   append
params.db     copy
fields/*.vtk         # as many as the step says
run.zarr/
"""


IN_PLACE = "history.csv append\nparams.db copy\n"


def plain(step: int) -> dict[str, bytes]:
    return {name: f"{name} at {step}\n".encode() * (10 + step) for name in ("u.dat", "sub/v.dat")}


def kinds(step: int) -> dict[str, bytes]:
    files = {name: f"{name} at {step}\n".encode() * 40 for name in ("u.dat", "sub/big.dat", "params.db")}
    files["history.csv"] = b"".join(b"row %d\n" % k for k in range(step + 1))
    files |= {f"fields/{step}-{k}.vtk": b"vtk %d" % k for k in range(1 + step % 2)}
    files |= {f"run.zarr/{name}": f"{name} {step}".encode() for name in ("a/0.0", "meta")}
    return files


def in_place(step: int) -> dict[str, bytes]:
    return {name: data for name, data in kinds(step).items() if name in ("history.csv", "params.db")}


def directories(step: int) -> dict[str, bytes]:
    names = ("f1.dat", "run.zarr/meta", "run.zarr/a/0.0", f"d{step}/a", f"d{step}/deep/b")
    return {name: f"{name} at {step}\n".encode() for name in names}


def companions(step: int) -> dict[str, bytes]:
    """Databases, one of which has a log that is there at every other step, and one a journal at the others."""
    names = ("held.db", "moved.db", *(["held.db-wal"] if step % 2 else ["moved.db-journal"]))
    return {name: f"SQLite format 3\0{name} at {step}\n".encode() * 20 for name in names}


Shape = tuple[str, Callable[[int], dict[str, bytes]]]  # a manifest, and its files at a step
SHAPES: dict[str, Shape] = {
    "plain": (PLAIN, plain),
    "kinds": (KINDS, kinds),
    "in place": (IN_PLACE, in_place),
    "companions": ("held.db copy\nmoved.db\n", companions),
    "directories": ("f1.dat\nrun.zarr/\nd[0-9]*/\n", directories),
}


def _text(name: str, step: int) -> bytes:
    return f"{name} at {step}\n".encode() * (30 + step)


def _random(name: str, step: int) -> bytes:
    return hashlib.shake_128(_text(name, step)).digest(3000)


def _only(*names: str, of: Callable[[str, int], bytes] = _text) -> Callable[[int], dict[str, bytes]]:
    return lambda step: {name: of(name, step) for name in names}


def _rows(step: int) -> dict[str, bytes]:
    return {"history.csv": b"".join(b"row %d of a long table\n" % k for k in range(50 * step + 3))}


def _best(*names: str, every: int = 99) -> Callable[[int], dict[str, bytes]]:
    """From step 1 on, and written anew only every so many steps."""
    return lambda step: {name: _text(name, (step - 1) // every) for name in names if step}


def _logs(step: int) -> dict[str, bytes]:
    return {f"logs/{name}": rows for name, rows in _rows(step).items()}


TREE = ("run.zarr/meta", "run.zarr/a/0.0", "run.zarr/a/0.1", "run.zarr/b/c/d/0.0")
# Each kind of file on its own, for the table in files/test_kinds.py.
EACH_KIND: dict[str, Shape] = {
    "moved": ("u.dat\nv.dat\n", _only("u.dat", "v.dat")),
    "append": ("history.csv append\n", _rows),
    "append beside a moved one": ("u.dat\nhistory.csv append\n", lambda s: _rows(s) | _only("u.dat")(s)),
    "append begun anew": ("logs/history.csv append\nu.dat\n", lambda s: _logs(s) | _only("u.dat")(s)),
    "append renamed": ("u.dat\nhistory.csv append\n", lambda s: _rows(s) | _only("u.dat")(s)),
    "append cut back": ("history.csv append\nparams.db copy\n", lambda s: _rows(s) | _only("params.db")(s)),
    "append copy renamed": ("u.dat\nhistory.csv append copy\n", lambda s: _rows(s) | _only("u.dat")(s)),
    "copy": ("params.db copy\n", _only("params.db")),
    "held open": ("held.dat\nv.dat\n", _only("held.dat", "v.dat")),
    "compress": ("u.dat compress\nv.dat compress=9\n", _only("u.dat", "v.dat")),
    "compress what does not shrink": ("u.dat compress\n", _only("u.dat", of=_random)),
    "copy and compress": ("params.db copy compress\n", _only("params.db")),
    "many small": (
        "fields/*.vtk\nu.dat\nbundle_from = 3\n",
        lambda s: _only(*(f"fields/{s}-{k}.vtk" for k in range(4)), "u.dat")(s),
    ),
    "directory": ("run.zarr/\n", _only(*TREE)),
    "directory of many small": ("run.zarr/\nbundle_from = 2\n", _only(*TREE)),
    "directory copy": ("run.zarr/ copy\n", _only(*TREE)),
    "directory without scratch": ("run.zarr/\n!run.zarr/a/*~\n", _only(*TREE)),
    "directory copy without scratch": ("run.zarr/ copy\n!run.zarr/**/*~\n", _only(*TREE)),
    "directory compress": ("run.zarr/ compress\n", _only(*TREE)),
    "directory copy compress": ("run.zarr/ copy compress\n", _only(*TREE)),
    "optional, written once": ("u.dat\nbest.dat optional\n", lambda s: _only("u.dat")(s) | _best("best.dat")(s)),
    "optional, compress, written at times": (
        "u.dat\nbest.dat optional compress\n",
        lambda s: _only("u.dat")(s) | _best("best.dat", every=2)(s),
    ),
    "optional, small, written at times": (
        "u.dat\nbest*.dat optional\nbundle_from = 1\n",
        lambda s: _only("u.dat")(s) | _best("best1.dat", "best2.dat", every=2)(s),
    ),
    "optional directory, written once": (
        "u.dat\nbest/ optional\n",
        lambda s: _only("u.dat")(s) | _best("best/a", "best/b/c")(s),
    ),
    "empty file": ("u.dat\nempty.dat compress\n", lambda s: _only("u.dat")(s) | {"empty.dat": b""}),
}


# What the program does to its table when it was given back a set; then it writes all of its rows again.
ANEW: dict[str, Callable[[FaultDisk, str], object]] = {
    "append begun anew": lambda disk, table: disk.truncate(table, 0),
    "append renamed": lambda disk, table: disk.rename(table, table + "~"),
    "append copy renamed": lambda disk, table: disk.rename(table, table + "~"),
    "append cut back": lambda disk, table: disk.truncate(table, os.path.getsize(table) // 2),
}


# What the program writes into its directory, and no set may have.
SCRATCH = {kind: "run.zarr/a/scratch~" for kind in EACH_KIND if kind.endswith("without scratch")}


def _long(name: str, step: int) -> bytes:
    return f"{name} holds step {step}\n".encode() * 500


def _noise(size: int) -> Callable[[str, int], bytes]:
    return lambda name, step: hashlib.shake_128(_text(name, step)).digest(size)


# Of several pages a file, for real processes and real file systems.
LARGER: dict[str, Shape] = {
    "solver": (
        "u.dat\nv.dat   compress\nfields/p.dat\nhistory.csv   append\n",
        lambda s: (
            _only("u.dat", "v.dat", "fields/p.dat", of=_long)(s)
            | {"history.csv": b"".join(b"%d\n" % k for k in range(s + 1))}
        ),
    ),
    "large": (
        "u.dat\nparams.db copy\nv.dat compress\n",
        lambda s: _only("u.dat", "params.db", of=_noise(5 << 18))(s) | _only("v.dat", of=_long)(s),
    ),
    "many": (
        "fields/*.vtk\nhistory.csv append\n",
        lambda s: _only(*(f"fields/{s}-{k}.vtk" for k in range(110)))(s) | _rows(s),
    ),
    "tree": ("run.zarr/\nout.bp/ copy compress\n", _only(*TREE, "out.bp/md.0", "out.bp/a/data.0", of=_long)),
}
# For one hazard each.
PARTICULAR: dict[str, Shape] = {
    "trees": ("u.dat\nstate/   copy\n", _only("u.dat", "state/a", "state/b", "state/c/d")),
    "one": (PLAIN + "keep = 1\n", plain),
    "deep": ("a/b/c/u.dat\nv.dat\n", _only("a/b/c/u.dat", "v.dat")),
}
SHAPES_AND_KINDS = ChainMap(SHAPES, EACH_KIND, LARGER, PARTICULAR)


class Violation(AssertionError):
    """A promise was broken."""


def listed(directory: str | os.PathLike[str]) -> dict[str, bytes]:
    """All files in W but the manifest, the side directory and what a program has renamed to be rid of it."""
    work, found = Path(directory), {}
    for top, directories, names in os.walk(work):
        if Path(top) == work and ".safepoint.d" in directories:
            directories.remove(".safepoint.d")  # where the saver may be removing older sets
        for path in (Path(top, name) for name in names):
            name = path.relative_to(work).as_posix()
            if path.is_file() and name != ".safepoint" and name[-1] != "~":
                found[name] = path.read_bytes()
    return found


class NowSaver:
    """The background save happens at once, inside of `hide`."""

    resting = False

    def submit(
        self, job: Callable[[], Any], then: Callable[[], Any] = lambda: None, rests: bool = False
    ) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(job())
        except Exception as error:
            future.set_exception(error)
        return future

    def stop(self) -> None:
        pass


class LateSaver(NowSaver):
    """The background save happens when it is waited for: after the program wrote its next files."""

    def submit(self, job: Callable[[], Any], then: Callable[[], Any] = lambda: None, rests: bool = False) -> Any:
        return Late(self, job, then)


class Late:
    """A set that is stored when somebody asks for its error. `busy`: until then it is in flight."""

    def __init__(self, saver: NowSaver, job: Callable[[], Any], then: Callable[[], Any], *, busy: bool = False) -> None:
        self._saver, self._job, self._then, self._busy = saver, job, then, busy
        self.ran: Future[Any] | None = None

    def exception(self, timeout: float | None = None) -> BaseException | None:
        if self.ran is None:
            self.ran = NowSaver.submit(self._saver, self._job)
            if self._busy:
                self._then()
        return self.ran.exception()

    def done(self) -> bool:
        return not self._busy or self.ran is not None

    def add_done_callback(self, call: Callable[[Any], Any]) -> None:
        pass  # the life of this program has ended


class BusySaver(NowSaver):
    """The background save happens when all is waited for, or when the program lets it `catch_up`: the program hides
    faster than that."""

    def __init__(self) -> None:
        self._flights: list[Late] = []

    def submit(self, job: Callable[[], Any], then: Callable[[], Any] = lambda: None, rests: bool = False) -> Any:
        self._flights.append(Late(self, job, then, busy=True))
        return self._flights[-1]

    def catch_up(self) -> None:
        """The set in flight is stored. What waits for it is in flight then."""
        flights, self._flights = self._flights, []
        for flight in flights:
            flight.exception()


class TimedSaver(NowSaver):
    """The background save takes so long, by the clock of the simulation, which `pass_on` sets; then the saver rests."""

    def __init__(self, takes: float) -> None:
        self.takes, self.now, self.rested = takes, 0.0, 0.0
        self._flights: list[tuple[float, Late]] = []

    @property
    def resting(self) -> bool:  # type: ignore[override]
        return self.now < self.rested

    def submit(self, job: Callable[[], Any], then: Callable[[], Any] = lambda: None, rests: bool = False) -> Any:
        begin = max([self.now, *(end for end, _ in self._flights)])
        self._flights.append((begin + self.takes, Late(self, job, then, busy=True)))
        return self._flights[-1][1]

    def pass_on(self, seconds: float) -> None:
        until = self.now + seconds
        while self._flights and self._flights[0][0] <= until:
            self.now, flight = self._flights.pop(0)
            flight.exception()
            self.rested = self.now + rest_after(self.takes)
        self.now = until


SAVERS: dict[str, Any] = {"now": NowSaver, "late": LateSaver, "busy": BusySaver, "wait": None}
FAST = 6  # steps of a program that hides faster than its saver stores: so many, for a set to be given up twice


def steps_of(saver: str, steps: int) -> int:
    return max(FAST, steps) if saver == "busy" else steps


def given_to(session: Session, saver: str) -> None:
    """Let this saver, and nobody else, store what the session hides; and what it gives up goes at once."""
    if SAVERS[saver] is not None:
        session._work.thread = SAVERS[saver]()
        session._work._sweeper = NowSaver()  # type: ignore[assignment]


class Crash(Exception):
    """The program itself could not write its files, and ends."""


@dataclass
class Program:
    """`run` is one life of the program, from start to finish, death or error."""

    disk: FaultDisk
    shape: str = "plain"
    saver: str = "now"
    steps: int = 3
    initial: bool = False  # the files of step 0 are there at the first start
    go_on: bool = False  # catch errors and compute on, as a program may
    dies_anew: bool = False  # when it was given back a set, and has begun its table anew
    handed: int = -1  # the newest step for which hide had returned
    durable: int = -1  # the newest step that was promised to survive a power cut
    restored: int | None = None  # step of the set that this life began with
    finished: bool = False
    errors: list[SafepointError] = None  # type: ignore[assignment]
    durable_at: list[tuple[int, int]] = None  # type: ignore[assignment]  # (operation, step) of each promise
    _known: dict[str, bytes] = field(default_factory=dict)  # what was written last under each name

    def run(self) -> None:
        self.errors, self.durable_at = [], []
        # The few files of these programs in more than one batch, where the library takes many at once.
        with mock.patch.object(saving_store, "OPEN", 2):
            self._run()

    def _run(self) -> None:
        self._known = {}
        self._held: list[int] = []  # descriptors, for writing, of files that this program never closes
        try:
            self._live()
        except (Killed, Crash):
            pass
        except SafepointError as error:
            self.errors.append(error)
        finally:
            self.disk.end()
            self._let_go()

    def _live(self) -> None:
        files = SHAPES_AND_KINDS[self.shape][1]
        session = Session(self.disk.directory, background=self.saver != "wait", disk=self.disk)
        given_to(session, self.saver)
        saved = session.restore()
        begin = self._check(session, saved, files)
        if saved and self.shape in ANEW:
            (table,) = (name for name in files(begin) if name.endswith("history.csv"))
            ANEW[self.shape](self.disk, os.path.join(self.disk.directory, table))
            if self.dies_anew:
                raise Crash
            self._write({table: files(begin)[table]})
        for step in range(begin, self.steps):
            try:
                session.hide(step=step)
                self.handed = step
                self._promise_what_is_committed(session)
                if isinstance(session._work.thread, BusySaver) and step % 3 == 0:
                    session._work.thread.catch_up()
                    self._promise_what_is_committed(session)
            except SafepointError as error:
                self.errors.append(error)
                if not self.go_on:
                    return
                self._known = {}  # what is written at times only is written again
            self._write(files(step + 1))
        try:
            session.finish(step=self.steps)
        except SafepointError as error:
            if not self.go_on:
                raise
            self.errors.append(error)
            # A failed fsync is never asked again, so the files must be new ones.
            for name in os.listdir(self.disk.directory):
                if not name.startswith(".safepoint"):
                    remove_tree(self.disk, os.path.join(self.disk.directory, name))
            self._known = {}
            self._write(files(self.steps))
            session.finish(step=self.steps)
        self.finished = True
        self._promise(self.steps)

    def _promise_what_is_committed(self, session: Session) -> None:
        if session._committed is not None and (session._committed.step or 0) > self.durable:
            self._promise(session._committed.step or 0)

    def _promise(self, step: int) -> None:
        self.durable = step
        self.durable_at.append((len(self.disk.record.ops), step))

    def _check(self, session: Session, saved: Any, files: Callable[[int], dict[str, bytes]]) -> int:
        """What restore said against what is there; the step to go on from."""
        found = listed(self.disk.directory)
        if saved is None:
            expected = files(0) if self.initial else {}
            self.restored = 0 if self.initial else None
            if found != expected:
                raise Violation(f"a first start, but there is {sorted(found)}, expected {sorted(expected)}")
            if not self.initial:
                if session.hide(step=0) is not None:
                    raise Violation("a first start, and there was something to hide")
                self._write(files(0))
            return 0
        self.restored = saved.step
        self._known = dict(files(saved.step))
        wrong = [name for name, data in files(saved.step).items() if found.pop(name, None) != data]
        if wrong or found:
            raise Violation(f"restored step {saved.step}, but {wrong} differ and {sorted(found)} should not be there")
        scratch = SCRATCH.get(self.shape, "none~")
        if os.path.exists(os.path.join(self.disk.directory, scratch)) and not saved.finished:
            raise Violation("what is excluded came back")
        return int(saved.step)

    def _write(self, files: dict[str, bytes]) -> None:
        """As a program does: over the old file if it is there, at the end of one that grows."""
        try:
            self._write_each(files)
            if self.shape in SCRATCH and len(files) > 1:
                self._write_each({SCRATCH[self.shape]: b"scratch"})
        except OSError as error:
            raise Crash from error

    def _let_go(self) -> None:
        while self._held:
            os.close(self._held.pop())

    def _write_each(self, files: dict[str, bytes]) -> None:
        several = re.compile(r"fields/|d\d+/")
        for name in [n for n in listed(self.disk.directory) if several.match(n) and n not in files]:
            os.unlink(os.path.join(self.disk.directory, name))  # only after a hide that failed
        for name in [n for n in listed(self.disk.directory) if ".db-" in n and n not in files]:
            try:
                self.disk.remove(path := os.path.join(self.disk.directory, name))  # a log that is needed no more
            except OSError:  # this fault was to be one of the library's
                os.unlink(path)
        for name, data in files.items():
            if name.startswith("best") and self._known.get(name) == data:
                continue
            self._known[name] = data
            path = os.path.join(self.disk.directory, name)
            for directory in reversed(list(Path(self.disk.directory, name).parents)):
                if not directory.is_dir():
                    self.disk.mkdir(str(directory))
            if name.endswith("history.csv") and os.path.exists(path):
                self.disk.append(path, data[os.path.getsize(path) :])  # rows of a failed hide are there already
            else:
                self.disk.overwrite(path, data)
            if name == "held.dat":
                self._let_go()
                self._held.append(os.open(path, os.O_RDWR))


def write(disk: FaultDisk, files: dict[str, bytes]) -> None:
    """Over the old files, or into new directories."""
    for name, data in files.items():
        path = os.path.join(disk.directory, name)
        for directory in reversed(list(Path(disk.directory, name).parents)):
            if not directory.is_dir():
                disk.mkdir(str(directory))
        disk.overwrite(path, data)


def new_directory(path: str | os.PathLike[str], shape: str = "plain", *, initial: bool = False) -> str:
    os.mkdir(path)
    Path(path, ".safepoint").write_text(SHAPES_AND_KINDS[shape][0])
    for name, data in (SHAPES_AND_KINDS[shape][1](0) if initial else {}).items():
        Path(path, name).parent.mkdir(parents=True, exist_ok=True)
        Path(path, name).write_bytes(data)
    return str(path)


def restart(disk: FaultDisk, like: Program) -> Program:
    """The next life, undisturbed: it must start, and reach the end. Returns it, with what it restored."""
    consistent(disk.directory)  # now: at the end there are no sets
    program = Program(disk, like.shape, like.saver, like.steps, like.initial)
    program.run()
    if program.errors:
        raise Violation(f"could not start again: {program.errors[0]!r}") from program.errors[0]
    if not program.finished:
        raise Violation("did not reach the end")
    if listed(disk.directory) != SHAPES_AND_KINDS[like.shape][1](like.steps):
        raise Violation("the final files are wrong")
    return program


def consistent(directory: str) -> None:
    """Whatever happened, no set that claims to be committed is damaged."""
    states = verify(Root(os.path.realpath(directory)))
    bad = {number: state for number, state in states.items() if state not in ("committed", "uncommitted")}
    if bad:
        raise Violation(f"damaged sets: {bad}")


def restart_image(image: Image, like: Program, *, kill_at: int = -1) -> Program:
    """After a power cut: the machine is another one as far as page caches go."""
    if kill_at >= 0:
        first = FaultDisk(image.directory, boot="after", inodes=image.inodes, kill_at=kill_at)
        Program(first, like.shape, like.saver, like.steps, like.initial).run()
        image.inodes = first.inodes
    return restart(FaultDisk(image.directory, boot="after", inodes=image.inodes), like)
