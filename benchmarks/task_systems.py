"""The programs that `tasks.py` runs: one graph, written for each system as its own documentation says.

Each is called with a directory that has `graph.json` and `bodies.py`. It prints the sum of the last layer, and the
seconds from the first vertex that is made or handed over to the last result, without its start and its imports.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

HOUSE = Path(__file__).parents[1]
BARE, OURS = "bare process pool", "safepoint on its pool"
NOTE = 7  # bytes of a line that a vertex writes
PATIENCE_S = 900  # seconds for one command

BODIES = '''
"""What every system runs: note the vertex, hold a core for so many seconds, add up."""
import os, time

SECONDS = float(os.environ["BODY_S"])
NOTES = os.environ["NOTES"]

def body(number, *values):
    until = time.perf_counter() + SECONDS
    file = os.open(NOTES, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, b"%06d\\n" % number)
    os.close(file)
    while time.perf_counter() < until:
        pass
    return (number + sum(values)) % 1_000_003

def listed(number, values):
    return body(number, *values)
'''

COMMON = """
import json, os, sys, time
sys.path.insert(0, sys.argv[1])
os.chdir(sys.argv[1])
from bodies import body, listed

WORKERS = int(os.environ["WORKERS"])
GRAPH = json.load(open("graph.json"))  # of each vertex the numbers of those that it needs; in an order that works
LAST = set(range(len(GRAPH))) - {parent for needs in GRAPH for parent in needs}

def told(values, seconds):
    print(json.dumps({"sum": sum(values), "seconds": seconds}), flush=True)
"""

ON_A_BARE_POOL = """
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait

if __name__ == "__main__":
    with ProcessPoolExecutor(WORKERS) as pool:
        list(pool.map(int, range(WORKERS)))
        begin = time.perf_counter()
        missing = [len(needs) for needs in GRAPH]
        children = [[] for _ in GRAPH]
        for number, needs in enumerate(GRAPH):
            for parent in needs:
                children[parent].append(number)
        values, at_work = {}, {}

        def give(number):
            at_work[pool.submit(body, number, *(values[parent] for parent in GRAPH[number]))] = number

        for number, needs in enumerate(GRAPH):
            if not needs:
                give(number)
        while at_work:
            for future in wait(at_work, return_when=FIRST_COMPLETED).done:
                number = at_work.pop(future)
                values[number] = future.result()
                for child in children[number]:
                    missing[child] -= 1
                    if not missing[child]:
                        give(child)
        told([values[number] for number in LAST], time.perf_counter() - begin)
"""

WITH_OURS = """
from safepoint.tasks import Graph

def made():
    graph, vertices = Graph("bench"), []
    for number, needs in enumerate(GRAPH):
        vertices.append(graph.add(f"v{number:06d}", listed, number=number, values=[vertices[n] for n in needs]))
    return graph, vertices

def run(on):
    begin = time.perf_counter()
    graph, vertices = made()
    found = graph.run(on, directory=sys.argv[1])
    told([found[vertices[number].name] for number in LAST], time.perf_counter() - begin)
"""

OURS_ON_A_POOL = (
    WITH_OURS
    + """
if __name__ == "__main__":
    run(WORKERS)
"""
)

CLUSTER = """
import dask
from distributed import Client, LocalCluster

dask.config.set({"distributed.worker.use-file-locking": False, "distributed.admin.log-length": 0})

def cluster():
    return LocalCluster(n_workers=WORKERS, threads_per_worker=1, dashboard_address="127.0.0.1:0", silence_logs=50,
                        local_directory=os.path.join(sys.argv[1], "dask"))
"""

OURS_ON_DASK = (
    CLUSTER
    + WITH_OURS
    + """
if __name__ == "__main__":
    with cluster() as here, Client(here) as client:
        run(client)
"""
)

DASK = (
    CLUSTER
    + """
if __name__ == "__main__":
    with cluster() as here, Client(here) as client:
        begin, futures = time.perf_counter(), []
        for number, needs in enumerate(GRAPH):
            futures.append(client.submit(body, number, *(futures[parent] for parent in needs), key=f"v{number:06d}"))
        told(client.gather([futures[number] for number in LAST]), time.perf_counter() - begin)
"""
)

PARSL = """
import parsl
from parsl import python_app
from parsl.config import Config
from parsl.dataflow.memoization import BasicMemoizer
from parsl.executors import HighThroughputExecutor
from parsl.providers import LocalProvider
from parsl.utils import get_all_checkpoints

@python_app
def ready():
    return 0

@python_app(cache=True)
def app(number, *values):
    from bodies import body
    return body(number, *values)

if __name__ == "__main__":
    executor = HighThroughputExecutor(
        label="here", address="127.0.0.1", max_workers_per_node=WORKERS, cores_per_worker=1e-6, encrypted=False,
        provider=LocalProvider(init_blocks=1, min_blocks=1, max_blocks=1))
    memoizer = BasicMemoizer(checkpoint_mode="task_exit", checkpoint_files=get_all_checkpoints("runinfo"))
    config = Config(executors=[executor], memoizer=memoizer, run_dir="runinfo", strategy="none",
                    initialize_logging=False, usage_tracking=0)
    with parsl.load(config):
        ready().result()
        begin, futures = time.perf_counter(), []
        for number, needs in enumerate(GRAPH):
            futures.append(app(number, *(futures[parent] for parent in needs)))
        told([futures[number].result() for number in LAST], time.perf_counter() - begin)
"""

SNAKEFILE = """
import json
GRAPH = json.load(open("graph.json"))
LAST = sorted(set(range(len(GRAPH))) - {parent for needs in GRAPH for parent in needs})

rule all:
    input: [f"out/{number:06d}" for number in LAST]

rule vertex:
    output: "out/{number}"
    input: lambda wildcards: [f"out/{parent:06d}" for parent in GRAPH[int(wildcards.number)]]
    shell: "$BENCH_PYTHON -S -E one.py {wildcards.number} {output} {input}"
"""

ONE = """
import sys
sys.path.insert(0, ".")
from bodies import body
values = []
for path in sys.argv[3:]:
    with open(path) as file:
        values.append(int(file.read()))
result = body(int(sys.argv[1]), *values)
with open(sys.argv[2], "w") as file:
    file.write(str(result))
"""

SNAKEMAKE = """
import subprocess
os.environ["BENCH_PYTHON"] = sys.executable
command = [sys.executable, "-m", "snakemake", "--cores", str(WORKERS), "--scheduler", "greedy", "--nolock", "--quiet",
           "all", "--rerun-incomplete", "--rerun-triggers", "mtime", "--max-jobs-per-timespan", "100000/1s",
           "--latency-wait", "1"]
subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
told([int(open(f"out/{number:06d}").read()) for number in LAST], None)
"""

# Name, program, whether it needs `--others`, and the files beside it.
SYSTEMS: dict[str, tuple[str, bool, dict[str, str]]] = {
    BARE: (ON_A_BARE_POOL, False, {}),
    OURS: (OURS_ON_A_POOL, False, {}),
    "safepoint on Dask": (OURS_ON_DASK, False, {}),
    "Dask alone": (DASK, False, {}),
    "Parsl": (PARSL, True, {}),
    "Snakemake": (SNAKEMAKE, True, {"Snakefile": SNAKEFILE, "one.py": ONE}),
}


class CannotRun(Exception):
    """A command failed; the message has the end of what it said."""


class Told(NamedTuple):
    """Of one command: of the process, and of the graph alone if the program knows."""

    command_s: float
    graph_s: float | None
    sum: int


class System(NamedTuple):
    name: str
    python: str
    program: str
    files: dict[str, str]

    def directory(self, work: Path, graph: list[list[int]]) -> Path:
        work.mkdir()
        for name, text in {**self.files, "bodies.py": BODIES, "driver.py": COMMON + self.program}.items():
            (work / name).write_text(text)
        (work / "graph.json").write_text(json.dumps(graph))
        return work

    def start(self, work: Path, body_s: float, workers: int, token: str) -> subprocess.Popen[str]:
        environment = os.environ | {
            "BODY_S": str(body_s), "NOTES": str(work / "notes"), "WORKERS": str(workers), "BENCH_TOKEN": token,
            "PYTHONPATH": os.pathsep.join([str(work), *[str(HOUSE)] * (self.python == sys.executable)]),
            "HOME": str(work), "XDG_CACHE_HOME": str(work / "cache"),
            "PATH": f"{Path(self.python).parent}:{os.environ.get('PATH', '')}",
        }  # fmt: skip
        return subprocess.Popen(
            [self.python, "driver.py", str(work)], cwd=work, env=environment, text=True, start_new_session=True,
            stdout=subprocess.PIPE, stderr=(work / "errors").open("a"),
        )  # fmt: skip

    def run(self, work: Path, body_s: float, workers: int) -> Told:
        """One whole command, which must succeed."""
        token, begin = token_of(work), time.perf_counter()
        with self.start(work, body_s, workers, token) as process:
            try:
                out, _ = process.communicate(timeout=PATIENCE_S)
                spent = time.perf_counter() - begin
            except subprocess.TimeoutExpired as error:
                end_all(token)
                raise CannotRun(f"{self.name} took more than {PATIENCE_S} s") from error
        end_all(token)  # what it may have left running would slow down the next one
        if process.returncode:
            raise CannotRun(f"{self.name} ended with {process.returncode}: {(work / 'errors').read_text()[-800:]}")
        told = json.loads(out.splitlines()[-1])
        return Told(spent, told["seconds"], told["sum"])

    def killed_at_half(self, work: Path, body_s: float, workers: int, vertices: int) -> int:
        """How many vertices had begun when nothing of it was there any more."""
        token, notes = token_of(work), work / "notes"
        with self.start(work, body_s, workers, token) as process:
            until = time.monotonic() + PATIENCE_S
            while begun(notes) * 2 < vertices:
                if process.poll() is not None or time.monotonic() > until:
                    end_all(token)
                    raise CannotRun(f"{self.name} did not reach half: {(work / 'errors').read_text()[-800:]}")
                time.sleep(0.002)
            end_all(token)
        return begun(notes)


def token_of(work: Path) -> str:
    return f"{work.name}-{os.getpid()}-{time.monotonic_ns()}"


def begun(notes: Path) -> int:
    try:
        return notes.stat().st_size // NOTE
    except FileNotFoundError:
        return 0


def those_of(token: str) -> Iterator[int]:
    """All processes with this token in their environment: also those that have left the group, or whose parent died."""
    wanted = f"BENCH_TOKEN={token}\0".encode()
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError):
                if wanted in (entry / "environ").read_bytes() + b"\0":
                    yield int(entry.name)


def end_all(token: str) -> None:
    """SIGKILL until none is left: what starts another one meanwhile is stopped first."""
    while found := list(those_of(token)):
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for pid in found:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)
        time.sleep(0.002)


def named(name: str, python: str = sys.executable) -> System:
    program, _, files = SYSTEMS[name]
    return System(name, python, program, files)


def systems(others: str | None) -> list[System]:
    """Those that can run here; of each other one the reason why not is printed."""
    found = []
    for name, (_, elsewhere, _) in SYSTEMS.items():
        python, needed = (others, name.lower()) if elsewhere else (sys.executable, "distributed" * ("Dask" in name))
        if python is None:
            print(f"{name}: left out, as --others names no environment that has it", flush=True)
        elif needed and subprocess.run([python, "-c", f"import {needed}"], capture_output=True).returncode:
            print(f"{name}: left out, as {python} cannot import {needed}", flush=True)
        else:
            found.append(named(name, python))
    return found
