"""Lines of free and fixed form: what is a statement, a directive, or neither, and where each line comes from."""

from __future__ import annotations

from pathlib import Path

from safepoint.threads import lines


def read(directory: Path, text: str, name: str = "x.f90", **more: object) -> lines.Source:
    path = directory / name
    path.write_text(text)
    return lines.read(path, free=lines.is_free(path), **more)  # type: ignore[arg-type]


def texts(source: lines.Source) -> list[str]:
    return [statement.text for statement in source.statements]


def test_continuations_comments_and_strings(tmp_path: Path) -> None:
    source = read(tmp_path, "a = 1 + & ! one\n  ! two\n  & 2\nprint *, 'it''s ! no; &\n  &comment', \"b;c\" ! three\n")
    assert texts(source) == ["a = 1 +  2", "print *, 'it''s ! no; comment', \"b;c\""]
    assert [(each.first, each.last) for each in source.statements] == [(0, 2), (3, 4)]


def test_a_line_has_one_statement_at_most(tmp_path: Path) -> None:
    source = read(tmp_path, "  a = 1; b = ';' ; c = 3 ! last\nd = 4\n")
    assert texts(source) == ["a = 1", "b = ';'", "c = 3", "d = 4"]
    assert [line.line for line in source.lines] == [1, 1, 1, 2]
    assert source.lines[1].text == "  b = ';'"


def test_labels_and_directives(tmp_path: Path) -> None:
    source = read(tmp_path, "10 continue\n!$omp parallel do &\n!$omp& private(i)\n!$ x = 3\n!$sp off\n!$acc loop\n")
    assert [(each.label, each.text, each.conditional) for each in source.statements] == [
        ("10", "continue", False),
        ("", "x = 3", True),
    ]
    assert [(each.kind, each.text) for each in source.sentinels] == [("omp", "parallel do  private(i)"), ("sp", "off")]


def test_fixed_form(tmp_path: Path) -> None:
    text = (
        "C     comment\n      X = 1 +\n     &    2\n* comment\n   10 CONTINUE\nC$OMP PARALLEL DO\nC$OMP+PRIVATE(I)\n"
        "c$    Y = 2\n      Z = 'A!B' ! comment\n" + "      W = 3".ljust(72) + "SEQUENCE\n"
    )
    source = read(tmp_path, text, "x.f")
    assert [" ".join(each.split()) for each in texts(source)] == [
        "X = 1 + 2",
        "CONTINUE",
        "Y = 2",
        "Z = 'A!B'",
        "W = 3",
    ]
    assert source.statements[1].label == "10"
    assert source.statements[2].conditional
    assert [" ".join(each.text.split()) for each in source.sentinels] == ["PARALLEL DO PRIVATE(I)"]


def test_what_the_preprocessor_leaves_out(tmp_path: Path) -> None:
    text = "#ifdef _OPENMP\na = 1\n#else\na = 2\n#endif\n"
    text += "#if N > 3 && !defined(OTHER)\nb = 1\n#elif N == 2\nb = 2\n#endif\n"
    source = read(tmp_path, text, "x.F90", defines=["N=4"])
    assert [(each.text, each.conditional) for each in source.statements] == [("a = 1", True), ("b = 1", False)]
    assert len(source.lines) == 10


def test_included_files_and_markers(tmp_path: Path) -> None:
    (tmp_path / "y.inc").write_text("b = 2\n")
    source = read(tmp_path, "a = 1\ninclude 'y.inc'\ninclude 'not_there.h'\n# 30 \"other.f90\"\nc = 3\n")
    assert [(Path(line.file).name, line.line) for line in source.lines] == [
        ("x.f90", 1), ("y.inc", 1), ("x.f90", 3), ("other.f90", 30),
    ]  # fmt: skip


def test_long_statements_are_wrapped() -> None:
    long = "call something(" + ", ".join(f"argument_{k}" for k in range(30)) + ")"
    free = lines.wrap_free(long)
    assert all(len(line) <= 132 for line in free) and all(line.endswith("&") for line in free[:-1])
    fixed = lines.wrap_fixed("  10 " + long)
    assert all(len(line) <= 72 for line in fixed)
    assert fixed[0][:6] == "10    " and fixed[1][:6] == "     &"
    omp = lines.wrap_fixed("parallel private(" + ", ".join(f"v{k}" for k in range(40)) + ")", "!$omp")
    assert omp[0].startswith("!$omp ") and omp[1].startswith("!$omp&")
