"""A real program, for real kills: `python solver.py STEPS [SHAPE] [wait] [inline] [serial] [slow]`.

It runs where a manifest is, and writes to its standard output, unbuffered, what had happened: `restored S`, `hiding S`,
`hid S`, `safe S` (durable), `finished S`. Its files at a step are a pure function of the step
(`program.SHAPES_AND_KINDS`); what `restore` gives is checked byte for byte. With `gate-start` or `gate-saver` it waits
there for a byte on its standard input, so that a tracer can be attached to its main thread before all else, or to its
saver thread.
"""

from __future__ import annotations

import os
import socket
import stat
import sys
import threading
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
import safepoint
from safepoint.disk import Disk
from safepoint.saving import store
from testbed.faultdisk import FaultDisk
from testbed.program import SHAPES_AND_KINDS, listed

STAYS = ("history.csv", "params.db")  # what this program never writes under a new name


def say(text: str) -> None:
    data = f"{text}\n".encode()
    if stat.S_ISSOCK(os.fstat(1).st_mode):  # then an error that is injected into write does not silence it
        with socket.socket(fileno=os.dup(1)) as speaker:
            speaker.send(data)
    else:
        os.write(1, data)


class OwnWrite(Exception):
    """It is the program itself that could not write."""


def wrong(text: str) -> None:
    say(f"WRONG: {text}")
    os._exit(3)


def dismissed(disk: Disk | None) -> bool:
    """Return whether a helper thread that was dismissed has not ended yet."""
    helpers = {thread for thread in threading.enumerate() if thread.name.startswith("safepoint-disk")}
    pool = getattr(disk and disk.helpers, "_pool", (0, None))[1]
    return bool(helpers - (pool._threads if pool else set()))


def gate(name: str, options: list[str], disk: Disk | None = None) -> None:
    if f"gate-{name}" in options:
        while dismissed(disk):  # no tracer could be attached to them
            time.sleep(0.001)
        others = [thread for thread in threading.enumerate() if thread is not threading.main_thread()]
        others.sort(key=lambda thread: thread.name != "safepoint-saver")
        say(f"gate {name} {os.getpid()} {' '.join(str(thread.native_id) for thread in others)}")
        os.read(0, 1)


def check(step: int, expected: dict[str, bytes]) -> None:
    found = listed(".")
    bad = [name for name, data in expected.items() if found.pop(name, None) != data]
    if bad or found:
        wrong(f"at step {step} {bad} differ and {sorted(found)} should not be there")


def write(files: dict[str, bytes]) -> None:
    """With its own habits: blocks of 4096 bytes, rows at the end of one file, another one in place, no fsync."""
    try:
        write_each(files)
    except OSError as error:
        raise OwnWrite(str(error)) from error


def write_each(files: dict[str, bytes]) -> None:
    for name, data in files.items():
        os.makedirs(os.path.dirname(name) or ".", exist_ok=True)
        there = os.path.exists(name) and name in STAYS
        with open(name, "r+b" if there else "wb", buffering=4096) as file:
            if there and name == "history.csv":
                data = data[file.seek(0, os.SEEK_END) :]
            file.write(data)
            file.truncate()


def one_thread() -> None:
    """Let the disk do in the calling thread what it does in several: a tracer follows one of them only."""
    Disk.helpers = FaultDisk.helpers


def slow(seconds: float) -> None:
    """Let the flush of a set take so long: the program hides faster than its saver stores."""
    before = Disk.sync_files

    def late(self: Disk, *arguments: Any) -> None:
        time.sleep(seconds)
        before(self, *arguments)

    Disk.sync_files = late  # type: ignore[method-assign]


def main(arguments: list[str]) -> None:
    steps, options = int(arguments[0]), arguments[1:]
    wait = "wait" in options
    (shape,) = [option for option in options if option in SHAPES_AND_KINDS] or ["solver"]
    files = SHAPES_AND_KINDS[shape][1]
    for option in options:
        if option.startswith("variant="):  # broken on purpose, to see that it is noticed
            from testbed import variants

            variants.apply(option.partition("=")[2])
    store.OPEN = 3  # so that the few files of this program are in flight in more than one batch
    if "serial" in options:
        one_thread()
    if "slow" in options:
        slow(0.02)
    gate("start", options)
    session = safepoint.init(background="inline" not in options)
    saved = safepoint.restore()
    say(f"restored {'nothing' if saved is None else saved.step}")
    if saved is None:
        check(-1, {})  # no torn first files
        write(files(0))
    else:
        check(saved.step or 0, files(saved.step or 0))
    begin = (saved.step or 0) if saved else 0
    if saved and saved.finished:
        begin = steps
    for step in range(begin, steps):
        say(f"hiding {step}")
        safepoint.hide(step=step, wait=wait)
        say(f"hid {step}")
        if session._committed is not None:
            say(f"safe {session._committed.step}")
        write(files(step + 1))
        if step == begin + 1:
            gate("saver", options, session._root.disk)
    safepoint.finish(step=steps)
    say(f"finished {steps}")
    check(steps, files(steps))


def forked(directory: str, arguments: list[str], said: int, told: int) -> None:
    """As a child of a fork server: the interpreter and its imports are there already."""
    os.dup2(told, 0)
    os.dup2(said, 1)
    os.dup2(said, 2)
    os.chdir(directory)
    try:
        main(arguments)
    except safepoint.SafepointError as error:
        say(f"error {type(error).__name__}: {error}")
        os._exit(1)
    except OwnWrite as error:
        say(f"error the program's own: {error}")
        os._exit(1)
    except BaseException as error:
        wrong(f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    main(sys.argv[1:])
