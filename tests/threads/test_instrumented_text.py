"""The instrumented text: bodies are the source token by token, lines are named, nothing new is warned of, and the
programs print what they printed. In a short run each with one of the programs that were written to be awkward."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest
from testbed.sweep import one_of, some_of
from testbed.threads_chain import instrumented
from testbed.threads_corpus import COMPILERS, PROGRAMS, has

from safepoint.threads import fortran, lines, structure
from safepoint.threads.sharing import constructs

# The instrumented text: bodies are the source token by token, lines are named, nothing new is warned of, and the
# programs print what they printed. In a short run each with one of the programs that were written to be awkward.

HERE = Path(__file__).parent / "written"
WRITTEN = sorted(path for path in HERE.iterdir() if path.suffix != ".h")
CORPUS = [program.path for program in PROGRAMS]
SOME = some_of([*WRITTEN, *CORPUS], 8, 20)


COMPILED = [("gfortran", path) for path in WRITTEN]
if has("flang-new-19"):
    COMPILED += [("flang-new-19", path) for path in WRITTEN if path.name != "modern.f90"]  # it cannot all of 5.0
LEVELS = "off", "minimal", "full"


def tokens(text: str) -> str:
    """Without blanks, ends of statements and continuations."""
    return " ".join(re.findall(r"\w+|[^\s;&]", text))


def bodies(path: Path) -> list[str]:
    """Of the parallel loops of a source, as they stand there; of the outermost ones."""
    source = lines.read(path, free=lines.is_free(path))
    found, last = [], -1
    for unit in structure.units(source):
        for every in (unit, *unit.inside):
            for given in constructs(every.body):
                loop = next((item for item in given.body if isinstance(item, structure.Block)), None)
                own = "do" in given.directive.construct.split() and given.directive.collapse == 1 and loop is not None
                if own and loop is not None and loop.close and given.first > last:
                    texts = [line.text for line in source.lines[loop.open.last + 1 : loop.close.first]]
                    found.append("\n".join(texts))
                    last = given.last
    return found


def cleaned(text: str) -> str:
    """Without markers."""
    return "\n".join(line for line in text.splitlines() if not re.match(r'# \d+ "', line))


@pytest.mark.parametrize("path", SOME, ids=lambda path: path.name)
def test_the_untouched_body_of_each_loop_is_the_source_token_by_token(path: Path) -> None:
    text, found = tokens(cleaned(fortran.instrument(path).text)), bodies(path)
    for body in found:
        assert tokens(body) in text, body
    assert found or path.name in ("matrix.f90", "lu.f90", "unnamed.f90")


@pytest.mark.parametrize("path", SOME, ids=lambda path: path.name)
def test_each_line_is_named_as_in_the_source(path: Path) -> None:
    """By its file and number, as a compiler counts from the markers; what is put in has the line that it belongs to."""
    file, number, inserted, seen = "", 0, 0, set[tuple[str, int]]()
    texts: dict[str, list[str]] = {}
    for line in fortran.instrument(path).text.splitlines():
        if marker := re.match(r'# (\d+) "(.*)"', line):
            number, file = int(marker[1]), marker[2]
            continue
        given = texts.setdefault(file, Path(file).read_text().splitlines())
        assert 1 <= number <= len(given) + 1
        if number <= len(given) and given[number - 1] == line:
            seen.add((file, number))
        else:
            inserted += 1
        number += 1
    rows = path.read_text().splitlines()
    missing = [rows[k] for k in range(len(rows)) if (str(path), k + 1) not in seen and not goes_on(rows[:k])]
    assert all(re.search(r"[;&]|\bif\s*\(|omp|include|^     \S", row, re.I) for row in missing), missing
    assert inserted


def goes_on(rows: list[str]) -> bool:
    """The last row that is no comment ends with a continuation."""
    return next((row.rstrip().endswith("&") for row in reversed(rows) if not re.match(r"\s*!(?!\$)", row)), False)


class Compiled(NamedTuple):
    warnings: set[tuple[int, str]]
    object: Path


def warned(text: str) -> set[tuple[int, str]]:
    """Line and message; labels and names that a second body has are not told apart."""
    found, line = set[tuple[int, str]](), 0
    for row in text.splitlines():
        if place := re.match(r".*?:(\d+)(?::\d+)?:", row):
            line = int(place[1])
        if message := re.search(r"(?:Warning|warning): (.*)", row):
            found.add((line, re.sub(r"label \d+", "label", message[1])))
    return found


def compiled(compiler: str, path: Path, directory: Path, name: str, flags: list[str]) -> Compiled:
    """An object; modules go to a directory of their own."""
    place = directory / name
    place.mkdir()
    where = ["-J", str(place), "-Wall", "-Wextra"] if compiler == "gfortran" else ["-module-dir", str(place)]
    command = [compiler, "-O1", *where, *flags, "-I", str(HERE), "-c", str(path), "-o", str(place / "x.o")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return Compiled(warned(done.stderr), place / "x.o")


def printed(program: Path, level: str, directory: Path) -> str:
    trace = str(directory / f"{program.name}-{level}")
    env = {**os.environ, "OMP_NUM_THREADS": "4", "SP_LEVEL": level, "SP_DIR": trace}
    done = subprocess.run([str(program)], capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("openmp", [True, False], ids=["openmp", "serial"])
@pytest.mark.parametrize(("compiler", "path"), one_of(COMPILED), ids=lambda value: getattr(value, "name", value))
def test_it_warns_of_nothing_new_and_prints_the_same(compiler: str, path: Path, openmp: bool, tmp_path: Path) -> None:
    from safepoint.threads import library

    runtime = library.library(compiler)
    text = tmp_path / path.name
    text.write_text(fortran.instrument(path).text)
    flags = ["-fopenmp"] if openmp else []
    plain = compiled(compiler, path, tmp_path, "plain", flags)
    made = compiled(compiler, text, tmp_path, "made", [*flags, f"-I{runtime.include}"])
    assert made.warnings - plain.warnings == set()
    more = [str(runtime.archive), *runtime.flags]
    for given, libraries in ((plain, []), (made, more)):
        command = [compiler, *COMPILERS[compiler], str(given.object), *libraries, "-o", str(given.object.parent / "x")]
        subprocess.run(command, check=True, capture_output=True)
    wanted = printed(plain.object.parent / "x", "off", tmp_path)
    for level in LEVELS:
        assert printed(made.object.parent / "x", level, tmp_path) == wanted, level


@pytest.mark.parametrize("compiler", [name for name in ("gfortran", "flang-new-19") if has(name)])
@pytest.mark.parametrize("suffix", [".f90", ".f"])
def test_compilers_name_the_line_of_the_source(compiler: str, suffix: str, tmp_path: Path) -> None:
    from safepoint.threads import library

    path = tmp_path / f"wrong{suffix}"
    rows = ["program wrong", "implicit none", "integer i", "real a(5)", "!$omp parallel do", "do i = 1, 5", "a(i) = i",
            "a(i) = b + 1", "end do", "end"]  # fmt: skip
    path.write_text("\n".join(row if row[0] == "!" else f"      {row}" for row in rows) + "\n")
    text = tmp_path / f"text{suffix}"
    text.write_text(fortran.instrument(path).text)
    include = library.library(compiler).include
    command = [compiler, "-fopenmp", f"-I{include}", "-c", str(text), "-o", str(tmp_path / "x.o")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode != 0
    assert f"wrong{suffix}:8:" in done.stderr


SOURCE = """\
program p
  implicit none
  integer :: i, idx(6), two(2, 2)
  real(8) :: a(6, 6), s
  i = 2
  {}
end program p
"""


def test_elements_that_a_vector_names_are_digested(tmp_path: Path) -> None:
    """What a vector of subscripts names is an array, also where the vector is a section of another array."""
    for left in ("a(idx(1:3), i)", "a(idx, i)", "a(idx(two(1, :)), 1)", "a(idx(idx(2:)), i)", "a(2 * idx(:i), 1)",
                 "a(two(:, 2), sum(idx))"):  # fmt: skip
        made = instrumented(tmp_path, SOURCE.format(f"{left} = 1"))
        assert not [site for site in made.sites if site.type == "variable-write" and site.name != "i"], left
        assert f"({left.replace(' ', '')})" in made.text.replace(" ", "").lower()


def test_one_element_is_a_value(tmp_path: Path) -> None:
    for left in ("a(idx(1), i)", "a(sum(idx(1:3)), i)", "a(size(idx), idx(two(1, 2)))", "a(maxval(two(:, 1)), 1)"):
        sites = [site.type for site in instrumented(tmp_path, SOURCE.format(f"{left} = 1")).sites if site.line == 6]
        assert "variable-write" in sites and "array" not in sites, left


# A loop in which a region may be opened is recorded as a whole: no name of a procedure need be where it is called.

MODULE = """\
module m
  implicit none
  type v
    real(8) :: x(10)
  contains
    procedure :: scale
    procedure :: plain
  end type
  type held
    integer :: n
  contains
    final :: ended
  end type
  interface operator(.plus.)
    module procedure add
  end interface
  interface operator(.minus.)
    module procedure less
  end interface
contains
  function add(a, b) result(c)
    type(v), intent(in) :: a, b
    type(v) :: c
    c = a
    call in_parallel(c)
  end function
  function less(a, b) result(c)
    type(v), intent(in) :: a, b
    type(v) :: c
    c%x = a%x - b%x
  end function
  subroutine scale(self)
    class(v), intent(inout) :: self
    call in_parallel(self)
  end subroutine
  subroutine plain(self)
    class(v), intent(inout) :: self
    self%x(1) = 2 * self%x(1)
  end subroutine
  subroutine in_parallel(a)
    class(v), intent(inout) :: a
    integer :: i
    !$omp parallel do
    do i = 1, 10
      a%x(i) = 2 * a%x(i)
    end do
  end subroutine
  subroutine ended(self)
    type(held), intent(inout) :: self
    type(v) :: other
    other%x = self%n
    call in_parallel(other)
  end subroutine
end module
program p
  use m
  implicit none
  type(v) :: a, b
  type(held), allocatable :: q
  integer :: k, n(3)
  a%x = 0; b%x = 1
  do k = 1, 3
    n(k) = k
    STATEMENT
  end do
end program
"""


def test_a_loop_that_may_open_a_region_has_one_body(tmp_path: Path) -> None:
    """Another one has two: one that records, and one that does not."""
    for count, statements in ((1, ("a = a .plus. b", "call a%scale()", "if (allocated(q)) deallocate (q)")),
                              (2, ("a = a .minus. b", "call a%plain()"))):  # fmt: skip
        for statement in statements:
            text = instrumented(tmp_path, MODULE.replace("STATEMENT", statement)).text
            assert text.count(statement) == count, statement
