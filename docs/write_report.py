"""Writes the example of the site for `safepoint report`: `python docs/write_report.py FILE.html`.

A short run is killed three times, and fails once. The page tells of just this run.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

PROGRAM = """
import os, sys, time
import safepoint

safepoint.init(store="every")
saved = safepoint.restore()
begin = saved.step if saved else 0
for step in range(begin + 1, 121):
    time.sleep(0.08)
    with open("u.dat", "wb") as file:
        file.write(os.urandom(1_000_000) + bytes(2_000_000))
    with open("history.csv", "a") as history:
        history.write(f"{step}\\n")
    if "fails" in sys.argv and step == begin + 17:
        raise ArithmeticError("the time step became too small")
    if step % 10 == 0:
        safepoint.hide(step=step)
safepoint.finish(step=120)
"""
LIVES_S = (2.3, 3.1, 1.9)  # until they are killed


def run(work: Path, seconds: float | None, *arguments: str) -> None:
    with subprocess.Popen([sys.executable, "solver.py", *arguments], cwd=work, stderr=subprocess.DEVNULL) as solver:
        while seconds and not list(work.glob(".safepoint.d/rank-*/log.jsonl")):
            time.sleep(0.01)
        try:
            solver.wait(seconds)
        except subprocess.TimeoutExpired:
            solver.kill()
    time.sleep(0.5)


def main(output: str) -> None:
    with tempfile.TemporaryDirectory() as top:
        work = Path(top, "flow")
        work.mkdir()
        (work / "solver.py").write_text(PROGRAM)
        (work / ".safepoint").write_text("u.dat compress\nhistory.csv append\n")
        for seconds in LIVES_S:
            run(work, seconds)
        run(work, None, "fails")
        run(work, None)
        command = [sys.executable, "-m", "safepoint", "report", str(work), "-o", "-"]
        page = subprocess.run(command, capture_output=True, check=True).stdout.decode()
        Path(output).write_text(page.replace(str(work.resolve()), "/scratch/flow"), "utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
