"""`safepoint run`: programs that know nothing of the library, killed as a whole, in part, and with their protector.

The solvers here rewrite their files in place, as such programs do: a shell script whose every file is written by a
process of its own, a C program, and one that rewrites a directory of ten files.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import BinaryIO

import pytest
from testbed.commands import cli
from testbed.protected import command_of, compiled, given_back, kill, ran, run, saved, sets, shell
from testbed.sweep import some_of
from testbed.waiting import wait_for

from safepoint import Session
from safepoint.disk import Disk
from safepoint.run import exits, processes

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="needs Linux: inotify, /proc and the process connector"),
    pytest.mark.timeout(300),
]


THREADS = """
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>
static void *write_half(void *none) {
    FILE *file = fopen("a.txt", "w");
    fputs("half", file);
    fflush(file);
    sleep(60);
    return none;
}
int main(void) {
    pthread_t thread;
    pthread_create(&thread, NULL, write_half, NULL);
    pthread_exit(NULL);
}
"""


@pytest.fixture(autouse=True)
def one_file(tmp_path: Path) -> None:
    """The manifest of most tests; the others write one of their own."""
    (tmp_path / ".safepoint").write_text("a.txt\n")


def told(said: str) -> tuple[int, int, int]:
    """How many complete sets a run says that it has seen, taken and missed; at its end, once."""
    (found,) = re.findall(r"^safepoint: of (\d+) complete sets seen, (\d+) taken and (\d+) missed", said, re.M)
    return tuple(int(number) for number in found)  # type: ignore[return-value]


def family_of(work: Path) -> processes.Family:
    """As `safepoint run` has one; but this process adopts no orphans, as those of other tests would stay zombies."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(processes, "adopt_orphans", lambda: None)
        return processes.Family(str(work))


def test_a_segment_that_could_not_be_saved_is_run_again(tmp_path: Path) -> None:
    side = tmp_path / ".safepoint.d/rank-00000"
    (tmp_path / "block").write_text(
        f"for n in 1 2 3 4; do [ -e {side}/set-0000000$n/record.json ] || {{ rm -rf {side}/set-0000000$n; "
        f"echo in the way > {side}/set-0000000$n; }}; done\n"
    )
    segment = "k=0; [ -f a.txt ] && read k < a.txt; echo $((k + 1)) > a.txt; echo x >> pieces; [ -e go ] || sh block"
    said = ran(tmp_path, "--until", "2", "--", *shell(segment), status=16)
    assert "NOT SAVED" in said and (tmp_path / "pieces").read_text() == "x\n"


@pytest.mark.parametrize("renamed", [False, True])
def test_a_directory_made_later_or_anew_is_watched(tmp_path: Path, renamed: bool) -> None:
    (tmp_path / ".safepoint").write_text("out/ copy\nlast.txt mark\nkeep = all\n")
    until = "until [ -e .safepoint.d/rank-00000/set-0000000$k/record.json ]"  # the first one may come too soon
    put = f"{until}; do echo $k > out/a; echo $k > out/b; echo $k > last.txt; sleep 0.1; done"
    solver = shell(
        f"mkdir out; for k in 1 2; do {put}; done",
        "mv out out.bak; mkdir out" if renamed else ":",
        f"for k in 3 4; do {put}; done; echo 5 > out/a; sleep 0.3; exit 77",
    )
    ran(tmp_path, "--", *solver, status=77)
    step, _ = given_back(tmp_path)
    assert step and step >= 4
    texts = {(tmp_path / name).read_text() for name in ("out/a", "out/b", "last.txt")}
    assert texts in ({"3\n"}, {"4\n"})


def test_a_writer_that_fails_just_before_a_good_end_is_noticed(tmp_path: Path) -> None:
    (tmp_path / ".safepoint").write_text("a.txt\nb.txt\n")
    solver = shell(
        f"echo 1 > a.txt; echo 1 > b.txt; {saved(1)}", "sh -c 'exec > a.txt; printf to; exit 3'; echo 2 > b.txt; exit 0"
    )
    assert "not taken" in ran(tmp_path, "--", *solver)
    assert given_back(tmp_path) == (1, False) and (tmp_path / "a.txt").read_text() == "1\n"


def test_a_new_run_in_a_finished_directory_does_not_pass_its_torn_files_for_the_result(tmp_path: Path) -> None:
    ran(tmp_path, "--", *shell("echo 1 > a.txt"))
    (tmp_path / "a.txt").unlink()
    ran(tmp_path, "--again", "--", *shell("exec > a.txt; printf to; kill -9 $$"), status=137)
    assert given_back(tmp_path) == (None, False) and not (tmp_path / "a.txt").exists()


def test_half_a_snapshot_of_a_directory_is_not_completed_from_what_was_written_since(tmp_path: Path) -> None:
    """Killed in the snapshot, while what was stopped for it goes on: neither its time nor its inode would tell."""

    class Dies(Disk):
        def duplicate(self, source: BinaryIO, target: BinaryIO, *how: object, **more: object) -> bool:
            if source.name.endswith("out/b"):
                os._exit(9)
            return super().duplicate(source, target, *how, **more)  # type: ignore[arg-type]

    (tmp_path / ".safepoint").write_text("out/\n")
    (tmp_path / "out").mkdir()
    child = os.fork()
    if child == 0:
        with Session(tmp_path, in_place=True) as session:
            session.restore()
            for step in (1, 2):
                for name in "ab":
                    (tmp_path / "out" / name).write_text(f"{step}")
                if step == 2:
                    session._root.disk = Dies()
                session.hide(step, wait=True)
    os.waitpid(child, 0)  # this one: other tests may have left children of their own
    (tmp_path / "out/a").write_text("3")
    assert given_back(tmp_path) == (1, False)
    assert (tmp_path / "out/a").read_text() == (tmp_path / "out/b").read_text() == "1"


def test_a_process_whose_first_thread_has_ended_is_still_one(tmp_path: Path) -> None:
    """It is stopped for a look, and its death is noticed."""
    (tmp_path / ".safepoint").write_text("a.txt\nb.txt\n")
    solver = shell(
        "echo 1 > a.txt; echo 1 > b.txt; until [ -e go ]; do :; done",
        f"{compiled(THREADS)} & until read word < a.txt; [ $word = half ]; do :; done",
        "kill -9 $!; wait $!; echo 2 > b.txt; sleep 1.5; exit 77",
    )
    with run(tmp_path, "--", *solver) as program:
        wait_for(lambda: sets(tmp_path) == [1])
        (tmp_path / "go").touch()
        said = program.communicate(timeout=280)[1]
    assert "was killed by SIGKILL" in said
    assert given_back(tmp_path) == (1, False) and (tmp_path / "a.txt").read_text() == "1\n"


def test_a_kill_counts_though_it_is_read_when_the_first_thread_had_ended_and_all_are_gone(tmp_path: Path) -> None:
    """G1: the kernel tells that the first thread ended well, and then that the other one was killed."""
    family = family_of(tmp_path)
    if not family.told:
        pytest.skip("needs the process connector")
    script = f"until [ -e go ]; do :; done; exec {compiled(THREADS)}"
    command = subprocess.Popen(["sh", "-c", script], cwd=tmp_path, start_new_session=True)
    try:
        family.begin(command.pid)
        (tmp_path / "go").touch()
        wait_for(lambda: (tmp_path / "a.txt").exists() and (tmp_path / "a.txt").read_text())
        command.kill()
        command.wait()
        (trouble,) = family.troubles()  # once, however many threads it had
        assert trouble.endswith("was killed by SIGKILL")
    finally:
        family.close()


def test_where_the_kernel_does_not_tell_how_processes_end_every_end_is_a_bad_one(tmp_path: Path) -> None:
    """An older kernel, or a container: then only what the command writes by itself, without children, is taken."""
    (tmp_path / ".safepoint").write_text("a.txt\nb.txt\n")
    ran_with(UNTOLD, tmp_path, "--", sys.executable, "-c", ONE_BY_ONE)
    assert given_back(tmp_path) == (5, False)
    shutil.rmtree(tmp_path / ".safepoint.d")
    by_others = shell("for k in 4 5; do sleep 0.2; echo $k > a.txt; echo $k > b.txt; done", "exit 1")
    assert "this system does not tell how" in ran_with(UNTOLD, tmp_path, "--", *by_others).stderr
    assert sets(tmp_path) == [1], "what was there at the start"


def test_a_set_is_not_taken_while_one_of_its_files_is_open(tmp_path: Path) -> None:
    """All were closed once, and one is open again: the next iteration has begun."""
    (tmp_path / ".safepoint").write_text("a.txt\nb.txt\n")
    solver = shell("echo 1 > a.txt; exec 3> a.txt; echo half >&3; echo 1 > b.txt; sleep 0.5; kill -9 $$")
    ran(tmp_path, "--", *solver, status=137)
    assert sets(tmp_path) == [] and given_back(tmp_path) == (None, False)
    assert not (tmp_path / "a.txt").exists(), "torn first files are set aside"


def test_a_file_that_only_grows_by_one_line_and_is_the_mark_by_the_last_is_not_taken_open(tmp_path: Path) -> None:
    """Of several lines that mean a file the last decides; so it is not the log that may be open."""
    (tmp_path / ".safepoint").write_text("run*.csv append\nrun-state.csv mark\n")
    half = "exec 3> run-state.csv; exec 4> run-state.csv; exec 4>&-; echo ha >&3; sleep 0.6; exit 1"
    ran(tmp_path, "--", *shell(half), status=1)
    assert given_back(tmp_path) == (None, False) and not (tmp_path / "run-state.csv").exists()


def test_what_was_written_after_the_mark_belongs_to_the_next_set(tmp_path: Path) -> None:
    """It begins at once, so that hardly any look finds the moment between; what is found is never mixed."""
    (tmp_path / ".safepoint").write_text("*.dat\nlast.txt mark\n")
    solver = shell(
        f"echo 0 > a.dat; echo 0 > last.txt; {saved(1)}; echo 1 > a.dat",
        "for k in 1 2 3 4 5 6 7 8 9; do echo $k > last.txt; echo $((k + 1)) > a.dat; sleep 0.1; done; kill -9 $$",
    )
    ran(tmp_path, "--", *solver, status=137)
    assert given_back(tmp_path)[0] is not None
    assert (tmp_path / "a.dat").read_text() == (tmp_path / "last.txt").read_text()


def test_all_of_the_command_stand_still_for_the_look_and_go_on_after_it(tmp_path: Path) -> None:
    """Those in sessions of their own too, as mpiexec and timeout make them; and no other process."""
    (tmp_path / "look").write_text("for pid in $(cat pids) $PPID; do cut -d' ' -f3 /proc/$pid/stat; done > states\n")
    solver = shell(
        "setsid sh -c 'echo $$ >> pids; while :; do sleep 0.02; done' &",
        "(setsid sh -c 'echo $$ >> pids; exec sleep 9' &)",  # whose parent has ended
        f"echo $$ >> pids; until [ $(wc -l < pids) = 3 ]; do sleep 0.02; done; echo 1 > a.txt; {saved(1)}",
        "while cut -d' ' -f3 $(sed 's:.*:/proc/&/stat:' pids) | grep T; do sleep 0.02; done; touch after; kill 0",
    )
    with run(tmp_path, "--check", "sh look", "--", *solver) as program:
        wait_for((tmp_path / "after").exists)
        for pid in (tmp_path / "pids").read_text().split():
            kill(int(pid))
        program.communicate(timeout=280)
    *states, own = (tmp_path / "states").read_text().split()
    assert states == ["T", "T", "T"] and own != "T"


def test_the_user_can_say_what_is_whole(tmp_path: Path) -> None:
    solver = shell("for k in 1 2 3; do echo $k > a.txt; until [ -e looked$k ]; do sleep 0.02; done; done", "exit 1")
    said = ran(tmp_path, "--check", "touch looked$(cat a.txt); grep -q 2 a.txt", "--", *solver, status=1)
    assert "not taken: touch looked$(cat a.txt); grep -q 2 a.txt ended with status 1" in said
    given_back(tmp_path)
    assert (tmp_path / "a.txt").read_text() == "2\n"


def test_a_manifest_from_which_nobody_could_tell_when_a_set_is_complete_is_refused(tmp_path: Path) -> None:
    for manifest, why in (
        ("*.dat\n", r":1: \*\.dat can be any number of files.*attribute mark"),
        ("out/\n", r":1: out can be any number of files|:1: out/ can be any number of files"),
        ("u-{rank}.dat\n", r"does not know the ranks of the command"),
        ("log append\n", r"no file is rewritten for each set"),
        ("out/ copy mark\n", r":1: out/: a mark is a file, the one that is written last, such as out/done; .*--until"),
        ("a.txt\nout/ optional\n", r":2: out/ can be any number of files"),
        ("a.txt\nb.txt optional\n", r":2: b.txt may or may not be written.*attribute mark"),
    ):
        (tmp_path / ".safepoint").write_text(manifest)
        done = cli("run", "--dir", tmp_path, "--", "touch", tmp_path / "started")
        assert done.exit_code == 10 and re.search(why, done.stderr), (manifest, done.stderr)
        assert not (tmp_path / "started").exists()


def test_a_no_of_the_check_makes_no_file_suspect_that_is_written_only_once(tmp_path: Path) -> None:
    (tmp_path / ".safepoint").write_text("a.txt\nmesh.txt\ndone.txt mark\n")
    solver = shell(
        "echo mesh > mesh.txt; echo 1 > a.txt; echo > done.txt; until [ -e looked ]; do sleep 0.02; done",
        f"for k in 1 2; do echo $((k + 1)) > a.txt; echo > done.txt; {saved()}; done; exit 1",
    )
    ran(tmp_path, "--check", "touch looked; grep -q [23] a.txt", "--", *solver, status=1)
    assert given_back(tmp_path)[1] is False
    assert (tmp_path / "a.txt").read_text() == "3\n" and (tmp_path / "mesh.txt").read_text() == "mesh\n"


# Chances: complete sets that lie there for a while.
ONE_BY_ONE = (  # waits for each set, by itself
    "import glob, sys, time\n"
    "for k in range(1, 6):\n"
    "    for name in 'ab': open(name + '.txt', 'w').write(str(k))\n"
    "    end = time.monotonic() + 20\n"
    "    while not glob.glob(f'.safepoint.d/*/set-{k:08}/record.json'):\n"
    "        if time.monotonic() > end: sys.exit(7)\n"
    "        time.sleep(0.01)\n"
    "sys.exit(1)\n"
)


UNTOLD = "processes.Exits.open = classmethod(lambda cls: None)"


def ran_with(change: str, work: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """`safepoint run`, under circumstances that cannot be had at will."""
    modules = "import time\nfrom safepoint.cli.job import run as r\nfrom safepoint.run import processes, silence"
    code = f"{modules}\n{change}\nr.run()"
    words = [sys.executable, "-c", code, "--dir", str(work), *arguments]
    return subprocess.run(words, capture_output=True, text=True, timeout=280)


@pytest.mark.parametrize("untold", ["", UNTOLD], ids=["told", "not told"])
def test_sets_are_taken_however_long_it_takes_to_read_all_processes_of_the_machine(tmp_path: Path, untold: str) -> None:
    """With thousands of them it takes longer than all may be held at a time; only the command's own are looked at."""
    slow = "every = processes.every_process\nprocesses.every_process = lambda: (time.sleep(0.3), every())[1]"
    (tmp_path / ".safepoint").write_text("a.txt\nb.txt\nkeep = all\n")
    done = ran_with(f"{slow}\n{untold}", tmp_path, "--", sys.executable, "-c", ONE_BY_ONE)
    assert done.returncode == 1, done.stderr
    assert sets(tmp_path) == [1, 2, 3, 4, 5] and told(done.stderr) == (5, 5, 0)


def test_who_comes_to_a_stand_late_is_given_more_time_with_each_try(tmp_path: Path) -> None:
    """As on a busy machine, where who is stopped must first come to its turn: here after 0.15 s."""
    late = (
        "moves, since = processes.moves, {}\n"
        "def late(process):\n"
        "    if moves(process): since.pop(process.pid, None)\n"
        "    return time.monotonic() < since.setdefault(process.pid, time.monotonic()) + 0.15\n"
        "processes.moves = late"
    )
    (tmp_path / ".safepoint").write_text("a.txt\nb.txt\nkeep = all\n")
    done = ran_with(late, tmp_path, "--", sys.executable, "-c", ONE_BY_ONE)
    assert done.returncode == 1 and "did not stop" not in done.stderr, done.stderr
    assert sets(tmp_path) == [1, 2, 3, 4, 5]


def test_a_child_that_is_in_no_list_is_held_still_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel's list of children may leave one out when its brother ends just then; it writes on."""
    for open_exits in (exits.Exits.open, lambda: None):
        monkeypatch.setattr(exits.Exits, "open", open_exits)
        family = family_of(tmp_path)
        command = subprocess.Popen(
            ["sh", "-c", "sleep 60 & echo $!; wait"], start_new_session=True, stdout=subprocess.PIPE, text=True
        )
        family.begin(command.pid)
        assert command.stdout is not None
        child = int(command.stdout.readline())
        try:
            monkeypatch.setattr(family, "_children", lambda pid: [])
            assert family.stop() == ""
            states = [
                Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] for pid in (command.pid, child)
            ]
            assert states == ["T", "T"]
        finally:
            family.go()
            family.close()
            kill(child)
            command.communicate()


def test_at_the_end_it_is_told_how_many_sets_were_seen_taken_and_missed_and_why(tmp_path: Path) -> None:
    """Something touched right after the mark spoils each of these; it is named."""
    (tmp_path / ".safepoint").write_text("a.dat\nb.dat\nmark.txt mark\nhistory append\n")
    solver = (
        "import sys, time\n"
        "for k in range(20):\n"
        "    for name in ('a.dat', 'mark.txt', 'b.dat'): open(name, 'w').write(str(k))\n"
        "    time.sleep(0.05)\n"
        "open('mark.txt', 'w').write('end'); open('history', 'a').write('row'); time.sleep(1); sys.exit(1)\n"
    )
    said = ran(tmp_path, "--", sys.executable, "-c", solver, status=1)
    seen, taken, missed = told(said)
    assert seen == 21 and taken + missed == seen and taken == max(sets(tmp_path)), said
    assert re.search(r"missed: \d+ because b\.dat was touched before the look", said), said


def test_files_that_are_not_listed_and_change_all_the_same_are_named_once(tmp_path: Path) -> None:
    solver = f"for k in 1 2 3 4; do echo $k > state.txt; echo $k > a.txt; {saved()}; done"
    said = ran(tmp_path, "--", *shell(solver))
    assert said.count("not listed, and changed since the set before: state.txt. ") == 1, said
    shutil.rmtree(tmp_path / ".safepoint.d")
    (tmp_path / ".safepoint").write_text("state.txt\na.txt mark\n")
    assert "not listed" not in ran(tmp_path, "--", *shell(solver))


def test_sets_that_are_missed_one_after_the_other_are_told_of_while_it_runs(tmp_path: Path) -> None:
    late = (  # so that what comes right after the mark is there before each look, and not only before most of them
        "from safepoint.run.processes import Family\n"
        "stop = Family.stop\n"
        "Family.stop = lambda family: (time.sleep(0.02), stop(family))[1]\n"
    )
    (tmp_path / ".safepoint").write_text("a.dat\nmark.txt mark\n")
    solver = (
        "import time\n"
        "for k in range(30):\n"
        "    for name in ('mark.txt', 'a.dat'): open(name, 'w').write(str(k))\n"
        "    time.sleep(0.05)\n"
        "raise SystemExit(1)\n"
    )
    done = ran_with(f"{late}silence.NEVER_CLOSED_S = 0.5", tmp_path, "--", sys.executable, "-c", solver)
    assert re.search(r"no set for a while: of \d+ .* because a\.dat was touched", done.stderr), done.stderr


@pytest.mark.parametrize(
    ("solver", "why"),
    [
        # On a busy machine the last look may come too late, or in the middle of that write: then this is what is said.
        (
            "exec 3>> a.txt; echo 1 > a.txt; sleep 0.5; echo >&3; exit 1",
            "a.txt was open for writing|a.txt was written again before the look|the look before had come to nothing",
        ),
        ("sh -c 'exit 3'; echo 1 > a.txt; sleep 0.5; exit 1", r"a process \(sh\) ended with status 3"),
        ("mkdir a.txt.new; echo no > a.txt; sleep 0.5; exit 1", "of --check"),
    ],
)
def test_why_a_set_was_missed(tmp_path: Path, solver: str, why: str) -> None:
    said = ran(tmp_path, "--check", "[ ! -d a.txt.new ]", "--", *shell(solver), status=1)
    _, taken, missed = told(said)
    assert not taken and missed and re.search(f"because ({why})", said), said


def test_a_helper_that_ended_badly_is_named_when_it_is_gone(tmp_path: Path) -> None:
    """It had the name of the shell when it was born, and its shell has waited for it before anybody asks."""
    awk = shutil.which("awk")
    if awk is None:
        pytest.skip("needs awk")
    family = family_of(tmp_path)
    if not family.told:
        pytest.skip("needs the process connector")
    script = "awk 'BEGIN { system(\"touch begun; until [ -e go ]; do :; done\"); exit 3 }'; touch ended; sleep 60"
    command = subprocess.Popen(["sh", "-c", script], cwd=tmp_path, start_new_session=True)
    try:
        family.begin(command.pid)
        wait_for((tmp_path / "begun").exists)
        family.update()
        (tmp_path / "go").touch()
        wait_for((tmp_path / "ended").exists)
        name = Path(awk).resolve().name[:15]
        assert re.fullmatch(rf"process \d+ \(({name}|awk)\) ended with status 3", "; ".join(family.troubles()))
    finally:
        family.close()
        os.killpg(command.pid, signal.SIGKILL)
        command.wait()


def test_one_that_is_found_late_has_its_time_from_its_own_stop_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a daemon has started is found by reading all processes, which takes longer than the first tries have."""
    every = processes.every_process
    monkeypatch.setattr(exits.Exits, "open", lambda: None)
    family = family_of(tmp_path)
    command = subprocess.Popen(["sleep", "60"], start_new_session=True)
    daemon = subprocess.Popen(
        [sys.executable, "-c", f"import os, subprocess; os.environ['SAFEPOINT_RUN'] = {str(tmp_path)!r}\n"
         "child = subprocess.Popen(['sleep', '60'], start_new_session=True)\n"
         "print(child.pid, flush=True)\nchild.wait()"],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert daemon.stdout is not None
    child = int(daemon.stdout.readline())
    try:
        family.begin(command.pid)
        family._members = {command.pid}  # as if the other had come since
        monkeypatch.setattr(processes, "every_process", lambda: (time.sleep(0.5), every())[1])
        let_go: list[bool] = []
        monkeypatch.setattr(family, "go", lambda: let_go.append(True))
        assert family.stop() == "" and not let_go
        monkeypatch.undo()
        assert Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[0] == "T"
    finally:
        family.go()
        family.close()
        for process in (child, command.pid):
            kill(process)
        command.wait()
        daemon.communicate()


@pytest.mark.parametrize(
    ("until", "entry", "files", "hint"),
    [
        ([], "0.[0-9]*", "mkdir 0.1; echo > 0.1/u", r"0.[0-9]* (line 2; 0.1 is a directory: add a slash)"),
        (["--until", "1"], "0.[0-9]*/", "echo > 0.1", r"0.[0-9]*/ (line 2; 0.1 is a file: leave out the slash)"),
    ],
)
def test_a_glob_of_directories_without_a_slash_is_told_so(
    tmp_path: Path, until: list[str], entry: str, files: str, hint: str
) -> None:
    """As the time directories of a flow solver; to say that none is there would be no help."""
    (tmp_path / ".safepoint").write_text(f"mark.txt mark\n{entry}\n")
    command = shell(f"{files}; echo > mark.txt; sleep 0.3; exit 0")
    assert f"missing: {hint}, though mark.txt exists" in ran(tmp_path, *until, "--", *command, status=14)


# Starts, ends and restarts.
def test_a_start_from_the_initial_files_is_no_resume_however_often_it_is_made(tmp_path: Path) -> None:
    """Another program resumes, and would go on from what an older run had left here."""
    (tmp_path / "a.txt").write_text("of an older run\n")
    first = shell("echo first $SAFEPOINT_STEP $SAFEPOINT_SET >> told; kill -9 $$")
    for _ in range(2):
        ran(tmp_path, "--resume-command", "touch resumed", "--", *first, status=137)
    assert (tmp_path / "told").read_text() == "first\nfirst\n" and not (tmp_path / "resumed").exists()


def test_where_the_kernel_tells_nothing_a_good_end_of_the_command_itself_is_one(tmp_path: Path) -> None:
    done = ran_with(UNTOLD, tmp_path, "--", sys.executable, "-c", "open('a.txt', 'w').write('end')")
    assert done.returncode == 0, done.stderr
    assert given_back(tmp_path) == (1, True) and (tmp_path / "a.txt").read_text() == "end"


def test_who_saves_and_ends_at_a_user_signal_is_not_finished(tmp_path: Path) -> None:
    """As a scheduler asks for it before the time limit."""
    solver = shell("trap 'echo half > a.txt; exit 0' USR1", "touch ready", "while :; do sleep 0.05; done")
    with run(tmp_path, "--tolerate", "all", "--", *solver) as program:
        wait_for((tmp_path / "ready").exists)
        program.send_signal(signal.SIGUSR1)
        said = program.communicate(timeout=280)[1]
    assert program.returncode == 0 and "not marked as finished" in said
    assert given_back(tmp_path) == (1, False) and (tmp_path / "a.txt").read_text() == "half\n"


def test_what_is_said_is_said_once(tmp_path: Path) -> None:
    said = ran(tmp_path, "-v", "--", *shell("echo 1 > a.txt"))
    assert said.count("saved set 1") == 1


def test_signals_that_are_ignored_stay_so_in_the_command(tmp_path: Path) -> None:
    """nohup"""
    solver = shell("kill -HUP $$; kill -HUP $PPID; sleep 0.3; echo alive > a.txt")
    words = ["nohup", sys.executable, "-m", "safepoint", "run", "--dir", str(tmp_path), "--", *solver]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "a.txt").read_text() == "alive\n"


def test_what_a_daemon_started_for_the_command_stands_still_too_and_counts(tmp_path: Path) -> None:
    """As srun does on one host: the ranks are no children of it, but have its environment."""
    (tmp_path / "daemon.py").write_text(
        "import os, subprocess, sys, time\n"
        "while not os.path.exists('ask'): time.sleep(0.01)\n"
        "environment = dict(line.split('=', 1) for line in open('ask').read().split('\\0') if line)\n"
        'rank = \'import time; f = open("a.txt", "w"); f.write("torn"); f.flush(); time.sleep(60)\'\n'
        "rank = subprocess.Popen([sys.executable, '-c', rank], env=environment, start_new_session=True)\n"
        "while not (os.path.exists('a.txt') and open('a.txt').read()): time.sleep(0.01)\n"
        "rank.kill(); rank.wait(); open('ended', 'w')\n"
    )
    daemon = subprocess.Popen([sys.executable, "daemon.py"], cwd=tmp_path)
    try:
        ask = "cp /proc/$$/environ ask.new; mv ask.new ask"
        command = shell(ask, "while [ ! -f ended ]; do sleep 0.05; done; sleep 0.5; exit 1")
        said = ran(tmp_path, "--tolerate", "status", "--", *command, status=1)
    finally:
        assert daemon.wait(280) == 0
    assert "was killed by SIGKILL" in said
    assert sets(tmp_path) == []


def test_the_program_learns_of_a_resume_and_another_command_may_resume(tmp_path: Path) -> None:
    (tmp_path / "first").write_text(f'echo "first $SAFEPOINT_STEP" > a.txt; {saved(1)}; exit 4\n')
    (tmp_path / "again").write_text('echo "again $SAFEPOINT_STEP $SAFEPOINT_SET $(cat a.txt)" > told; exit 0\n')
    ran(tmp_path, "--resume-command", "sh again", "--", "sh", "first", status=4)
    ran(tmp_path, "--resume-command", "sh again", "--", "sh", "first")
    assert (tmp_path / "told").read_text() == "again 1 1 first \n"


@pytest.mark.parametrize("until", some_of(["3", "enough", "grep -q 3 a.txt"], 1))
def test_a_program_that_runs_in_pieces_is_run_until_it_is_done(tmp_path: Path, until: str) -> None:
    """Killed in the third piece, it begins that piece again; a file that it never closes is whole at the end."""
    solver = shell(
        "k=0; [ -f a.txt ] && read k < a.txt; k=$((k + 1)); echo $k >> pieces",
        "echo torn > a.txt; [ $(grep -c 3 pieces) = 1 ] && echo 3 >> pieces && kill -9 $$",
        "exec 3> a.txt; echo $k >&3; [ $k = 3 ] && touch enough; exit 0",
    )
    ran(tmp_path, "--until", until, "--", *solver, status=137)
    assert given_back(tmp_path) == (2, False)
    ran(tmp_path, "--until", until, "--", *solver)
    assert given_back(tmp_path) == (3, True) and (tmp_path / "a.txt").read_text() == "3\n"


def test_what_a_segment_has_left_behind_is_no_bad_death_of_the_next(tmp_path: Path) -> None:
    """It is waited for, and whole segments are kept; nobody has waited for it when the next one begins."""
    (tmp_path / ".safepoint").write_text("f\n")
    said = ran(tmp_path, "--until", 8, "--", *shell("(sleep 0.1 &); echo $SAFEPOINT_STEP > f"))
    assert given_back(tmp_path) == (8, True) and "not taken" not in said


@pytest.mark.parametrize("the_kernel_tells", [True, False])
@pytest.mark.parametrize("watched", [True, False])
def test_who_had_ended_before_a_command_began_is_none_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, the_kernel_tells: bool, watched: bool
) -> None:
    """Left over by another life, or by what `--until` had started; a zombie, until somebody waits for it."""
    if not the_kernel_tells:
        monkeypatch.setattr(exits.Exits, "open", classmethod(lambda cls: None))
    before = subprocess.Popen(["false"], start_new_session=True)
    wait_for(lambda: Path(f"/proc/{before.pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z")
    family = family_of(tmp_path)
    command = subprocess.Popen(["sleep", "60"], start_new_session=True)
    try:
        family.begin(command.pid)
        if watched:
            assert family.stop() == ""
            assert [process.pid for process in family.living()] == [command.pid]
        before.wait()
        assert family.troubles() == []
    finally:
        family.close()
        command.kill()
        command.wait()


def test_what_a_check_has_left_behind_is_no_bad_death_of_the_command(tmp_path: Path) -> None:
    (tmp_path / "check").write_text(
        "next=.safepoint.d/rank-00000/set-0000000$((SAFEPOINT_STEP + 1))/record.json\n"
        "(until [ -e $next ] || [ -e stop ]; do sleep 0.05; done; exit 3) & :\n"
    )
    (tmp_path / ".safepoint").write_text("a.txt\nkeep = all\n")
    solver = shell(
        "for k in 1 2 3 4; do echo $k > a.txt; n=0",
        "until [ -e .safepoint.d/*/set-0000000$k/record.json ] || [ $n = 200 ]; do sleep 0.05; n=$((n + 1)); done",
        "sleep 0.4; done; touch stop; exit 1",
    )
    assert "not taken" not in ran(tmp_path, "--check", "sh check", "--", *solver, status=1)
    assert sets(tmp_path) == [1, 2, 3, 4]


def test_a_leftover_whose_first_thread_has_ended_is_waited_for(tmp_path: Path) -> None:
    """Its leader is a zombie, and another thread writes on."""
    program = compiled(THREADS.replace("sleep(60);", 'sleep(1); fputs(" and half", file); fclose(file);'))
    assert "not taken" not in ran(tmp_path, "--until", 1, "--", *shell(f"{program} & until [ -s a.txt ]; do :; done"))
    assert (tmp_path / "a.txt").read_text() == "half and half" and given_back(tmp_path) == (1, True)


def test_what_is_left_behind_is_told_to_end_too_and_named(tmp_path: Path) -> None:
    """Else a time limit finds the run still waiting. It might have written later: this segment is done again."""
    code = "from safepoint.cli.job import run as r; from safepoint.run import life; life.LEFT_BEHIND_S = 0.1; r.run()"
    segment = shell("setsid sleep 60 & echo 1 > a.txt")
    words = [sys.executable, "-c", code, "--dir", str(tmp_path), "--until", "3", "--", *segment]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as program:
        assert program.stderr is not None
        said = program.stderr.readline()
        assert re.search(r"what it left behind may still write, and is waited for: process \d+ \(sleep\)", said), said
        program.send_signal(signal.SIGTERM)
        said = program.communicate(timeout=280)[1]
    assert program.returncode == 1 and "(sleep) was killed by SIGTERM" in said
    assert sets(tmp_path) == []


def test_a_finished_run_is_not_started_again_unless_asked(tmp_path: Path) -> None:
    ran(tmp_path, "--", *shell("echo 1 > a.txt"))
    (tmp_path / "a.txt").write_text("looked at, and corrected by hand\n")
    said = ran(tmp_path, "--", *shell("echo 2 > a.txt"))
    assert "the run was finished at step 1" in said and "--again" in said
    assert (tmp_path / "a.txt").read_text() == "looked at, and corrected by hand\n"
    ran(tmp_path, "--again", "--", *shell("cat a.txt > before; echo 2 > a.txt"))
    assert (tmp_path / "before").read_text() == "looked at, and corrected by hand\n"


def test_initial_files_are_the_first_set(tmp_path: Path) -> None:
    """They are rewritten in place: killed in the first iteration, nothing else would be whole."""
    (tmp_path / "a.txt").write_text("initial\n")
    ran(tmp_path, "--", *shell("exec > a.txt; printf to; kill -9 $$"), status=137)
    assert given_back(tmp_path) == (0, False) and (tmp_path / "a.txt").read_text() == "initial\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1])
def test_signals_reach_the_command_and_its_status_is_ours(tmp_path: Path, number: int) -> None:
    """It may save what it has and end well: that is a set, but not the end of the run."""
    solver = shell(
        "trap 'echo saved > a.txt; exit 0' TERM INT", "trap 'echo told > a.txt; exit 5' USR1", "touch ready",
        "while :; do sleep 0.05; done",
    )  # fmt: skip
    with run(tmp_path, "--tolerate", "all", "--retries", 3, "--", *solver) as program:
        wait_for((tmp_path / "ready").exists)
        program.send_signal(number)
        if number == signal.SIGUSR1:
            wait_for(lambda: (tmp_path / "a.txt").exists() and command_of(program) is None)
            program.send_signal(signal.SIGTERM)  # it is about to be tried again
        said = program.communicate(timeout=280)[1]
    assert program.returncode == (5 if number == signal.SIGUSR1 else 0), said
    assert given_back(tmp_path)[1] is False
    if number != signal.SIGUSR1:
        assert (tmp_path / "a.txt").read_text() == "saved\n"


def test_who_was_asked_to_stop_may_have_stopped_between_two_files(tmp_path: Path) -> None:
    """Status 0 says that it stopped in order, not that what lies there is one set."""
    (tmp_path / ".safepoint").write_text("a.txt\nb.txt\n")
    solver = shell(
        "trap 'exit 0' TERM",
        f"echo 1 > a.txt; echo 1 > b.txt; {saved(1)}; echo 2 > a.txt; touch half; while :; do sleep 0.02; done",
    )
    with run(tmp_path, "--tolerate", "all", "--", *solver) as program:
        wait_for((tmp_path / "half").exists)
        program.send_signal(signal.SIGTERM)
        said = program.communicate(timeout=280)[1]
    assert program.returncode == 0 and "between two sets" in said
    assert given_back(tmp_path) == (1, False)
    assert (tmp_path / "a.txt").read_text() == (tmp_path / "b.txt").read_text() == "1\n"


def test_a_command_that_cannot_be_started_is_a_clear_error(tmp_path: Path) -> None:
    assert "cannot start no-such-program: No such file" in ran(tmp_path, "--", "no-such-program", status=10)


def test_a_save_that_fails_is_said_loudly_and_the_command_goes_on(tmp_path: Path) -> None:
    """G7: its computation may be worth more than what is lost if it is killed now; the set before is intact."""
    side = tmp_path / ".safepoint.d/rank-00000"
    solver = shell(
        f"echo 1 > a.txt; {saved(1)}",
        f"for n in 2 3 4; do rm -rf {side}/set-0000000$n; echo in the way > {side}/set-0000000$n; done",
        "echo 2 > a.txt; until [ -e go ]; do sleep 0.02; done; exit 1",
    )
    with run(tmp_path, "--", *solver) as program:
        assert program.stderr and any("NOT SAVED: set 2" in line for line in program.stderr)
        (tmp_path / "go").touch()
        program.communicate()
    assert program.returncode == 1
    for path in side.glob("set-*"):
        if path.is_file():
            path.unlink()
    assert given_back(tmp_path) == (1, False)


# A table that the command begins anew.
def kept_rows(work: Path) -> str:
    """The rows that the next start gives back, which are those of its mark."""
    with Session(work, in_place=True) as session:
        point = session.restore()
        session.close()
    assert point is not None
    last = int((work / "ckp").read_text())
    assert (work / "rows").read_text() == "".join(f"row {i}\n" for i in range(1, last + 1))
    return (work / "rows").read_text()


@pytest.mark.parametrize("anew", some_of(["mv rows rows~; : > rows", ": > rows", "head -n 1 rows > r; mv r rows"], 1))
def test_a_command_that_begins_its_table_anew_when_it_resumes_can_be_killed_there_again_and_again(
    tmp_path: Path, anew: str
) -> None:
    """G1, G2k: the rows of the set are nowhere else, and the command could have gone on alone."""
    (tmp_path / ".safepoint").write_text("ckp copy mark\nrows append\n")
    command = shell(
        f'if [ -n "$SAFEPOINT_STEP" ]; then cat rows ckp >> seen; {anew}; kill -9 $$; fi',
        "i=0; until [ -e .safepoint.d/rank-00000/set-00000002/record.json ]; do",
        "i=$((i + 1)); echo row $i >> rows; echo $i > ckp; sleep 0.05; done; kill -9 $$",
    )
    ran(tmp_path, "--", *command, status=137)
    for _ in range(2):
        ran(tmp_path, "--", *command, status=137)
    rows = kept_rows(tmp_path)
    assert (tmp_path / "seen").read_text() == 2 * (rows + (tmp_path / "ckp").read_text())


def test_a_segment_that_begins_its_table_anew_can_be_killed_there(tmp_path: Path) -> None:
    """G1, G2k: between two segments nothing is given back, and the set of the last one is all there is."""
    (tmp_path / ".safepoint").write_text("ckp copy\nrows append\n")
    segment = shell(
        'if [ -n "$SAFEPOINT_STEP" ]; then : > rows; kill -9 $$; fi', "echo row 1 >> rows; echo 1 > ckp"
    )  # fmt: skip
    for _ in range(3):
        ran(tmp_path, "--until", "3", "--", *segment, status=137)
    assert kept_rows(tmp_path) == "row 1\n"


@pytest.mark.parametrize("options", some_of([[], ["--until", "3"]], 1))
def test_a_command_that_begins_an_initial_table_anew_can_be_killed_there(tmp_path: Path, options: list[str]) -> None:
    """G1, G3: the set of what was there at the start is all there is."""
    (tmp_path / ".safepoint").write_text("ckp copy mark\nrows append\n")
    (tmp_path / "ckp").write_text("1\n")
    (tmp_path / "rows").write_text("row 1\n")
    for _ in range(2):
        ran(tmp_path, *options, "--", *shell(": > rows; kill -9 $$"), status=137)
    assert kept_rows(tmp_path) == "row 1\n"


SEGMENT = """
import os, sqlite3, sys
db = sqlite3.connect("a.db")
db.execute(f"PRAGMA journal_mode={sys.argv[1]}")
db.execute("CREATE TABLE IF NOT EXISTS t(step INTEGER)")
db.execute("PRAGMA cache_size=1")  # pages of a transaction go to the file before its end
db.execute("INSERT INTO t VALUES(1)")
db.commit()
if os.environ.get("DIE") == os.environ.get("SAFEPOINT_STEP", "0"):
    db.executemany("INSERT INTO t VALUES(?)", [(i,) for i in range(3000)])
    os.kill(os.getpid(), 9)
"""


@pytest.mark.parametrize("mode", ["WAL", pytest.param("DELETE", marks=pytest.mark.proof)])
def test_the_rows_of_a_killed_segment_are_not_in_the_database_that_comes_back(tmp_path: Path, mode: str) -> None:
    """With what explain proposes; which names what lies beside the database."""
    program = [sys.executable, "-c", SEGMENT, mode]
    ours = sys.executable, "-m", "safepoint", "run"
    proposed = subprocess.run([*ours, "--explain", "--", *program], cwd=tmp_path, capture_output=True)
    assert b"a.db is of SQLite: what lies beside it (a.db-journal" in proposed.stderr, proposed.stderr
    for left in tmp_path.glob("a.db*"):
        left.unlink()
    (tmp_path / ".safepoint").write_bytes(proposed.stdout)
    assert [line.split()[0] for line in proposed.stdout.decode().splitlines()[1:]] == ["a.db"]
    for die in ("2", ""):
        run = [*ours, "--until", "4", "--retries", "0", "--", *program]
        done = subprocess.run(run, cwd=tmp_path, env={**os.environ, "DIE": die}, capture_output=True, text=True)
        assert (done.returncode == 0) == (die == ""), done.stderr
    with sqlite3.connect(tmp_path / "a.db") as db:
        assert db.execute("SELECT count(*) FROM t").fetchone() == (4,)
    db.close()
