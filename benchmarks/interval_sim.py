"""What `every = auto` wastes, against the best fixed interval: a simulation, with the very code that decides in a run.

    python benchmarks/interval_sim.py [--failures 200] [--seed 1] [--plot FILE] [--table]

A program computes, saves, fails and starts again. Times are in units of C, what a set costs; a restart costs as much.
Between failures lie random times with mean M, exponential, or Weibull of shape 0.7 (which fails soon after a start more
often than later: B. Schroeder and G. A. Gibson, A large-scale study of failures in high-performance computing systems,
IEEE TDSC 7 (2010), 337-350). They go on during saves and restarts. Waste is the share of all time that was not work
which lasted. `auto` knows nothing at first: neither M, nor C before its first set. It learns M from its own log.

The best fixed interval is found by search over the same failures, with hindsight, one for all sequences of them. Daly's
interval is given the true M. Each waste is that of several sequences together, in each of which `auto` begins anew; the
goal is a ratio of at most 1.10.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence

import numpy as np

from safepoint.pace.decision import Pace
from safepoint.pace.interval import Every, daly
from safepoint.pace.meter import Meter
from safepoint.pace.past import past

RATIOS = (10, 30, 100, 300, 1000, 3000, 10_000)  # M / C
SHAPES = {"exponential": 1.0, "Weibull 0.7": 0.7}
GOAL = 1.10
COST = RESTART = 1.0
FINE = 40  # steps in the best interval


class Alone:
    size = 1

    def least(self, *values: int) -> tuple[int, ...]:
        return values


def lives(random: np.random.Generator, shape: float, ratio: float, failures: int) -> np.ndarray:
    """How long each life lasts."""
    return random.weibull(shape, failures) * ratio * COST / math.gamma(1 + 1 / shape)


def fixed(ends: np.ndarray, interval: np.ndarray) -> np.ndarray:
    """The waste of fixed intervals, each over all of these lives."""
    sets = np.floor(np.maximum(ends - RESTART, 0)[None, :] / (interval + COST)[:, None])
    return 1 - (sets * interval[:, None]).sum(axis=1) / ends.sum()


def best(ends: np.ndarray, ratio: float) -> tuple[float, float]:
    """The best fixed interval and its waste, over a fine grid."""
    grid = daly(COST, ratio * COST) * np.geomspace(0.2, 5, 400)
    waste = fixed(ends, grid)
    return float(grid[waste.argmin()]), float(waste.min())


def expected(interval: float, mean: float) -> float:
    """The waste to be expected with exponential failures (Daly 2006, the complete model; times in units of C)."""
    return 1 - interval / (mean * math.exp(RESTART / mean) * math.expm1((interval + COST) / mean))


def auto(ends: np.ndarray, step: float) -> float:
    """The waste of `every = auto`, life by life as a program would call it."""
    log: list[str] = []
    clock, kept, have = 0.0, 0.0, False
    for end in ends:
        born, death = clock, clock + end
        began = f', "began": {born}'
        pace = Pace(Every(), None, past("".join(log).encode(), present=False), Meter(born + RESTART), born)
        log.append(f'{{"time": {min(born + RESTART, death)}, "event": "restored", "pid": 1{began}}}\n')
        saves: list[str] = []
        kept += life(pace, saves, born + RESTART, death, step, have)
        have = have or bool(saves)
        log += saves[-2:]  # of the others nothing is taken; so it is quicker
        clock = death
    return 1 - kept / clock


def life(pace: Pace, saves: list[str], now: float, death: float, step: float, have: bool) -> float:
    """Seconds of work that lasted, from a restart to a death."""
    kept = work = 0.0
    while True:
        now, work = now + step, work + step
        if now >= death:
            return kept
        pace.waits()
        if not pace.decide(Alone(), True, now, saving=False, first=not have):
            continue
        pace.meter.asked = now
        if now + COST >= death:
            return kept
        pace.meter.saved(now, now + COST, waited=False)
        pace.begin_anew()
        now, kept, work, have = now + COST, kept + work, 0.0, True
        saves.append(f'{{"time": {now}, "event": "saved", "pid": 1, "cost": {COST}, "seconds": {COST}}}\n')


def run(failures: int, sequences: int, seed: int, ratios: Sequence[int] = RATIOS) -> list[dict[str, float | str]]:
    rows: list[dict[str, float | str]] = []
    for name, shape in SHAPES.items():
        for ratio in ratios:
            random = np.random.default_rng([seed, ratio, round(10 * shape)])
            every = [lives(random, shape, ratio, failures) for _ in range(sequences)]
            together, known = np.concatenate(every), daly(COST, ratio * COST)
            interval, waste = best(together, ratio)
            kept = sum((1 - auto(ends, known / FINE)) * ends.sum() for ends in every)
            rows.append({
                "failures": name, "M/C": ratio, "daly": known, "best": interval, "waste of best": waste,
                "waste of daly": float(fixed(together, np.array([known]))[0]),
                "waste of auto": float(1 - kept / together.sum()),
            })  # fmt: skip
    return rows


def table() -> str:
    factors = (0.1, 0.25, 0.5, 1, 2, 4, 10)
    lines = ["| M / C | best interval / C | " + " | ".join(f"{factor:g} ×" for factor in factors) + " |"]
    lines.append("|---:" * (len(factors) + 2) + "|")
    for ratio in RATIOS:
        best = daly(COST, ratio * COST)
        waste = [f"{100 * expected(best * factor, ratio * COST):.1f} %" for factor in factors]
        lines.append(f"| {ratio} | {best:.1f} | " + " | ".join(waste) + " |")
    return "\n".join(lines)


def draw(rows: list[dict[str, float | str]], path: str) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.5, 4.8), layout="constrained")
    axes = figure.subplots()
    factors = np.geomspace(0.1, 10, 200)
    for place, ratio in enumerate((10, 100, 1000, 10_000)):
        colour, best = f"C{place}", daly(COST, ratio * COST)
        waste = [100 * expected(best * factor, ratio * COST) for factor in factors]
        axes.plot(factors, waste, color=colour, label=f"M = {ratio:,} C: best after {best:.3g} C".replace(",", " "))
        for row in rows:
            if row["M/C"] == ratio:
                marker = "o" if row["failures"] == "exponential" else "s"
                axes.plot(1, 100 * float(row["waste of auto"]), marker, color=colour, markeredgecolor="black")
    axes.plot([], [], "o", color="white", markeredgecolor="black", label="auto, simulated, exponential failures")
    axes.plot([], [], "s", color="white", markeredgecolor="black", label="auto, simulated, Weibull failures (0.7)")
    axes.set(xscale="log", yscale="log", ylim=(0.4, 100), xlabel="interval, in units of the best one",
             ylabel="time lost to saves, failures and restarts, %")  # fmt: skip
    axes.legend(fontsize=8, loc="lower center", ncols=2)
    axes.grid(which="both", alpha=0.2)
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description="What every = auto wastes, against the best fixed interval.")
    parser.add_argument("--failures", type=int, default=200, help="in each sequence (default: 200)")
    parser.add_argument("--sequences", type=int, default=4, help="over which the mean is taken (default: 4)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--plot", metavar="FILE", help="draw the waste over the interval, and that of auto")
    parser.add_argument("--table", action="store_true", help="only what is to be expected, as a table in Markdown")
    options = parser.parse_args()
    if options.table:
        print(table())
        return
    rows = run(options.failures, options.sequences, options.seed)
    print(f"{options.failures} failures, {options.sequences} sequences, seed {options.seed}; intervals in units of C")
    print(
        f"{'failures':<12} {'M/C':>6} {'Daly':>7} {'best':>7} {'waste: best':>12} {'Daly':>7} {'auto':>7} {'ratio':>6}"
    )
    worst = 0.0
    for row in rows:
        ratio = float(row["waste of auto"]) / float(row["waste of best"])
        worst = max(worst, ratio)
        print(
            f"{row['failures']:<12} {row['M/C']:>6} {row['daly']:7.1f} {row['best']:7.1f} {row['waste of best']:12.4f} "
            f"{row['waste of daly']:7.4f} {row['waste of auto']:7.4f} {ratio:6.3f}"
        )
    print(f"largest ratio {worst:.3f}, goal {GOAL}")
    if options.plot:
        draw(rows, options.plot)
    sys.exit(worst > GOAL)


if __name__ == "__main__":
    main()
