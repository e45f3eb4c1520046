"""What is recorded: by level and class, by visit, by edge; nested teams; noise."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from testbed.traced_threads import compiled, events, names, ran, run_of

from safepoint.threads import kinds
from safepoint.threads.trace import Run

REGIONS = {"region": 5, "region end": 5}
SEQUENTIAL = {**REGIONS, "call": 5, "return": 5, "digest": 10}
STRUCTURE = {
    "region": 10, "region end": 10, "enter": 10, "leave": 10, "loop": 5, "loop end": 5, "iteration": 60, "sections": 5,
    "sections end": 5,
}  # fmt: skip
CALLS, DIGESTS = {"call": 55, "return": 55}, {"digest": 15}
WRITES, READS = {"write": 5 + 50 + 50 + 10 + 5}, {"read": 55}
LEVELS = [
    ("minimal", SEQUENTIAL, 0),
    ("modify", {**STRUCTURE, **CALLS, **DIGESTS, **WRITES}, 50),
    ("full", {**STRUCTURE, **CALLS, **DIGESTS, **WRITES, **READS}, 50),
    ("full,procedures:off", {**STRUCTURE, **DIGESTS, **WRITES, **READS}, 50),
    ("variables:full,procedures:off", {**STRUCTURE, **DIGESTS, **WRITES, **READS}, 50),
    ("regions:modify,variables:off,procedures:minimal", {**STRUCTURE, "call": 5, "return": 5}, 50),
    ("regions:minimal,variables:off,procedures:off", REGIONS, 0),
    ("variables:minimal,regions:off,procedures:off", {"digest": 10}, 0),
]


@pytest.mark.parametrize(("level", "expected", "traced"), LEVELS)
def test_a_level_records_what_it_says_and_no_more(
    level: str, expected: dict[str, int], traced: int, tmp_path: Path
) -> None:
    program = compiled("levels.c")
    assert ran(program, tmp_path, SP_LEVEL=level).stdout == f"{traced}\n"
    run = Run(tmp_path / "levels.threads")
    assert Counter(names(run.threads[0])) == expected


@pytest.mark.parametrize("level", ["", "off", "regions:off"])
def test_off_makes_nothing(level: str, tmp_path: Path) -> None:
    assert ran(compiled("levels.c"), tmp_path, SP_LEVEL=level).stdout == "0\n"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name, value", [("SP_LEVEL", "fulll"), ("SP_LEVEL", "regions=full"), ("SP_REGIONS", "7-3"),
                                         ("SP_REGIONS", "a"), ("SP_EDGES", "-1"), ("SP_MAX", "4X")])  # fmt: skip
def test_a_setting_that_is_wrong_is_said_and_nothing_is_written(name: str, value: str, tmp_path: Path) -> None:
    done = ran(compiled("levels.c"), tmp_path, **{"SP_LEVEL": "full", name: value})
    assert done.stderr.startswith(f"safepoint: {name}={value}: takes ") and done.stdout == "0\n"
    assert list(tmp_path.iterdir()) == []


def test_only_the_regions_that_are_asked_for_are_recorded_with_the_code_before_each(tmp_path: Path) -> None:
    """Elsewhere it is `minimal`; visits have the same numbers in any case."""
    run = run_of(compiled("levels.c"), tmp_path, SP_REGIONS="2,4-5")
    assert run.about["regions"] == "2,4-5"
    visit, by_visit = 0, dict[int, list[str]]()
    for event in events(run.threads[0]):
        by_visit.setdefault(visit + 1, []).append(f"{kinds.NAMES[event.kind]} {event.site}")
        visit += event.kind == kinds.REGION_END and event.site == 20
    minimal = ["call 1", "return 1", "digest 12", "region 20", "digest 28", "region end 20"]
    assert by_visit[1] == by_visit[3] == minimal
    assert by_visit[2] == by_visit[4] == by_visit[5]
    for each in ("write 10", "read 11", "enter 20", "iteration 22", "write 23", "call 2", "write 31", "digest 32"):
        assert each in by_visit[2]
    visits = [event.words[0] for event in events(run.threads[0]) if event.kind == kinds.REGION and event.site == 20]
    assert visits == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("edges", "first", "second", "inner"),
    [
        ("1", [10, 1], [10, 34], [0, 2, 40, 42]),
        ("2", [10, 7, 4, 1], [10, 12, 32, 34], [0, 1, 2, 10, 11, 12, 30, 31, 32, 40, 41, 42]),
        ("9", [10, 7, 4, 1], [10, 12, 14, 20, 22, 24, 30, 32, 34], [10 * i + j for i in range(5) for j in range(3)]),
    ],
)
def test_edges_are_the_first_and_last_iterations_of_each_loop(
    edges: str, first: list[int], second: list[int], inner: list[int], tmp_path: Path
) -> None:
    """In an iteration that is left out nothing is recorded, whatever it calls."""
    run = run_of(compiled("edges.c"), tmp_path, SP_EDGES=edges)
    assert run.about["edges"] == int(edges)
    found = events(run.threads[0])
    written = {site: [event.value for event in found if (event.kind, event.site) == (kinds.WRITE, site)]
               for site in (3, 6, 12, 13, 14)}  # fmt: skip
    assert written[3] == first and written[6] == second and written[12] == inner and written[14] == [1]
    assert written[13] == sorted({value // 10 for value in inner})
    assert [event.value for event in found if event.site == 9] == written[13]
    assert [event.site for event in found if event.kind == kinds.LOOP_END].count(10) == len(written[13])


def test_edges_leave_all_sections(tmp_path: Path) -> None:
    found = events(run_of(compiled("levels.c"), tmp_path, SP_EDGES="1").threads[0])
    assert [event.value for event in found if event.site == 27] == [1, 2] * 5
    assert [event.value for event in found if event.site == 23] == [9, 0] * 5


def test_a_nested_region_has_a_number_that_its_own_team_alone_enters(tmp_path: Path) -> None:
    run = run_of(compiled("nested.c", "gcc", "-fopenmp"), tmp_path)
    began, entered, outside = {}, Counter[int](), []
    for thread in run.threads:
        inside = 0
        for event in events(thread):
            if event.kind == kinds.REGION and event.site == 2:
                assert event.words[0] > kinds.NESTED and inside == 1
                began[event.words[0]] = thread.number
            elif event.kind == kinds.REGION:
                outside.append(event.words[0])
            elif event.kind == kinds.ENTER and event.site == 2:
                entered[event.words[0]] += 1
            inside += (event.kind == kinds.ENTER) - (event.kind == kinds.LEAVE)
    assert outside == list(range(1, 21))
    assert len(began) == 40 and entered == dict.fromkeys(began, 2)
    assert len(run.threads) < 10, "a thread that comes goes on in the file of one that has ended"


def test_noise_changes_no_event(tmp_path: Path) -> None:
    program = compiled("levels.c")
    plain = events(run_of(program, tmp_path).threads[0])
    for noise in ("1", "3", "1000"):
        assert events(run_of(program, tmp_path, SP_NOISE=noise, SP_SEED="7").threads[0]) == plain
