"""A Markov chain with emcee, its chain in an HDF5 file that is rewritten in place: killed anywhere, it goes on.

    python emcee_chain.py [STEPS] [PAUSE]         (needs numpy, emcee and h5py; start it again after any kill)

emcee's HDF5 backend opens `chain.h5` for each step and changes it in place, in some 25 writes; a process that dies
between them can leave a file that nothing reads any more. A hard link would be no snapshot, since it is the same file;
so the manifest says `chain.h5 copy`, and the file that `hide` keeps is a reflink or a copy.

What makes the chain exactly the same with and without kills: the state of the random numbers is in the file too, and
emcee goes on from there.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import emcee
import numpy as np

import safepoint

WALKERS, DIMENSIONS, EVERY = 16, 3, 5  # a save point every so many steps
MANIFEST = "chain.h5   copy      # rewritten in place by every step\n"


def log_probability(x: np.ndarray) -> float:
    """A curved ridge: the Rosenbrock density."""
    return -float(np.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)) / 20


def sampler_on(backend: emcee.backends.HDFBackend) -> tuple[emcee.EnsembleSampler, object]:
    """A sampler that goes on where the chain in the file ends, and from which state; or a new one."""
    if backend.initialized and backend.iteration:  # emcee takes the state of the random numbers from the file
        return emcee.EnsembleSampler(WALKERS, DIMENSIONS, log_probability, backend=backend), backend.get_last_sample()
    backend.reset(WALKERS, DIMENSIONS)
    np.random.seed(2013)  # which emcee begins with
    begin = np.random.normal(size=(WALKERS, DIMENSIONS))
    return emcee.EnsembleSampler(WALKERS, DIMENSIONS, log_probability, backend=backend), begin


def main() -> None:
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 500
    pause = float(sys.argv[2]) if len(sys.argv) > 2 else 0.0  # to have time to kill it
    if not Path(".safepoint").exists():
        Path(".safepoint").write_text(MANIFEST)

    safepoint.init()
    saved = safepoint.restore()
    if saved and saved.finished:
        print(f"finished already, at step {saved.step}")
        return
    print(f"begin at step {saved.step if saved else 0}", flush=True)
    sampler, state = sampler_on(emcee.backends.HDFBackend("chain.h5"))
    for step in range(saved.step if saved else 0, steps):
        if step % EVERY == 0 and step > (saved.step if saved else 0):
            safepoint.hide(step=step)  # the file stays; what is kept is its state at this step
        state = sampler.run_mcmc(state, 1, skip_initial_state_check=True)
        print(f"step {step + 1}", flush=True)
        time.sleep(pause)
    safepoint.finish(step=steps)


if __name__ == "__main__":
    main()
