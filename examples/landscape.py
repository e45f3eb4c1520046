"""How soil creep wears down a mountain range, in a program that may be killed at any instant.

Soil moves downhill faster than in proportion to the slope S, and without bound as S nears a critical slope Sc:

    dz/dt = -div q,    q = K S / (1 - (S/Sc)^2) downhill,    z(0) = the terrain around the Jacksboro fault, Tennessee

J. J. Roering, J. W. Kirchner, W. E. Dietrich (1999), Evidence for nonlinear, diffusive sediment transport on hillslopes
and implications for landscape morphology, Water Resour. Res. 35(3), 853-870; K and Sc are their values for the Oregon
Coast Range. No rivers, no uplift, no weathering: what is seen is creep alone.

    python examples/landscape.py --directory run        # kill it, start it again: it goes on where it was
"""

import argparse
import os
from pathlib import Path

import numpy as np
from matplotlib import cbook, colormaps
from matplotlib.colors import LightSource
from matplotlib.figure import Figure

import safepoint

K, SC = 0.0032, 1.25  # diffusivity at low slopes, m^2/yr; critical slope, m/m
DT = 15_000.0  # yr. An explicit step is stable below 1 / (2 D (1/dx^2 + 1/dy^2)), where D = dq/dS =
#                K (1 + (S/Sc)^2) / (1 - (S/Sc)^2)^2 in m^2/yr: 145 000 yr for the steepest cell at the start, S = 0.77

# The files that belong together. One writes this by hand, once; here the program does, where there is none yet.
MANIFEST = """\
z.npy                  # elevation, m
eroded.npy             # what each cell has lost so far, m
history.csv  append    # a row at each save point
"""


def measured() -> tuple[np.ndarray, float, float]:
    """Elevation, rows from north to south, and the width of a cell from west to east and from north to south; in m."""
    with np.load(cbook.get_sample_data("jacksboro_fault_dem.npz", asfileobj=False)) as dem:
        latitude = np.radians((dem["ymin"] + dem["ymax"]) / 2)
        dx, dy = 111_200 * dem["dx"] * np.cos(latitude), 111_200 * dem["dy"]  # 111.2 km are a degree of latitude
        return dem["elevation"].astype(float), float(dx), float(dy)


def slopes(z: np.ndarray, dx: float, dy: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rise to the east and to the south on the faces of the cells, 0 on the outer edges, and S^2 in the cells."""
    east = np.pad(np.diff(z, axis=1) / dx, ((0, 0), (1, 1)))
    south = np.pad(np.diff(z, axis=0) / dy, ((1, 1), (0, 0)))
    return east, south, (east[:, 1:] ** 2 + east[:, :-1] ** 2 + south[1:] ** 2 + south[:-1] ** 2) / 2


def advance(z: np.ndarray, eroded: np.ndarray, dx: float, dy: float) -> None:
    """One explicit step of DT, in place. Nothing crosses the outer edges, so the mean elevation stays."""
    east, south, square = slopes(z, dx, dy)
    k = K / (1 - square / SC**2)  # q = k S, and on a face k is the mean of the cells on either side
    east[:, 1:-1] *= (k[:, 1:] + k[:, :-1]) / 2
    south[1:-1] *= (k[1:] + k[:-1]) / 2
    gain = DT * (np.diff(east, axis=1) / dx + np.diff(south, axis=0) / dy)
    z += gain
    eroded -= np.minimum(gain, 0)


def write_files(step: int, z: np.ndarray, eroded: np.ndarray, dx: float, dy: float) -> None:
    np.save("z.npy", z)
    np.save("eroded.npy", eroded)
    add_to_history(step, z, eroded, dx, dy)


def add_to_history(step: int, z: np.ndarray, eroded: np.ndarray, dx: float, dy: float) -> None:
    slope = np.sqrt(slopes(z, dx, dy)[2])
    row = step, step * DT, z.mean(), np.ptp(z), slope.mean(), slope.max(), eroded.sum() * dx * dy / 1e9
    names = "" if step else "step,years,mean_elevation_m,relief_m,mean_slope,max_slope,eroded_km3"
    with open("history.csv", "a") as history:
        np.savetxt(history, [row], fmt="%.9g", delimiter=",", header=names, comments="")


def draw(before: np.ndarray, after: np.ndarray, dx: float, dy: float) -> None:
    """Relief before and after, shaded by a sun in the north-west, and the difference, as landscape.png."""
    years = np.loadtxt("history.csv", delimiter=",", skiprows=1, ndmin=2)[-1, 1]
    figure = Figure(figsize=(14, 4.6), layout="constrained")
    panels = figure.subplots(1, 3)
    frame = (0, before.shape[1] * dx / 1000, 0, before.shape[0] * dy / 1000)  # km
    look = {"cmap": colormaps["gist_earth"], "vmin": 100, "vmax": before.max(), "blend_mode": "soft", "vert_exag": 4}
    for axes, z in ((panels[0], before), (panels[1], after)):
        axes.imshow(LightSource(azdeg=315).shade(z, dx=dx, dy=dy, **look), extent=frame)
    change = panels[2].imshow(after - before, extent=frame, cmap="RdBu", vmin=-150, vmax=150)
    figure.colorbar(change, ax=panels[2], label="m", extend="both")
    for axes, title in zip(panels, ("as measured", f"after {years / 1e6:.0f} million years", "change"), strict=True):
        axes.set(title=title, xlabel="km")
    figure.savefig("landscape.png")


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Soil creep in a mountain range. Kill it, and start it again.")
    parser.add_argument("--steps", type=int, default=4000, help=f"of {DT:.0f} years each (default: 4000)")
    parser.add_argument("--every", type=int, default=40, help="steps from save point to save point (default: 40)")
    parser.add_argument("--directory", default=".", help="where it runs")
    options = parser.parse_args(arguments)
    os.makedirs(options.directory, exist_ok=True)
    os.chdir(options.directory)
    if not os.path.exists(".safepoint"):
        Path("manifest").write_text(MANIFEST)
        os.replace("manifest", ".safepoint")  # so that no kill leaves half of it
    before, dx, dy = measured()
    z, eroded = before.copy(), np.zeros_like(before)
    np.empty(4_000_000)  # a large block, freed at once: the C library then keeps freed memory, which saves much time
    safepoint.init()
    saved = safepoint.restore()
    if saved:
        z, eroded = np.load("z.npy"), np.load("eroded.npy")
    else:
        write_files(0, z, eroded, dx, dy)
    if not (saved and saved.finished):
        for step in range(saved.step if saved else 0, options.steps, options.every):
            safepoint.hide(step=step)  # the files hold `step`; they move away, and the next are written afresh
            if safepoint.should_stop():  # the time limit of a job is near, or somebody typed `safepoint halt`
                safepoint.stop()
            for _ in range(min(options.every, options.steps - step)):
                advance(z, eroded, dx, dy)
            write_files(min(step + options.every, options.steps), z, eroded, dx, dy)
        safepoint.finish(step=options.steps)
    draw(before, z, dx, dy)


if __name__ == "__main__":
    main()
