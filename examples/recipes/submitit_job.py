"""A job of submitit that is preempted, put back into the queue, or killed: it goes on from its last save point.

`python submitit_job.py [STEPS [CLUSTER]]`, with numpy and submitit. The cluster is local, slurm, or what is there.
Preempted, the job is put back by submitit. Killed by SIGKILL it is not: then start this again.
"""

import sys
import time
from pathlib import Path

import numpy as np
import submitit

import safepoint


class Walk:
    """A random walk. Only what it needs to begin is pickled: the state is in the save points."""

    def __init__(self, directory, steps):
        self.directory, self.steps = directory, steps

    def __call__(self):
        state = safepoint.load_state(self.directory)
        step, x, rng = (state.step, state["x"], state["rng"]) if state else (0, np.zeros(100), np.random.default_rng(1))
        if state and state.finished:
            return float(x.sum())
        print(f"begin at step {step}", flush=True)
        while step < self.steps:
            x += rng.normal(size=x.size)
            step += 1
            time.sleep(0.01)  # this stands for an hour of work
            safepoint.save_state(step, x=x, rng=rng)
            print(f"step {step}", flush=True)
        safepoint.finish(step)
        return float(x.sum())

    def checkpoint(self):
        """submitit calls this when the job is preempted, or its time is over: the same job goes back into the queue."""
        return submitit.helpers.DelayedSubmission(self)


if __name__ == "__main__":
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 500
    executor = submitit.AutoExecutor(folder="log", cluster=sys.argv[2] if len(sys.argv) > 2 else None)
    executor.update_parameters(timeout_min=60, name="walk")
    job = executor.submit(Walk(Path.cwd(), steps))
    print(f"job {job.job_id}", flush=True)
    print(f"result {job.result()!r}")
