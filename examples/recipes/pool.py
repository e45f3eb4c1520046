"""Many tasks in a pool of processes: killed anywhere, no task whose result was saved is done again.

`python pool.py [TASKS [HOW]]`, with numpy. How workers start: fork, forkserver or spawn. Start it again after any kill.
"""

import sys
from multiprocessing import get_context

import numpy as np

import safepoint


def hits(task):
    """Of a million random points, those in the circle. The random numbers are a function of the task alone."""
    points = np.random.default_rng(task).uniform(-1, 1, (1_000_000, 2))
    return int(((points**2).sum(axis=1) < 1).sum())


if __name__ == "__main__":  # a worker imports this file too
    tasks = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    state = safepoint.load_state()
    if state and state.finished:
        raise SystemExit
    found = state["found"] if state else []
    print(f"begin at step {len(found)}", flush=True)
    with get_context(sys.argv[2] if len(sys.argv) > 2 else None).Pool(2) as pool:
        for result in pool.imap(hits, range(len(found), tasks)):  # in the order of the tasks
            found.append(result)
            safepoint.save_state(len(found), found=found)
            print(f"step {len(found)}", flush=True)
    safepoint.finish(len(found))
