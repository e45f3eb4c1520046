"""The store of tasks with real processes: killed, forked, two at a time, many threads; and what a put costs."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from testbed import sweep, task_graphs
from testbed.faultdisk import FaultDisk, images
from testbed.task_stories import key, store_of
from testbed.waiting import wait_for

from safepoint.disk import SyncFailed, kernel
from safepoint.errors import FormatError, LockedError, SaveError, UsageError
from safepoint.tasks import values
from safepoint.tasks.jobs import Record
from safepoint.tasks.put import Writer
from safepoint.tasks.saved import Store

BEGIN = """
import os, sys, time
from testbed.task_stories import key, store_of
from safepoint.tasks import values
from safepoint.tasks.jobs import Record
store = store_of(sys.argv[1])
def put(writer, name, value):
    return writer.put(Record(name, key(name), (), False), values.encode(value))
def say(text):
    os.write(1, text.encode() + b"\\n")
"""


@contextmanager
def started(code: str, work: Path, *more: str) -> Iterator[subprocess.Popen[str]]:
    process = task_graphs.start(BEGIN + code, work, str(work), *more)
    with task_graphs.nobody_left(process):
        yield process


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def put(writer: Writer, name: str, value: Any) -> Record:
    return writer.put(Record(name, key(name), (), False), values.encode(value))


WORKS = """
with store.held():
    writer = store.writer(every=0.001)
    for n in range(10**6):
        put(writer, f"v{n}", f"{n} " * (20_000 if n % 5 == 4 else 1))
        say(str(n))
"""


def test_killed_at_any_moment_a_process_loses_nothing_that_it_had_handed_over(tmp_path: Path) -> None:
    """T1, with real processes: what was told is there at the next start, whole, and the lock is free."""
    for told in sweep.some_of(range(1, 200, 3), 3, 6):
        work = tmp_path / f"{told}"
        work.mkdir()
        with started(WORKS, work) as process:
            for _ in range(told):
                last = int(line(process))
            process.send_signal(signal.SIGKILL)
            process.wait()
        store = store_of(work)
        with store.held():
            found = {record.vertex: record for record in store.records().values()}
            assert {f"v{n}" for n in range(last + 1)} <= set(found)
            for record in found.values():
                n = int(record.vertex[1:])
                assert store.value(record.reference()) == f"{n} " * (20_000 if n % 5 == 4 else 1)
            assert all(damage.torn for damage in store.verify())
            assert not [name for name in os.listdir(store.directory) if name.startswith(("stage-", "gone-"))]


HOLDS = """
with store.held():
    say("held")
    sys.stdin.read() if len(sys.argv) < 3 else time.sleep(600)
"""


def test_a_second_driver_is_told_who_the_first_one_is_and_changes_nothing(tmp_path: Path) -> None:
    """T6."""
    with started(HOLDS, tmp_path, "sleeps") as process:
        assert line(process) == "held"
        store = store_of(tmp_path)
        before = sorted((path, path.stat().st_mtime_ns) for path in Path(store.directory).rglob("*"))
        with pytest.raises(LockedError, match=f"process {process.pid} on {kernel.host()}, since "), store.held():
            pass
        assert sorted((path, path.stat().st_mtime_ns) for path in Path(store.directory).rglob("*")) == before
        assert store.records() == {}  # to look needs no lock
        process.kill()
        process.wait()
    with store.held():
        pass


def test_the_same_process_cannot_hold_it_twice_and_can_again(tmp_path: Path) -> None:
    with store_of(tmp_path).held(), pytest.raises(LockedError, match="this very process"), store_of(tmp_path).held():
        pass
    with store_of(tmp_path).held():
        pass


FORKS = """
with store.held():
    if (child := os.fork()) == 0:
        os.closerange(0, 3)
        time.sleep(600)
    say(str(child))
    time.sleep(600)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_that_lives_on_does_not_hold_the_lock(tmp_path: Path) -> None:
    """A worker of a pool lives on for a while when its driver was killed: the next start must not wait for it."""
    with started(FORKS, tmp_path) as process:
        child = int(line(process))
        process.kill()
        process.wait()
        try:
            with store_of(tmp_path).held():
                assert kernel.is_alive(child)
        finally:
            os.kill(child, signal.SIGKILL)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_writes_to_a_journal_of_its_own(tmp_path: Path) -> None:
    """Put (4): also if the parent's thread was just flushing."""
    store = store_of(tmp_path)
    with store.held():
        writer = store.writer(every=0.0001)
        children = []
        for child in range(3):
            for n in range(20):
                put(writer, f"p{child}-{n}", n)
            if (pid := os.fork()) == 0:
                try:
                    for n in range(20):
                        put(writer, f"c{child}-{n}", n)
                    writer.close()
                    os._exit(0)
                finally:
                    os._exit(1)
            children.append(pid)
        for pid in children:
            assert os.waitpid(pid, 0)[1] == 0
        writer.close()
    assert {record.vertex for record in store.records().values()} == {
        f"{who}{child}-{n}" for who in "pc" for child in range(3) for n in range(20)
    }
    assert list(store.verify()) == [] and len(store.journals()) == 4


def test_threads_share_a_writer(tmp_path: Path) -> None:
    store = store_of(tmp_path)
    with store.held():
        writer = store.writer(every=0.0001)

        def work(thread: int) -> None:
            for n in range(100):
                record = put(writer, f"{thread}-{n}", "x" * (70_000 if n == 50 else n))
                assert store.value(record.reference()) == "x" * (70_000 if n == 50 else n)

        threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        writer.close()
    assert len(store.records()) == 400 and list(store.verify()) == []


SAME = """
writer = store.writer()
say("ready")
sys.stdin.readline()
for n in range(20):
    record = put(writer, f"v{n}", f"{sys.argv[2]} " * 40_000)
    assert set(store.value(record.reference()).split()) <= {"one", "two"}
writer.close()
"""


def test_two_attempts_of_one_vertex_at_a_time_leave_one_result(tmp_path: Path) -> None:
    store = store_of(tmp_path)
    with store.held():
        with started(SAME, tmp_path, "one") as one, started(SAME, tmp_path, "two") as two:
            assert (line(one), line(two)) == ("ready", "ready")
            for process in (one, two):
                assert process.stdin is not None
                process.stdin.write("go\n")
                process.stdin.flush()
            assert (one.wait(300), two.wait(300)) == (0, 0)
        assert len(store.records()) == 20 and list(store.verify()) == []
        assert not [name for name in os.listdir(store.directory) if name.startswith(("stage-", "gone-"))]


def test_a_worker_of_a_dead_run_cannot_finish_what_the_next_driver_took_away(tmp_path: Path) -> None:
    """Holding: the stage is renamed before it is emptied, so nothing in part is ever renamed to `done`."""
    store = store_of(tmp_path)
    with store.held():
        writer = store.writer()
        scratch = writer.scratch()
        Path(scratch, "f").write_text("1")
        encoded = values.encode(Path(scratch, "f"), scratch)
    with store.held():
        assert not os.path.exists(scratch)
        with pytest.raises(FileNotFoundError):
            writer.put(Record("v", key("v"), (), False), encoded)
        put(writer, "w", 1)
        writer.close()
    assert [record.vertex for record in store.records().values()] == ["w"]


def test_the_thread_flushes_what_was_put_and_the_name_of_a_new_journal(tmp_path: Path) -> None:
    store: Store = store_of(tmp_path, FaultDisk(tmp_path))
    with store.held():
        writer = store.writer(every=0.001)
        record = put(writer, "v", 1)
        journal = f"sync .safepoint.d/tasks/{record.place.journal}"
        ops = store.disk.record.ops  # type: ignore[attr-defined]
        wait_for(lambda: journal in ops and "sync .safepoint.d/tasks" in ops[ops.index(journal) :])
        writer.close()


class Refusing(FaultDisk):
    """No flush succeeds as long as it `refuses`."""

    refuses: type[BaseException] | None = None

    def sync_files(self, paths: Any, *opened: Any) -> None:
        if self.refuses is not None:
            raise self.refuses(5, "Input/output error", next(iter(paths)))
        super().sync_files(paths, *opened)


def test_after_three_failed_flushes_a_put_fails_until_one_succeeds(tmp_path: Path) -> None:
    (tmp_path / "w").mkdir()
    disk = Refusing(tmp_path / "w")
    store = store_of(tmp_path / "w", disk)
    with store.held():
        writer = store.writer(every=0)
        put(writer, "a", 1)
        disk.refuses = SyncFailed
        with pytest.raises(SaveError, match=r"are not durable yet: .*/journal-.*: Input/output error"):
            writer.flush()
        put(writer, "b", 2)
        with pytest.raises(SaveError):
            writer.flush()
        with pytest.raises(OSError, match="since then nothing could be made durable"):
            put(writer, "c", 3)
        assert {record.vertex for record in store.records().values()} == {"a", "b"}  # a kill loses neither
        disk.refuses = None
        writer.flush()
        put(writer, "c", 3)
        writer.close()
    for image in images(disk.record, str(tmp_path), singles=0, at=[len(disk.record.ops)]):
        found = {record.vertex for record in store_of(image.directory).records().values()}
        assert found == {"a", "b", "c"}, image


def test_what_ctrl_c_kept_from_being_flushed_is_flushed_by_the_next(tmp_path: Path) -> None:
    (tmp_path / "w").mkdir()
    disk = Refusing(tmp_path / "w")
    store = store_of(tmp_path / "w", disk)
    with store.held():
        writer = store.writer(every=0)
        put(writer, "a", 1)
        disk.refuses = KeyboardInterrupt
        with pytest.raises(KeyboardInterrupt):
            writer.flush()
        disk.refuses = None
        writer.close()
    for image in images(disk.record, str(tmp_path), singles=0, at=[len(disk.record.ops)]):
        assert [record.vertex for record in store_of(image.directory).records().values()] == ["a"], image


def test_a_store_of_another_format_and_another_place_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"lies in a directory \.safepoint\.d"), Store(tmp_path / "tasks").held():
        pass
    with store_of(tmp_path).held() as store:
        pass
    Path(store.directory, "FORMAT").write_text("tasks 2\n")
    with pytest.raises(FormatError, match="says 'tasks 2', and this safepoint knows 'tasks 1'"), store.held():
        pass
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / ".safepoint.d").symlink_to(tmp_path)
    with pytest.raises(FormatError, match="a symbolic link"), store_of(tmp_path / "other").held():
        pass


def test_a_directory_that_is_not_there_is_told(tmp_path: Path) -> None:
    said = "none/.safepoint.d: No such file or directory; nothing was run"
    with pytest.raises(SaveError, match=said), store_of(tmp_path / "none").held():
        pass


def test_a_small_put_is_one_write(tmp_path: Path) -> None:
    """benchmarks/tasks.py has its time: a small part of the empty call of a process pool."""
    store = store_of(tmp_path, FaultDisk(tmp_path))
    with store.held():
        writer = store.writer(every=0)
        put(writer, "first", 1.5)  # makes the journal
        ops = store.disk.record.ops  # type: ignore[attr-defined]
        before = len(ops)
        for n in range(10):
            put(writer, f"v{n}", 1.5)
        assert [op.split()[0] for op in ops[before:]] == ["write"] * 10, ops[before:]
        writer.close()
