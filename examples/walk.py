"""A random walk whose state is in memory: `python walk.py [STEPS]`. Kill it and start it again: it goes on."""

import sys
import time

import numpy as np

import safepoint

steps = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
state = safepoint.load_state()
step, x, rng = (state.step, state["x"], state["rng"]) if state else (0, np.zeros(1000), np.random.default_rng(1))
while step < steps:
    x += rng.normal(size=x.size)
    step += 1
    time.sleep(0.01)  # this stands for an hour of work
    safepoint.save_state(step, x=x, rng=rng)
safepoint.finish(step)
