"""What an operator does with programs in C as with those in Python: look, halt, signal, compare, kill on purpose."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from testbed.commands import answer, cli
from testbed.foreign import MPICH, PATIENCE, environment, needs, program
from testbed.sweep import one_of
from testbed.waiting import wait_for

pytestmark = needs("cc")


@contextmanager
def running(work: Path, *options: str, manifest: str = "u.dat\n") -> Iterator[subprocess.Popen[str]]:
    """A program that asks in every step whether to save and whether to stop."""
    (work / ".safepoint").write_text(manifest)
    exe = program("stops.c")
    with subprocess.Popen(
        [str(exe), *options], cwd=work, env=environment(), stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout and process.stdout.readline().startswith("begin ")
            yield process
        finally:
            process.kill()


def ended(process: subprocess.Popen[str]) -> tuple[int, list[str]]:
    output = process.communicate(timeout=PATIENCE)[0]
    return process.returncode, output.split()


def events(work: Path) -> list[dict[str, object]]:
    log = work / ".safepoint.d/rank-00000/log.jsonl"
    lines = log.read_text().split("\n")[:-1] if log.exists() else []
    return [json.loads(line) for line in lines if line]


def test_status_names_the_program_and_halt_stops_it(tmp_path: Path) -> None:
    with running(tmp_path) as process:
        wait_for(
            lambda: cli("status", tmp_path).exit_code == 0
        )  # before the first set there is nothing to restart from
        owner = answer("status", tmp_path)["owner"]
        assert owner["pid"] == process.pid and "stops.c" in owner["command"], owner
        assert cli("halt", tmp_path).exit_code == 0
        status, words = ended(process)
    assert status == 79 and words[:2] == ["stopped", "79"], words
    assert answer("status", tmp_path)["owner"] is None


@pytest.mark.parametrize("signals", ["USR1", "SIGUSR1,TERM"])
def test_a_signal_stops_it_and_its_own_handler_is_called_too(signals: str, tmp_path: Path) -> None:
    """The helper has no handler of the program's, and gets no signal that is meant for it."""
    with running(tmp_path, f"signals={signals}") as process:
        os.kill(process.pid, signal.SIGUSR1)
        status, words = ended(process)
    assert status == 75 and words[:4] == ["stopped", "75", "own", "1"], words
    assert any("SIGUSR1 came" in str(event.get("why")) for event in events(tmp_path)), events(tmp_path)


def test_ctrl_c_once_stops_it_and_twice_ends_it(tmp_path: Path) -> None:
    with running(tmp_path, "signals=INT") as process:
        os.kill(process.pid, signal.SIGINT)
        assert ended(process)[0] == 75
    with running(tmp_path, "signals=INT inflight=off") as process:
        os.kill(process.pid, signal.SIGSTOP)  # so that both are there before it can stop
        os.kill(process.pid, signal.SIGINT)
        os.kill(process.pid, signal.SIGCONT)
        os.kill(process.pid, signal.SIGINT)
        assert ended(process)[0] in (-signal.SIGINT, 75)  # the kernel may have made one of the two


def test_a_time_limit_stops_it_and_the_next_start_goes_on(tmp_path: Path) -> None:
    with running(tmp_path, "stop_after=1s", manifest="u.dat\nevery = 50 steps\n") as process:
        status, words = ended(process)
    assert status == 75 and int(words[-1]) >= 1, words
    with running(tmp_path, "stop_after=1s") as process:
        assert ended(process)[0] == 75
    lives = [event for event in events(tmp_path) if event["event"] == "restored"]
    assert len(lives) == 1 and lives[0]["step"] is not None, lives


@pytest.mark.parametrize("ledger", ["modify", "full"])
def test_the_ledger_has_watched_arrays_and_where_the_calls_were(ledger: str, tmp_path: Path) -> None:
    """As of Python: digests by step, file and line of the program."""
    with running(tmp_path, manifest=f"u.dat\nledger = {ledger}\n") as process:
        wait_for(lambda: sum(event["event"] == "watch" for event in events(tmp_path)) >= 12)
        cli("halt", tmp_path)
        assert ended(process)[0] == 79
    watched = [event for event in events(tmp_path) if event["event"] == "watch"]
    assert len(watched) > 10
    assert all(str(event["at"]).partition(":")[0].endswith("stops.c") for event in watched), watched[0]
    kind, shape, _, *statistics = watched[0]["values"]["u"]  # type: ignore[index]
    assert kind == "float64" and shape == [4] and len(statistics) == (4 if ledger == "full" else 0)
    saved = [event for event in events(tmp_path) if event["event"] == "saved"]
    assert saved and all("stops.c:" in str(event["at"]) for event in saved), saved


@pytest.mark.proof
@pytest.mark.xdist_group("mpi-foreign")
@pytest.mark.skipif(not MPICH.there, reason="needs mpich")
@pytest.mark.parametrize("who", one_of([(), ("--one-rank",)]))
def test_crash_test_of_a_solver_in_c(who: tuple[str, ...], tmp_path: Path) -> None:
    """Killed and resumed it equals the undisturbed run, in every set, not only at its end."""
    command, before = MPICH.started(2, program("heat.c", MPICH), 4000), signal.getsignal(signal.SIGTERM)
    for seed in range(1, 6):  # its moments are those of a first run: where that was slow, a life may end before them
        (work := tmp_path / str(seed)).mkdir()
        (work / ".safepoint").write_text("heat-{rank}.dat\n")
        result = cli("crash-test", "--json", "--dir", work, "--kills", 3, "--seed", seed, *who, "--", *command)
        found = json.loads(result.stdout)
        assert result.exit_code == 0 and found["verdict"] == "equal", result.output
        if len(found["kills"]) == 3:
            break
    assert len(found["kills"]) == 3, result.output
    assert signal.getsignal(signal.SIGTERM) == before  # as whoever calls it in a process of their own expects


def test_the_report_of_a_solver_in_c(tmp_path: Path) -> None:
    with running(tmp_path, "stop_after=1s", manifest="u.dat\nevery = 20 steps\n") as process:
        ended(process)
    assert cli("report", tmp_path, "-o", tmp_path / "page.html").exit_code == 0
    assert "stops.c" in (tmp_path / "page.html").read_text() or (tmp_path / "page.html").stat().st_size > 5000


def test_its_sets_go_to_another_place_also_after_a_kill(tmp_path: Path) -> None:
    """The drain is started by its helper, and outlives both."""
    (work := tmp_path / "w").mkdir()
    with running(work, manifest="u.dat\nremote = ../place\n") as process:
        wait_for(lambda: list(tmp_path.glob("place/set-*/rank-00000.json")))
        process.kill()

    def all_are_there() -> bool:
        here = [each for each in answer("status", work)["sets"] if each["state"] in ("complete", "completable")]
        complete = [each["number"] for each in here if each["state"] == "complete"]
        there = answer("fetch", tmp_path / "place", "--list")["sets"]
        return here[-1]["state"] == "complete" and there[0]["number"] == max(complete)

    wait_for(all_are_there)
