"""A master and its workers: only the master has a state, and only the master saves.

    mpiexec -n 4 python examples/farm.py --directory run    # kill it, or one rank of it, and start it again

The magnetization of the two-dimensional Ising model at many temperatures T, in units of J/k: it vanishes above
Tc = 2 / ln(1 + sqrt(2)) = 2.269. L. Onsager (1944), Crystal statistics I, Phys. Rev. 65, 117-149. Each temperature is a
task. A worker that dies takes a task with it, and the task is given out again after the next start; what is done is
kept. The workers own no files and agree on nothing: `coordinate=False`.
"""

import argparse
import os
from pathlib import Path

import numpy as np
from mpi4py import MPI

import safepoint

SIZE, SWEEPS = 32, 1500  # spins along an edge; sweeps over the lattice, of which the first third is not measured
TASK, RESULT = 1, 2  # tags


def magnetization(task: int, temperature: float) -> float:
    """Mean of |m| per spin, by Metropolis on the two colours of a chequerboard in turn. The same for the same task."""
    chance = np.random.default_rng(task)
    spins = np.ones((SIZE, SIZE))
    white = np.indices(spins.shape).sum(axis=0) % 2 == 0
    measured = []
    for sweep in range(SWEEPS):
        for colour in (white, ~white):
            field = sum(np.roll(spins, shift, axis) for shift in (-1, 1) for axis in (0, 1))
            flip = chance.random(spins.shape) < np.exp(np.minimum(-2 * spins * field / temperature, 0))
            spins[colour & flip] *= -1
        if sweep >= SWEEPS // 3:
            measured.append(abs(spins.mean()))
    return float(np.mean(measured))


def work(comm: MPI.Intracomm) -> None:
    """Do what the master sends, until it sends nothing."""
    comm.send(None, 0, RESULT)
    while (task := comm.recv(source=0, tag=TASK)) is not None:
        comm.send((task[0], magnetization(*task)), 0, RESULT)


def master(comm: MPI.Intracomm, temperatures: np.ndarray, results: np.ndarray) -> None:
    """Give out what has no result yet. Each result that comes in is saved with all the others."""
    waiting = [(int(n), float(temperatures[n])) for n in np.flatnonzero(np.isnan(results))]
    busy, status = comm.size - 1, MPI.Status()
    while busy:
        result = comm.recv(source=MPI.ANY_SOURCE, tag=RESULT, status=status)
        if result is not None:
            safepoint.hide(step=int(np.count_nonzero(~np.isnan(results))))
            results[result[0]] = result[1]
            np.save("results.npy", results)
        task = waiting.pop(0) if waiting else None
        busy -= task is None
        comm.send(task, status.Get_source(), TASK)


def main() -> None:
    parser = argparse.ArgumentParser(description="The magnetization of the Ising model, by a farm of workers.")
    parser.add_argument("--tasks", type=int, default=60, help="temperatures from 1.5 to 3.5 (default: 60)")
    parser.add_argument("--directory", default=".", help="where it runs")
    options = parser.parse_args()
    comm = MPI.COMM_WORLD
    if comm.size < 2:
        raise SystemExit("a farm needs two ranks at least: mpiexec -n 4 python examples/farm.py")
    if comm.rank == 0:
        os.makedirs(options.directory, exist_ok=True)
        if not Path(options.directory, ".safepoint").exists():
            Path(options.directory, "manifest").write_text("results.npy\n")
            os.replace(Path(options.directory, "manifest"), Path(options.directory, ".safepoint"))
    comm.Barrier()
    os.chdir(options.directory)

    temperatures = np.linspace(1.5, 3.5, options.tasks)
    safepoint.init(comm=comm, coordinate=False)
    saved = safepoint.restore()
    if saved and saved.finished:
        return
    if comm.rank == 0:
        results = np.load("results.npy") if saved else np.full(options.tasks, np.nan)
        np.save("results.npy", results)
        master(comm, temperatures, results)
    else:
        work(comm)
    safepoint.finish(step=options.tasks)
    if comm.rank == 0:
        np.savetxt("magnetization.csv", np.c_[temperatures, results], "%.17g", ",", header="T,m", comments="")


if __name__ == "__main__":
    main()
