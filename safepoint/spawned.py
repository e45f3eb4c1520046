"""Processes of Python: those that we start, and those that the program starts.

A Python of ours takes nothing from the current directory, or from beside the program: a file there may have the name of
a module, and be anybody's.

A worker process that multiprocessing starts anew imports the main module again: an `init` in there must not begin a
second run, and a pool must not start workers for ever because each of them fails.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import Any

from safepoint.disk.kernel import parent_of

PROGRAM = "SAFEPOINT_PROGRAM"  # in the environment: the process that began last, of which workers come
# What a Python of ours does first. The package by its own path, and what else is needed where this one finds it, but
# after its own modules.
BEGIN = (
    "import sys; top, more = sys.argv[1:3]; del sys.argv[1:3]; sys.path += more.split('\\x1f'); "
    "import importlib.util as u; s = u.spec_from_file_location('safepoint', top + '/__init__.py', "
    "submodule_search_locations=[top]); sys.modules['safepoint'] = p = u.module_from_spec(s); s.loader.exec_module(p); "
)
POOL_WAITS_S, OTHERS_WAIT_S, POLL_S = 30, 3, 0.05


def isolated(code: str, *words: str) -> list[str]:
    """The command of a Python of ours, which does this. It has the settings of this one that are no paths; a user's own
    packages, and PYTHONPATH, it has by the paths that are passed on: not that of where we are or the program lies."""
    top = os.path.dirname(os.path.abspath(__file__))
    main = getattr(sys.modules.get("__main__"), "__file__", None) or "."
    shunned = {os.path.realpath(os.curdir), os.path.dirname(os.path.realpath(main))}
    found = [path for path in sys.path if os.path.isabs(path) and os.path.realpath(path) not in shunned]
    paths = "\x1f".join(dict.fromkeys([*found, os.path.dirname(top)]))  # at the end what lies beside the package
    options = ["-I", "-X", f"utf8={sys.flags.utf8_mode}", *["-B"] * sys.dont_write_bytecode]
    options += ["-X", f"pycache_prefix={sys.pycache_prefix}"] if sys.pycache_prefix else []
    return [sys.executable, *options, "-c", BEGIN + code, top, paths, *words]


def refuse_worker() -> None:
    """Nothing, but in such a process while it imports the main module. There it ends the process with one message for
    all of them. A `Pool` would put another worker in its place, again and again: so its program is interrupted."""
    module: Any = sys.modules.get("multiprocessing.process")
    process = module and module.current_process()
    if not getattr(process, "_inheriting", False):
        os.environ[PROGRAM] = str(os.getpid())
        return
    program, first = _program(), _is_first()
    if first:
        file = getattr(sys.modules.get("__mp_main__"), "__file__", None) or sys.argv[0]
        print(
            f"safepoint: init was called in {process.name}, a process that multiprocessing has started, while it "
            f"imported the main module: only the program itself may save. Put init, and all that is to run once, under "
            f'if __name__ == "__main__": in {file}',
            file=sys.stderr, flush=True,
        )  # fmt: skip
    if "PoolWorker" in process.name and program:
        if first:
            os.kill(program, signal.SIGINT)
        _wait_for_the_end_of(program, POOL_WAITS_S)
    elif first:
        _wait_for_the_end_of(os.getppid(), OTHERS_WAIT_S)  # until then no other one is the first
    raise SystemExit(1)


def _program() -> int:
    """The process that began, if this one, or the server that forks for it, was started by it and it is there still;
    else 0. It must not be whoever takes in orphans."""
    text = os.environ.get(PROGRAM, "")
    program = int(text) if text.isdecimal() else 0
    above = os.getppid()
    return program if program > 1 and program in (above, parent_of(above)) else 0


def _wait_for_the_end_of(process: int, seconds: float) -> None:
    end = time.monotonic() + seconds
    while process in (above := os.getppid(), parent_of(above)) and time.monotonic() < end:
        time.sleep(POLL_S)


_held: list[object] = []  # until this process ends


def _is_first() -> bool:
    """Of the workers of this program; where that cannot be known each is."""
    import socket

    if not sys.platform.startswith("linux"):
        return True
    flag = socket.socket(socket.AF_UNIX)
    try:
        flag.bind(f"\0safepoint-worker-of-{os.environ.get(PROGRAM, '')}-{os.getuid()}")
    except OSError:
        flag.close()
        return False
    _held.append(flag)
    return True
