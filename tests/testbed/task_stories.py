"""A life of a store of tasks, which a test kills, cuts the power of, or has fail at each operation; and what must hold.

The story puts small and large results, files, and one that is not kept; it takes a key twice, forgets, puts again some
of what was forgotten, and cleans, at last in a session of its own. What it was told is noted with the number of
operations by then.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

from safepoint.tasks import journal, values
from safepoint.tasks.jobs import Record
from safepoint.tasks.put import Writer
from safepoint.tasks.saved import LostValue, Store
from testbed.faultdisk import FaultDisk, Killed

SMALL = 64  # bytes of a result in these stories, above which it is a directory: else each step would be a long one


def key(name: str) -> str:
    return name.encode().hex().ljust(32, "0")[:32]


def store_of(work: str | os.PathLike[str], disk: Any = None) -> Store:
    return Store(f"{os.fspath(work)}/.safepoint.d/tasks", *([disk] if disk else []))


class Story:
    """`work`: an empty directory."""

    VALUES: ClassVar[dict[str, Any]] = {
        "a": 1.5, "b": {"left": 1, "right": "two"}, "c": "small", "large": "x" * 200, "d": 4, "loose": "y" * 100,
        "e": 5, "two": {"big": "z" * 150, "small": 2}, "f": [6],
    }  # fmt: skip
    FILE = b"what a body wrote"

    def __init__(self, disk: FaultDisk) -> None:
        self.disk = disk
        self.store = store_of(disk.directory, disk)
        self.events: list[tuple[int, str, str]] = []
        self.errors: list[BaseException] = []
        self.finished = False
        self.writer: Writer | None = None

    def say(self, what: str, name: str) -> None:
        self.events.append((len(self.disk.record.ops), what, name))

    def run(self) -> Story:
        """To its end, or to where its disk ends it."""
        try:
            with self.store.held():
                self.writer = writer = self.store.writer("w", every=0)
                for step in self.steps(writer):
                    try:
                        step()
                    except OSError as error:
                        self.errors.append(error)
                    except Exception as error:  # SaveError
                        self.errors.append(error)
                self.end(writer)
            with self.store.held():  # the journals of the first session are nobody's now
                self.clean("d", "e", "two")
            self.finished = not self.errors
        except Killed:
            pass
        except Exception as error:  # held itself: its directories could not be made, or its lock
            self.errors.append(error)
        finally:
            self.disk.end()
            if self.writer is not None and self.writer._journal is not None:  # as the end of a process does
                self.writer._journal.close()
        return self

    def end(self, writer: Writer) -> None:
        try:
            writer.close()
            self.all_durable()
        except Exception as error:
            self.errors.append(error)

    def steps(self, writer: Writer) -> list[Callable[[], object]]:
        put = [lambda name=name: self.put(writer, name) for name in self.VALUES]
        return [
            *put[:3], lambda: self.flush(writer), *put[3:7], lambda: self.put_file(writer),
            lambda: self.put(writer, "large"), lambda: self.flush(writer),
            lambda: self.forget("a", "c", "large", pattern="[acl]*"), *put[7:], lambda: self.put(writer, "a"),
            lambda: self.put(writer, "large"), lambda: self.clean("d", "two"),
        ]  # fmt: skip

    def put(self, writer: Writer, name: str) -> None:
        self.say("put begins", name)
        record = Record(name, key(name), (), False, kept=name != "loose", parts={"function": "1"})
        record = writer.put(record, values.encode(self.VALUES[name]))
        self.say("handed", name)
        if record.kept and not record.place.journal:
            self.say("durable", name)
        if record.kept:
            assert self.store.value(record.reference()) == self.VALUES[name]

    def put_file(self, writer: Writer) -> None:
        self.say("put begins", "file")
        scratch = writer.scratch()
        self.disk.mkdir(f"{scratch}/below")
        self.disk.overwrite(f"{scratch}/below/out.txt", self.FILE)
        encoded = values.encode(Path(scratch, "below", "out.txt"), scratch, self.disk)
        writer.put(Record("file", key("file"), (), False), encoded)
        self.say("handed", "file")
        self.say("durable", "file")
        writer.drop(scratch)

    def flush(self, writer: Writer) -> None:
        writer.flush()
        self.all_durable()

    def all_durable(self) -> None:
        for name in self.there(len(self.disk.record.ops), "handed")[0]:
            self.say("durable", name)

    def forget(self, *named: str, pattern: str) -> None:
        for name in named:
            self.say("taking back", name)
        assert set(self.store.forget(pattern)) <= {*named, "loose"}
        for name in named:
            self.say("gone", name)

    def clean(self, *named: str) -> None:
        for name in named:
            self.say("taking back", name)
        self.store.clean(used={key(name) for name in (*self.VALUES, "file")} - {key(name) for name in named})
        for name in named:
            self.say("gone", name)

    def there(self, ops: int, told: str) -> tuple[set[str], set[str]]:
        """What must be there after so many operations, if what was `told` counts, and what must not."""
        must: set[str] = set()
        must_not: set[str] = set()
        for at, what, name in self.events:
            begins = what in ("put begins", "taking back")
            if at > ops or (begins and at == ops):
                continue
            if what == "put begins":
                must_not.discard(name)
            elif what == "taking back":
                must.discard(name)
            elif what == "gone":
                must_not.add(name)
            elif what == told:
                must.add(name)
        return must - {"loose"}, must_not


def check(work: str, must: set[str], must_not: set[str]) -> None:
    """T1, T2, T3 in a directory that a story has left: whole results, all that must be there, and the rest again."""
    store = store_of(work)
    with store.held():
        records = store.records()
        names = {record.vertex for record in records.values()}
        assert must <= names, f"lost: {must - names}"
        assert not must_not & names, f"back again: {must_not & names}"
        for record in records.values():
            if record.kept:
                assert_value(store, record)
        assert not [damage for damage in store.verify() if not damage.torn]
        writer = store.writer("again", every=0)
        for name, value in Story.VALUES.items():
            if key(name) not in records:
                writer.put(Record(name, key(name), (), False), values.encode(value))
        writer.close()
    after = store.records()
    assert {record.vertex for record in after.values()} >= set(Story.VALUES)
    for record in after.values():
        if record.kept:
            assert_value(store, record)


def assert_value(store: Store, record: Record) -> None:
    value = store.value(record.reference())
    if record.vertex == "file":
        assert value.read_bytes() == Story.FILE
    else:
        assert value == Story.VALUES[record.vertex], record.vertex


def small_results(monkeypatch: Any) -> None:
    monkeypatch.setattr(journal, "SMALL", SMALL)


__all__ = ["LostValue", "Story", "assert_value", "check", "key", "small_results", "store_of"]
