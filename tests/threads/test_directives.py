"""Text of OpenMP directives: construct, clauses, and how a combined construct is taken apart."""

from __future__ import annotations

import pytest

from safepoint.threads import directives


@pytest.mark.parametrize(
    ("text", "construct", "clauses"),
    [
        ("parallel do private(i,j) schedule(dynamic, 8)", "parallel do", ["private(i,j)", "schedule(dynamic, 8)"]),
        ("PARALLELDO NOWAIT", "parallel do", ["nowait"]),
        ("end parallel do simd", "parallel do simd", []),
        ("enddo nowait", "do", ["nowait"]),
        ("critical (name)", "critical", []),
        ("parallel if(n > f(3, 4)), num_threads(2)", "parallel", ["if(n > f(3, 4))", "num_threads(2)"]),
        ("atomic capture", "atomic", ["capture"]),
        ("do reduction(+ : a, b(1:n))", "do", ["reduction(+ : a, b(1:n))"]),
        ("target teams distribute parallel do map(to: a)", "target teams distribute parallel do", ["map(to: a)"]),
        ("something else", "", []),
    ],
)
def test_a_directive_has_a_construct_and_clauses(text: str, construct: str, clauses: list[str]) -> None:
    found = directives.parse(text)
    assert (found.construct, [str(clause) for clause in found.clauses]) == (construct, clauses)
    assert found.end == text.startswith("end")


@pytest.mark.parametrize(
    ("clause", "names"),
    [
        ("private(A, b)", ["a", "b"]),
        ("reduction(max: x)", ["x"]),
        ("reduction(+: a(1:n), b)", ["a", "b"]),
        ("reduction(.and.: flag)", ["flag"]),
        ("lastprivate(conditional: t)", ["t"]),
        ("linear(i: 2)", ["i"]),
        ("copyin(/gas/, x)", ["/gas/", "x"]),
        ("schedule(static, k)", []),
    ],
)
def test_a_clause_has_names(clause: str, names: list[str]) -> None:
    assert directives.parse(f"parallel do {clause}").clauses[0].names == names


@pytest.mark.parametrize(
    ("text", "team", "inner"),
    [
        ("parallel do private(i) schedule(static) collapse(2)", "private(i)", "do schedule(static) collapse(2)"),
        ("parallel do reduction(+: s) ordered if(n > 3)", "reduction(+: s) if(n > 3)", "do ordered"),
        ("parallel sections num_threads(2) lastprivate(t)", "num_threads(2)", "sections lastprivate(t)"),
        (
            "parallel do default(none) lastprivate(t) shared(a)",
            "default(none) shared(a) shared(t)",
            "do lastprivate(t)",
        ),
        ("parallel do firstprivate(h, t) lastprivate(t)", "firstprivate(h)", "do firstprivate(t) lastprivate(t)"),
        ("parallel do simd safelen(4) proc_bind(close)", "proc_bind(close)", "do simd safelen(4)"),
        ("parallel do reduction(inscan, +: s)", "", "do reduction(inscan, +: s)"),
        ("parallel workshare private(x)", "private(x)", "workshare"),
        ("parallel private(x)", "private(x)", ""),
    ],
)
def test_a_combined_construct_is_taken_apart(text: str, team: str, inner: str) -> None:
    halves = directives.split(directives.parse(text))
    assert " ".join(map(str, halves.team)) == team
    assert " ".join([halves.inner, *map(str, halves.clauses)]) == inner
