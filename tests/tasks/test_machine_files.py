"""net.json and schedule.json: written whole or not at all, read back equal, and errors that name file and key."""

from __future__ import annotations

import errno
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from testbed.faultdisk import FaultDisk, Killed, images

from safepoint.errors import FormatError, UsageError
from safepoint.tasks import Graph
from safepoint.tasks.machine import Machine
from safepoint.tasks.saved import Store
from safepoint.tasks.schedule import Schedule, measured, plan, problem
from safepoint.tasks.simulate import Problem

NET: dict[str, Any] = {
    "safepoint": "net 1", "time": 1.7e9, "hosts": ["a", "a", "b"], "speed": [1.0, 0.5, 1.5],
    "latency_s": [[0, 1e-6, 5e-5], [1e-6, 0, 5e-5], [5e-5, 5e-5, 0]],
    "bandwidth": [[None, 8e9, 1e9], [8e9, None, 1e9], [5e8, 1e9, None]],
    "all_latency_s": None, "measured": {"rounds": 20},
}  # fmt: skip
ROW = {"vertex": "a", "worker": 0, "begin_s": 0.0, "end_s": 1.5}
SCHEDULE: dict[str, Any] = {"graph": "sky", "kind": "heft", "expected_s": 1.5, "machine": None, "vertices": [ROW]}


def put(path: Path, content: object) -> str:
    path.write_text(json.dumps(content))
    return str(path)


def test_a_machine_is_read_and_written_with_all_that_the_file_has(tmp_path: Path) -> None:
    one = Machine.read(put(tmp_path / "net.json", NET))
    assert one.speed == (1.0, 0.5, 1.5) and one.hosts == ("a", "a", "b") and one.size == 3
    assert one.seconds(2, 0, 1e9) == pytest.approx(2.00005) and one.seconds(0, 2, 1e9) == pytest.approx(1.00005)
    assert one.seconds(1, 1, 1e9) == 0
    one.write(str(tmp_path / "again.json"))
    again = json.loads((tmp_path / "again.json").read_text())
    assert Machine.read(str(tmp_path / "again.json")) == one
    assert {name: again[name] for name in ("time", "measured", "all_latency_s")} == {
        "time": 1.7e9, "measured": {"rounds": 20}, "all_latency_s": None,
    }  # fmt: skip


def test_the_workers_of_a_machine_are_all_but_rank_0(tmp_path: Path) -> None:
    one = Machine.read(put(tmp_path / "net.json", NET)).workers(2)
    assert one.speed == (0.5, 1.5) and one.hosts == ("a", "b") and one.seconds(0, 1, 0) == 5e-5
    with pytest.raises(UsageError, match="measured with 3 ranks, and 3 workers and a coordinator are needed"):
        Machine.read(str(tmp_path / "net.json")).workers(3)
    with pytest.raises(UsageError, match=r"no machine of ranks \[3\]: this one has the ranks 0 to 2"):
        Machine.read(str(tmp_path / "net.json")).only([3])
    with pytest.raises(UsageError, match="a machine of 0 processors runs nothing"):
        Machine.equal(0)


def changed(content: dict[str, Any], change: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    new: dict[str, Any] = json.loads(json.dumps(content))
    change(new)
    return new


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda c: c.pop("safepoint"), "it has no key safepoint, so it is no file of bench-net"),
        (lambda c: c.update(safepoint="net 2"), 'safepoint: this is no "net 1" but \'net 2\''),
        (lambda c: c.pop("speed"), "speed: not a list of numbers, one for each rank"),
        (lambda c: c.update(speed=[]), "speed: not a list of numbers"),
        (lambda c: c["speed"].__setitem__(1, 0), r"speed[1]: 0 is no number above 0"),
        (lambda c: c["speed"].__setitem__(1, True), r"speed[1]: True is no number above 0"),
        (lambda c: c["speed"].__setitem__(2, float("inf")), r"speed[2]: inf is no number"),
        (lambda c: c["speed"].__setitem__(2, 10**400), r"speed[2]: 1000"),
        (lambda c: c["latency_s"].pop(), "latency_s: not 3 rows of 3 numbers"),
        (lambda c: c["latency_s"][1].__setitem__(2, -1), r"latency_s[1][2]: -1 is no number of 0 or more"),
        (lambda c: c["bandwidth"][2].__setitem__(0, 0), r"bandwidth[2][0]: 0 is no number above 0"),
        (lambda c: c["bandwidth"].__setitem__(2, "x"), "bandwidth: not 3 rows of 3 numbers"),
        (lambda c: c.update(hosts=["a"]), "hosts: not the names of 3 hosts"),
    ],
)  # fmt: skip
def test_a_wrong_machine_is_an_error_that_names_file_and_key(
    change: Callable[[dict[str, Any]], object], said: str, tmp_path: Path
) -> None:
    path = put(tmp_path / "net.json", changed(NET, change))
    with pytest.raises(FormatError) as caught:
        Machine.read(path)
    assert str(caught.value).startswith(f"{path}: {said}") and "mpiexec -n N safepoint bench-net" in str(caught.value)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda c: c.pop("graph"), "graph: not the name of a graph"),
        (lambda c: c.update(kind="best"), "kind: 'best' is none of heft, genetic, static"),
        (lambda c: c.update(expected_s=None), "expected_s: no number of 0 or more"),
        (lambda c: c.update(machine=3), "machine: neither null nor an object"),
        (lambda c: c.update(machine={**NET, "speed": 1}), "machine: speed: not a list"),
        (lambda c: c.update(vertices={}), "vertices: not a list of rows"),
        (lambda c: c["vertices"].append(4), "vertices[1]: not an object"),
        (lambda c: c["vertices"].append(ROW), "vertices[1].vertex: a is there twice"),
        (lambda c: c["vertices"][0].pop("vertex"), "vertices[0].vertex: not the name of a vertex"),
        (lambda c: c["vertices"][0].update(worker=-1), "vertices[0].worker: -1 is no worker"),
        (lambda c: c["vertices"][0].update(worker=1.0), "vertices[0].worker: 1.0 is no worker"),
        (lambda c: (c["vertices"][0].update(worker=3), c.update(machine=NET)),
         "vertices[0].worker: 3 is no worker"),
        (lambda c: c["vertices"][0].update(begin_s="0"), "vertices[0].begin_s: no number of 0 or more"),
        (lambda c: c["vertices"][0].update(begin_s=2), "vertices[0].end_s: no number that is not before begin_s"),
    ],
)  # fmt: skip
def test_a_wrong_schedule_is_an_error_that_names_file_and_key(
    change: Callable[[dict[str, Any]], object], said: str, tmp_path: Path
) -> None:
    path = put(tmp_path / "sky.schedule", changed(SCHEDULE, change))
    with pytest.raises(FormatError) as caught:
        Schedule.read(path)
    assert str(caught.value).startswith(f"{path}: {said}") and "safepoint tasks plan" in str(caught.value)


@pytest.mark.parametrize("read", [Machine.read, Schedule.read])
def test_a_file_that_is_not_there_or_no_json_is_an_error_that_says_so(read: Any, tmp_path: Path) -> None:
    path = str(tmp_path / "net.json")
    with pytest.raises(UsageError, match=f"cannot read .* {path}: No such file or directory") as caught:
        read(path)
    assert caught.value.errno == errno.ENOENT
    with pytest.raises(UsageError, match="cannot read"):
        read(str(tmp_path))
    for text in (b"", b"{", b"\xff\xfe{", b"[1]", b"[" * 100_000):
        Path(path).write_bytes(text)
        with pytest.raises(FormatError, match=f"{path} is no "):
            read(path)


def test_a_schedule_is_read_as_it_was_written(tmp_path: Path) -> None:
    on = Machine.read(put(tmp_path / "net.json", NET))
    made = plan(Problem.make({"a": 1.0, "b": 2.0, "c": 0.5}, {("a", "c"): 1e9}, "sky"), on)
    made.write(tmp_path / "sky.schedule")
    assert Schedule.read(tmp_path / "sky.schedule") == made
    assert [row.begin_s for row in made.rows] == sorted(row.begin_s for row in made.rows)
    assert made.expected_s == max(row.end_s for row in made.rows) and made.workers == 3
    by_hand = Schedule.read(put(tmp_path / "by-hand.json", {**SCHEDULE, "kind": "static"}))
    assert by_hand.workers == 1 and by_hand.machine is None


def versions() -> tuple[Schedule, Schedule]:
    return tuple(
        plan(Problem.make({f"v{n}": 1.0 for n in range(size)}, {}, "sky"), Machine.equal(2)) for size in (3, 40)
    )  # type: ignore[return-value]


def written(directory: Path, **how: int) -> tuple[FaultDisk, str]:
    """A new schedule in the place of an old one, on a disk that fails somewhere; and the error."""
    directory.mkdir()
    old, new = versions()
    old.write(directory / "sky.schedule")
    disk, said = FaultDisk(directory, **how), ""  # type: ignore[arg-type]
    try:
        new.write(directory / "sky.schedule", disk)
    except Killed:
        said = "killed"
    except UsageError as error:
        assert error.errno == errno.ENOSPC
        said = str(error)
    return disk, said


def test_a_kill_or_a_power_cut_while_a_schedule_is_written_leaves_the_old_one_or_the_new(tmp_path: Path) -> None:
    old, new = versions()
    disk, _ = written(tmp_path / "whole")
    for at in range(len(disk.record.ops)):
        path = tmp_path / f"killed-{at}" / "sky.schedule"
        assert written(path.parent, kill_at=at)[1] == "killed" and Schedule.read(path) in (old, new)
        new.write(path)  # what the dead one left is in nobody's way
        assert Schedule.read(path) == new
    assert at >= 3
    (tmp_path / "images").mkdir()
    cut = list(images(disk.record, str(tmp_path / "images")))
    assert cut and all(Schedule.read(Path(image.directory) / "sky.schedule") in (old, new) for image in cut)


def test_a_full_disk_leaves_the_old_schedule_and_says_so(tmp_path: Path) -> None:
    failed = 0
    for at in range(len(written(tmp_path / "whole")[0].record.ops)):
        directory = tmp_path / f"full-{at}"
        _, said = written(directory, fail_at=at, error=errno.ENOSPC)
        if said:
            failed += 1
            assert f"cannot write {directory}/sky.schedule: No space left on device" in said
            assert Schedule.read(directory / "sky.schedule") == versions()[0]
            assert [path.name for path in directory.iterdir()] == ["sky.schedule"]
    assert failed >= 3


# What was measured.


def one() -> dict[str, int]:
    return {"left": 1, "right": 2}


def two(x: object, y: object = None) -> None:
    pass


def sky() -> Graph:
    graph = Graph("sky")
    first = graph.add("first", one, weight=2.0, size=100)
    graph.add("both", two, x=first["left"], y=[first["right"], first["left"]], weight=4.0)
    graph.add("whole", two, x=first, weight=1.0)
    return graph


def test_a_problem_has_what_was_measured_else_weights_and_sizes_of_the_graph() -> None:
    plain = problem(sky(), {}, {})
    assert plain.names == ("first", "both", "whole") and plain.weights == (2.0, 4.0, 1.0)
    assert plain.parents == ((), ((0, 200.0),), ((0, 100.0),)) and plain.graph == "sky"
    known = problem(
        sky(), {"first": 8.0, "gone": 1.0}, {("first", ""): 70.0, ("first", "left"): 30.0, ("first", "right"): 40.0}
    )
    assert known.weights == (8.0, 16.0, 4.0)  # a unit of weight took 4 s
    assert known.parents == ((), ((0, 70.0),), ((0, 70.0),))
    assert problem(sky(), {"first": 0.0}, {}).weights == (0.0, 0.0, 0.0)


def test_what_was_measured_is_read_past_torn_and_strange_rows(tmp_path: Path) -> None:
    place = tmp_path / ".safepoint.d" / "tasks"
    place.mkdir(parents=True)
    rows: list[Any] = [
        {"event": "finished", "vertex": "a", "body_s": 9.0, "nbytes": 10},
        {"event": "finished", "vertex": "a", "body_s": 2.0, "nbytes": 30},
        {"event": "failed", "vertex": "b", "body_s": 3.0},
        {"event": "finished", "vertex": ["c"], "body_s": 3.0},
        {"event": "finished", "vertex": "d", "body_s": "long", "nbytes": -1},
        {"event": "finished", "vertex": "e", "body_s": float("nan"), "nbytes": 5},
        [], 7, None,
    ]  # fmt: skip
    text = "\n".join(json.dumps(row) for row in rows).encode()
    (place / "log.jsonl").write_bytes(
        b"\xff\n" + b"[" * 10_000 + b"\n" + text + b'\n{"event": "finished", "vertex": "a", "bo'
    )
    for directory in (tmp_path, place):
        assert measured(directory) == ({"a": 2.0}, {("a", ""): 30.0, ("e", ""): 5.0})
    assert measured(tmp_path / "nowhere") == ({}, {})


def test_what_was_measured_is_that_of_a_real_run(tmp_path: Path) -> None:
    sky().run(directory=tmp_path)
    seconds, sizes = measured(tmp_path)
    assert set(seconds) == {"first", "both", "whole"} and all(0 <= each < 60 for each in seconds.values())
    records = {record.vertex: record for record in Store(tmp_path / ".safepoint.d/tasks").records().values()}
    left, right = (sizes["first", name] for name in ("left", "right"))
    assert left > 0 and sizes["first", ""] == left + right == records["first"].nbytes
    made = plan(problem(sky(), seconds, sizes), Machine.equal(2))
    assert made.misfit(problem(sky(), {}, {}), 2) == "" and made.expected_s >= seconds["first"]
