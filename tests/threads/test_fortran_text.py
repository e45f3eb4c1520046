"""What is read of a program before it is built: lines, directives, and the user's line for the compiler."""

from __future__ import annotations

from pathlib import Path

import pytest

from safepoint.errors import UsageError
from safepoint.threads import directives, lines
from safepoint.threads.compilers import family
from safepoint.threads.line import Line, parse

# Lines of free and fixed form: what is a statement, a directive, or neither, and where each line comes from.


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


# Text of OpenMP directives: construct, clauses, and how a combined construct is taken apart.


DIRECTIVES = {
    "parallel do private(i,j) schedule(dynamic, 8)": "parallel do | private(i,j) | schedule(dynamic, 8)",
    "PARALLELDO NOWAIT": "parallel do | nowait",
    "end parallel do simd": "parallel do simd",
    "enddo nowait": "do | nowait",
    "critical (name)": "critical",
    "parallel if(n > f(3, 4)), num_threads(2)": "parallel | if(n > f(3, 4)) | num_threads(2)",
    "atomic capture": "atomic | capture",
    "do reduction(+ : a, b(1:n))": "do | reduction(+ : a, b(1:n))",
    "target teams distribute parallel do map(to: a)": "target teams distribute parallel do | map(to: a)",
    "something else": "",
}
CLAUSES = {
    "private(A, b)": ["a", "b"], "reduction(max: x)": ["x"], "reduction(+: a(1:n), b)": ["a", "b"],
    "reduction(.and.: flag)": ["flag"], "lastprivate(conditional: t)": ["t"], "linear(i: 2)": ["i"],
    "copyin(/gas/, x)": ["/gas/", "x"], "schedule(static, k)": [],
}  # fmt: skip
COMBINED = {  # what its team has, and what its inner construct
    "parallel do private(i) schedule(static) collapse(2)": "private(i) | do schedule(static) collapse(2)",
    "parallel do reduction(+: s) ordered if(n > 3)": "reduction(+: s) if(n > 3) | do ordered",
    "parallel sections num_threads(2) lastprivate(t)": "num_threads(2) | sections lastprivate(t)",
    "parallel do default(none) lastprivate(t) shared(a)": "default(none) shared(a) shared(t) | do lastprivate(t)",
    "parallel do firstprivate(h, t) lastprivate(t)": "firstprivate(h) | do firstprivate(t) lastprivate(t)",
    "parallel do simd safelen(4) proc_bind(close)": "proc_bind(close) | do simd safelen(4)",
    "parallel do reduction(inscan, +: s)": " | do reduction(inscan, +: s)",
    "parallel workshare private(x)": "private(x) | workshare",
    "parallel private(x)": "private(x) | ",
}


def test_a_directive_has_a_construct_and_clauses() -> None:
    for text, parts in DIRECTIVES.items():
        found = directives.parse(text)
        assert " | ".join([found.construct, *map(str, found.clauses)]) == parts, text
        assert found.end == text.startswith("end"), text


def test_a_clause_has_names() -> None:
    assert {clause: directives.parse(f"parallel do {clause}").clauses[0].names for clause in CLAUSES} == CLAUSES


def test_a_combined_construct_is_taken_apart() -> None:
    for text, parts in COMBINED.items():
        halves = directives.split(directives.parse(text))
        inner = " ".join([halves.inner, *map(str, halves.clauses)])
        assert f"{' '.join(map(str, halves.team))} | {inner}" == parts, text


# The user's line for the compiler, taken apart: nothing is lost, and OpenMP can be left out.

PLAIN = "gfortran -O2 -fopenmp heat.f90 solver.f90"


@pytest.fixture
def parsed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):  # type: ignore[no-untyped-def]
    """A line in a directory that has its files."""
    monkeypatch.chdir(tmp_path)

    def of(text: str) -> Line:
        for word in text.split():
            if not word.startswith(("-", "@", "missing")) and "." in word:
                Path(word).parent.mkdir(parents=True, exist_ok=True)
                Path(word).touch()
        return parse(text.split())

    return of


def test_a_plain_line_has_its_sources_in_order_and_its_flags(parsed) -> None:  # type: ignore[no-untyped-def]
    line = parsed(PLAIN)
    assert line.sources == ["heat.f90", "solver.f90"]
    assert line.compiling(openmp=True) == ["gfortran", "-O2", "-fopenmp"]
    assert line.compiling(openmp=False) == ["gfortran", "-O2"]


@pytest.mark.parametrize(
    ("compiler", "flag"),
    [("gfortran-12", "-fopenmp"), ("x86_64-linux-gnu-gfortran", "-fopenmp"), ("flang-new", "-fopenmp"),
     ("clang", "-fopenmp=libomp"), ("ifx", "-qopenmp"), ("ifort", "-openmp"), ("ifx", "-fiopenmp"),
     ("nvfortran", "-mp"), ("nvfortran", "-mp=multicore"), ("gcc-13", "-fopenmp")],
)  # fmt: skip
def test_the_flag_for_openmp_of_each_compiler_is_known(parsed, compiler: str, flag: str) -> None:  # type: ignore[no-untyped-def]
    line = parsed(f"{compiler} -O2 {flag} a.f90")
    assert line.openmp and line.compiling(openmp=False) == [compiler, "-O2"]
    assert flag in line.linking({"a.f90": "a.o"}, [])


def test_simd_and_warnings_that_are_errors(parsed) -> None:  # type: ignore[no-untyped-def]
    """`-fopenmp-simd` makes no threads, so it stays; what is inserted may well be warned of."""
    line = parsed("gfortran -fopenmp -fopenmp-simd -Wall -Werror a.f90")
    assert line.compiling(openmp=False) == ["gfortran", "-fopenmp-simd", "-Wall"]


def test_what_links_stays_in_its_order(parsed) -> None:  # type: ignore[no-untyped-def]
    line = parsed("gcc -fopenmp a.c lib/b.o -Llib -lfoo -Wl,-rpath,lib -lm -static-libgcc")
    assert line.linking({"a.c": "1.o", "lib/b.o": "2.o"}, ["sp.a"]) == [
        "gcc", "-fopenmp", "1.o", "2.o", "sp.a", "-Llib", "-lfoo", "-Wl,-rpath,lib", "-lm", "-static-libgcc",
    ]  # fmt: skip
    assert line.compiling(openmp=True) == ["gcc", "-fopenmp"]


@pytest.mark.parametrize(
    ("flags", "directory"), [("-Jmods", "mods"), ("-J mods", "mods"), ("-module mods", "mods"), ("-O2", "")]
)
def test_modules_go_to_a_directory_of_ours(parsed, flags: str, directory: str) -> None:  # type: ignore[no-untyped-def]
    line = parsed(f"gfortran {flags} -fopenmp a.f90")
    assert line.module_directory == directory
    assert not [word for word in line.compiling(openmp=True) if "mods" in word]


@pytest.mark.parametrize(("text", "output"), [("-o heat", "heat"), ("-oheat", "heat"), ("", None)])
def test_the_name_of_the_program(parsed, text: str, output: str | None) -> None:  # type: ignore[no-untyped-def]
    assert parsed(f"{PLAIN} {text}").output == output


def test_flags_with_a_word_of_their_own_keep_it(parsed) -> None:  # type: ignore[no-untyped-def]
    line = parsed("gfortran -I inc -D N=5 -fopenmp a.F90 -MD -MF a.d -MT x")
    assert line.compiling(openmp=False) == ["gfortran", "-I", "inc", "-D", "N=5"]


def test_words_may_be_in_a_file(parsed, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "words").write_text("-O3 'a.f90' -fopenmp")
    (tmp_path / "a.f90").touch()
    assert parsed("gfortran @words").sources == ["a.f90"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "is missing"),
        ("gfortran -fopenmp missing.f90", r"missing\.f90: No such file"),
        ("gfortran -fopenmp", "no source is on the line"),
        ("gfortran -fopenmp -E a.f90", "-E on the line"),
        ("gfortran -fopenmp -shared a.f90", "only programs and objects"),
        ("gfortran -fopenmp a.f90 -o", "-o is the last word"),
        ("gfortran -fopenmp a.f90 b.txt", r"b\.txt .* neither a flag nor a source"),
        ("gfortran -fopenmp -c a.f90 b.f90 -o x.o", "several sources"),
        ("gfortran -fopenmp @nothing", "nothing: No such file"),
        ("no-such-compiler -fopenmp a.f90", "cannot run the compiler no-such-compiler: No such file"),
        ("cat -fopenmp a.f90", "cat is no compiler that is known here"),
    ],
)
def test_a_line_that_makes_no_program_is_refused(parsed, text: str, why: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(UsageError, match=why):
        parsed(text)


def test_a_wrapper_is_what_it_says_of_its_version(tmp_path: Path) -> None:
    wrapper = tmp_path / "mpif90"
    wrapper.write_text("#!/bin/sh\necho 'GNU Fortran (Debian) 12.2.0'\n")
    wrapper.chmod(0o755)
    assert family(str(wrapper)).name == "GNU"
