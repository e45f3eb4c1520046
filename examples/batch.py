"""A plate that cools, as a job of a batch system: it saves as often as pays, and stops in time.

    python examples/batch.py --directory run     # exit status 75: it was stopped before its end; start it again

    du/dt = D (d2u/dx2 + d2u/dy2),   u = 0 on the edges,   explicit steps of dt = h^2 / (4 D), the largest stable one

It stops when the time limit of the job is near, when SIGUSR1 or SIGTERM comes, and after `safepoint halt`. Job scripts
for Slurm, PBS, LSF and Flux are in docs/schedulers.md. However often it was stopped, the result is the same to the bit.
"""

import argparse
import os
from pathlib import Path

import numpy as np

import safepoint

MANIFEST = """\
u.npy
every = auto   # due() says yes as often as pays, by what is measured
"""


def initial(n: int) -> np.ndarray:
    u = np.zeros((n, n))
    u[n // 4 : n // 2, n // 4 : 3 * n // 4] = 100.0
    return u


def advance(u: np.ndarray) -> None:
    u[1:-1, 1:-1] = (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:]) / 4


def main() -> None:
    parser = argparse.ArgumentParser(description="A plate that cools, as a job of a batch system.")
    parser.add_argument("--steps", type=int, default=5000)
    parser.add_argument("--size", type=int, default=400, help="cells along each side (default: 400)")
    parser.add_argument("--directory", default=".", help="where it runs")
    options = parser.parse_args()
    os.makedirs(options.directory, exist_ok=True)
    os.chdir(options.directory)
    if not Path(".safepoint").exists():
        Path("manifest").write_text(
            "u.npy\nevery = auto   # when due() says yes: as often as pays, by what is measured\n"
        )
        os.replace("manifest", ".safepoint")

    sp = safepoint.init(signals=("USR1", "TERM"))
    saved = sp.restore()
    if saved and saved.finished:
        return
    u = np.load("u.npy") if saved else initial(options.size)
    for step in range(saved.step if saved else 0, options.steps):
        stopping = sp.should_stop()
        if stopping or sp.due():
            np.save("u.npy", u)
            sp.hide(step=step)
        if stopping:
            sp.stop()  # when it is durable: exit status 75, "try again"
        advance(u)
    np.save("u.npy", u)
    sp.finish(step=options.steps)


if __name__ == "__main__":
    main()
