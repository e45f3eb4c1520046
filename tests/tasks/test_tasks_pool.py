"""Processes of this machine, and executors of the caller: what they are given, and how they end."""

from __future__ import annotations

import os
import signal
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from testbed import task_bodies_engine as b
from testbed import task_graphs
from testbed.sweep import some_of
from testbed.waiting import wait_for

from safepoint.errors import SaveError, UsageError
from safepoint.tasks import Graph
from safepoint.tasks.running import tasks_directory
from safepoint.tasks.saved import Store

SCRIPT = """
    from safepoint.tasks import Graph

    class Pair:
        def __init__(self, a, b):
            self.both = a, b

    def pair(a, b):
        return Pair(a, b)

    def total(pairs, least):
        return sum(sum(each.both) for each in pairs) + sum(least.both)

    g = Graph("script")
    pairs = [g.add(f"pair-{n}", pair, a=n, b=1) for n in range(3)]
    g.add("total", total, pairs=pairs, least=Pair(10, 20))
    print(g.run(2)["total"])
"""
GUARDED = SCRIPT.replace("    g = Graph", "    if __name__ == '__main__':\n      g = Graph").replace(
    "\n    pairs =", "\n      pairs ="
).replace("\n    g.add", "\n      g.add").replace("\n    print", "\n      print")  # fmt: skip


@pytest.mark.parametrize("how", some_of(["a file", "a file, guarded", "python -m", "a directory away"], 1, 4))
def test_functions_and_classes_of_the_program_itself_run_in_workers(how: str, tmp_path: Path) -> None:
    """Also without `if __name__ == "__main__":`, for a worker runs the file only up to `run`."""
    (tmp_path / "package").mkdir()
    (tmp_path / "package/__init__.py").touch()
    text = textwrap.dedent(GUARDED if how == "a file, guarded" else SCRIPT)
    (tmp_path / "package/program.py").write_text(text)
    arguments = ["-m", "package.program"] if how == "python -m" else ["package/program.py"]
    cwd = tmp_path
    if how == "a directory away":
        (tmp_path / "away").mkdir()
        arguments, cwd = ["../package/program.py"], tmp_path / "away"
    assert task_graphs.python(*arguments, cwd=cwd) == "36\n"
    assert task_graphs.python(*arguments, cwd=cwd) == "36\n"
    assert list(Store(tasks_directory(cwd)).verify()) == []


def test_a_function_that_no_worker_can_load_fails_with_what_to_do(tmp_path: Path) -> None:
    done = task_graphs.run("-", text=textwrap.dedent(SCRIPT), cwd=tmp_path)
    assert done.returncode == 1 and "__main__, which has no file that a worker could load" in done.stderr
    assert "put it into a module" in done.stderr


def test_each_body_begins_in_the_directory_of_the_program(tmp_path: Path) -> None:
    """Though another one has left it, and although the directory of results was given relative to it."""
    (tmp_path / "here").mkdir()
    g = Graph("g")
    away = g.add("away", b.goes_away, notes=str(tmp_path), to="/", arguments={"name": "away"})
    g.add("where", b.where, after=[away])
    before = os.getcwd()
    os.chdir(tmp_path / "here")
    try:
        found = g.run(1, directory="..")
    finally:
        os.chdir(before)
    assert found["away"] == "/" and found["where"] == str(tmp_path / "here")
    assert (tmp_path / ".safepoint.d/tasks").is_dir()


def test_workers_have_the_environment_of_the_driver_as_it_is_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And libraries of linear algebra as many threads as are left for one worker, unless the user says."""
    monkeypatch.setenv("OF_THIS_TEST", "set")
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setenv("MKL_NUM_THREADS", "17")
    g = Graph("g")
    for name in ("OF_THIS_TEST", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        g.add(name, b.environment, arguments={"name": name})
    from safepoint.tasks.pool import processors

    found = g.run(processors(), directory=tmp_path)
    assert dict(found) == {"OF_THIS_TEST": "set", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "17"}


def test_scratch_lies_in_the_store_wherever_temporary_files_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A result is renamed, so it must not cross to another mount."""
    monkeypatch.setenv("TMPDIR", "/nowhere")
    g = Graph("g")
    g.add("file", b.in_scratch, text="contents")
    found = g.run(1, directory=tmp_path)
    assert found["file"].read_text() == "contents" and str(found["file"]).startswith(tasks_directory(tmp_path))


def test_an_executor_whose_workers_do_not_see_the_directory_is_refused(tmp_path: Path) -> None:
    class Elsewhere(ThreadPoolExecutor):
        """As if its workers had another file under that name."""

        def submit(self, fn, /, *args, **kwargs):  # type: ignore[no-untyped-def]
            *rest, path, text, host = args
            return super().submit(fn, *rest, f"{path}-elsewhere", text, host, **kwargs)

    g = Graph("g")
    g.add("v", b.told, notes=str(tmp_path), arguments={"name": "v"})
    with Elsewhere(1) as executor, pytest.raises(UsageError, match="does not see"):
        g.run(executor, directory=tmp_path)
    assert b.noted(tmp_path) == []
    assert [name for name in os.listdir(tasks_directory(tmp_path)) if name.startswith("stage")] == []


def test_a_worker_that_is_killed_when_all_is_done_does_not_hang_the_end(tmp_path: Path) -> None:
    """And what it had saved is durable, as the driver flushes it."""
    from safepoint.tasks.jobs import Job
    from safepoint.tasks.pool import Pool

    store = Store(tasks_directory(tmp_path))
    with store.held():
        pool = Pool(1)
        pool.start(Job("v", "a" * 32, b.add, None, {"a": 1}, (), 1, 0, True, {}, "", store.directory))
        ended = []
        wait_for(lambda: ended.extend(pool.ended(0.1)) or ended)
        assert ended[0].record is not None
        os.kill(int(ended[0].worker.split()[1]), signal.SIGKILL)
        pool.close()
    assert store.find("a" * 32) is not None


def test_a_worker_that_cannot_make_its_last_results_durable_says_so(tmp_path: Path) -> None:
    from safepoint.tasks.jobs import Job
    from safepoint.tasks.pool import Pool

    store = Store(tasks_directory(tmp_path))
    with store.held():
        pool = Pool(1)
        pool.start(Job("v", "a" * 32, b.breaks_its_disk, None, {}, (), 1, 0, True, {}, "", store.directory))
        ended = []
        wait_for(lambda: ended.extend(pool.ended(0.1)) or ended)
        assert ended[0].record is not None, ended
        with pytest.raises(SaveError, match="may not survive a power cut"):
            pool.close()


CTRL_C = """
    import sys
    from safepoint.tasks import Graph
    from testbed import task_bodies_engine as b
    g = Graph("g")
    first = g.add("first", b.waits, notes=".", until="go", arguments={"name": "first"})
    g.add("second", b.told, notes=".", inputs=first, arguments={"name": "second"})
    g.run(2)
"""


@pytest.mark.parametrize("again", [False, True])
def test_ctrl_c_lets_vertices_at_work_finish_and_a_second_one_ends_at_once(again: bool, tmp_path: Path) -> None:
    """The signal goes to all processes, as from a terminal."""
    program = task_graphs.start(textwrap.dedent(CTRL_C), tmp_path)
    with task_graphs.nobody_left(program):
        wait_for(lambda: b.noted(tmp_path))
        os.killpg(program.pid, signal.SIGINT)
        assert program.stderr is not None
        said = program.stderr.readline()
        assert "stopping: Ctrl-C came; vertices at work are finished first" in said
        if again:
            os.killpg(program.pid, signal.SIGINT)
        else:
            (tmp_path / "go").touch()
        _, err = program.communicate(timeout=task_graphs.DEADLINE_S)
        assert program.returncode in (1, 130, -signal.SIGINT) and "KeyboardInterrupt" in err
        task_graphs.gone(program.pid)
    assert task_graphs.records(tmp_path) == (set() if again else {"first"})
    assert [name for name, _ in b.noted(tmp_path)] == ["first"]


def test_sigterm_ends_a_run_with_75_and_what_finishes_meanwhile_stays(tmp_path: Path) -> None:
    program = task_graphs.start(textwrap.dedent(CTRL_C), tmp_path)
    with task_graphs.nobody_left(program):
        wait_for(lambda: b.noted(tmp_path))
        program.terminate()
        assert program.stderr is not None and "stopping: SIGTERM came" in program.stderr.readline()
        (tmp_path / "go").touch()
        _, err = program.communicate(timeout=task_graphs.DEADLINE_S)
        assert program.returncode == 75 and "stopped: 1 of 2 vertices is finished" in err
    assert task_graphs.records(tmp_path) == {"first"}


FORKSERVER = """
    from safepoint.tasks import Graph
    from testbed import task_bodies_engine as b
    g = Graph("g")
    for name in "abc":
        g.add(name, b.waits, notes=".", until="go", arguments={"name": name})
    assert len(g.run(2)) == 3
"""


def test_the_death_of_the_process_that_starts_workers_costs_no_vertex(tmp_path: Path) -> None:
    """Its workers go on, those that are needed besides are started, and none is left behind."""
    program = task_graphs.start(textwrap.dedent(FORKSERVER), tmp_path)
    with task_graphs.nobody_left(program):
        wait_for(lambda: len(b.noted(tmp_path)) == 2)
        workers = {pid for _, pid in b.noted(tmp_path)}
        servers = {_parent(pid) for pid in workers}
        assert len(servers) == 1 and program.pid not in servers
        os.kill(servers.pop(), signal.SIGKILL)
        os.kill(min(workers), signal.SIGKILL)
        wait_for(lambda: len(b.noted(tmp_path)) == 3)
        (tmp_path / "go").touch()
        _, err = program.communicate(timeout=task_graphs.DEADLINE_S)
        assert program.returncode == 0, err
        task_graphs.gone(program.pid)
    assert sorted(b.counted(tmp_path).values()) == [1, 1, 2]


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


@pytest.mark.skipif(sys.version_info < (3, 11), reason="needs Python 3.11: PYTHONSAFEPATH")
def test_no_worker_begins_with_a_module_of_the_current_directory(tmp_path: Path) -> None:
    """The program is another directory's; what a vertex starts knows nothing of that."""
    (tmp_path / "away").mkdir()
    for name in ("queue", "pickle", "socket", "multiprocessing"):
        (tmp_path / f"away/{name}.py").write_text(f"open({str(tmp_path / 'loaded')!r}, 'a').write(__name__)\n")
    text = SCRIPT.replace("return sum(sum", "import os; assert 'PYTHONSAFEPATH' not in os.environ; return sum(sum")
    (tmp_path / "program.py").write_text(textwrap.dedent(text))
    assert task_graphs.python("../program.py", cwd=tmp_path / "away") == "36\n"
    assert not (tmp_path / "loaded").exists(), (tmp_path / "loaded").read_text()
