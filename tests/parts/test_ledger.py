"""The ledger: what `watch` writes, what survives, and how two are compared without keeping them in memory."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xxhash
from testbed.ledgers import saved, written

import safepoint
from safepoint.errors import UsageError
from safepoint.ledger import contents
from safepoint.ledger.compare import Rules, compare
from safepoint.ledger.digest import digest
from safepoint.ledger.sides import Side


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("SAFEPOINT_LEDGER", raising=False)
    monkeypatch.delenv("SAFEPOINT_EDGES", raising=False)
    directory = tmp_path / "work"
    directory.mkdir()
    (directory / ".safepoint").write_text("u.dat\n")
    return directory


def lines(work: Path, event: str = "") -> list[dict[str, Any]]:
    text = (work / ".safepoint.d/rank-00000/log.jsonl").read_text()
    found = [json.loads(line) for line in text.splitlines()]
    return [line for line in found if not event or line["event"] == event]


def session_at(work: Path, level: str, monkeypatch: pytest.MonkeyPatch) -> safepoint.Session:
    monkeypatch.setenv("SAFEPOINT_LEDGER", level)
    session = safepoint.Session(work)
    session.restore()
    return session


def test_every_set_is_in_the_ledger_with_its_files_and_the_place_of_its_hide(work: Path) -> None:
    session = safepoint.Session(work)
    session.restore()
    (work / "u.dat").write_bytes(b"12345")
    session.hide(7, wait=True)
    place = f"{Path(__file__)}:{here() - 1}"
    (saved,) = lines(work, "saved")
    assert saved["sums"] == [["u.dat", 5, xxhash.xxh3_128_hexdigest(b"12345")]]
    assert (saved["step"], saved["at"]) == (7, place)
    session.close()


def here() -> int:
    import sys

    return sys._getframe(1).f_lineno


def test_level_off_tells_nothing_of_contents(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    session = session_at(work, "off", monkeypatch)
    (work / "u.dat").write_bytes(b"1")
    session.hide(0, wait=True)
    session.watch(0, u=np.zeros(3), what=object())
    assert "sums" not in lines(work, "saved")[0] and not lines(work, "watch")
    session.close()


def test_watched_values_are_written_at_once_with_type_shape_and_checksum(
    work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = session_at(work, "full", monkeypatch)
    u = np.arange(6.0).reshape(2, 3)
    session.watch(3, u=u, n=5, x=0.5, flag=True, z=1 + 2j, name="a")
    (line,) = lines(work, "watch")
    values = line["values"]
    assert line["step"] == 3 and line["at"].startswith(f"{__file__}:")
    assert values["u"][:2] == ["float64", [2, 3]] and values["u"][3:] == [0.0, 5.0, 2.5, 55**0.5]
    assert values["n"][0] == "int" and values["x"][3:] == [0.5] * 4 and values["flag"][0] == "bool"
    session.close()


@pytest.mark.parametrize("change", [lambda u: u.T.copy().T, lambda u: np.asfortranarray(u), lambda u: u.astype(">f8")])
def test_a_digest_is_that_of_the_values_wherever_they_lie(change: Any) -> None:
    u = np.random.default_rng(1).standard_normal((300, 700))
    assert digest("u", change(u), full=False)[1:] == digest("u", u, full=False)[1:]


def test_a_digest_is_not_blind_to_order_sign_type_or_shape() -> None:
    u = np.array([1.0, 2.0, 3.0, 4.0])
    numpy_tiny = np.array([0, 0, 0, 4e-15])
    others = [u[::-1], -u, u.astype("f4"), u.reshape(2, 2), u + numpy_tiny]
    rows = [digest("u", other, full=False) for other in (u, *others)]
    assert len({json.dumps(row) for row in rows}) == len(rows)


@pytest.mark.parametrize("value", [object(), np.array([object()]), {"a": 1}])
def test_what_is_no_value_is_refused(work: Path, monkeypatch: pytest.MonkeyPatch, value: Any) -> None:
    session = session_at(work, "modify", monkeypatch)
    with pytest.raises(UsageError, match="watch: u"):
        session.watch(0, u=value)
    session.close()


def test_only_the_edges_of_each_life_are_noted(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAFEPOINT_EDGES", "2")
    session = session_at(work, "modify", monkeypatch)
    for step in range(10):
        session.watch(step, u=step)
        session.watch(step, v=step)
    assert [line["step"] for line in lines(work, "watch")] == [0, 0, 1, 1]
    session.close()
    assert [line["step"] for line in lines(work, "watch")] == [0, 0, 1, 1, 8, 8, 9, 9]


@pytest.mark.parametrize(("name", "text"), [("LEDGER", "loud"), ("EDGES", "-1")])
def test_a_wrong_variable_of_the_environment_is_an_error(
    work: Path, monkeypatch: pytest.MonkeyPatch, name: str, text: str
) -> None:
    monkeypatch.setenv(f"SAFEPOINT_{name}", text)
    with pytest.raises(UsageError, match=f"SAFEPOINT_{name}={text}"):
        safepoint.Session(work)
    assert not (work / ".safepoint.d/rank-00000/set-00000001").exists()


def test_a_torn_last_line_is_closed_by_the_next_life(work: Path) -> None:
    safepoint.Session(work).close()
    log = work / ".safepoint.d/rank-00000/log.jsonl"
    log.write_bytes(log.read_bytes() + b'{"time": 1, "eve')
    session = safepoint.Session(work)
    session.restore()
    session.close()
    rows = log.read_bytes().splitlines()
    assert b'{"time": 1, "eve' in rows and json.loads(rows[-1])["event"] == "ended"


def test_keep_all_keeps_every_set_also_after_finish(work: Path) -> None:
    (work / ".safepoint").write_text("u.dat\nkeep = all\n")
    with safepoint.Session(work) as session:
        session.restore()
        for step in range(5):
            (work / "u.dat").write_text(str(step))
            session.hide(step, wait=True)
        (work / "u.dat").write_text("end")
    kept = sorted(path.name for path in (work / ".safepoint.d/rank-00000").glob("set-*/record.json"))
    assert len(kept) == 5
    with safepoint.Session(work) as session:
        found = session.restore()
        assert found and found.finished
        session.close()
    assert (work / "u.dat").read_text() == "end"


def restored(number: int, step: int | None) -> dict[str, Any]:
    return {"event": "restored", "set": number, "step": step}


def test_a_step_that_a_restart_repeats_counts_and_what_was_given_up_does_not(tmp_path: Path) -> None:
    a = written(tmp_path / "a", [saved(n + 1, n, u=n) for n in range(6)])
    b = written(
        tmp_path / "b",
        [
            saved(1, 0, u=0), saved(2, 1, u=1), saved(3, 2, u="wrong, and given up"), restored(2, 1),
            saved(4, 1, u=1), saved(5, 2, u=2), saved(6, 3, u=3), restored(6, 3), saved(7, 3, u=3),
            saved(8, 4, u="wrong"),
        ],
    )  # fmt: skip
    found = compare(a, b)
    assert [(item.step, item.name) for item in found.first] == [(4, "u")]
    assert found.first[0].since == (2, 6, 3) and (found.steps, found.before, found.only) == (5, 4, [1, 0])


def test_a_repeated_step_that_is_not_the_same_is_found(tmp_path: Path) -> None:
    a = written(tmp_path / "a", [saved(n + 1, n, u=n) for n in range(3)])
    b = written(
        tmp_path / "b", [saved(1, 0, u=0), saved(2, 1, u=1), restored(2, 1), saved(3, 1, u=2), saved(4, 2, u=2)]
    )
    found = compare(a, b)
    assert [(item.step, item.name) for item in found.first] == [(1, "u")]


@pytest.mark.parametrize("seed", range(3))
def test_steps_are_matched_by_number_not_by_order(tmp_path: Path, seed: int) -> None:
    rows = [
        {"event": "watch", "step": n, "at": "s.py:1", "values": {"u": ["int", [], f"{n:032x}"]}} for n in range(3000)
    ]
    mixed = rows.copy()
    rng = random.Random(seed)
    for start in range(0, len(mixed), 20):
        part = mixed[start : start + 20]
        rng.shuffle(part)
        mixed[start : start + 20] = part
    found = compare(written(tmp_path / "a", rows), written(tmp_path / "b", mixed))
    assert not found.differs and (found.steps, found.only) == (3000, [0, 0])
    mixed[1500] = {**mixed[1500], "values": {"u": ["int", [], "f" * 32]}}
    found = compare(Side(str(tmp_path / "a")), written(tmp_path / "c", mixed))
    assert [item.step for item in found.first] == [mixed[1500]["step"]]


def test_sets_without_steps_are_matched_by_their_order_and_a_repeated_one_is_known(tmp_path: Path) -> None:
    a = written(tmp_path / "a", [saved(n + 1, None, u=n) for n in range(6)])
    b = written(
        tmp_path / "b",
        [
            *(saved(n + 1, None, u=n) for n in range(3)),
            restored(3, None),
            *(saved(n + 2, None, u=n) for n in range(2, 6)),
        ],
    )
    found = compare(a, b)
    assert not found.differs and found.steps == 6


def test_excluded_and_tolerated_values_do_not_count(tmp_path: Path) -> None:
    def row(x: float, digest: str) -> dict[str, Any]:
        return {"event": "watch", "step": 1, "at": "s.py:1", "values": {"sum": ["float64", [], digest, x, x, x, x]}}

    a, b = written(tmp_path / "a", [row(1.0, "a" * 32)]), written(tmp_path / "b", [row(1.0 + 1e-12, "b" * 32)])
    assert compare(a, b).differs
    assert not compare(a, b, Rules(exclude=("su*",))).differs
    assert not compare(a, b, Rules(tolerances=(("sum", 1e-10, 0.0),))).differs
    assert compare(a, b, Rules(tolerances=(("sum", 1e-14, 0.0),))).differs
    assert compare(a, b, Rules(tolerances=(("other", 1e-3, 0.0),))).differs


def test_a_new_history_after_the_end_is_what_counts(tmp_path: Path) -> None:
    a = written(tmp_path / "a", [saved(1, 0, u=0), saved(2, 1, u=1)])
    end = {"event": "restored", "finished": True, "set": 9, "step": 1}
    b = written(
        tmp_path / "b", [saved(1, 0, u="old"), saved(2, 1, u="old"), end, saved(10, 0, u=0), saved(11, 1, u=1), end]
    )
    assert not compare(a, b).differs


def test_torn_and_foreign_lines_are_passed_over(tmp_path: Path) -> None:
    a = written(tmp_path / "a", [saved(1, 0, u=0)])
    written(tmp_path / "b", [saved(1, 0, u=0), saved(2, 1, u=1)])
    log = tmp_path / "b/log.jsonl"
    text = log.read_text()
    log.write_text(text[:-20] + '\nnonsense "saved"\n{"event": "saved"}\n[1, "saved"]\n')
    found = compare(a, Side(str(tmp_path / "b")))
    assert (found.steps, found.differs) == (1, False)


def test_ranks_that_have_no_files_have_a_ledger_too(work: Path) -> None:
    """See testbed/mpi_cases.py; here only that it is found, and is not foreign."""
    session = safepoint.Session(work)
    session.close()
    apart = work / ".safepoint.d/log-00002.jsonl"
    apart.write_text('{"time": 1.0, "event": "watch", "step": 1, "at": "", "values": {"u": ["int", [], "0"]}}\n')
    assert sorted(Side(str(work)).logs) == [0, 2]
    from safepoint.cli.look.overview import look
    from safepoint.disk import Disk

    assert not look(Disk(), str(work)).unknown
    assert os.path.exists(apart)


# What an adversary found.
def values(tmp_path: Path, name: str, **watched: Any) -> Side:
    told = {key: digest(key, value, full=True) for key, value in watched.items()}
    return written(tmp_path / name, [{"event": "watch", "step": 1, "at": "s.py:1", "values": told}])


LOOSE = Rules(tolerances=(("*", 0.1, 0.1),))


TIGHT = Rules(tolerances=(("*", 1e-300, 0.0),))


@pytest.mark.parametrize(
    ("a", "b", "rules"),
    [
        (1 + 0j, -1 + 0j, LOOSE), (2**60, 2**60 + 1, Rules()), (float("nan"), float("inf"), LOOSE),
        (10**400, 10**401, LOOSE), (np.array([1.0, np.nan]), np.array([9.0, np.nan]), LOOSE),
        (np.array([1.0, 2.0, 3.0]), np.array([3.0, 1.0, 2.0]), LOOSE), (np.arange(3.0), np.arange(3.0) * 2, TIGHT),
        (np.ma.array([1.0, 2.0], mask=[0, 1]), np.ma.array([1.0, 2.0], mask=[1, 0]), LOOSE),
    ],
)  # fmt: skip
def test_what_differs_is_not_tolerated_because_a_float_cannot_show_it(
    tmp_path: Path, a: Any, b: Any, rules: Rules
) -> None:
    assert compare(values(tmp_path, "a", u=a), values(tmp_path, "b", u=b), rules).differs


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (np.arange(3.0), np.arange(3.0).astype(">f8")),
        (np.ma.array([1.0, 2.0], mask=[0, 1]), np.ma.array([1.0, 99.0], mask=[0, 1])),
        (np.array([1.0, 0.1], "longdouble"), np.array([1.0, 0.1], "longdouble") * 1),
    ],
)
def test_what_is_the_same_has_one_digest(a: Any, b: Any) -> None:
    assert digest("u", a, full=False) == digest("u", b, full=False)


def test_large_integers_in_files_are_not_compared_as_floats(tmp_path: Path) -> None:
    for name, a, b in (("u.npy", 2**60, 2**60 + 1), ("u.txt", 2**60, 2**60 + 1), ("hash.txt", "12e45678", "13e45678")):
        paths = [tmp_path / f"{side}-{name}" for side in "ab"]
        for path, value in zip(paths, (a, b), strict=True):
            if name.endswith(".npy"):
                np.save(path, np.array([value]))
            else:
                path.write_text(f"{value}\n")
        assert not contents.compare(str(paths[0]), str(paths[1]), name).equal, name


def test_a_value_of_rank_0_is_compared_with_that_of_a_run_of_another_number_of_ranks(tmp_path: Path) -> None:
    def several(name: str, ranks: int, total: float) -> Side:
        for rank in range(ranks):
            side = tmp_path / name / f".safepoint.d/rank-{rank:05d}"
            side.mkdir(parents=True)
            told = {"total": digest("total", total, full=True), "mine": digest("m", rank, full=True)}
            row = {"time": 1.0, "event": "watch", "step": 1, "at": "s.py:1", "values": told}
            (side / "log.jsonl").write_text(json.dumps(row) + "\n")
        return Side(str(tmp_path / name))

    four = several("four", 4, 1.0)
    assert not compare(four, several("one", 1, 1.0)).differs
    assert [item.name for item in compare(four, several("other", 1, 2.0)).first] == ["total"]


@pytest.mark.parametrize("steps", [(20, 40, 60, 80), (None,) * 4])
def test_a_set_that_one_rank_was_killed_before_it_could_note_it_is_not_called_missing(
    steps: tuple[int | None, ...], tmp_path: Path
) -> None:
    """The restart completed it, and gave it back: only its line is missing. Else a missing one differs."""

    def run(name: str, rows: list[list[dict[str, Any]]]) -> Side:
        for rank, lines in enumerate(rows):
            root = tmp_path / name / f".safepoint.d/rank-{rank:05d}"
            root.mkdir(parents=True)
            (root / "log.jsonl").write_text("".join(json.dumps({"time": 1.0, **line}) + "\n" for line in lines))
        return Side(str(tmp_path / name))

    one, other = ([saved(n + 1, step, **{f"u-{rank}": n}) for n, step in enumerate(steps)] for rank in (0, 1))
    back = restored(3, steps[2])
    whole = run("whole", [one, other])
    resumed = run("resumed", [[*one[:3], back, one[3]], [*other[:2], back, other[3]]])
    assert not compare(whole, resumed).differs and not compare(resumed, whole).differs
    assert compare(whole, resumed).steps == 4
    lacking = run("lacking", [one, [*other[:2], other[3]]])
    assert steps[0] is None or compare(whole, lacking).differs


def test_steps_that_go_back_without_a_restart_are_not_called_equal(tmp_path: Path) -> None:
    rows = [
        {"event": "watch", "step": n % 2000, "at": "s.py:1", "values": {"u": ["int", [], str(n)]}} for n in range(4000)
    ]
    assert compare(written(tmp_path / "a", rows), written(tmp_path / "b", rows)).late


def test_after_the_end_what_was_only_prepared_goes_with_keep_all_too(work: Path) -> None:
    (work / ".safepoint").write_text("u.dat\nkeep = all\n")
    with safepoint.Session(work) as session:
        session.restore()
        (work / "u.dat").write_text("0")
        session.hide(0)
        (work / "u.dat").write_text("1")
    left = sorted(path.name for path in (work / ".safepoint.d/rank-00000").glob("set-*"))
    assert left == ["set-00000001"]
