"""`safepoint run` and real programs that are killed at random, or whose children outlive them: many seconds each."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from testbed.commands import cli
from testbed.jobs import mpiexec
from testbed.protected import (
    command_of,
    compiled,
    given_back,
    kill,
    killed_again_and_again,
    processes_of,
    ran,
    run,
    saved,
    sets,
    shell,
)  # fmt: skip
from testbed.sweep import LONG, some_of
from testbed.waiting import wait_for

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="needs Linux: inotify, /proc and the process connector"),
    pytest.mark.timeout(300),
]


@pytest.fixture(autouse=True)
def one_file(tmp_path: Path) -> None:
    """The manifest of most tests; the others write one of their own."""
    (tmp_path / ".safepoint").write_text("a.txt\n")


ROWS = 2000  # numbers in a file: enough for a kill to find it half written


KILLS = 50 if LONG else 6


SHELL = """
k=0
[ -f a.txt ] && read k < a.txt
while [ $k -lt $1 ]; do
    k=$((k + 1))
    sleep 0.01
    echo "$k" >> log.txt
    seq $k $((k + ROWS)) > a.txt
    seq $k $((k + ROWS)) > b.txt
done
""".replace("ROWS", str(ROWS))


C = """
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
static void put(const char *name, const char *how, int k, int rows) {
    FILE *file = fopen(name, how);
    for (int i = 0; i <= rows; i++) fprintf(file, "%d\\n", k + i);
    fclose(file);
}
int main(int argc, char **argv) {
    struct timespec pause = {0, 10000000};
    int k = 0;
    FILE *file = fopen("a.txt", "r");
    if (file) { if (fscanf(file, "%d", &k) != 1) return 9; fclose(file); }
    while (k < atoi(argv[1])) {
        k++;
        nanosleep(&pause, NULL);
        put("log.txt", "a", k, 0);
        put("a.txt", "w", k, ROWS);
        put("b.txt", "w", k, ROWS);
    }
    return 0;
}
""".replace("ROWS", str(ROWS))


DIRECTORY = """
k=0
[ -f out/9.txt ] && read k < out/9.txt
while [ $k -lt $1 ]; do
    k=$((k + 1))
    sleep 0.01
    mkdir -p out
    for i in 0 1 2 3 4 5 6 7 8 9; do seq $k $((k + ROWS / 8)) > out/$i.txt; done
    echo "$k" > done.txt
done
""".replace("ROWS", str(ROWS))


TWO = "a.txt\nb.txt\nlog.txt append\n"


# Random kills.
def two_files(work: Path) -> None:
    if not (work / "a.txt").exists():
        assert not (work / "b.txt").exists()
        return
    a, b = ((work / name).read_text().split() for name in ("a.txt", "b.txt"))
    step = int(a[0])
    assert a == b == [str(step + i) for i in range(ROWS + 1)]
    log = (work / "log.txt").read_text().split()
    assert log[:step] == [str(k) for k in range(1, step + 1)]
    assert len(log) <= step + 1, "a row of the iteration that had begun, at most"


def directory(work: Path) -> None:
    if (work / "done.txt").exists():
        step = int((work / "done.txt").read_text())
        assert len(list((work / "out").iterdir())) == 10
        for path in (work / "out").iterdir():
            assert path.read_text().split() == [str(step + i) for i in range(ROWS // 8 + 1)], path


@pytest.mark.parametrize("language", some_of(["shell", "C", "directory"], 1, 1))
def test_a_program_that_nobody_may_change_is_killed_at_random_and_always_goes_on_from_a_whole_set(
    tmp_path: Path, language: str
) -> None:
    """G1, G3, and the end is reached: of the solver, of one process of it, of everything with its protector."""
    work = tmp_path / "work"
    work.mkdir()
    command = ["sh", str(tmp_path / "solver")]
    if language == "C":
        command = [str(compiled(C))]
    else:
        (tmp_path / "solver").write_text(SHELL if language == "shell" else DIRECTORY)
    (work / ".safepoint").write_text(TWO if language != "directory" else "out/ copy\ndone.txt mark\n")
    whole, last = (directory, "done.txt") if language == "directory" else (two_files, "a.txt")
    hit = killed_again_and_again(work, command, whole, KILLS, 40 + 10 * KILLS, last)
    print(f"{language}: {hit} kills")


def test_a_file_that_is_never_closed_is_never_saved_torn_and_that_is_said(tmp_path: Path) -> None:
    (tmp_path / ".safepoint").write_text("a.db\n")
    code = (
        "from safepoint.run import silence; silence.NEVER_CLOSED_S = 0.5\nfrom safepoint.cli.job.run import run; run()"
    )
    solver = (
        "import os, time\nfile = open('a.db', 'w')\nfor k in range(30):\n    file.seek(0); file.write(str(k))\n"
        "    file.flush(); time.sleep(0.1)\nos._exit(1)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "--dir", tmp_path, "--", sys.executable, "-c", solver],
        capture_output=True, text=True,
    )  # fmt: skip
    assert "a.db is never closed, but held open for writing by descriptor" in done.stderr, done.stderr
    assert "--until" in done.stderr and sets(tmp_path) == []


def test_a_parent_in_vfork_is_let_go_until_its_child_has_begun(tmp_path: Path) -> None:
    """It waits for the child, which stands still: without a pause no set could be taken."""
    program = compiled(
        "#include <stdio.h>\n#include <unistd.h>\n#include <fcntl.h>\n"
        'int main(void) {\n    FILE *file = fopen("a.txt", "w");\n    fputs("1", file);\n    fclose(file);\n'
        "    if (vfork() == 0) { for (int i = 0; i < 300; i++) usleep(1000); _exit(0); }\n"
        "    sleep(2);\n    return 1;\n}\n"
    )
    ran(tmp_path, "--", program, status=1)
    assert sets(tmp_path) == [1]


def test_no_command_touches_what_an_heir_of_a_killed_run_may_still_write(tmp_path: Path) -> None:
    ran(tmp_path, "--", *shell(f"echo 1 > a.txt; {saved(1)}; exit 1"), status=1)
    heir = subprocess.Popen(["sleep", "600"], env={**os.environ, "SAFEPOINT_RUN": os.path.realpath(tmp_path)})
    try:
        for command in (("restore", "-y"), ("finish",), ("hide",), ("clean", "-y")):
            done = cli(*command, tmp_path)
            assert done.exit_code == 13 and f"process {heir.pid} (sleep)" in done.stderr, (command, done)
    finally:
        heir.kill()
        heir.wait()


@contextlib.contextmanager
def an_heir_of_a_killed_run(work: Path) -> Iterator[int]:
    """A process that a run had started, and that has closed the lock, as what Python's subprocess starts by default."""
    code = (
        "import subprocess; subprocess.run(['sh', '-c', 'echo $$ > orphan; touch ready; while :; do sleep 0.1; done'])"
    )
    program = run(work, "--", sys.executable, "-c", code)
    wait_for((work / "ready").exists)
    orphan = int((work / "orphan").read_text())
    try:
        kill(program.pid)
        program.wait()
        yield orphan
    finally:
        kill(orphan)
        program.communicate()


def test_an_heir_that_has_closed_the_lock_is_found_all_the_same(tmp_path: Path) -> None:
    with an_heir_of_a_killed_run(tmp_path) as orphan:
        said = ran(tmp_path, "--", "touch", "started", status=13)
        assert f"process {orphan} (sh)" in said and not (tmp_path / "started").exists()


def test_a_second_run_waits_for_an_heir_that_is_ending(tmp_path: Path) -> None:
    """As what the first one had started needs a moment to end when it is killed."""
    with an_heir_of_a_killed_run(tmp_path) as orphan:
        with run(tmp_path, "--", *shell("echo 1 > a.txt")) as second:
            assert second.stderr
            said = second.stderr.readline()
            assert "waiting up to 10 s for" in said and f"process {orphan} (sh)" in said, said
            kill(orphan)
            said = second.communicate(timeout=280)[1]
        assert second.returncode == 0, said


def test_while_anything_of_a_command_is_alive_a_second_run_is_refused(tmp_path: Path) -> None:
    """Our own death kills the first process of the command; what else it had started keeps the lock."""
    program = run(tmp_path, "--", *shell("setsid sleep 60 & echo $! > orphan; touch ready; wait"))
    wait_for((tmp_path / "ready").exists)
    leader = command_of(program)
    orphan = int((tmp_path / "orphan").read_text())
    try:
        kill(program.pid)
        program.wait()  # what it said is still open in the orphan
        assert leader is not None
        wait_for(lambda: not Path(f"/proc/{leader}").exists() or leader not in processes_of(leader))
        said = ran(tmp_path, "--", "true", status=13)
        assert f"process {program.pid}" in said and "which is gone, but what it had started is not" in said, said
        assert f"process {orphan} (sleep)" in said
    finally:
        kill(orphan)
        program.communicate()
    wait_for(lambda: not Path(f"/proc/{orphan}").exists())
    ran(tmp_path, "--", *shell("echo 1 > a.txt"))


def test_under_mpiexec_all_ranks_stand_still_for_a_look(tmp_path: Path) -> None:
    """mpiexec makes process groups of its own; a killed rank is noticed all the same."""
    (tmp_path / ".safepoint").write_text("part-*.txt\nlast.txt mark\n")
    (tmp_path / "solver.py").write_text(
        "import time\nfrom mpi4py import MPI\ncomm = MPI.COMM_WORLD\n"
        "for k in range(1, 200):\n"
        "    open(f'part-{comm.rank}.txt', 'w').write(f'{k} ' * 1000)\n    comm.Barrier()\n"
        "    if comm.rank == 0: open('last.txt', 'w').write(str(k))\n    comm.Barrier(); time.sleep(0.05)\n"
    )
    with run(tmp_path, "--", *mpiexec(2, tmp_path / "solver.py")) as program:
        wait_for(lambda: len(sets(tmp_path)) == 2)
        leader = command_of(program)
        assert leader is not None
        ranks = subprocess.run(["pgrep", "-f", f"{tmp_path}/solver.py"], capture_output=True, text=True).stdout.split()
        own = [int(pid) for pid in ranks if int(pid) not in (program.pid, leader)]
        kill(own[-1])
        program.communicate(timeout=280)
    assert program.returncode != 0
    step, _ = given_back(tmp_path)
    texts = {path.read_text() for path in tmp_path.glob("part-*.txt")}
    assert step and len(texts) == 1, "one step, on all ranks"
    assert texts == {f"{(tmp_path / 'last.txt').read_text()} " * 1000}


# What a death may have torn.
def solver_with(torn: str) -> list[str]:
    """Three good iterations; in the fourth the writer of a.txt does `torn`, and the script goes on."""
    return shell(
        "for k in 1 2 3 4; do",
        f'    if [ $k = 4 ]; then sh -c "{torn}"; else echo $k whole > a.txt; fi',
        f"    echo $k whole > b.txt; [ $k = 4 ] || {saved()}",
        "done",
        saved(4) if torn.endswith("whole > a.txt") else "sleep 0.5",
        "exit 1",  # the end is not taken, so that only what was seen on the way counts
    )


@pytest.mark.parametrize(
    ("torn", "taken"),
    [
        ("echo 4 whole > a.txt", 4),
        ("exec > a.txt; printf 'to'; kill -9 \\$\\$", 3),
        ("exec > a.txt; printf 'to'; exit 3", 3),
    ],
    ids=["whole", "killed", "failed"],
)
def test_what_a_dying_process_closed_is_not_taken(tmp_path: Path, torn: str, taken: int) -> None:
    """A killed writer closes its file too, and the script around it may not even look."""
    (tmp_path / ".safepoint").write_text("a.txt\nb.txt\n")
    said = ran(tmp_path, "--", *solver_with(torn), status=1)
    assert ("not taken, as it may be torn" in said) == (taken == 3), said
    assert given_back(tmp_path) == (taken, False)
    assert (tmp_path / "a.txt").read_text() == (tmp_path / "b.txt").read_text() == f"{taken} whole\n"


@pytest.mark.parametrize("manifest", ["a.txt\nb.txt\n", "a.txt\nb.txt\nlast.txt mark\n"], ids=["counted", "marked"])
def test_a_good_end_does_not_make_good_what_was_torn_on_the_way(tmp_path: Path, manifest: str) -> None:
    """A look had noticed it, and the script, which did not, ends with status 0, without having written a.txt anew."""
    (tmp_path / ".safepoint").write_text(manifest)
    put = "{ echo $k > a.txt; echo $k > b.txt; echo $k > last.txt; }"
    solver = shell(
        f"for k in 1 2; do {put}; {saved()}; done",
        "sh -c 'exec > a.txt; printf to; kill -9 $$'; echo 3 > b.txt; echo 3 > last.txt; sleep 0.5",
        "echo 4 > b.txt; echo 4 > last.txt; sleep 0.5; exit 0",
    )
    said = ran(tmp_path, "--", *solver)
    assert "the last files are not taken" in said, said
    assert given_back(tmp_path) == (2, False)
    assert (tmp_path / "a.txt").read_text() == (tmp_path / "b.txt").read_text() == "2\n"


NEVER_MIXED = {  # scripts that are not as the rules ask, or in which something died: no set, or a whole one
    "a writer was killed before it began": "for k in 1 2 3 4 5; do sleep 0.15; if [ $k = 3 ]; "
    "then sh -c 'kill -9 $$'; else echo $k > a.txt; fi; echo $k > b.txt; done",
    "one file is written twice": "for k in 1 2 3; do echo $k > a.txt; echo $k > b.txt; sleep 0.15; "
    "echo $k > b.txt; done; echo 4 > a.txt; sleep 0.6",
    "in another order": "for k in 1 2 3; do echo $k > b.txt; echo $k > a.txt; sleep 0.15; "
    "done; echo 4 > b.txt; sleep 0.6",
    "a file is away for a while": "echo 1 > a.txt; echo 1 > b.txt; rm a.txt; sleep 0.6; echo 2 > a.txt; "
    "echo 2 > b.txt; sleep 0.6; echo 3 > a.txt; sleep 0.6",
    "a link comes into place": "echo 1 > a.txt; echo 1 > b.txt; sleep 0.6; ln -s b.txt t; mv t a.txt; echo 2 > b.txt; "
    "sleep 0.6; rm a.txt; echo 2 > a.txt; echo 3 > a.txt; sleep 0.6",
    "a pipe goes on after its source was killed": "echo 1 > a.txt; echo 1 > b.txt; sleep 0.6; "
    "sh -c 'echo half; sleep 0.6; kill -9 $$' | { cat; sleep 0.5; } > a.txt; echo 2 > b.txt; sleep 0.6",
}


@pytest.mark.parametrize("case", NEVER_MIXED)
def test_whatever_a_script_does_no_mixed_set_is_given_back_and_the_script_is_left_alone(
    tmp_path: Path, case: str
) -> None:
    (tmp_path / ".safepoint").write_text("a.txt\nb.txt\n")
    ran(tmp_path, "--", *shell(NEVER_MIXED[case], "exit 77"), status=77)
    step, _ = given_back(tmp_path)
    if step is not None:
        assert (tmp_path / "a.txt").read_text() == (tmp_path / "b.txt").read_text() != "half\n"


def test_a_failed_command_is_started_again_from_the_last_set(tmp_path: Path) -> None:
    solver = shell(
        f"k=0; [ -f a.txt ] && read k < a.txt; k=$((k + 1)); echo $k > a.txt; {saved()}; [ $k -ge 3 ] && exit 0",
        "echo torn > a.txt; kill -9 $$",
    )
    said = ran(tmp_path, "--retries", 5, "--", *solver)
    assert said.count("the command ended with status 137; try 1 of 5 in 1 s") == 2
    assert given_back(tmp_path) == (3, True) and (tmp_path / "a.txt").read_text() == "3\n"


def test_a_set_from_which_the_command_fails_at_once_is_put_aside_after_three_times(tmp_path: Path) -> None:
    """The same bad set restored for ever would be a crash loop; each try may be a job of its own."""
    ran(tmp_path, "--", *shell(f"echo good > a.txt; {saved(1)}; echo bad > a.txt; {saved(2)}; exit 1"), status=1)
    assert sets(tmp_path) == [1, 2]
    solver = shell("read what < a.txt; [ $what = good ] || exit 7; echo done > a.txt")
    for _ in range(3):
        ran(tmp_path, "--", *solver, status=7)
    said = ran(tmp_path, "--", *solver)
    assert "failed at once 3 times in a row: it is put aside" in said and "failed-00000002" in said
    assert (tmp_path / "a.txt").read_text() == "done\n"


def test_the_set_before_one_that_is_put_aside_has_its_rows_though_the_table_was_begun_anew(tmp_path: Path) -> None:
    """G6: the only copy of them is with the set that was put aside."""
    (tmp_path / ".safepoint").write_text("rows append\na.txt mark\n")
    put = "echo $k >> rows; echo $k > a.txt"
    ran(tmp_path, "--", *shell(f"k=good; {put}; {saved(1)}; k=bad; {put}; {saved(2)}; exit 1"), status=1)
    assert sets(tmp_path) == [1, 2]
    solver = shell("cp rows seen; : > rows; read what < a.txt; [ $what = good ] || exit 7; exit 3")
    for _ in range(3):
        ran(tmp_path, "--", *solver, status=7)
    said = ran(tmp_path, "--", *solver, status=3)
    assert "it is put aside" in said and (tmp_path / "seen").read_text() == "good\n"
    ran(tmp_path, "--", *solver, status=3)
    assert (tmp_path / "seen").read_text() == "good\n"
