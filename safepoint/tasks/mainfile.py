"""The file of `__main__`, in a worker: so that functions and classes of the program itself can be vertices.

A worker runs that file from its top, under the name `__mp_main__` as multiprocessing does, but only up to the call of
`run`: a program needs no `if __name__ == "__main__":` round it. What was made so far is then the worker's `__main__`.
Without a vertex or a parameter of `__main__` nothing of this happens.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from types import CodeType, ModuleType
from typing import TYPE_CHECKING

from safepoint.errors import UsageError

if TYPE_CHECKING:
    from safepoint.tasks.graph import Vertex

MAIN, AS = "__main__", "__mp_main__"
loading = False  # whether this process runs the file of its driver now
_token = ""


class Enough(BaseException):
    """`run` was called in a worker that loads the file of its driver: all that vertices need is there."""


@dataclass(frozen=True)
class Main:
    """Where the driver's `__main__` comes from, and its way to modules."""

    path: str  # "" : a prompt, or the command line of Python
    module: str  # of `python -m module`
    ways: tuple[str, ...]  # sys.path
    token: str  # of this process, and of those that it forks


def of_this_process() -> Main:
    main = sys.modules[MAIN]
    global _token
    _token = _token or f"{os.getpid()} {time.time()}"
    spec, file = getattr(main, "__spec__", None), getattr(main, "__file__", None) or ""
    path = os.path.abspath(file) if file and os.path.isfile(file) else ""
    # A directory is the way of `python file.py` to what lies beside it; "" is where `python -m` was called.
    return Main(path, spec.name if spec and path else "", tuple(map(os.path.abspath, sys.path)), _token)


def check(vertices: Iterable[Vertex]) -> None:
    """`UsageError` if processes that are started anew could not have the function of one of them."""
    if of_this_process().path:
        return
    for vertex in vertices:
        for each in (vertex.function, vertex.head):
            if getattr(each, "__module__", None) == MAIN:
                name = getattr(each, "__qualname__", "")
                raise UsageError(
                    f"vertex {vertex.name}: {name} is of __main__, which has no file that a worker could load: put it "
                    "into a module, or run on=ThreadPoolExecutor(…); nothing was run"
                )


SAFE_PATH, OURS = "PYTHONSAFEPATH", "safepoint"  # not for what the vertices start


@contextlib.contextmanager
def hidden() -> Iterator[None]:
    """Inside, multiprocessing starts processes that do not load the file of `__main__` by themselves; nor, from Python
    3.11 on, while they begin, a module that lies in the current directory."""
    before = sys.modules[MAIN]
    sys.modules[MAIN] = ModuleType(MAIN)
    safe = os.environ.setdefault(SAFE_PATH, OURS)
    try:
        yield
    finally:
        sys.modules[MAIN] = before
        if safe == OURS:
            del os.environ[SAFE_PATH]


def load(main: Main) -> None:
    """Make the driver's `__main__` that of this process, if it is not. Once in a process, whatever comes of it.
    `UsageError` if that cannot be."""
    global loading
    sys.path += [way for way in main.ways if way not in sys.path]
    if main.token == _token or any(_is(sys.modules.get(name), main) for name in (MAIN, AS)):
        return
    if not main.path:
        text = "a function or class of this vertex is of __main__, which has no file that a worker could load"
        raise UsageError(f"{text}: put it into a module")
    code, module = _code(main), ModuleType(AS)
    module.__file__, module.__package__ = main.path, main.module.rpartition(".")[0]
    before = {name: sys.modules.get(name) for name in (MAIN, AS)}
    sys.modules[MAIN] = sys.modules[AS] = module
    loading = True
    try:
        exec(code, vars(module))
    except Enough:
        pass
    except BaseException as error:
        sys.modules.update({name: old for name, old in before.items() if old is not None})
        raise UsageError(f"{main.path} cannot be loaded in a worker: {type(error).__name__}: {error}") from error
    finally:
        loading = False
    for each in list(vars(module).values()):
        _rename(each)


def _is(module: ModuleType | None, main: Main) -> bool:
    file = getattr(module, "__file__", None)
    return bool(file and main.path) and os.path.abspath(str(file)) == main.path


def _code(main: Main) -> CodeType:
    if main.module:
        import importlib.util

        spec = importlib.util.find_spec(main.module)
        code = getattr(spec.loader, "get_code", lambda name: None)(main.module) if spec else None
        if isinstance(code, CodeType):
            return code
    import tokenize

    with tokenize.open(main.path) as file:
        return compile(file.read(), main.path, "exec", dont_inherit=True)  # `annotations` is this file's, not its


def _rename(value: object) -> None:
    """What was made under the other name is pickled as of `__main__`: so all workers write the same bytes."""
    if getattr(value, "__module__", None) == AS:
        with contextlib.suppress(AttributeError, TypeError):
            value.__module__ = MAIN
        for each in list(vars(value).values()) if isinstance(value, type) else ():
            if isinstance(each, type):
                _rename(each)
