"""What running a function that was made up gives back, prints, changes and leaves behind."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Sequence
from typing import Any

PRELUDE = """\
import contextlib
import math

GN = 3
GL = [5, 6]
KEPT = []


class Box:
    pass


def bump(v):
    global GN
    GN += 1
    v.append(GN)
    return GN


def look(v):
    return len(v) + GN


def keep(v):
    KEPT.append(v)


def kept(k):
    return KEPT[k % len(KEPT)] if KEPT else GL


def same(v):
    return v


@contextlib.contextmanager
def noted(v):
    print("in", len(v))
    yield v
    v.append(1)


def drip(v):
    for t in list(v):
        v.append(t)
        yield t


"""
HEAD = "def f(p, q, m, n, o):\n"


def indented(body: Sequence[str], by: int = 4) -> str:
    return "\n".join(" " * by + line for each in body for line in each.splitlines())


def source(body: Sequence[str]) -> str:
    return PRELUDE + HEAD + indented(body) + "\n"


def plain(value: Any, known: dict[int, int]) -> Any:
    """A picture of objects in which one that occurs twice is told from two equal ones."""
    if isinstance(value, (list, tuple, dict)) or type(value).__name__ == "Box":
        if id(value) in known:
            return ("again", known[id(value)])
        known[id(value)] = len(known)
        if isinstance(value, dict):
            return ("dict", [(key, plain(each, known)) for key, each in value.items()])
        if not isinstance(value, (list, tuple)):
            return ("box", plain(vars(value), known))
        return (type(value).__name__, [plain(each, known) for each in value])
    return value if isinstance(value, (int, float, str, type(None))) else type(value).__name__


ARGUMENTS: tuple[Callable[[], tuple[Any, ...]], ...] = (
    lambda: ([1, 2, 3], [4, 5, 6], [[1], [2, 3]], 2),
    lambda: (lambda v: (v, v, [v, v], 1))([3, 1, 2]),  # all of them one list
)


def outcome(body: Sequence[str], arguments: Callable[[], tuple[Any, ...]]) -> Any:
    """Whether it raised, what it gave back, printed, and left in its arguments and in the globals of its module."""
    space: dict[str, Any] = {}
    exec(compile(source(body), "made up", "exec"), space)
    p, q, m, n = arguments()
    box = space["Box"]()
    box.v, box.n = p, 2
    known: dict[int, int] = {}
    space["KEPT"].append(q)
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        try:
            result: Any = ("gave", space["f"](p, q, m, n, box))
        except Exception:
            result = ("raised",)
    left = [p, q, m, box, space["KEPT"], space["GL"], space["GN"]]
    return plain(left, known), plain(result, known), printed.getvalue()
