"""The recipes of docs/unmodified-programs.md, with the real programs: what they do when killed, without and with
`safepoint run`."""

from __future__ import annotations

import os
import random
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from testbed.paths import EXAMPLES
from testbed.protected import command_of, kill, processes_of, ran, run, sets
from testbed.sweep import LONG
from testbed.waiting import wait_for

from safepoint.disk import handles

KILLS, BENDS = (20, 20) if LONG else (5, 3)  # of LAMMPS, which may say nothing before its first ones; of CalculiX
LAST = 300 * KILLS  # steps of LAMMPS: enough for so many kills


def program(name: str) -> str:
    """Where it is: on the path, or beside this Python."""
    found = shutil.which(name) or shutil.which(name, path=str(Path(sys.executable).parent))
    if found is None:
        pytest.skip(f"needs the program {name}")
    return found


@pytest.fixture
def melt(tmp_path: Path) -> Path:
    work = tmp_path / "melt"
    shutil.copytree(EXAMPLES / "lammps", work)
    return work


def in_the_write(*command: str, file: str, at: int) -> list[str]:
    """The command, killed at this write to that file."""
    inject = f"inject=write:signal=KILL:when={at}"
    return [program("strace"), "-f", "-qq", "-o", "/dev/null", "-P", file, "-e", "trace=write", "-e", inject, *command]


def kill_all(leader: int, *protector: int) -> None:
    """Until nothing is left that keeps the lock."""
    for pid in protector:
        kill(pid)
    for _ in range(3):  # one that was just being forked is seen a moment later
        while members := processes_of(leader):
            for pid in members:  # parents first: a shell whose child was killed goes on to its next command
                kill(pid)
        time.sleep(0.05)


def thermo(output: str) -> list[str]:
    """The lines of thermodynamic output, each with its step."""
    return re.findall(r"^ +\d+ +-?\d+\.\d+ +.*$", output, re.M)


def test_lammps_killed_in_the_write_of_its_restart_file_cannot_go_on_by_itself(melt: Path) -> None:
    """What we protect from; were this to succeed, the recipe would be for nothing."""
    lmp = program("lmp")
    command = in_the_write(lmp, "-in", "in.melt", file=str(melt / "melt.restart"), at=120)
    subprocess.run(command, cwd=melt, capture_output=True)
    done = subprocess.run([lmp, "-in", "in.again"], cwd=melt, capture_output=True, text=True)
    assert done.returncode and re.search("Unexpected end of file|corrupted LAMMPS restart file", done.stdout)


@pytest.mark.timeout(900)
def test_lammps_under_safepoint_run_always_goes_on_from_a_whole_restart_file(melt: Path) -> None:
    """Killed at random and in the write; its last thermodynamic output is that of LAMMPS restarted undisturbed at the
    same steps."""
    lmp = program("lmp")
    again = f"sh -c 'exec {lmp} -in in.again -var last {LAST} >> out'"
    first = ["sh", "-c", f"exec {lmp} -in in.melt -var last {LAST} >> out"]
    rng = random.Random(9)
    begun: list[int] = []
    writes = 0

    def note() -> None:
        """The step at which this life began, and that all of what it had read was good."""
        text = (melt / "out").read_text() if (melt / "out").exists() else ""
        assert "ERROR" not in text
        lines = thermo(text)
        if lines:
            begun.append(int(lines[0].split()[0]))

    for number in range(KILLS):
        (melt / "out").unlink(missing_ok=True)
        if number % 3 == 2:
            at = rng.randrange(1, 87)
            command = in_the_write(
                lmp, "-in", "in.melt", "-var", "last", str(LAST), file=str(melt / "melt.restart"), at=at
            )
            resumed = " ".join(
                in_the_write(lmp, "-in", "in.again", "-var", "last", str(LAST), file=str(melt / "melt.restart"), at=at)
            )
            with run(melt, "--resume-command", f"sh -c 'exec {resumed} >> out'", "--", *command) as protected:
                said = protected.communicate(timeout=300)[1]
            assert "goes on from set" in said or not begun
            writes += 1
        else:
            with run(melt, "--resume-command", again, "--", *first) as protected:
                before = max(sets(melt), default=0)
                wait_for(
                    lambda before=before: max(sets(melt), default=0) > before
                )  # it gets on, however busy the machine
                time.sleep(rng.uniform(0, 0.4))
                kill_all(command_of(protected) or protected.pid, protected.pid)
        note()
    ran(melt, "--resume-command", again, "--", *first)
    note()
    undisturbed = melt.parent / "undisturbed"
    shutil.copytree(EXAMPLES / "lammps", undisturbed)
    assert begun == sorted(begun) and len({*begun}) > 2, begun
    text, script = "", "in.melt"
    for last in [*(step for step in sorted({*begun}) if step), LAST]:
        command = [lmp, "-in", script, "-var", "last", str(last)]
        text = subprocess.run(command, cwd=undisturbed, capture_output=True, text=True, check=True).stdout
        script = "in.again"
    assert thermo((melt / "out").read_text())[-1] == thermo(text)[-1] and thermo(text)[-1].split()[0] == str(LAST)
    print(f"LAMMPS: {KILLS} kills, {writes} of them in the write; restarted at steps {begun}")


@pytest.fixture
def beam(tmp_path: Path) -> Path:
    work = tmp_path / "beam"
    shutil.copytree(EXAMPLES / "calculix", work)
    return work


class HeldUp:
    """A PATH on which `mv`, by which the new restart file gets its name, waits as long as it is held: until a kill."""

    def __init__(self, beam: Path) -> None:
        self.late, self.beam = beam.parent / "late", beam
        self.late.mkdir()
        held, waits = self.late / "held", self.late / "waits"
        wait = f"[ -e {held} ] && touch {waits}\nwhile [ -e {held} ]; do sleep 0.01; done"
        (self.late / "mv").write_text(f'#!/bin/sh\n{wait}\nexec {program("mv")} "$@"\n')
        (self.late / "mv").chmod(0o755)
        self.environment = {**os.environ, "PATH": f"{self.late}{os.pathsep}{os.environ['PATH']}"}

    def until_it_waits(self) -> None:
        wait_for((self.beam / "beam.rout").exists)
        (self.late / "held").touch()
        wait_for((self.late / "waits").exists)


def last_displacements(beam: Path) -> list[str]:
    return (beam / "beam.dat").read_text().splitlines()[-9:]


def test_calculix_killed_between_removing_and_renaming_has_no_restart_file(beam: Path) -> None:
    """What we protect from."""
    program("ccx")
    late = HeldUp(beam)
    done = subprocess.Popen(
        ["sh", "first.sh"], cwd=beam, stdout=subprocess.DEVNULL, start_new_session=True, env=late.environment
    )
    late.until_it_waits()
    kill_all(done.pid)
    done.wait()
    assert not (beam / "beam.rout").exists()


@pytest.mark.timeout(900)
def test_calculix_under_safepoint_run_always_has_one_and_ends_as_if_undisturbed(
    beam: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed at random, and while it has no restart file."""
    program("ccx")
    monkeypatch.setenv("STEPS", str(20 * BENDS))
    undisturbed = beam.parent / "undisturbed"
    shutil.copytree(EXAMPLES / "calculix", undisturbed)
    subprocess.run(["sh", "first.sh"], cwd=undisturbed, check=True, stdout=subprocess.DEVNULL)
    rng = random.Random(10)
    away, late = 0, HeldUp(beam)
    for number in range(BENDS):
        environment = late.environment if number == 0 else dict(os.environ)
        options = {"stdout": subprocess.DEVNULL, "env": environment}
        with run(beam, "--resume-command", "sh again.sh", "--", "sh", "first.sh", **options) as protected:
            wait_for(lambda: command_of(protected) or protected.poll() is not None)
            leader = command_of(protected)
            assert leader, protected.communicate()[1]
            if number == 0:
                late.until_it_waits()
            else:
                time.sleep(rng.uniform(0.15, 0.5))
            kill_all(leader, protected.pid)
            lock = str(beam / ".safepoint.d/rank-00000/lock")
            wait_for(lambda lock=lock: not handles.holders(lock))  # a shell that was just being started ends by itself
            away += not (beam / "beam.rout").exists()
    ran(beam, "--resume-command", "sh again.sh", "--", "sh", "first.sh")
    assert last_displacements(beam) == last_displacements(undisturbed)
    assert away
    print(f"CalculiX: {BENDS} kills, {away} of them while it had no restart file")


# In segments: the examples of the page, as they stand there.

SEGMENTS = re.findall(
    r"^```sh\n(cat > .*?)^```$",
    (EXAMPLES.parent / "docs/unmodified-programs.md").read_text(encoding="utf-8").partition("## In segments")[2],
    re.M | re.S,
)


@pytest.mark.parametrize("killed", [False, True], ids=["undisturbed", "killed"])
@pytest.mark.parametrize("example", SEGMENTS, ids=["months", "sweeps"])
def test_the_examples_of_segments_do_what_the_page_says(tmp_path: Path, example: str, killed: bool) -> None:
    """Killed in the middle, and started again by the last line, they come to the same end."""
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    again = example.splitlines()[-1]
    options = {"cwd": tmp_path, "env": environment, "stdin": subprocess.DEVNULL}
    if killed:
        with subprocess.Popen(["sh", "-c", example.replace("safepoint run", "exec safepoint run")], **options) as first:
            wait_for(lambda: len(sets(tmp_path)) >= 2)
            kill_all(command_of(first) or first.pid, first.pid)
    done = subprocess.run(["sh", "-c", again if killed else example], stderr=subprocess.PIPE, text=True, **options)
    assert done.returncode == 0, done.stderr
    assert not killed or re.search("goes on from set|was finished", done.stderr)
    if (tmp_path / "history.txt").exists():
        rows = [f"{month} {month * (month + 1) // 2}" for month in range(1, 13)]
        assert (tmp_path / "history.txt").read_text().splitlines() == rows
    else:
        assert (tmp_path / "residual.txt").read_text() == "1\n", "100000 / 3^10 is the first below 5"


def test_there_are_two_examples_of_segments() -> None:
    """Else the test before this one would have nothing to run."""
    assert len(SEGMENTS) == 2 and all("safepoint run --until" in each and "SAFEPOINT_STEP" in each for each in SEGMENTS)
