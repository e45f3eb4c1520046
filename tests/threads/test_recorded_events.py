"""Each call of the runtime, from C, C++ and Fortran, is read back with its value; and what is recorded where."""

from __future__ import annotations

import struct
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xxhash
from testbed.threads_chain import made
from testbed.traced_threads import compiled, events, names, ran, run_of

from safepoint.threads import interface, kinds
from safepoint.threads.trace import Run

# Each call of the runtime, from C, C++ and Fortran, is read back with its value: one thread and a team.

C = pytest.mark.parametrize("compiler", ["gcc", "clang"])
FORTRAN = pytest.mark.parametrize("compiler", ["gfortran", "flang-new-19"])
LONG = "more than thirty-two letters: only these are kept"
KEPT = f"{LONG[:32]}... ({len(LONG)} bytes, {xxhash.xxh3_64_hexdigest(LONG.encode())})"
VALUES = [-1, -2, -3, -4, 0.5, 1e300, -1.5, 1 - 2j, 3 - 4j, -1.5 - 1.5j, True, False, True, False, "", "a text",
          "just thirty-two letters, as here", KEPT]  # fmt: skip
TYPES = [*range(1, 16), 15, 15, 15]
CONSTRUCTS = list(range(kinds.CALL, kinds.PRIVATE_UNSET + 1))


@C
def test_every_call_of_c_is_read_back(compiler: str, tmp_path: Path) -> None:
    (thread,) = run_of(compiled("every.c", compiler), tmp_path).threads
    found = events(thread)
    structure = [(event.kind, event.site, event.words) for event in found if not 20 <= event.site <= 30]
    inner = kinds.NESTED + 1
    far = (1 << 64) - 1  # -1
    assert structure == [
        (kinds.REGION, 1, (1,)), (kinds.ENTER, 1, (1,)),
        (kinds.LOOP, 2, (far, 7, 2)), (kinds.ITER, 3, (far,)), (kinds.LOOP_END, 2, (0,)),
        (kinds.LOOP, 4, (1, 2, 1, 9, 3, far - 2)), (kinds.ITER, 5, (2, 6)), (kinds.LOOP_END, 4, (0,)),
        (kinds.LOOP, 6, (1, 2, 1, 3, 4, 1, 5, 6, 1)), (kinds.ITER, 7, (1, far - 2, 5)), (kinds.LOOP_END, 6, (0,)),
        *((kind, 100 + kind, (3 if kind == kinds.SECTIONS else 0,)) for kind in CONSTRUCTS),
        (kinds.REGION, 8, (inner,)), (kinds.ENTER, 8, (inner,)), (kinds.LEAVE, 8, (inner,)),
        (kinds.REGION_END, 8, (inner,)), (kinds.LEAVE, 1, (1,)), (kinds.REGION_END, 1, (1,)),
    ]  # fmt: skip
    assert [event.extra for event in found if event.kind == kinds.LOOP] == [1, 2, 3]
    for kind, site in ((kinds.WRITE, 20), (kinds.READ, 21)):
        values = [event for event in found if event.site == site]
        assert [event.value for event in values] == VALUES
        assert [event.type for event in values] == TYPES and {event.kind for event in values} == {kind}
    digest = xxhash.xxh3_128_intdigest(struct.pack("<3d", 1, 2, 4))
    assert found[-1] == (kinds.DIGEST, 30, 0, kinds.REAL8, (3, digest & (1 << 64) - 1, digest >> 64))


@pytest.mark.parametrize("compiler", ["gcc", "clang", "g++", "clang++"])
def test_the_macros_record_what_a_team_of_four_does(compiler: str, tmp_path: Path) -> None:
    language = ["-xc++"] if compiler.endswith("+") else []
    run = run_of(compiled("by_hand.c", compiler, "-fopenmp", "-Wall", "-Wextra", *language), tmp_path)
    assert len(run.threads) == 4 == run.about["threads"]
    by_name = {(site.type, site.name): site.number for site in run.sites.by_number.values()}
    assert set(by_name) == {
        ("region", "main"), ("loop", "i"), ("iteration", "i"), ("variable-write", "b[i]"), ("loop", "i, j"),
        ("iteration", "i,j"), ("variable-read", "b[i]"), ("variable-write", "c[i][j]"), ("critical", "sum"),
        ("variable-write", "sum"), ("barrier", ""), ("array", "b"),
    }  # fmt: skip
    every = [event for thread in run.threads for event in events(thread)]
    writes = [event.value for event in every if event.site == by_name["variable-write", "b[i]"]]
    assert sorted(writes) == [i * 0.5 for i in range(40)]
    tuples = Counter(event.words for event in every if event.site == by_name["iteration", "i,j"])
    assert tuples == Counter((i, j) for i in range(10) for j in range(4))
    assert sorted(event.value for event in every if event.site == by_name["variable-write", "sum"]) == [1, 2, 3, 4]
    entered = [(event.extra, event.words) for event in every if event.kind == kinds.ENTER]
    assert sorted(entered) == [(number, (1,)) for number in range(4)]
    assert names(run.threads[0])[0] == "region" and names(run.threads[0])[-1] == "region end"


@C
def test_without_the_flag_the_macros_are_empty(compiler: str, tmp_path: Path) -> None:
    program = compiled("by_hand.c", compiler, "-fopenmp", "-Wall", "-Wextra", "-USP_TRACE")
    assert ran(program, tmp_path, SP_LEVEL="full").stdout == "4 7.5\n"
    assert list(tmp_path.iterdir()) == []


@FORTRAN
def test_every_generic_of_fortran_is_read_back(compiler: str, tmp_path: Path) -> None:
    (thread,) = run_of(compiled("every.f90", compiler), tmp_path).threads
    found = events(thread)
    assert [(event.kind, event.site, event.words) for event in found if event.site < 20] == [
        (kinds.REGION, 1, (1,)), (kinds.ENTER, 1, (1,)),
        (kinds.LOOP, 2, (1, 9, 2)), (kinds.ITER, 3, (5,)), (kinds.ITER, 3, (5,)), (kinds.LOOP_END, 2, (0,)),
        (kinds.LOOP, 2, (1, 9, 2)), (kinds.LOOP_END, 2, (0,)),
        (kinds.LOOP, 4, (1, 2, 1, 3, 4, 1)), (kinds.ITER, 5, (2, 3)), (kinds.ITER, 5, (2, 3)),
        (kinds.LOOP_END, 4, (0,)),
        (kinds.LOOP, 6, (1, 2, 1, 3, 4, 1, 5, 6, 1)), (kinds.ITER, 7, (1, 3, 5)), (kinds.ITER, 7, (1, 3, 5)),
        (kinds.LOOP_END, 6, (0,)), (kinds.BARRIER, 9, (0,)), (kinds.LEAVE, 1, (1,)), (kinds.REGION_END, 1, (1,)),
    ]  # fmt: skip
    assert [(event.kind, event.site) for event in found if event.site > 100] == [
        (kind, 100 + kind) for kind in CONSTRUCTS
    ]
    values = [(event.type, event.value) for event in found if event.site == 20]
    assert values == [
        (1, -1), (2, -2), (3, -3), (4, -4), (5, 0.5), (6, 1e300), (8, 1 - 2j), (9, 3 - 4j), (11, True), (12, False),
        (13, True), (14, False), (15, "a text"),
    ]  # fmt: skip
    assert [(event.kind, event.value) for event in found if event.site == 21] == [
        (kinds.READ, 7), (kinds.READ, 7.0), (kinds.READ, "x"), (kinds.READ, True),
    ]  # fmt: skip


def _arrays() -> dict[int, tuple[int, np.ndarray[Any, Any]]]:
    """By site: type and elements, in the order of Fortran, of every.f90."""
    a = np.arange(1.0, 31.0).reshape(6, 5, order="F")
    z = np.array([k - k * 1j for k in range(1, 5)])
    letters = np.frombuffer(b"abcdefghij", "u1")
    return {
        30: (6, a), 31: (6, a[1:5, ::2]), 32: (6, a[5::-2, 2]), 33: (6, np.array(2.5)), 34: (6, np.arange(1.0, 5.0)),
        35: (6, np.arange(7.0, 10.0)), 36: (9, z), 37: (13, np.array([1, 0, 1], "i4")), 38: (15, letters),
        39: (2, np.arange(1, 8, 3, dtype="i2")), 40: (1, np.zeros(0, "i1")), 41: (15, letters[6:9]), 42: (9, z[::-1]),
        43: (6, a), 44: (6, a[:, 1]), 45: (6, a[1, :]),
    }  # fmt: skip


@FORTRAN
@pytest.mark.parametrize("statistics", ["", "1"])
def test_digests_are_those_of_the_bytes_in_array_element_order(compiler: str, statistics: str, tmp_path: Path) -> None:
    (thread,) = run_of(compiled("every.f90", compiler), tmp_path, SP_STATISTICS=statistics).threads
    found = {event.site: event for event in events(thread) if event.kind == kinds.DIGEST}
    assert set(found) == set(_arrays())
    for site, (type, array) in _arrays().items():
        event, digest = found[site], xxhash.xxh3_128_intdigest(array.tobytes(order="F"))
        assert (event.type, event.words[0]) == (type, array.size), site
        assert event.words[1] | event.words[2] << 64 == digest, site
        counted = statistics != "" and type <= kinds.LOGICAL8
        assert event.extra == 2 * counted and len(event.words) == (8 if counted else 3), site
        if counted and array.size:
            size = np.abs(array) if type >= kinds.COMPLEX4 else array.astype(float)
            told = struct.unpack("<5d", struct.pack("<5Q", *event.words[3:]))
            places = np.arange(1, array.size + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
            placed = ((places >> np.uint64(11)) * 2.0**-53 * size.ravel(order="F")).mean()
            expected = size.min(), size.max(), size.mean(), np.sqrt((size**2).mean()), placed
            assert told == pytest.approx(expected, rel=1e-14), site
        elif counted:
            assert all(np.isnan(struct.unpack("<5d", struct.pack("<5Q", *event.words[3:]))))


@FORTRAN
def test_a_team_of_four_in_fortran_records_each_iteration_once(compiler: str, tmp_path: Path) -> None:
    run = run_of(compiled("team.f90", compiler, "-fopenmp"), tmp_path)
    every = [event for thread in run.threads for event in events(thread)]
    assert len(run.threads) == 4
    assert Counter(event.words for event in every if event.site == 3) == Counter((i,) for i in range(1, 41))
    assert sorted(event.value for event in every if event.site == 4) == [i * 0.5 for i in range(1, 41)]
    assert sorted(event.extra for event in every if event.kind == kinds.ENTER) == [0, 1, 2, 3]
    for thread in run.threads:  # of a thread, the write comes after its iteration
        found = [event for event in events(thread) if event.site in (3, 4)]
        assert [event.words[0] * 0.5 for event in found[::2]] == [event.value for event in found[1::2]]
    site = run.sites.by_number[1]
    assert site[:6] == (1, "region", "the team", "team.f90", 9, 24)


def test_numbers_of_sixteen_bytes_are_kept(tmp_path: Path) -> None:
    (thread,) = run_of(compiled("quad.f90", "gfortran"), tmp_path).threads
    found = events(thread)
    assert [event.value for event in found if event.kind == kinds.WRITE] == [1.25, 1.25 - 3j, 1.25, 1.25 - 3j]
    assert [event.type for event in found] == [7, 10, 7, 10, 7, 7]
    quads = b"".join(struct.pack("<QQ", 0, high) for high in (0x3FFF4 << 44, 0xC0008 << 44))
    ten = b"".join(struct.pack("<QQ", low, high) for low, high in ((0xA0 << 56, 0x3FFF), (0xC0 << 56, 0xC000)))
    for event, raw in zip(found[-2:], (quads, ten), strict=True):
        assert event.words[1] | event.words[2] << 64 == xxhash.xxh3_128_intdigest(raw)


def test_the_module_of_fortran_is_what_the_script_makes() -> None:
    assert interface.TARGET.read_text("utf-8") == interface.text()


def test_the_header_has_the_numbers_of_kinds() -> None:
    """In the order of the enumerations."""
    text = interface.TARGET.with_name("sp_trace.h").read_text("utf-8")
    listed = (
        text[text.index("SP_KIND_REGION = 1") : text.index("SP_KIND_MORE")].replace("= 1", "").replace("SP_KIND_", "")
    )
    names = [name.strip() for name in listed.split(",") if name.strip()]
    assert [getattr(kinds, name) for name in names] == list(range(1, 27))


# What is recorded: by level and class, by visit, by edge; nested teams; noise.

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


# Programs that trap floating exceptions, or look at the flags, are not changed by the statistics of their digests.

LARGE = """\
program p
  use, intrinsic :: ieee_exceptions
  implicit none
  real(4) :: a(10)
  real(8) :: b(10)
  complex(8) :: c(10)
  logical :: raised(5)
  integer :: i
!$omp parallel do
  do i = 2, 9
    a(i) = i
    b(i) = scale(1d0, 1000)
    c(i) = scale(1d0, 1000)
  end do
  call ieee_get_flag([ieee_overflow, ieee_divide_by_zero, ieee_invalid, ieee_underflow, ieee_inexact], raised)
  print *, raised
end program p
"""


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_statistics_raise_no_exception_of_the_program(tmp_path: Path, compiler: str) -> None:
    program = compiled("traps.c", compiler)
    run = run_of(program, tmp_path, SP_LEVEL="minimal", SP_STATISTICS="1")
    assert run.about["ended"] == "exit"
    assert ran(program, tmp_path, SP_LEVEL="full", SP_STATISTICS="1").stdout == "0 0 1\n"


def test_the_statistics_are_what_they_were(tmp_path: Path) -> None:
    run = run_of(compiled("traps.c"), tmp_path, SP_LEVEL="minimal", SP_STATISTICS="1")
    digests = run.threads[0].records[run.threads[0].records["kind"] == kinds.DIGEST]
    words = run.threads[0].records["value"][2:].view("f8")
    assert len(digests) == 5 and 2.0**1000 in words and float("inf") in words


def test_a_program_with_traps_and_signalling_nans_runs_to_its_end(tmp_path: Path) -> None:
    made(tmp_path, LARGE, "-ffpe-trap=invalid,overflow,zero,underflow", "-finit-real=snan")
    for program in ("x", "x.serial"):
        done = ran(tmp_path / program, tmp_path, SP_LEVEL="full", SP_STATISTICS="1")
        assert done.stdout.split() == ["F"] * 5, done
