"""A real program, for real kills: `python solver.py STEPS [wait]`, run in a directory with a manifest.

It writes on standard output, unbuffered, what had happened: `restored S`, `hiding S`, `hid S`, `safe S` (durable),
`finished S`. Its files at a step are a pure function of the step; whatever `restore` gives is checked byte for byte.
With `GATE=start` or `GATE=saver` in the environment it waits there for a line on standard input, so that a tracer can
be attached to its main thread before all else, or to its saver thread.
"""

from __future__ import annotations

import os
import sys
import threading

import safepoint

NAMES = ("u.dat", "v.dat", "fields/p.dat")


def content(name: str, step: int) -> bytes:
    return f"{name} holds step {step}\n".encode() * 500


def history(step: int) -> bytes:
    return b"".join(b"%d\n" % k for k in range(step + 1))


def say(text: str) -> None:
    os.write(1, f"{text}\n".encode())


def gate(name: str) -> None:
    if name in os.environ.get("GATE", "").split(","):
        threads = [str(thread.native_id) for thread in threading.enumerate() if thread is not threading.main_thread()]
        say(f"gate {name} {os.getpid()} {' '.join(threads)}")
        sys.stdin.readline()


def check(step: int) -> None:
    for name in NAMES:
        with open(name, "rb") as file:
            if file.read() != content(name, step):
                say(f"WRONG {name} at {step}")
                os._exit(3)
    with open("history.csv", "rb") as file:
        if file.read() != history(step):
            say(f"WRONG history.csv at {step}")
            os._exit(3)


def write(step: int) -> None:
    os.makedirs("fields", exist_ok=True)
    for name in NAMES:
        with open(name, "wb", buffering=4096) as file:
            file.write(content(name, step))
    with open("history.csv", "ab") as file:
        if file.tell() == 0:
            file.write(history(step - 1))
        file.write(b"%d\n" % step)


def main() -> None:
    steps, wait = int(sys.argv[1]), "wait" in sys.argv
    gate("start")
    session = safepoint.init(background="inline" not in sys.argv)
    saved = safepoint.restore()
    say(f"restored {'nothing' if saved is None else saved.step}")
    if saved is None:
        if any(os.path.exists(name) for name in (*NAMES, "history.csv")):
            say("WRONG: torn first files")
            os._exit(3)
        write(0)
    elif not saved.finished:
        check(saved.step or 0)
    begin = (saved.step or 0) if saved else 0
    for step in range(begin, steps):
        say(f"hiding {step}")
        safepoint.hide(step=step, wait=wait)
        say(f"hid {step}")
        if wait or session._flight is None:
            say(f"safe {step}")
        write(step + 1)
        if step == begin + 1:
            gate("saver")
    safepoint.finish(step=steps)
    say(f"finished {steps}")
    check(steps)


if __name__ == "__main__":
    main()
