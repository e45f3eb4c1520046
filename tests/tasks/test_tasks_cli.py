"""`safepoint tasks`: a graph from its text is run, looked at, corrected and run again."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from testbed.commands import answer, cli, process
from testbed.paths import HOUSE

from safepoint.tasks.running import tasks_directory
from safepoint.tasks.saved import Store

CODE = '''
"""Functions of a graph that a test runs."""
import numpy as np
from safepoint.tasks import scratch

def read(n):
    return {"header": f"{n} values", "image": np.arange(n, dtype=float)}

def denoise(image, level):
    if level < 0:
        raise ValueError("negative variance")
    return image * level

def stack(images):
    return float(sum(image.sum() for image in images))

def report(total, words):
    path = scratch() / "report.txt"
    path.write_text(f"{words}: {total}")
    return path
'''
TEXT = """
graph = "sky"
code = "sky.py"
[read]
run = "read"
with = { n = 5 }
[clean]
run = "denoise"
with = { level = -1 }
in = { image = "read.image" }
retries = 1
[other]
run = "denoise"
with = { level = 2 }
in = { image = "read.image" }
[stack]
run = "stack"
in = { images = ["clean", "other"] }
[report]
run = "report"
with = { words = "sum" }
in = { total = "stack" }
"""


def safepoint(where: Path, *arguments: object) -> Result:
    """A command in this process, as one that has just begun in that directory: it has loaded no function of a graph."""
    before, ways, sys.dont_write_bytecode = os.getcwd(), list(sys.path), True
    os.chdir(where)
    try:
        return cli(*arguments)
    finally:
        os.chdir(before)
        sys.path[:], sys.dont_write_bytecode = ways, False
        sys.modules.pop("sky", None)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A directory in which the graph ran, by a process of its own, and one vertex failed; with what was said."""
    where = tmp_path_factory.mktemp("sky")
    (where / "sky.py").write_text(CODE)
    (where / "sky.toml").write_text(TEXT)
    done = process("tasks", "run", "sky.toml", "--workers", 2, cwd=where)
    assert done.returncode == 22, done.stderr
    return where, done.stdout + done.stderr


@pytest.fixture
def sky(made: tuple[Path, str], tmp_path: Path) -> Path:
    """A copy of it that a test may change."""
    return Path(shutil.copytree(made[0], tmp_path / "sky"))


@pytest.fixture(scope="module")
def mended(made: tuple[Path, str], tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The same after the graph was corrected and ran again."""
    where = Path(shutil.copytree(made[0], tmp_path_factory.mktemp("mended") / "sky"))
    return where, corrected(where).stdout


@pytest.fixture
def whole(mended: tuple[Path, str], tmp_path: Path) -> Path:
    return Path(shutil.copytree(mended[0], tmp_path / "whole"))


def changed(path: Path, before: str, after: str) -> None:
    text = path.read_text()
    assert before in text
    path.write_text(text.replace(before, after))


def corrected(sky: Path) -> Result:
    changed(sky / "sky.toml", "level = -1", "level = 3")
    done = safepoint(sky, "tasks", "run", "sky.toml", "--workers", 1)
    assert done.exit_code == 0, done.output
    return done


def test_a_run_says_what_is_there_what_failed_and_that_the_rest_stays(made: tuple[Path, str]) -> None:
    said = made[1]
    assert "graph sky: 5 vertices, 5 edges; 0 finished before, 5 to run; 2 workers\n" in said
    attempts = re.findall(
        r"clean failed \(pid \d+, \S+\): ValueError: negative variance  sky\.py:11 in denoise  (\d) of 2 attempts", said
    )
    assert attempts == ["1", "2"]
    assert "safepoint: 1 of 5 vertices failed, 2 not run that need them: clean: ValueError: negative variance" in said
    assert "2 are finished and stay: correct it and start again" in said and "Traceback" not in said


def test_what_was_corrected_runs_and_what_had_finished_stays(mended: tuple[Path, str]) -> None:
    where, said = mended
    assert "2 finished before, 3 to run; 1 worker\n" in said and "5 of 5 finished, 2 of them before; " in said
    assert safepoint(where, "tasks", "run", "sky.toml").stdout.splitlines() == [
        "graph sky: 5 vertices, 5 edges; 5 finished before, 0 to run", "all 5 had finished before",
    ]  # fmt: skip
    assert cli("tasks", "get", "stack", "-C", where).output == "50.0\n"


def test_show_tells_state_seconds_bytes_worker_and_attempts(sky: Path) -> None:
    lines = cli("tasks", "show", "-C", sky).output.splitlines()
    assert lines[0].split() == ["vertex", "state", "time", "bytes", "worker", "attempts"]
    rows = {line.split()[0]: line for line in lines[1:6]}
    assert list(rows) == ["read", "clean", "other", "stack", "report"]
    assert re.fullmatch(r"read +finished +\d\S* [µm]?s +\d+ B +pid \d+, \S+ +1", rows["read"])
    assert re.fullmatch(r"clean +failed +pid \d+ +2", rows["clean"])
    assert "skipped (needs clean)" in rows["stack"]
    assert lines[6] == "5 vertices: 2 finished, 2 skipped, 1 failed"
    assert len(cli("tasks", "show", "-C", sky, "--state", "failed").output.splitlines()) == 3


def test_show_as_json_has_the_same_and_where_it_failed(sky: Path) -> None:
    found = answer("tasks", "show", "-C", sky)
    by_name = {vertex["name"]: vertex for vertex in found["vertices"]}
    assert found["graph"] == "sky" and found["running"] is False and found["unused"] == 0
    assert by_name["read"]["outputs"] == ["header", "image"] and by_name["read"]["state"] == "finished"
    assert by_name["clean"]["error"] == "ValueError: negative variance"
    assert by_name["clean"]["where"] == "sky.py:11 in denoise" and by_name["report"]["needs"] == "clean"


def test_why_tells_what_changed_what_failed_and_what_was_forgotten(sky: Path) -> None:
    def why(name: str, *more: object) -> str:
        return " ".join(cli("tasks", "why", name, "-C", sky, *more).output.split())

    assert "clean failed at its last run: ValueError: negative variance, sky.py:11 in denoise" in why("clean")
    assert "raise ValueError" in why("clean")
    assert why("stack") == "stack was not run: it needs clean, which failed"
    assert "other has finished and would not run again: made 20" in why("other") and "with python 3." in why("other")
    code = (sky / "sky.py").read_text()
    (sky / "sky.py").write_text(code.replace("image * level", "image * level + 0"))
    assert why("other").startswith("other would run again: its function changed since (sky.py:9) its last result: made")
    assert why("clean").endswith("but its function has changed since (sky.py:9)")
    (sky / "sky.py").write_text(code)
    assert cli("tasks", "forget", "other", "-C", sky).output == "forgot 1 vertex: other\n"
    assert why("other") == "other would run again: forgotten"
    assert cli("tasks", "why", "nobody", "-C", sky).exit_code == 20


def test_why_of_what_finished_tells_what_would_run_again_above_it(whole: Path) -> None:
    changed(whole / "sky.py", "image * level", "image * level + 0")
    for name, above in (("stack", "clean"), ("report", "clean")):
        said = " ".join(cli("tasks", "why", name, "-C", whole).output.split())
        assert said.startswith(f"{name} may run again: input {above} would run again, and may come out different"), said
    assert "read has finished and would not run again" in cli("tasks", "why", "read", "-C", whole).output
    changed(whole / "sky.toml", "[clean]", "[new]\nrun = 'read'\nwith = { n = 3 }\n[clean]")
    done = safepoint(whole, "tasks", "why", "new", "--graph", "sky.toml")
    assert done.stdout == "new has not run yet\n"


def test_why_compares_with_a_graph_as_its_file_is_now(sky: Path) -> None:
    def why(name: str) -> str:
        done = safepoint(sky, "tasks", "why", name, "--graph", "sky.toml")
        assert done.exit_code == 0, done.output
        return " ".join(done.stdout.split())

    assert "other has finished and would not run again" in why("other")
    assert why("clean") == "clean would run again: never finished"
    assert "stack would run again: input clean must run again, and may come out different" in why("stack")
    changed(sky / "sky.toml", "level = 2", "level = 4")
    assert why("other") == "other would run again: its parameters changed"
    changed(sky / "sky.py", "return image * level", "return level * image")
    assert why("other") == "other would run again: its function changed (sky.py:9), its parameters changed"


def test_get_writes_a_result_as_it_is_kept_and_shows_small_ones(whole: Path) -> None:
    import numpy as np

    done = cli("tasks", "get", "read.image", "-o", whole / "image.npy", "-C", whole)
    assert "image.npy: an array (numpy.load), 168 B" in done.output
    assert np.load(whole / "image.npy").tolist() == [0, 1, 2, 3, 4]
    assert cli("tasks", "get", "read.header", "-C", whole).output == "5 values\n"
    assert cli("tasks", "get", "report", "-o", whole / "report.txt", "-C", whole).exit_code == 0
    assert (whole / "report.txt").read_text() == "sum: 50.0"
    assert "several outputs" in cli("tasks", "get", "read", "-o", whole / "x", "-C", whole).output
    assert cli("tasks", "get", "read.nothing", "-C", whole).exit_code == 10
    done = cli("tasks", "get", "stack.x", "-C", whole)
    assert "stack has one result, without a name: safepoint tasks get stack" in done.output
    assert cli("tasks", "get", "nobody", "-C", whole).exit_code == 20
    assert not (whole / "x").exists()


def test_get_of_what_has_not_finished_says_so(sky: Path) -> None:
    done = cli("tasks", "get", "clean", "-C", sky)
    assert done.exit_code == 20 and "clean has not finished: it is failed" in done.output


@pytest.mark.leaves_damage
def test_get_of_a_damaged_result_says_how_it_is_made_again(sky: Path) -> None:
    changed(sky / "sky.toml", "n = 5", "n = 20_000")
    assert safepoint(sky, "tasks", "run", "sky.toml", "--workers", 1).exit_code == 22
    record = next(row for row in answer("tasks", "show", "-C", sky)["vertices"] if row["name"] == "read")
    place = max(Path(tasks_directory(sky), "done", record["key"]).iterdir(), key=lambda each: each.stat().st_size)
    place.chmod(0o644)
    place.write_bytes(place.read_bytes()[:-1] + b"\1")
    done = cli("tasks", "get", "read.image", "-C", sky, "-o", sky / "image.npy")
    assert done.exit_code == 18 and "again: safepoint tasks forget read, and start again" in done.output


def test_options_before_the_command_are_told_their_place(sky: Path) -> None:
    done = cli("tasks", "-C", sky, "show")
    assert "options stand after the command: safepoint tasks show -C DIR" in done.output


def test_a_second_driver_of_mpiexec_hears_of_the_engine(sky: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Store(tasks_directory(sky)).held():
        for size, hint in (("3", True), ("1", False)):
            monkeypatch.setenv("PMI_SIZE", size)
            done = safepoint(sky, "tasks", "run", "sky.toml")
            assert done.exit_code == 13
            said = "started 3 of this program: give --engine mpi, or on=MPI.COMM_WORLD)" in done.stderr
            assert said is hint is ("--engine mpi" in done.stderr)


@pytest.mark.leaves_damage
def test_verify_names_what_is_damaged_and_that_costs_its_vertex_alone(sky: Path) -> None:
    assert cli("tasks", "verify", "-C", sky).output.startswith("2 results whole, ")
    journal = next(each for each in Path(tasks_directory(sky)).glob("journal-*") if b'"other"' in each.read_bytes())
    data = bytearray(journal.read_bytes())
    data[data.index(b'"other"') + 2] ^= 1
    journal.write_bytes(data)
    done = cli("tasks", "verify", "-C", sky)
    found = answer("tasks", "verify", "-C", sky, code=done.exit_code)
    assert found["results"] == 1 and (found["damaged"] or found["torn"])
    assert "1 finished before, 4 to run" in corrected(sky).stdout


def test_clean_removes_what_the_last_graph_does_not_use(whole: Path) -> None:
    changed(whole / "sky.toml", "level = 3", "level = 4")
    assert safepoint(whole, "tasks", "run", "sky.toml", "--workers", 1).exit_code == 0
    shown = cli("tasks", "show", "-C", whole).output
    assert "3 results of other graphs or of earlier versions: safepoint tasks clean removes them" in shown
    done = cli("tasks", "clean", "-C", whole)
    assert done.exit_code == 10  # nobody is here to answer
    assert re.search(r"Remove 3 results, \d+ B: all that the last graph, sky, does not use, also of other", done.output)
    assert cli("tasks", "clean", "-C", whole, "--before", "30d").output == "removed 0 results, 0 B\n"
    assert cli("tasks", "clean", "-C", whole, "--yes").output.startswith("removed 3 results, ")
    assert answer("tasks", "show", "-C", whole)["unused"] == 0
    again = safepoint(whole, "tasks", "run", "sky.toml")
    assert "5 finished before, 0 to run" in again.stdout


def test_forget_is_of_the_last_graph_unless_told_and_names_what_matches_nothing(sky: Path) -> None:
    (sky / "moon.toml").write_text('graph = "moon"\ncode = "sky.py"\n[crater]\nrun = "read"\nwith = { n = 3 }\n')
    assert safepoint(sky, "tasks", "run", "moon.toml", "--workers", 1).exit_code == 0
    done = cli("tasks", "forget", "o*", "read", "-C", sky)
    assert (
        done.exit_code == 20 and "vertex o* or read of the last graph (--all: of all graphs kept here)" in done.output
    )
    done = cli("tasks", "forget", "*", "zzz", "crater", "-C", sky)
    assert done.output.splitlines()[0] == "forgot 1 vertex: crater"
    assert done.output.splitlines()[1].startswith("nothing is kept of a vertex zzz of the last graph")
    assert cli("tasks", "forget", "*", "-C", sky, "--all").output == "forgot 2 vertices: other, read\n"


def test_a_plan_is_made_of_measured_times_and_followed(sky: Path) -> None:
    done = safepoint(sky, "tasks", "plan", "sky.toml", "--workers", 2, "--improve", "1s", "-o", "plan.json")
    assert done.exit_code == 0, done.stderr
    assert re.fullmatch(
        r"plan\.json: genetic, 5 vertices on 2 workers, expected \S+ \S+; 2 of 5 times are measured\n", done.stdout
    )
    rows = json.loads((sky / "plan.json").read_text())["vertices"]
    assert {row["vertex"] for row in rows} == {"read", "clean", "other", "stack", "report"}
    done = safepoint(sky, "tasks", "run", "sky.toml", "--schedule", "plan.json", "--workers", 1)
    assert "1 worker; schedule genetic, expected " in done.stdout and done.exit_code == 22
    assert (sky / ".safepoint.d/tasks/schedule.json").exists()


def test_view_writes_one_page(sky: Path) -> None:
    done = cli("tasks", "view", "-C", sky, "-o", sky / "sky.html")
    assert done.exit_code == 0, done.output
    text = (sky / "sky.html").read_text()
    assert "<svg" in text and "<script" not in text and "clean" in text


WRONG = [
    (("--engine", "gpu"), "--engine gpu: it is pool, dask:ADDRESS, mpi, or futures:MODULE:CLASS"),
    (("--engine", "futures:nowhere:Nothing"), "no such class"),
    (("--engine", "mpi", "--workers", "2"), "mpi knows its workers"),
    (("--stop-after", "soon"), "--stop-after soon"),
    (("--schedule", "sky.py"), "no schedule can be read there; nothing was run"),
]


def test_wrong_options_say_what_is_right(sky: Path) -> None:
    for options, said in WRONG:
        done = safepoint(sky, "tasks", "run", "sky.toml", *options)
        assert done.exit_code == 10 and said in done.stderr, options


def test_an_executor_can_be_named(sky: Path) -> None:
    done = safepoint(
        sky, "tasks", "run", "sky.toml", "--engine", "futures:concurrent.futures:ThreadPoolExecutor", "--workers", 2
    )
    assert "2 workers" in done.stdout and done.exit_code == 22


def test_where_nothing_ran_every_command_says_so(tmp_path: Path) -> None:
    for verb in (["show"], ["why", "v"], ["get", "v"], ["verify"], ["forget", "v"], ["clean", "--yes"]):
        done = cli("tasks", *verb, "-C", tmp_path)
        assert done.exit_code == 20 and "no graph of tasks has run here" in done.output, verb
    assert not (tmp_path / ".safepoint.d").exists()


STRANGE = [
    b"", b"\n", b"{", b"[]", b"null", b'"text"', b"\xff\xfe", b"{}", b'{"vertices": 1}', b'{"vertices": [1, {}, null]}',
    b'{"vertices": [{"name": 1}, {"name": "read", "inputs": 3, "key": [], "state": {}, "parts": 5, "weight": "x"}]}',
    b'{"time": NaN, "event": "finished", "vertex": "read"}', b'{"time": 1e400, "event": "start"}',
    b'{"time": 1, "event": "begin"}', b'{"time": 1, "event": "failed", "vertex": "read", "error": 5}',
    b'{"time": 1, "event": ["start"]}', b'{"time": 1, "event": "start", "vertices": "many"}', b"[" * 100_000,
    b'{"time": 1, "event": "failed", "vertex": "read", "traceback": {}}',
]  # fmt: skip


def on_a_terminal(top: Path, *words: str) -> tuple[int, list[str]]:
    """The exit code of a command, and the lines of all that it has drawn."""
    mine, its = pty.openpty()
    command = [sys.executable, "-m", "safepoint", "tasks", *words]
    environment = {**os.environ, "PYTHONPATH": str(HOUSE), "TERM": "xterm", "COLUMNS": "100"}
    with subprocess.Popen(command, cwd=top, env=environment, stdin=its, stdout=its, stderr=its) as running:
        os.close(its)
        said = b""
        with contextlib.suppress(OSError):  # the terminal's other side is closed
            while data := os.read(mine, 65536):
                said += data
        os.close(mine)
    return running.returncode, re.split(r"[\r\n]+", re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", said.decode()))


def test_on_a_terminal_there_is_one_line_that_is_drawn_anew_below_what_is_said(sky: Path) -> None:
    code, lines = on_a_terminal(sky, "run", "sky.toml", "--workers", "1")
    assert code == 22
    assert any(re.fullmatch(r"clean failed \(.*1 of 2 attempts", line) for line in lines), lines
    assert any("2 of 5 finished, 1 failed, 2 not run" in line for line in lines), lines


def test_a_long_search_for_a_better_schedule_shows_how_far_it_is(tmp_path: Path) -> None:
    """Three vertices on two workers: no schedule is as short as half of the work, which would end the search."""
    vertices = "".join(f'[{name}]\nrun = "make"\n' for name in "abc")
    (tmp_path / "g.toml").write_text(f'graph = "g"\ncode = "g.py"\n{vertices}')
    (tmp_path / "g.py").write_text("def make():\n    return 1\n")
    code, lines = on_a_terminal(tmp_path, "plan", "g.toml", "--workers", "2", "--improve", "1s", "-o", "g.json")
    assert code == 0 and (tmp_path / "g.json").exists()
    assert any(re.search(r"generation \d+, expected ", line) for line in lines), lines


@pytest.mark.parametrize("name", ["log.jsonl", "graph.json", "schedule.json"])
def test_strange_rows_are_passed_over_by_all_that_reads_them(name: str, sky: Path) -> None:
    """As a kill, a full disk or somebody's editor leaves them: no command ends with a traceback."""
    path = sky / ".safepoint.d/tasks" / name
    whole = path.read_bytes() if path.exists() else b""
    for strange in STRANGE:
        for content in (strange + b"\n" + whole, whole[: len(whole) // 2] + strange):
            path.write_bytes(content)
            for verb in (["show", "--json"], ["why", "read"]):
                done: Any = cli("tasks", *verb, "-C", sky)
                assert done.exit_code in (0, 20), (strange, verb, done.output)


def test_a_run_goes_on_whatever_was_in_its_log(sky: Path) -> None:
    """Half a row, as a kill leaves it: the next run begins on a line of its own."""
    for name in ("log.jsonl", "graph.json", "schedule.json"):
        with open(sky / ".safepoint.d/tasks" / name, "ab") as file:
            file.write(b'{"time": 17')
    corrected(sky)
    found = answer("tasks", "show", "-C", sky)
    assert {vertex["state"] for vertex in found["vertices"]} == {"finished"}
    rows = (sky / ".safepoint.d/tasks/log.jsonl").read_bytes().split(b"\n")
    assert b'{"time": 17' in rows


def test_each_verb_has_help_whose_first_sentence_is_in_the_list() -> None:
    from safepoint.cli.tasks.tasks import VERBS

    listed = cli("tasks", "--help").output
    for verb, (_, text) in VERBS.items():
        said = " ".join(cli("tasks", verb, "--help").output.split())
        assert text in said and verb in listed, verb


def test_the_list_of_verbs_loads_none_of_them() -> None:
    code = (
        "import sys\nfrom safepoint.cli.group import program\n"
        "program(['tasks', '--help'], standalone_mode=False)\n"
        "print(*[m for m in sys.modules if m.startswith(('safepoint.cli.tasks.', 'safepoint.tasks', 'rich', 'numpy'))])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "safepoint.cli.tasks.tasks"
