"""Waves on a string, as a zarr store to which xarray appends: killed anywhere, it goes on from a whole store.

`python zarr_store.py [STEPS]`, with numpy, xarray and zarr. Start it again after any kill.
"""

import sys
from pathlib import Path

import numpy as np
import xarray as xr

import safepoint

STEPS, EVERY = int(sys.argv[1]) if len(sys.argv) > 1 else 600, 10
STORE = {"store": "waves.zarr", "consolidated": False}
if not Path(".safepoint").exists():
    Path(".safepoint").write_text("waves.zarr/ copy      # a whole directory, and appended to in place\n")
safepoint.init()
saved = safepoint.restore()
if saved and saved.finished:
    raise SystemExit
print(f"begin at step {saved.step if saved else 0}", flush=True)
x = np.linspace(0, 1, 1001)
if saved:
    with xr.open_zarr(**STORE) as last:
        u, before = last.u[-1].values, last.before[-1].values
else:
    u = before = np.exp(-(((x - 0.3) / 0.05) ** 2))
for step in range(saved.step if saved else 0, STEPS, EVERY):
    for _ in range(EVERY):
        new = 2 * u - before
        new[1:-1] += 0.25 * (u[2:] - 2 * u[1:-1] + u[:-2])
        new[[0, -1]] = 0
        u, before = new, u
    # Both, as the next step needs both: in double precision, else a restart would round.
    fields = {"u": (("step", "x"), u[None]), "before": (("step", "x"), before[None])}
    slice_ = xr.Dataset(fields, {"step": [step + EVERY], "x": x})
    slice_.to_zarr(**STORE, **({"append_dim": "step"} if step else {"mode": "w"}))
    safepoint.hide(step=step + EVERY)
    print(f"step {step + EVERY}", flush=True)
safepoint.finish(step=STEPS)
