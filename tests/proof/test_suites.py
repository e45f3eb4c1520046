"""What `safepoint check` finds in the public suites of MPI mistakes, and that it is silent on correct codes.

`make proof` runs a few of them, others with each commit; `make check-suites` all, and writes docs/check-evidence.md.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest
from testbed import suite_codes, suites
from testbed.checking import last_object
from testbed.foreign import MPICH
from testbed.suite_codes import CORRBENCH, CORRECT, FITTING, MBI, Run
from testbed.sweep import some_of

ALL = os.environ.get("SAFEPOINT_SUITES") == "all"
FEW_CORRECT = 8
SUITES = suite_codes.directory()
needs_suites = [
    pytest.mark.skipif(SUITES is None, reason="needs the public suites: SUITES=DIR names their directory"),
    pytest.mark.skipif(not MPICH.there, reason="needs mpicc.mpich"),
    pytest.mark.timeout(3600),
    pytest.mark.xdist_group("suites"),  # they are run once
]


@pytest.fixture(scope="module")
def chosen(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[suites.Outcome], float]:
    if SUITES is None or not suites.there():
        pytest.skip("needs the public suites, and safepoint check")
    runs = suite_codes.runs(SUITES)
    begin = time.monotonic()
    few = some_of(suite_codes.sample(runs, FEW_CORRECT), 6)
    found = suites.ran(runs if ALL else few, SUITES, tmp_path_factory.mktemp("suites"))
    return found, time.monotonic() - begin


class TestSuites:
    pytestmark = needs_suites

    def test_no_correct_code_raises_an_alarm(self, chosen: tuple[list[suites.Outcome], float]) -> None:
        wrong = {one.run.name: one.alarms for one in chosen[0] if one.run.label == CORRECT and one.alarms}
        assert wrong == {}

    def test_each_run_ends_with_a_report(self, chosen: tuple[list[suites.Outcome], float]) -> None:
        """Also of codes that hang, die in MPI, or are ended."""
        assert [(one.run.name, one.how) for one in chosen[0] if one.how.startswith("no report")] == []

    def test_as_much_is_found_as_the_page_says(self, chosen: tuple[list[suites.Outcome], float]) -> None:
        """docs/check-evidence.md: the numbers may only get better. Of a few codes: what is always found, is found."""
        outcomes, seconds = chosen
        then = suites.before(suites.TARGET.read_text("utf-8")) if suites.TARGET.exists() else {}
        if ALL:
            assert suites.worse(suites.counts(outcomes), then) == []
            suites.TARGET.write_text(suites.page(outcomes, seconds), "utf-8")
            return
        certain = {label for label, count in then.items() if count.found == count.of}
        labels = [(one, f"{one.run.suite} {one.run.label}") for one in outcomes if one.how == "checked"]
        assert [one.run.name for one, label in labels if label in certain and not one.found] == []


# How the suites are read, without them.

HEAD = """/* A code.
BEGIN_MBI_TESTS
  $ mpirun -np 3 ${EXE} 7
  | ERROR: TagMatching
  | The tags differ. MPI_Recv at a.c:12 and MPI_Send line 13
  $ mpirun -np 2 $zero_buffer ${EXE}
  | OK
  |
END_MBI_TESTS */
int x; /* MBIERROR1 */
/* MBIERROR MISSING: MPI_Wait(&r, &s); */
  MPI_Recv(b, 1, MPI_INT, 0, 7, MPI_COMM_WORLD, &s);
  MPI_Send(b, 1, MPI_INT, 0, 8, MPI_COMM_WORLD);
  MPI_Isend(b, 1, MPI_INT, 0, 8, MPI_COMM_WORLD, &r); /* MBIERROR2 */
"""


def test_the_head_of_a_code_says_how_it_is_run_and_what_is_wrong(tmp_path: Path) -> None:
    code = tmp_path / "a.c"
    code.write_text(HEAD)
    assert suite_codes.of_mbi(code) == [
        Run(MBI, code, "TagMatching", 3, ("7",), frozenset({12, 13, 14})),
        Run(MBI, code, CORRECT, 2),
    ]


@pytest.mark.parametrize(
    "name, label, functions",
    [
        ("pt2pt/ArgMismatch-MPIRecv-Tag-1.c", "ArgMismatch Tag", {"Recv"}),
        ("pt2pt/ArgError-MPIISend-Rank-2.c", "ArgError Rank", {"Isend"}),
        ("usertypes/ArgError-MPITypeContiguous-Count.c", "ArgError Count", {"Type_contiguous"}),
        ("coll/ArgError-MPIGather-Dest.c", "ArgError Root", {"Gather"}),
        ("rma/ArgError-MPIWinFence-assert.c", "ArgError other", {"Win_fence"}),
        ("pt2pt/MissingCall-MPIWait.c", "MissingCall", set()),
        ("correct/coll/red4.c", CORRECT, set()),
        ("openmp/ordering/correct/a.c", CORRECT, set()),
        ("openmp/ordering/two_collectives_3.c", "threads", set()),
    ],
)
def test_the_name_of_a_code_says_what_is_wrong(name: str, label: str, functions: set[str]) -> None:
    assert suite_codes.of_corrbench(Path(name)) == [
        Run("CorrBench", Path(name), label, 2, functions=frozenset(functions))
    ]


def test_each_template_that_fits_a_label_is_shipped() -> None:
    named = {name for labels in FITTING.values() for fitting in labels.values() for name in fitting}
    assert named - {path.stem for path in suites.TEMPLATES.glob("*.tpl")} == {suite_codes.DEADLOCK}


def situation(template: str, *calls: tuple[str, int], kind: str = "error") -> suites.Situation:
    return suites.Situation(template, kind, tuple(suites.Call(*call) for call in calls), frozenset())


TAG = Run(MBI, Path("t.c"), "TagMatching", 2, (), frozenset({14, 15}))
RANK = Run(CORRBENCH, Path("r.c"), "ArgError Rank", 2, functions=frozenset({"Isend"}))


@pytest.mark.parametrize(
    "run, reported, found",
    [
        (TAG, situation("send-without-receive", ("Send", 15)), True),
        (TAG, situation("send-without-receive", ("Send", 16)), False),
        (TAG, situation("truncation", ("Send", 15)), False),
        (RANK, situation("bad-rank", ("Isend", 99)), True),
        (RANK, situation("bad-rank", ("Send", 99)), False),
        (RANK, situation("negative-count", ("Isend", 99)), False),
    ],
)
def test_found_is_what_fits_the_label_at_its_line(run: Run, reported: suites.Situation, found: bool) -> None:
    assert suites.Outcome(run, "checked", (reported,)).found is found


def test_an_alarm_of_a_correct_code_is_an_error_that_is_not_real() -> None:
    right = Run(MBI, Path("a.c"), CORRECT, 2)
    name, (real, _) = next(iter(suites.REAL.items()))
    warned, wrong = situation("any-source", kind="note"), situation(min(real))
    assert suites.Outcome(right, "checked", (warned,)).alarms == []
    assert suites.Outcome(right, "checked", (warned, wrong)).alarms == [min(real)]
    known = right._replace(path=Path(f"{name}.c"))
    assert suites.Outcome(known, "checked", (wrong, situation("type-not-freed"))).alarms == ["type-not-freed"]


def test_the_report_is_found_behind_what_the_program_prints() -> None:
    call = {"function": "Isend", "rank": 1, "file": "halo.c", "line": 41}
    place = {"calls": [call, {"not_called": ["Wait"], "ranks": [1]}], "ranks": [1], "count": 2}
    one = {"template": "a", "kind": "error", "places": [place]}
    text = json.dumps({"situations": [one], "hang": None})
    found = last_object("Hello {\n{} \n" + text + "\n")
    assert found is not None
    assert suites.situations(found) == (
        suites.Situation("a", "error", (suites.Call("Isend", 41),), frozenset({"Wait"})),
    )
    assert last_object("Hello {\n{}\n") is None


def test_the_page_says_what_the_next_run_must_reach() -> None:
    """Less is told; more, and another number of codes, is not."""
    outcomes = [
        suites.Outcome(TAG, "checked", (situation("send-without-receive", ("Send", 15)),)),
        suites.Outcome(TAG, "checked"),
        suites.Outcome(TAG, "does not compile: no header"),
    ]
    then = suites.before(suites.page(outcomes, 60))
    assert then == {"MBI TagMatching": (1, 2)} == suites.counts(outcomes)
    assert suites.worse({"MBI TagMatching": suites.Count(0, 2)}, then) == ["MBI TagMatching: 0 of 2, it was 1"]
    assert suites.worse({"MBI TagMatching": suites.Count(2, 2), "MBI RootMatching": suites.Count(0, 1)}, then) == []
    assert suites.worse({"MBI TagMatching": suites.Count(0, 3)}, then) == []
