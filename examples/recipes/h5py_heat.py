"""Heat in a rod, in one HDF5 file that grows and is changed in place: killed anywhere, it loses nothing.

`python h5py_heat.py [STEPS]`, with numpy and h5py. Start it again after any kill.
"""

import sys
from pathlib import Path

import h5py
import numpy as np

import safepoint

STEPS, EVERY, N = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000, 100, 500
if not Path(".safepoint").exists():
    Path(".safepoint").write_text("heat.h5 copy      # held open, and changed in place\n")
safepoint.init()
saved = safepoint.restore()
if saved and saved.finished:
    raise SystemExit
print(f"begin at step {saved.step if saved else 0}", flush=True)
with h5py.File("heat.h5", "r+" if saved else "w") as file:
    if not saved:
        file["u"] = np.zeros(N)
        file["u"][N // 2] = 1000.0
        file.create_dataset("hottest", (0,), "f8", maxshape=(None,))
    u, hottest = file["u"][:], file["hottest"]
    for step in range(saved.step if saved else 0, STEPS, EVERY):
        for _ in range(EVERY):
            u[1:-1] += 0.4 * (u[2:] - 2 * u[1:-1] + u[:-2])
        file["u"][:] = u
        hottest.resize((len(hottest) + 1,))
        hottest[-1] = u.max()
        file.flush()  # what is in HDF5's own buffers is in no file yet
        safepoint.hide(step=step + EVERY)
        print(f"step {step + EVERY}", flush=True)
safepoint.finish(step=STEPS)
