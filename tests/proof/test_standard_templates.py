"""Each template that is shipped finds the mistake that was planted for it, at its lines, and is silent without it.

Design, section 10. In C a program for each (testbed/c/check), in Fortran and mpi4py for some; MPICH and Open MPI.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from launcher import mpiexec
from testbed import suites
from testbed.checking import report, safepoint
from testbed.foreign import OPEN_MPI, SOURCES, Mpi, each_mpi, needs, program
from testbed.paths import TESTBED
from testbed.sweep import some_of

from safepoint.check import follow, language, outcome

PLANTED = SOURCES / "check"
FORTRAN = PLANTED / "check_calls.f90"
PYTHON = TESTBED / "planted.py"
TEMPLATES = language.load((str(suites.TEMPLATES),))
OF_SAFEPOINT = "hide-not-by-all", "hide-with-open-request"  # no C program has these mistakes without the library
IN_C = sorted(path.stem for path in PLANTED.glob("*.c"))
IN_BOTH = {FORTRAN: re.compile(r"! ([a-z-]+)((?: F\d+)+)$"), PYTHON: re.compile(r"# ([a-z-]+)((?: F\d+)+)$")}

# What else is wrong with a program, as a consequence of the mistake or of the way it ends.
# MPI ends the other process too, perhaps before it has called the same.
ENDED = {
    name: {"collective-not-by-all"} for name in ("bad-root", "negative-root", "null-comm", "null-datatype", "null-op")
}
BESIDE = {
    **ENDED,
    "request-reused": {"request-not-completed"},
    "type-not-committed": {"error-returned"},
    "truncation": {"error-returned"},
    "fence-in-lock": {"error-returned"},
    "error-returned": {"bad-rank", "truncation"},
    "rma-outside-epoch": {"rma-not-completed"},
    "negative-tag-received": {"receive-without-send", "send-without-receive"},
}


def marked(source: Path) -> dict[str, dict[str, set[int]]]:
    """By template and function: the lines that must be reported."""
    found: dict[str, dict[str, set[int]]] = defaultdict(lambda: defaultdict(set))
    for number, line in enumerate(source.read_text("utf-8").splitlines(), 1):
        if source in IN_BOTH:
            names = IN_BOTH[source].search(line)
            template, columns = (names[1], names[2].split()) if names else ("", [])
        else:
            marks = re.search(r"/\* ((?:F\d+ ?)+)\*/", line)
            template, columns = source.stem, marks[1].split() if marks else []
        for column in columns:
            found[template][column].add(number)
    return found


def checked(work: Path, command: list[str], hang: int = 60) -> dict[str, Any]:
    """The report on a program, after the same was found in its trace."""
    shutil.rmtree(work / "run.trace", ignore_errors=True)
    words = "--json", "--hang", hang, "-t", suites.TEMPLATES, "-o", "run.trace", "--", *command
    # Open MPI 4.1 makes no window on one node by itself.
    found = report(safepoint(work, "check", *words, OMPI_MCA_osc="pt2pt").stdout)
    follower, later = follow.afterwards(work / "run.trace", TEMPLATES)[:2]
    again = outcome.Outcome(TEMPLATES, follower, later).as_json()
    assert json.loads(json.dumps(again["situations"])) == found["situations"]
    return found


def reported(report: dict[str, Any], template: str) -> dict[str, set[int]]:
    """By function of the template: the lines of all its situations."""
    found: dict[str, set[int]] = defaultdict(set)
    for one in report["situations"]:
        for situation in one["places"] if one["template"] == template else ():
            for call in situation["calls"]:
                if "line" in call:
                    found[call["column"]].add(call["line"])
    return found


def judged(work: Path, command: list[str], source: Path, template: str) -> None:
    """Without the mistake: silence, but for notes. With it: its lines, and no error but what follows from it."""
    right = checked(work, [*command, "good"])["situations"]
    assert [one for one in right if one["kind"] != "note" or one["template"] == template] == []
    report, lines = checked(work, command, hang=2), marked(source)[template]
    if report["hang"] and template == "epoch-not-completed":  # with MPICH the other rank never posts, and it waits here
        assert all(f"{template}.c:{line}" in report["hang"]["text"] for there in lines.values() for line in there)
        return
    found = reported(report, template)
    assert {column: found.get(column, set()) & there for column, there in lines.items()} == lines, report
    assert not any(found[column] - there for column, there in lines.items()), report
    wrong = {one["template"] for one in report["situations"] if one["kind"] == "error"}
    assert report["hang"] or wrong - {template} <= BESIDE.get(template, set()), report


@needs("mpicc.mpich")
@each_mpi
@pytest.mark.parametrize("template", some_of(IN_C, 4))
def test_a_mistake_of_c_is_found_at_its_lines(template: str, mpi: Mpi, tmp_path: Path) -> None:
    if template == "large-tag" and mpi == OPEN_MPI:
        pytest.skip("every tag is allowed in Open MPI")
    exe = program(f"check/{template}.c", mpi, "-g", "-O0")
    judged(tmp_path, mpi.started(2, exe), PLANTED / f"{template}.c", template)


@each_mpi
@pytest.mark.parametrize("template", some_of(sorted(marked(FORTRAN)), 1))
def test_a_mistake_of_fortran_is_found_at_its_lines(template: str, mpi: Mpi, tmp_path: Path) -> None:
    if template == "request-reused" and mpi == OPEN_MPI:
        pytest.skip("two sends that are complete at once have one request, and its binding passes a copy of that on")
    exe = program("check/check_calls.f90", mpi, "-g", "-O0")
    judged(tmp_path, mpi.started(2, exe, template), FORTRAN, template)


@pytest.mark.parametrize("template", some_of(sorted(marked(PYTHON)), 1))
def test_a_mistake_of_mpi4py_is_found_at_its_lines(template: str, tmp_path: Path) -> None:
    judged(tmp_path, [mpiexec(), "-n", "2", sys.executable, str(PYTHON), template], PYTHON, template)


def test_what_right_programs_do_raises_no_alarm(tmp_path: Path) -> None:
    report = checked(tmp_path, [mpiexec(), "-n", "2", sys.executable, str(TESTBED / "habits.py")])
    assert [one for one in report["situations"] if one["kind"] != "note"] == []
    assert (report["hang"], report["code"]) == (None, 0)


# Without running anything.


def test_each_template_has_a_program_with_its_mistake() -> None:
    assert set(IN_C) | {*OF_SAFEPOINT} == set(language.shipped())


@pytest.mark.parametrize(
    "source", [*(PLANTED / f"{name}.c" for name in IN_C), FORTRAN, PYTHON], ids=lambda path: path.name
)
def test_each_program_marks_all_functions_of_its_template_that_are_called(source: Path) -> None:
    """Those of `Finalize` are not in the program's own lines."""
    for template, lines in marked(source).items():
        functions = language.read(language.shipped()[template]).functions
        called = {
            f"F{number}" for number, rows in functions.items() if any(not item.absent for row in rows for item in row)
        }
        ends = {
            f"F{number}"
            for number, rows in functions.items()
            if {item.text for row in rows for item in row} == {"Finalize"}
        }
        assert set(lines) == called - ends or (set(lines) == called and template == "call-after-finalize"), template


def test_the_standard_set_names_templates_that_are_there() -> None:
    assert set(language.standard()) <= set(language.shipped())
    assert len(set(language.standard())) == len(language.standard())


@pytest.mark.parametrize("name", sorted(language.shipped()))
def test_each_template_says_what_it_means_shows_it_and_what_it_cannot_see(name: str) -> None:
    text = language.read(language.shipped()[name]).text
    assert re.match(r"[A-Z].*\.\n\nFor example:\n    \S", text, re.S) and "\n\nIt cannot see " in text, text
