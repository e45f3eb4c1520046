"""A scheduler of Dask and its workers, started by their command lines on this machine, and ended by their ids; and a
program that runs a random graph there: `python -m testbed.dask_cluster ADDRESS DIRECTORY NOTES SEED COUNT PAUSE`."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from testbed.paths import HOUSE, TESTS
from testbed.waiting import wait_for

ENVIRONMENT = os.environ | {
    "PYTHONPATH": f"{HOUSE}{os.pathsep}{TESTS}",
    "DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED": "False",  # it takes processor time all the while
}
HERE = ["--host", "127.0.0.1", "--dashboard-address", "127.0.0.1:0"]  # without the second it listens to all the world


class Cluster:
    """`workers` processes with a thread each, which nobody starts again when they die."""

    def __init__(self, directory: Path, workers: int = 2) -> None:
        self._directory, self._file = directory, directory / f"scheduler-{time.time_ns()}.json"
        self._log = open(directory / "dask.log", "ab")  # noqa: SIM115 - closed at the end
        options = [*HERE, "--port", "0", "--scheduler-file", str(self._file)]
        self.scheduler = self._start("dask_scheduler", *options)
        wait_for(lambda: self._file.exists() and self._file.read_text().endswith("}"))
        self.address = json.loads(self._file.read_text())["address"]
        self.workers = [self.add() for _ in range(workers)]

    def _start(self, program: str, *options: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-m", f"distributed.cli.{program}", *options], cwd=self._directory, env=ENVIRONMENT,
            stdout=self._log, stderr=self._log, start_new_session=True,
        )  # fmt: skip

    def add(self) -> subprocess.Popen[bytes]:
        return self._start(
            "dask_worker", self.address, *HERE, "--no-nanny", "--nthreads", "1", "--death-timeout", "250",
        )  # fmt: skip

    def kill_workers(self) -> None:
        for worker in self.workers:
            kill(worker)
        self.workers = []

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *of: object) -> None:
        self.kill_workers()
        kill(self.scheduler)
        self._log.close()


def kill(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(process.pid, signal.SIGKILL)
    process.communicate(timeout=250)


def program(address: str, directory: Path, notes: Path, seed: int, count: int, pause: float) -> subprocess.Popen[bytes]:
    arguments = [address, directory, notes, seed, count, pause]
    return subprocess.Popen(
        [sys.executable, "-m", "testbed.dask_cluster", *map(str, arguments)], env=ENVIRONMENT, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )  # fmt: skip


def main(address: str, directory: str, notes: str, seed: str, count: str, pause: str) -> None:
    from distributed import Client

    from safepoint import SafepointError
    from testbed.task_bodies_dask import digest, graph

    with Client(address, timeout=250) as client:
        g = graph(int(seed), Path(notes), int(count), float(pause))
        try:
            found = g.run(on=client, directory=directory)
        except SafepointError as error:
            print(error, file=sys.stderr, flush=True)
            os._exit(error.code)  # without a wait for a scheduler that does not come back
        print(json.dumps({name: digest(found[name]) for name, vertex in g.vertices.items() if vertex.keep}))


if __name__ == "__main__":
    main(*sys.argv[1:])
