"""Where people try it first: cells that are run again and again, and pools of processes."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from testbed.children import SOURCE
from testbed.sweep import some_of

import safepoint
from safepoint import spawned

# What a user types, and what has to be in the answer.
FIRST = [
    ('import numpy as np\nimport safepoint\nsafepoint.init()', "<Session in {work}: at work>"),
    ("safepoint.init()", r"LockedError: {work} is in use .*this very process, by an earlier init: go on with that"),
    ("print(safepoint.restore())", "None"),
    ("u = np.arange(3.0)\nnp.save('u.npy', u)\nsafepoint.hide(1)", "<SavePoint: set 1, step 1, 1 files, "),
    ("np.save('u.npy', u)\nsafepoint.hide(2.0)", r"UsageError: hide: step must be an integer, not 2\.0 \(float\)"),
    ("for step in range(2, 9):\n    np.save('u.npy', step * u)\n    safepoint.hide(step)\n    1 / (step - 4)",
     "ZeroDivisionError"),
    ("safepoint.sets()", "<set 4, step 4, 1 files, "),
    ("safepoint.wait()\nsafepoint.sets()[0]", "durable"),
    ("safepoint.reading(99).__enter__()", "NothingSavedError: there is no set 99 in .*; there are: 4"),
    ("safepoint.close()\nsafepoint.init()", "<Session in {work}: not restored yet>"),
    ("safepoint.hide(5)", r"UsageError: hide before restore, .*call restore\(\) first"),
    ("safepoint.restore()", "<SavePoint: set 4, step 4, 1 files, "),
]  # fmt: skip
SECOND = [  # the kernel was started again
    ("import numpy as np\nimport safepoint\nsafepoint.hide(5)", r"UsageError: hide before init: call safepoint\.init"),
    ("safepoint.init()\nsaved = safepoint.restore()\nsaved", "<SavePoint: set 4, step 4, 1 files, "),
    ("np.load('u.npy').tolist()", r"\[0\.0, 4\.0, 8\.0\]"),
    ("help(safepoint.hide)", "Move the listed files into safekeeping as one set"),
    ("safepoint.finish(4)\nsafepoint.init().restore()", "the result of a finished run, step 4"),
]  # fmt: skip


def run(work: Path, cells: list[tuple[str, str]]) -> None:
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code) for code, _ in cells])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(SOURCE))
        patch.setenv("PYTHONWARNINGS", "ignore")
        client = nbclient.NotebookClient(
            notebook, timeout=300, allow_errors=True, resources={"metadata": {"path": str(work)}}
        )
        client.execute()
    for cell, (code, answer) in zip(notebook.cells, cells, strict=True):
        said = "\n".join(map(text_of, cell.outputs))

        assert re.search(answer.format(work=re.escape(str(work.resolve()))), said, re.S), (code, said)


def text_of(output: Any) -> str:
    if output.output_type == "error":
        return f"{output.ename}: {output.evalue}"
    if output.output_type == "stream":
        return str(output.text)
    return str(output.get("data", {}).get("text/plain", ""))


@pytest.mark.filterwarnings("ignore")  # of these packages
def test_what_each_cell_of_a_notebook_answers(tmp_path: Path) -> None:
    (tmp_path / ".safepoint").write_text("u.npy\n")
    run(tmp_path, FIRST)
    run(tmp_path, SECOND)


POOL = """
import multiprocessing, time
from concurrent.futures import ProcessPoolExecutor
import safepoint
safepoint.init()
safepoint.restore()
def square(x):
    return x * x
"""
GUARD = 'if __name__ == "__main__":\n    '
POOLS = {
    "pool": "with multiprocessing.get_context({how!r}).Pool(3) as pool: print(pool.map(square, range(4)))",
    "executor": "with ProcessPoolExecutor(3, mp_context=multiprocessing.get_context({how!r})) as pool: "
    "print(list(pool.map(square, range(4))))",
    "process": "p = multiprocessing.get_context({how!r}).Process(target=square, args=(2,)); p.start(); p.join(); "
    "print(p.exitcode)",
}


def end_of(work: Path, code: str) -> tuple[int, str]:
    (work / ".safepoint").write_text("u.npy\n")
    (work / "program.py").write_text(code)
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    command = [sys.executable, "program.py"]
    done = subprocess.run(command, cwd=work, env=environment, capture_output=True, text=True, timeout=300)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize(("pool", "guard"), some_of([(pool, guard) for pool in POOLS for guard in ("", GUARD)], 2))
def test_a_pool_that_imports_an_init_ends_with_one_message_that_names_the_guard(
    tmp_path: Path, pool: str, guard: str
) -> None:
    """Each worker would fail, and a pool would start another one for each, for ever."""
    status, said = end_of(tmp_path, POOL + guard + POOLS[pool].format(how="spawn"))
    assert said.count("safepoint: init was called in Spawn") == 1, said
    assert 'under if __name__ == "__main__": in ' in said and "program.py" in said
    assert said.count("Traceback") <= 1 and said.count("LockedError") == 0, said
    assert status == {"pool": 128 + signal.SIGINT, "executor": 1, "process": 0}[pool] or status == -signal.SIGINT
    safepoint.Session(tmp_path).close()  # the lock is free


def test_of_a_pool_that_is_forked_by_a_server_too(tmp_path: Path) -> None:
    code = POOL + GUARD + 'multiprocessing.set_forkserver_preload(["json"])\n    ' + POOLS["pool"]
    status, said = end_of(tmp_path, code.format(how="forkserver"))
    assert said.count("safepoint: init was called in ForkServerPoolWorker") == 1 and status != 0, said


def test_an_orphaned_worker_interrupts_nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its program is dead, and who has taken it in may be the first process of the machine."""
    monkeypatch.setenv(spawned.PROGRAM, str(2**22 + 1))
    assert spawned._program() == 0
    monkeypatch.setenv(spawned.PROGRAM, "1")
    assert spawned._program() == 0
    monkeypatch.setenv(spawned.PROGRAM, str(os.getppid()))
    assert spawned._program() == os.getppid()


@pytest.mark.parametrize("how", ["spawn", "fork", "forkserver"])
def test_a_pool_beside_a_program_that_begins_under_the_guard_works(tmp_path: Path, how: str) -> None:
    begin = "safepoint.init()\nsafepoint.restore()\n"
    body = (GUARD + begin.replace("\n", "\n    ") + POOLS["pool"]).format(how=how)
    status, said = end_of(tmp_path, POOL.replace(begin, "") + body)
    assert (status, said.strip()) == (0, "[0, 1, 4, 9]")
