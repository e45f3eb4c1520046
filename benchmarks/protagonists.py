"""The ways to save that `peers.py` compares, each in a process of its own that does what it is told.

    python benchmarks/protagonists.py NAME DIRECTORY ARRAYS BYTES      # then `save`, `restore`, `end` on stdin

Each keeps ARRAYS arrays of BYTES bytes in memory, as a program does, and saves them. It answers with one JSON object a
line: of a save, the seconds that the program's own writing took (`write`; 0 if it has none), until it could go on
(`blocked`), and until, by the way's own account, all was done (`done`); of a restore, until the arrays were in memory
again.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
import time
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

Arrays = dict[str, np.ndarray]


def fsync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)


class Way:
    """One way to save. `told`: what it promises if the power fails at any moment."""

    told: ClassVar[str]
    durable: ClassVar[bool] = False  # when it says that it is done, the data survive a power cut

    def __init__(self, work: Path, arrays: Arrays) -> None:
        self.work, self.arrays, self.step, self.write = work, arrays, 0, 0.0
        self.noted: dict[str, float] = {}  # seconds of other parts of a save

    def save(self) -> None:
        raise NotImplementedError

    def wait(self) -> None:
        """Until the save is done."""

    def restore(self) -> Arrays:
        return {name: np.load(self.path(name)) for name in self.arrays}

    def path(self, name: str) -> Path:
        return self.work / f"{name}.npy"

    def put(self, path: Path, array: np.ndarray) -> None:
        """The program's own writing, which is timed apart."""
        begin = time.perf_counter()
        np.save(path, array)
        self.write += time.perf_counter() - begin

    def tidy(self) -> None:
        """Outside of the times: what is not needed any more."""

    def end(self) -> None:
        """Before the process ends."""


class Plain(Way):
    told = "nothing: the old file is gone as soon as the new one is begun"

    def save(self) -> None:
        for name, array in self.arrays.items():
            self.put(self.path(name), array)


class Limit(Way):
    told = "each file is old or new; the set may be mixed, the names are not flushed"

    def save(self) -> None:
        for name, array in self.arrays.items():
            self.put(self.work / f"{name}.tmp.npy", array)
        for name in self.arrays:
            fsync(self.work / f"{name}.tmp.npy")
        begin = time.perf_counter()
        for name in self.arrays:
            os.rename(self.work / f"{name}.tmp.npy", self.path(name))
        self.noted["renames"] = time.perf_counter() - begin


class Replace(Way):
    told = "each file is old or new; the set may be mixed"
    durable = True

    def save(self) -> None:
        for name, array in self.arrays.items():
            temporary = self.work / f"{name}.tmp.npy"
            self.put(temporary, array)
            fsync(temporary)
            os.replace(temporary, self.path(name))
        fsync(self.work)


class Backup(Way):
    told = "nothing is flushed; after a kill the copy may be torn or the original, by hand"

    def save(self) -> None:
        (self.work / "backup").mkdir(exist_ok=True)
        for name, array in self.arrays.items():
            if self.path(name).exists():
                shutil.copyfile(self.path(name), self.work / "backup" / f"{name}.npy")
            self.put(self.path(name), array)


class Rotation(Way):
    told = "the set of the last pointer is whole"
    durable = True

    def save(self) -> None:
        half = self.work / "ab"[self.step % 2]
        half.mkdir(exist_ok=True)
        for name, array in self.arrays.items():
            self.put(half / f"{name}.npy", array)
            fsync(half / f"{name}.npy")
        fsync(half)
        pointer = self.work / "latest.tmp"
        pointer.write_text(half.name)
        fsync(pointer)
        os.replace(pointer, self.work / "latest")
        fsync(self.work)

    def restore(self) -> Arrays:
        half = self.work / (self.work / "latest").read_text()
        return {name: np.load(half / f"{name}.npy") for name in self.arrays}


class H5py(Way):
    told = "nothing: written in place, flushed to the kernel only"

    def __init__(self, work: Path, arrays: Arrays) -> None:
        super().__init__(work, arrays)
        import h5py

        self.file = h5py.File(work / "state.h5", "a")

    def save(self) -> None:
        begin = time.perf_counter()
        for name, array in self.arrays.items():
            if name in self.file:
                self.file[name][...] = array
            else:
                self.file[name] = array
        self.file.flush()
        self.write += time.perf_counter() - begin

    def restore(self) -> Arrays:
        return {name: self.file[name][...] for name in self.arrays}

    def end(self) -> None:
        self.file.close()


class Torch(Way):
    """torch.distributed.checkpoint.save, each step in a directory of its own."""

    told = "a step is whole if its .metadata is there; the directory's names are not flushed"

    def __init__(self, work: Path, arrays: Arrays) -> None:
        super().__init__(work, arrays)
        import torch
        from torch.distributed import checkpoint

        self.checkpoint = checkpoint
        self.state = {name: torch.from_numpy(array) for name, array in arrays.items()}
        self.single = not torch.distributed.is_initialized()

    def where(self, step: int) -> str:
        return str(self.work / f"step-{step}")

    def save(self) -> None:
        self.checkpoint.save(self.state, checkpoint_id=self.where(self.step), no_dist=self.single)

    def restore(self) -> Arrays:
        import torch

        state = {name: torch.empty_like(tensor) for name, tensor in self.state.items()}
        self.checkpoint.load(state, checkpoint_id=self.where(self.step - 1), no_dist=self.single)
        return {name: tensor.numpy() for name, tensor in state.items()}

    def tidy(self) -> None:
        shutil.rmtree(self.where(self.step - 2), ignore_errors=True)


class TorchAsync(Torch):
    told = Torch.told + "; a failure is seen only by who asks the future"

    def save(self) -> None:
        self.future = self.checkpoint.async_save(self.state, checkpoint_id=self.where(self.step), no_dist=self.single)

    def wait(self) -> None:
        self.future.result()


class Orbax(Way):
    """orbax.checkpoint.AsyncCheckpointer, each step in a directory of its own."""

    told = "a step is whole once it was renamed"

    def __init__(self, work: Path, arrays: Arrays) -> None:
        super().__init__(work, arrays)
        import orbax.checkpoint as orbax

        self.orbax = orbax
        self.checkpointer = orbax.AsyncCheckpointer(orbax.StandardCheckpointHandler())

    def where(self, step: int) -> Path:
        return self.work / f"step-{step}"

    def save(self) -> None:
        self.checkpointer.save(self.where(self.step), args=self.orbax.args.StandardSave(self.arrays))

    def wait(self) -> None:
        self.checkpointer.wait_until_finished()

    def restore(self) -> Arrays:
        found = self.checkpointer.restore(self.where(self.step - 1), args=self.orbax.args.StandardRestore(self.arrays))
        return {name: np.asarray(array) for name, array in found.items()}

    def tidy(self) -> None:
        shutil.rmtree(self.where(self.step - 2), ignore_errors=True)

    def end(self) -> None:
        self.checkpointer.close()


class Safepoint(Way):
    """The program writes as ever, and calls `hide`."""

    told = "the last complete set, of all files, checked; older ones behind it"
    durable = True
    comm: ClassVar[Any] = None

    def __init__(self, work: Path, arrays: Arrays) -> None:
        super().__init__(work, arrays)
        import safepoint

        if self.comm is None or self.comm.rank == 0:
            name = "u-{rank}*.npy" if self.comm else "*.npy"
            (work / ".safepoint").write_text(f"{name}\nkeep = 1\n")
        if self.comm:
            self.comm.Barrier()
        self.session = safepoint.Session(work, comm=self.comm)
        self.session.restore()

    def save(self) -> None:
        begin = time.perf_counter()
        for name, array in self.arrays.items():
            np.save(self.path(name), array)
        if self.comm:  # who has written first must wait for the others, which is no cost of hide
            self.comm.Barrier()
        self.write += time.perf_counter() - begin
        self.session.hide(self.step)

    def wait(self) -> None:
        self.session.wait()

    def restore(self) -> Arrays:
        self.session.restore()
        return super().restore()

    def end(self) -> None:
        self.session.close()


WAYS: dict[str, type[Way]] = {
    "np.save over the old file": Plain, "limit: write, fsync, rename": Limit,
    "temporary, fsync, os.replace": Replace, "two directories in turn, fsync": Rotation,
    "copy into a backup": Backup, "h5py, flush": H5py, "torch DCP save": Torch, "torch DCP async_save": TorchAsync,
    "orbax AsyncCheckpointer": Orbax, "safepoint": Safepoint,
}  # fmt: skip


def arrays_of(count: int, size: int, prefix: str = "u") -> Arrays:
    return {f"{prefix}{k:04}": np.arange(size // 8) * 1.1 for k in range(count)}  # random ones take a second


def save(way: Way) -> dict[str, float]:
    for array in way.arrays.values():
        array[::512] += 1.0  # another step: every page of it
    way.write = 0.0
    begin = time.perf_counter()
    way.save()
    blocked = time.perf_counter() - begin
    way.wait()
    done = time.perf_counter() - begin
    way.step += 1
    return {"write": way.write, "blocked": blocked, "done": done, **way.noted}


def restore(way: Way) -> dict[str, float]:
    begin = time.perf_counter()
    found = way.restore()
    seconds = time.perf_counter() - begin
    equal = all(np.array_equal(found[name], array) for name, array in way.arrays.items())
    return {"restore": seconds, "equal": float(equal)}


def main() -> None:
    name = sys.argv[1]
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever the packages print is no answer
    way = None
    for line in sys.stdin:
        word, *case = json.loads(line)
        found: dict[str, float] = {}
        if way and word == "save":
            found = save(way)
            way.tidy()
        elif way and word == "restore":
            found = restore(way)
        elif way:
            with contextlib.suppress(Exception):
                way.end()
            way = None
        if word == "case":
            directory, count, size = case
            Path(directory).mkdir(parents=True)
            way = WAYS[name](Path(directory), arrays_of(count, size))
        print(json.dumps(found), file=answers, flush=True)


if __name__ == "__main__":
    main()
