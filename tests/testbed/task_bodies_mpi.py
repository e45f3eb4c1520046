"""What vertices of the tests of MPI compute, and graphs of them."""

from __future__ import annotations

import ctypes
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

from safepoint.tasks import Graph, scratch, seed
from safepoint.tasks.mpi.serving import Server
from testbed.task_bodies_engine import until_there


def note(path: str, text: str) -> None:
    """A line, whole whoever else writes one."""
    with open(path, "ab", buffering=0) as file:
        file.write(f"{text}\n".encode())


def numbers(n: int, length: int) -> np.ndarray:
    return np.random.default_rng(n).random(length)


def change(image: np.ndarray, factor: float) -> np.ndarray:
    """It changes its input, which must be its own."""
    image *= factor
    return image


def named(image: np.ndarray) -> dict[str, Any]:
    return {"left": image[::2].copy(), "right": image[1::2].copy(), "mean": float(image.mean())}


def kept_as_file(image: np.ndarray) -> Path:
    path = scratch() / "image.bin"
    path.write_bytes(image.tobytes())
    return path


def total(parts: list[Any], tree: dict[str, Any], file: Path) -> tuple[Any, ...]:
    sums = [float(np.sum(part)) for part in parts]
    tree_sums = {key: [float(np.sum(each)) for each in value] for key, value in tree.items()}
    return sums, tree_sums, len(Path(file).read_bytes()), seed()


def headed(image: np.ndarray, head: str) -> str:
    return f"{head} {image.sum():.6f}"


def a_head() -> str:
    return "head"


def mixed(size: int = 30_000) -> Graph:
    """All kinds of edges and of results."""
    graph = Graph("mixed", seed=7)
    images = [graph.add(f"numbers-{n}", numbers, n=n, length=size * (n + 1)) for n in range(4)]
    changed = [graph.add(f"change-{n}", change, image=image, factor=n + 2.0) for n, image in enumerate(images)]
    again = [graph.add(f"again-{n}", change, image=image, factor=-1.0) for n, image in enumerate(images)]
    cheap = graph.add("cheap", change, image=images[1], factor=0.5, keep=False)
    outputs = graph.add("named", named, image=changed[0])
    file = graph.add("file", kept_as_file, image=changed[1])
    graph.add("headed", headed, image=images[0], head=a_head)
    tree = {"a": [outputs["left"], again[0]], "b": (outputs["mean"], cheap)}
    graph.add("total", total, parts=[*changed, *again, images[0], images[0]], tree=tree, file=file)
    return graph


# Failures.


def fail(kind: str) -> Any:
    if kind == "value":
        raise ValueError("negative variance")
    if kind == "exit":
        raise SystemExit(3)
    if kind == "interrupt":
        raise KeyboardInterrupt
    if kind == "error":
        raise Unpicklable(lambda: None)
    return lambda: kind


class Unpicklable(Exception):
    pass


def once(path: str) -> str:
    """Fails at the first attempt."""
    if not os.path.exists(path):
        note(path, "failed")
        raise RuntimeError("the first time")
    return "the second time"


def use(value: Any, more: Any = None, opens: str = "") -> float:
    if opens:
        open(opens, "wb").close()
    return float(np.sum(value))


def failing(directory: str, times: int) -> Graph:
    graph = Graph("failing")
    for kind in ("value", "exit", "interrupt", "error", "result"):
        graph.add(f"use-{kind}", use, value=graph.add(kind, fail, kind=kind))
    graph.add("use-once", str, arguments={"object": graph.add("once", once, path=f"{directory}/once", retries=1)})
    graph.add("moody", use, value=Moody(times))
    graph.add("good", numbers, n=1, length=10)
    return graph


class Moody:
    """A parameter that is pickled so many times, for its identity, and never again."""

    def __init__(self, times: int) -> None:
        self.times = times

    def __reduce__(self) -> Any:
        self.times -= 1
        if self.times < 0:
            raise RuntimeError("not again")
        return Moody, (1,)


def break_thread(start: int) -> int:
    """What would be a fault of MPI in the thread that serves."""
    for thread in threading.enumerate():
        if isinstance(thread, Server):
            thread.failure = RuntimeError("planted in a thread")
    return start


# Bodies that hold something.

_mine: list[np.ndarray] = []


def leaky(n: int) -> np.ndarray:
    """Its result stays in this process."""
    _mine.append(numbers(n, 50_000))
    return _mine[-1]


def spoil(value: np.ndarray) -> bool:
    """Changes what `leaky` has returned, if it was here."""
    for each in _mine:
        each += 1.0
    return bool(_mine)


def hold(path: str, value: Any, until: str) -> float:
    """Keeps the interpreter lock, as C code does that never gives it back, until somebody opens this pipe."""
    sys.setswitchinterval(1000)  # no other thread asks for the lock before the call of C
    note(path, "held")
    os.close(ctypes.PyDLL(None).open(until.encode(), os.O_RDONLY))
    sys.setswitchinterval(0.005)
    return float(np.sum(value))


def after(path: str) -> str:
    until_there(path)
    return path


def counted(directory: str, name: str, parts: list[int], seconds: float, release: str) -> int:
    """Says in `runs` that it has run."""
    note(f"{directory}/runs", name)
    time.sleep(seconds)
    if release:
        until_there(release)
    return sum(parts) + len(name)


def many(directory: str, seconds: float = 0.01, release: str = "") -> Graph:
    """With `release` no vertex of the second layer ends before there is such a file."""
    graph = Graph("many")

    def add(name: str, parts: list[Any], release: str = "") -> Any:
        given = {"directory": directory, "name": name, "parts": parts, "seconds": seconds, "release": release}
        return graph.add(name, counted, arguments=given)

    first = [add(f"a-{n}", []) for n in range(8)]
    add("end", [add(f"b-{n}", first[n : n + 3], release) for n in range(6)])
    return graph


def waiting(directory: str, release: str, name: str) -> str:
    """At work until somebody makes `release`."""
    note(f"{directory}/runs", name)
    until_there(release)
    return name


def waits(directory: str) -> Graph:
    """Two that wait for `directory/go`, and two after them."""
    graph = Graph("waits")
    for n in range(2):
        first = graph.add(f"first-{n}", waiting, directory=directory, release=f"{directory}/go", name=f"first-{n}")
        graph.add(f"then-{n}", str, arguments={"object": first})
    return graph
