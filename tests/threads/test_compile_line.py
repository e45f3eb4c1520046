"""The user's line for the compiler, taken apart: nothing is lost, and OpenMP can be left out."""

from __future__ import annotations

from pathlib import Path

import pytest

from safepoint.errors import UsageError
from safepoint.threads.compilers import family
from safepoint.threads.line import Line, parse

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
